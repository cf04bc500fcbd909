"""The worker's own errors: one class for each decision a caller can take.

    WorkerError              something the worker says in one line, never with a traceback
    ├── SettingsError        a setting is wrong: exit 2, each wrong one named
    ├── BrokerError          no broker, or it refuses us, and waiting does not help: exit 1
    │   ├── LoginError       wrong password, certificate or mechanism, a missing right
    │   └── TopicError       a topic is missing or unfit, and we may not make it
    └── StoppedError         the worker was asked to stop while it waited

A bad event is none of these: it is a value with a reason (``rule.event.Unreadable``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class WorkerError(Exception):
    """What went wrong and what to do about it, in one line."""

    exit_code = 1


class SettingsError(WorkerError):
    """One or more settings are wrong; ``problems`` has a line for each."""

    exit_code = 2

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep the problems, one line for each setting."""
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class BrokerError(WorkerError):
    """The cluster can't be used, and waiting would not help."""


class LoginError(BrokerError):
    """The cluster refused our credentials."""


class TopicError(BrokerError):
    """A topic is missing or unfit and only a person can mend it."""


class StoppedError(WorkerError):
    """A stop was asked for while the worker still waited for something."""
