"""What tests do to the worker's HTTP server: ask it, and read what it says."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it says
        """The body read as JSON."""
        return json.loads(self.body)


def ask(
    port: int, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """Ask the server on this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read().decode())
    finally:
        connection.close()


def try_asking(port: int, path: str) -> Answer | None:
    """Ask the server; None while there is none."""
    try:
        return ask(port, path)
    except ConnectionError:
        return None


class Metrics(dict[tuple[str, tuple[tuple[str, str], ...]], float]):
    """What ``/metrics`` says, by name and labels."""

    @classmethod
    def of(cls, port: int) -> Metrics:
        """Scrape."""
        families = text_string_to_metric_families(ask(port, "/metrics").body)
        samples = (sample for family in families for sample in family.samples)
        return cls({(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples})

    def sum(self, name: str, **labels: str) -> float:
        """Add up the samples of that name with these labels."""
        return sum(self.each(name, **labels))

    def each(self, name: str, **labels: str) -> list[float]:
        """The samples of that name with these labels."""
        return [
            value for (sample, has), value in self.items() if sample == name and labels.items() <= dict(has).items()
        ]
