"""Three throw-away brokers, for tests that lose one. Only tests need them, so they are not part of the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from worker.kafka.ports import HOST, free_ports
from worker.kafka.throwaway import ThrowawayKafka, new_cluster_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class ThrowawayCluster:
    """Several nodes, all brokers and controllers, so that one may be lost; ``options`` go to each of them."""

    def __init__(self, size: int = 3, *, properties: Mapping[str, str] | None = None, **options: Any) -> None:  # noqa: ANN401
        """Note what is wanted; nothing happens before ``start``."""
        copies, in_sync = str(min(3, size)), str(min(2, size))
        shared = {
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            **(properties or {}),
        }
        controllers = free_ports(size)
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in enumerate(controllers, start=1))
        cluster_id = new_cluster_id()
        self.nodes = tuple(
            ThrowawayKafka(
                node_id=node, controller_port=port, voters=voters, cluster_id=cluster_id, properties=shared, **options
            )
            for node, port in enumerate(controllers, start=1)
        )

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self) -> None:
        """Start all, then wait for all: none is ready before most of them are up."""
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all and remove their data; killed, for in good order the last would wait for a majority."""
        for node in self.nodes:
            node.kill()
            node.stop()

    def __enter__(self) -> Self:
        """Start them."""
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Stop them."""
        self.stop()
