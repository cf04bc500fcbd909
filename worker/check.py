"""``worker check``: is this cluster one that the worker can use? One line for each thing looked at.

Here is the order of the questions and how findings are shown; what is asked stands in ``kafka/reach.py`` and
``kafka/cluster.py``, what the answers mean in ``kafka/verdicts.py``. Later questions are only put where earlier ones
went well: without a login there are no topics to speak of.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

from worker.errors import SettingsError
from worker.kafka import cluster, reach, verdicts
from worker.kafka.retry import describe
from worker.kafka.verdicts import Finding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from worker.settings import Settings

#: No answer for so long is an answer.
_SECONDS = 60.0


def check(settings: Settings) -> list[Finding]:
    """Look at everything; never raises for what a cluster does."""
    with reach.quiet():
        return asyncio.run(_collect(settings))


def failed(findings: Iterable[Finding]) -> bool:
    """Whether the worker would fail."""
    return any(finding.level == "fail" for finding in findings)


def wrong_settings(error: SettingsError) -> list[Finding]:
    """The findings when there is nothing to go on."""
    return [Finding("fail", "settings", problem, "mend it; README.md has the table") for problem in error.problems]


def as_lines(findings: Iterable[Finding]) -> str:
    """A line for each."""
    return "".join(
        f"{level:4}  {what}: {detail}{f' — {hint}' if hint else ''}\n" for level, what, detail, hint in findings
    )


def as_json(findings: Iterable[Finding]) -> str:
    """A JSON list of the same."""
    return json.dumps([finding._asdict() for finding in findings], indent=2) + "\n"


async def _collect(settings: Settings) -> list[Finding]:
    return [finding async for finding in _findings(settings)]


async def _findings(settings: Settings) -> AsyncIterator[Finding]:
    path = f"{settings.input_topic} to {settings.output_topic} and {settings.dead_letter_topic}"
    yield Finding("ok", "settings", f"{path}, {settings.guarantee}, group {settings.group_id}")
    try:
        found, usable = await _bootstrap(settings)
    except SettingsError as error:  # files with certificates are read when a client is made
        for finding in wrong_settings(error):
            yield finding
        return
    for finding in found:
        yield finding
    if not usable:
        return
    try:
        view = await asyncio.wait_for(cluster.look(settings), _SECONDS)
    except NotImplementedError:
        yield Finding("fail", "cluster", "is older than Kafka 2.3", "use a newer one")
    except (KafkaError, TimeoutError) as error:
        yield Finding("fail", "cluster", f"went away: {describe(error)}", "look at the brokers, and check again")
    else:
        for finding in verdicts.judge(settings, view):
            yield finding


async def _bootstrap(settings: Settings) -> tuple[list[Finding], bool]:
    """Dial each address we were given, then each that the cluster names; usable if one of ours works."""
    answers = await reach.all_of(settings, settings.brokers)
    named = {node.address for answer in answers.values() if not isinstance(answer, reach.Trouble) for node in answer}
    usable = bool(named)
    found = [_broker(address, answer, usable=usable) for address, answer in answers.items()]
    if usable:
        found.append(Finding("ok", "login", _how(settings)))
    for address, answer in (await reach.all_of(settings, sorted(named - answers.keys()))).items():
        if isinstance(answer, reach.Trouble):
            detail = f"the cluster sends clients there, but {answer.detail}"
            hint = f"set advertised.listeners of that broker to what reaches it from here ({answer.hint})"
            found.append(Finding("fail", f"broker {address}", detail, hint))
        else:
            found.append(Finding("ok", f"broker {address}", "answers"))
    return found, usable and all(finding.level != "fail" for finding in found)


def _broker(address: str, answer: list[reach.Node] | reach.Trouble, *, usable: bool) -> Finding:
    what = f"broker {address}"
    if not isinstance(answer, reach.Trouble):
        return Finding("ok", what, "answers")
    layer = {"tls": f"tls {address}", "login": "login"}.get(answer.what, what)
    return Finding("warn" if usable else "fail", layer, answer.detail, answer.hint)


def _how(settings: Settings) -> str:
    protocol = settings.security_protocol
    if protocol.startswith("SASL_"):
        return f"{settings.sasl_username} by {settings.sasl_mechanism}, {protocol}"
    return f"{protocol}, {'with our certificate' if settings.ssl_cert_file else 'nobody logs in'}"
