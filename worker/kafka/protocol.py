"""Three questions of Kafka's protocol that aiokafka can't put. Only the shapes of the bytes.

Metadata v8 and DescribeGroups v3 carry *authorized operations* (KIP-430): a number with a bit for each operation that
the asker may do, which is the only way to learn of a right without using it. aiokafka speaks Metadata up to v5, and
reads DescribeGroups v3 with v2's answer.

OffsetFetch v7 can *require stable* offsets (KIP-447): see ``positions.read_commits``. aiokafka speaks it up to v3.
"""

# ruff: noqa: D101 - each class is a message of the protocol, by its own name

from __future__ import annotations

from typing import Any

from aiokafka.errors import BrokerResponseError, kafka_errors
from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

#: What a broker sends when it does not know.
UNKNOWN_OPERATIONS = -(2**31)

_OPERATIONS = {
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    10: "DescribeConfigs",
    12: "IdempotentWrite",
}


def operations(bits: int) -> frozenset[str] | None:
    """Names of the operations in an ``authorized_operations`` field; None where the broker did not say."""
    if bits == UNKNOWN_OPERATIONS:
        return None
    return frozenset(name for code, name in _OPERATIONS.items() if bits & (1 << code))


class MetadataResponse_v8(Response):  # type: ignore[misc] # noqa: N801 - aiokafka has no types; its way of naming
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8")))),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("authorized_operations", Int32),
    )


class MetadataRequest_v8(RequestStruct):  # type: ignore[misc] # noqa: N801
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = MetadataResponse_v8
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class MetadataRequest(Request[MetadataRequest_v8]):  # type: ignore[misc]
    """Ask about topics by name without making them, and what we may do with them and with the cluster."""

    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        """Name the topics."""
        self._topics = topics

    def build(self, request_struct_class: type[MetadataRequest_v8]) -> MetadataRequest_v8:
        """Fill the only version there is."""
        return request_struct_class(self._topics, False, True, True)  # noqa: FBT003 - the order of the protocol


class DescribeGroupsRequest_v3(RequestStruct):  # type: ignore[misc] # noqa: N801
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = Schema(("groups", Array(String("utf-8"))), ("include_authorized_operations", Boolean))


class DescribeGroupsRequest(Request[DescribeGroupsRequest_v3]):  # type: ignore[misc]
    """Ask who is in a group, and what we may do with it."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        """Name the group."""
        self._group = group

    def build(self, request_struct_class: type[DescribeGroupsRequest_v3]) -> DescribeGroupsRequest_v3:
        """Fill the only version there is."""
        return request_struct_class([self._group], True)  # noqa: FBT003 - the order of the protocol


class UnstableOffsetCommitError(BrokerResponseError):  # type: ignore[misc]
    """An offset is written in a transaction that is still open."""

    errno = 88
    message = "UNSTABLE_OFFSET_COMMIT"
    description = "An offset of the group is in a transaction that is still open."
    retriable = True


kafka_errors.setdefault(UnstableOffsetCommitError.errno, UnstableOffsetCommitError)


class OffsetFetchResponse_v7(Response):  # type: ignore[misc] # noqa: N801
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc] # noqa: N801
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse_v7
    SCHEMA = Schema(
        ("consumer_group", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class OffsetFetchRequest(Request[OffsetFetchRequest_v3 | OffsetFetchRequest_v7]):  # type: ignore[misc]
    """Ask for a group's offsets of one topic; ``stable`` needs Kafka 2.5, and an older one is asked without it."""

    API_KEY = 9

    def __init__(self, group: str, topic: str, partitions: list[int], *, stable: bool) -> None:
        """Name the group and what is asked for."""
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._stable = stable

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Fill the version that the broker speaks."""
        if request_struct_class is OffsetFetchRequest_v7:
            return request_struct_class(self._group, [(self._topic, self._partitions, {})], self._stable, {})
        return request_struct_class(self._group, [(self._topic, self._partitions)])


def commits(answer: Any) -> list[tuple[int, int, str, int]]:  # noqa: ANN401 - aiokafka has no types
    """Partition, offset, metadata and error code of each row of an OffsetFetch answer."""
    if isinstance(answer, OffsetFetchResponse_v7):
        rows = [row for _, rows, _ in answer.topics for row in rows]
        return [(partition, offset, metadata, code) for partition, offset, _, metadata, code, _ in rows]
    return [row for _, rows in answer.topics for row in rows]
