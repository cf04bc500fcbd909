"""A broker to be broken, with a proxy in front of one listener and a login on another."""

from __future__ import annotations

import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from chaos.proxy import Proxy
from confluent_kafka import Producer

from worker.kafka.ports import HOST, free_ports
from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

_OFFSETS, _QUEUED = "__consumer_offsets", 50_000
USER, PASSWORD = "worker", "not-a-secret"


class Broken(NamedTuple):
    """The broker, the proxy that its listener PROXIED is advertised at, and the address where ``USER`` logs in."""

    kafka: ThrowawayKafka
    proxy: Proxy
    login: str


@contextmanager
def broken(version: str) -> Iterator[Broken]:
    """Start one. The plain listener goes past the proxy, and who uses it may do anything (it is nobody's login)."""
    plain, behind, login, controller = free_ports(4)
    with Proxy(behind) as proxy:
        public = f"PLAINTEXT://{HOST}:{plain},LOGIN://{HOST}:{login}"
        properties = {
            "listeners": f"{public},PROXIED://{HOST}:{behind},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{public},PROXIED://{proxy.address}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
        }
        with ThrowawayKafka(
            version=version,
            port=plain,
            controller_port=controller,
            listeners={"PROXIED": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT"},
            properties=properties,
        ) as kafka:
            yield Broken(kafka, proxy, f"{HOST}:{login}")


def burden(bootstrap: str, group: str, commits: int = 500_000) -> None:
    """Have the coordinator of a group keep so many commits of another one: seconds to load after a restart.

    They are written into its partition of the offsets topic as it would write them; only an admin client may.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "__admin_client", "log_level": 0})
    partitions = len(producer.list_topics(_OFFSETS, 30).topics[_OFFSETS].partitions)
    value = struct.pack(">hqih4sq", 3, 0, -1, 4, b"none", int(time.time() * 1000))
    for number in range(commits):
        key = struct.pack(">hh6sh6si", 1, 6, b"burden", 6, b"burden", number % 1000)
        producer.produce(_OFFSETS, value, key, partition=_java_hash(group) % partitions)
        if number % 1000 == 0:
            producer.poll(0)
        while len(producer) > _QUEUED:
            producer.poll(0.1)
    producer.flush(60)


def _java_hash(text: str) -> int:
    """What a group's coordinator is chosen by: Java's String.hashCode, without its sign."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
