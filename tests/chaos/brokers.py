"""A broker to be broken, with a proxy in front of one listener and a login on another."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from chaos.proxy import Proxy

from worker.kafka.ports import HOST, free_ports
from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

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
