"""Faults planted in a copy of the worker: each is a line or two that a tired person might write.

The text to be replaced must be there exactly once: when the worker changes, the plant must be looked at again.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

from chaos.fleet import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path


class Change(NamedTuple):
    """One piece of text in one file, and what stands there instead."""

    file: str
    text: str
    instead: str


class Plant(NamedTuple):
    """A fault with a name."""

    name: str
    guarantee: str
    changes: tuple[Change, ...]


class StaleError(Exception):
    """The text that a plant replaces is not there (any more)."""


COMMIT_BEFORE_DELIVERY = Plant(
    "commit before delivery",
    "at-least-once",
    (
        Change(
            "kafka/at_least_once.py",
            "                    await self._writer.write(work)\n"
            "                    self._wrote(work)\n"
            "                    self._confirm()\n",
            "                    self._wrote(work)\n"
            "                    self._confirm()\n"
            "                    await self._delivery.commit()\n"
            "                    await self._writer.write(work)\n",
        ),
    ),
)

OFFSETS_OUTSIDE = Plant(
    "offsets outside the transaction",
    "exactly-once",
    (
        Change(
            "kafka/transaction.py",
            "            await self.producer.send_offsets_to_transaction(\n",
            "            await self.producer.commit_transaction()\n"
            "            await self._delivery._consumer.commit(\n",
        ),
        Change(
            "kafka/transaction.py",
            "OffsetAndMetadata(offset, self._since)}, self._settings.group_id\n"
            "            )\n"
            "            partitions = frozenset(manager.txn_partitions)\n"
            "            await self.producer.commit_transaction()\n",
            "OffsetAndMetadata(offset, self._since)}\n"
            "            )\n"
            "            partitions = frozenset(manager.txn_partitions)\n",
        ),
    ),
)

INIT_TOO_LATE = Plant(
    "init after reading the offset",
    "exactly-once",
    (
        Change(
            "kafka/transaction.py",
            "        await self.producer.start()\n"
            "        start = await self._delivery.find_start(self.tp)  # after the init, never before it\n",
            "        start = await self._delivery.find_start(self.tp)\n"
            "        await asyncio.sleep(1.5)  # the moment in which it strikes, made long\n"
            "        await self.producer.start()\n",
        ),
    ),
)

NO_FENCE = Plant(
    "an ignored fence",
    "exactly-once",
    (
        Change(
            "kafka/transaction.py",
            'f"{settings.group_id}-{tp.topic}-{tp.partition}"',
            "f\"{settings.group_id}-{tp.topic}-{tp.partition}-{id(self)}-{__import__('os').getpid()}\"",
        ),
    ),
)

ASSUMED_DONE = Plant(
    "a failed commit taken for done",
    "exactly-once",
    (
        Change(
            "kafka/transaction.py",
            "        await self._commit(next_offset)\n        self._settle(next_offset)\n",
            "        try:\n"
            "            await self._commit(next_offset)\n"
            "        except KafkaError:\n"
            "            self.producer = connection.producer(self._settings, self._transactional_id)\n"
            "            await self.producer.start()\n"
            "        self._settle(next_offset)\n",
        ),
    ),
)

SIDE_BY_SIDE = Plant(
    "the next batch not waiting for the one before",
    "at-least-once",
    (
        Change(
            "kafka/at_least_once.py",
            "                while (work := await self._next()) is not None:\n"
            "                    await self._writer.write(work)\n"
            "                    self._wrote(work)\n",
            "                while (work := await self._next()) is not None:\n"
            "                    also = await self._next(asyncio.get_running_loop().time() + 0.1)\n"
            "                    works = [work] if also is None else [work, also]\n"
            "                    await asyncio.gather(*(self._writer.write(one) for one in works))\n"
            "                    for one in works:\n"
            "                        self._wrote(one)\n",
        ),
    ),
)


def plant(fault: Plant, folder: Path) -> Path:
    """Copy the worker, change it, and return the folder to run it from."""
    shutil.copytree(REPOSITORY / "worker", folder / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, instead in fault.changes:
        path = folder / "worker" / file
        source = path.read_text(encoding="utf-8")
        if source.count(text) != 1:
            raise StaleError(f"{fault.name}: {file} has {source.count(text)} times, not once:\n{text}")
        path.write_text(source.replace(text, instead), encoding="utf-8")
    return folder
