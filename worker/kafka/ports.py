"""Ports of this machine: which are free, and whether a broker answers on one. Nothing here starts or stops anything."""

from __future__ import annotations

import os
import random
import socket
import struct
from contextlib import ExitStack

HOST = "127.0.0.1"
# Below every system's range of ports for outgoing connections: a client that hammers a dead broker's port from within
# that range can connect to itself, and the broker then never gets its port back.
_PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Pick ports nobody listens on; all are held while they are picked, so none comes twice."""
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.sample(_PORTS, len(_PORTS)):
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket())
            if is_free(probe, port):
                ports.append(port)
    return ports


def is_free(probe: socket.socket, port: int) -> bool:
    """Try to take a port with ``probe``, which holds it until it is closed."""
    if os.name == "posix":  # as Kafka does itself: a port is free although its last connections still fade away
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True


def answers(bootstrap: str) -> bool:
    """Ask ApiVersions, as every client does first: an open port alone does not make a broker."""
    host, _, port = bootstrap.rpartition(":")
    # api key 18, version 0, correlation id 7, no client id
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    return answer[4:] == struct.pack(">ih", 7, 0)  # the same correlation id, no error
