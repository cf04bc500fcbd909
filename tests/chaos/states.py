"""States in which a worker can't go on for a while, entered and left by a ``with``.

How long they last is the test's affair.

Each takes the scene and the broken broker. Within, workers may be started, stopped or left to wait.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chaos.brokers import PASSWORD, USER
from chaos.faults import LONE_FREEZE_SECONDS
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from chaos.brokers import Broken
    from chaos.scene import Scene

    State = Callable[[Scene, Broken], AbstractContextManager[None]]


@contextmanager
def healthy(_scene: Scene, _broken: Broken) -> Iterator[None]:
    """Nothing is wrong."""
    yield


@contextmanager
def broker_killed(_scene: Scene, broken: Broken) -> Iterator[None]:
    """The broker is gone without a word."""
    broken.kafka.kill()
    try:
        yield
    finally:
        broken.kafka.start()


@contextmanager
def broker_stopped(_scene: Scene, broken: Broken) -> Iterator[None]:
    """The broker has gone in good order."""
    broken.kafka.stop(keep_data=True)
    try:
        yield
    finally:
        broken.kafka.start()


@contextmanager
def broker_frozen(_scene: Scene, broken: Broken) -> Iterator[None]:
    """The broker keeps its connections and says nothing, for as long as one without another beside it may be frozen."""
    broken.kafka.pause()
    awake = threading.Timer(LONE_FREEZE_SECONDS[1], broken.kafka.resume)
    awake.start()
    try:
        yield
    finally:
        awake.cancel()
        broken.kafka.resume()


@contextmanager
def connections_stalled(_scene: Scene, broken: Broken) -> Iterator[None]:
    """Nothing passes between workers and broker; connections stay open."""
    broken.proxy.stall()
    try:
        yield
    finally:
        broken.proxy.flow()


@contextmanager
def connections_refused(_scene: Scene, broken: Broken) -> Iterator[None]:
    """Connections are cut, and new ones at once."""
    broken.proxy.cut(refuse=True)
    try:
        yield
    finally:
        broken.proxy.flow()


@contextmanager
def connections_cut(_scene: Scene, broken: Broken) -> Iterator[None]:
    """Connections are cut with answers under way; new ones are let in."""
    broken.proxy.cut()
    try:
        yield
    finally:
        broken.proxy.cut()


@contextmanager
def output_denied(scene: Scene, broken: Broken) -> Iterator[None]:
    """The right to write to the output topic is taken away."""
    admin = AdminClient({"bootstrap.servers": broken.kafka.bootstrap, "log_level": 0})
    denial = _acl(ResourceType.TOPIC, scene.output, AclOperation.WRITE, AclPermissionType.DENY)
    _done(admin.create_acls([denial]))
    try:
        yield
    finally:
        _done(
            admin.delete_acls(
                [
                    AclBindingFilter(
                        ResourceType.TOPIC,
                        scene.output,
                        ResourcePatternType.LITERAL,
                        f"User:{USER}",
                        "*",
                        AclOperation.WRITE,
                        AclPermissionType.DENY,
                    )
                ]
            )
        )


@contextmanager
def sibling_frozen(scene: Scene, _broken: Broken) -> Iterator[None]:
    """A worker is frozen while another joins: the group waits for it."""
    frozen = scene.fleet.workers[-1]
    scene.fleet.remove(frozen)
    frozen.freeze()
    scene.fleet.start()
    try:
        yield
    finally:
        frozen.thaw()
        scene.fleet.workers.append(frozen)


ALL: tuple[State, ...] = (
    healthy,
    broker_killed,
    broker_stopped,
    broker_frozen,
    connections_stalled,
    connections_refused,
    connections_cut,
    output_denied,
    sibling_frozen,
)


#: Those that need nothing but the broker and its proxy.
PASSING: tuple[State, ...] = ALL[1:7]


def settings(broken: Broken, state: State) -> dict[str, str]:
    """Which way the workers go to the broker in this state."""
    if state is not output_denied:
        return {"WORKER_BROKERS": broken.proxy.address}
    admin = AdminClient({"bootstrap.servers": broken.kafka.bootstrap, "log_level": 0})
    _done(
        admin.create_acls(
            [
                _acl(kind, "*", AclOperation.ALL, AclPermissionType.ALLOW)
                for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
            ]
        )
    )
    return {
        "WORKER_BROKERS": broken.login,
        "WORKER_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "WORKER_SASL_MECHANISM": "PLAIN",
        "WORKER_SASL_USERNAME": USER,
        "WORKER_SASL_PASSWORD": PASSWORD,
    }


def _acl(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, permission)


def _done(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(30)
