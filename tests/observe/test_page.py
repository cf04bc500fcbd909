"""The status page as text: everything on it, nothing breaking out of it."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from worker.observe import page
from worker.observe.health import Health, Partition, Stalled
from worker.observe.logs import get_logger
from worker.observe.metrics import Tally
from worker.observe.recent import KEPT, Entry, Recent
from worker.observe.status import Sample, Status, View
from worker.settings import Settings, from_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EVIL = "\"'><script>alert(1)</script>&amp;\x00\u2028<!--"


class Reader(HTMLParser):
    """The page as a browser takes it: its tags, and its text without markup."""

    def __init__(self, source: str) -> None:
        """Read it all."""
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self._silent = False
        self.feed(source)
        self.close()

    @property
    def text(self) -> str:
        """What a person reads."""
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and that its attributes are harmless."""
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.tags.append(tag)
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - HTMLParser's signature
        """What comes is for people again."""
        self._silent = False

    def handle_data(self, data: str) -> None:
        """Note what is read."""
        if not self._silent:
            self.words.append(data)


def view(**more: Any) -> View:  # noqa: ANN401 - its fields
    """A worker without anything, but for what is given."""
    return Status(from_mapping({})).view()._replace(**more)


def read(shown: View, settings: Settings | None = None, status: Status | None = None) -> Reader:
    """Render, and read."""
    settings = settings or from_mapping({})
    return Reader(page.render(shown, settings, (status or Status(settings)).metrics))


def test_waiting() -> None:
    """A worker without a broker says so, in words."""
    text = read(view()).text
    assert "NOT READY waiting for the broker" in text
    assert "HEALTHY nothing stands still" in text
    assert "Partitions None yet." in text
    assert "worker 0.1.0 · at-least-once · group text-to-message · brokers localhost:9092 · up 0 s" in text


def test_at_work() -> None:
    """Each partition with its numbers and a word for its state; what the events came to, by reason."""
    settings = from_mapping({"GUARANTEE": "exactly-once", "INSTANCE_ID": "pod-1"})
    status = Status(settings)
    status.metrics.confirmed(0, Tally(1200, {"empty": 30, "tombstone": 4}, {"invalid-json": 5}, 0), 1.0, None)
    partitions = [
        Partition(0, opened=True, confirmed=1239, readable_end=2000, log_end=2000, lag=761, in_flight=500),
        Partition(1, opened=True, confirmed=7, readable_end=7, log_end=7, lag=0),
        Partition(2, opened=False),
        Partition(3, opened=True, confirmed=5, readable_end=5, log_end=12, lag=7),
        Partition(4, opened=True, confirmed=5, readable_end=9, log_end=9, lag=4, trouble="no"),
        Partition(5, opened=True, confirmed=5, readable_end=9, log_end=9, lag=4),
        Partition(6, opened=True, confirmed=9, readable_end=9, log_end=9, lag=4),
    ]
    samples = [Sample(100.0 + 2 * n, {0: 200 * n, 1: 5}, 761) for n in range(10)]
    health = Health((Stalled(5, 4, 70.0),))
    text = read(
        view(not_ready=None, health=health, partitions=partitions, samples=samples, uptime=90_061.0), settings, status
    ).text
    assert "READY in the group and able to write UNHEALTHY partition 5 has not moved for 70 s, lag 4" in text
    assert "Events a second 100 now, highest 100 18 s ago now Lag 780 now, highest 780" in text
    assert "0 working 761 500 100 1,239 1 idle 0 0 0 7 2 opening - 0 0 -" in text
    assert "3 held by an open transaction 7 0 0 5 4 can't write 4 0 0 5 5 stalled 4 0 0 5 6 committing 4 0 0 9" in text
    assert "all 780 500 100" in text
    assert "Messages 1,200" in text
    assert "Dropped 34 empty 30 tombstone 4 Dead letters 5 invalid-json 5" in text
    assert "exactly-once · group text-to-message, instance pod-1 · brokers localhost:9092 · up 1 d 1 h" in text


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (0.04, "0.0"), (7, "7"), (7.25, "7.2"), (12.5, "12"), (1234.5, "1,234")]
)
def test_figures(value: float, expected: str) -> None:
    """Small rates have a decimal, counts and large rates have none."""
    assert page._rate(value) == expected


def test_spare() -> None:
    """A member without partitions is no fault."""
    assert "Partitions None: a spare, ready to take some over." in read(view(not_ready=None)).text


def test_nothing_breaks_out() -> None:
    """Names and words from outside stay text, wherever they stand."""

    def full_of(word: str) -> Reader:
        settings = Settings(
            group_id=word,
            input_topic=word,
            output_topic=word,
            dead_letter_topic=word,
            instance_id=word,
            brokers=(word,),
        )
        status = Status(settings)
        status.metrics.confirmed(0, Tally(0, {word: 1}, {word: 1}, 0), 1.0, None)
        entry = Entry(datetime.now(UTC), word, word, word)
        partition = Partition(0, opened=True, trouble=word)
        return read(view(recent=[entry], not_ready=word, partitions=[partition]), settings, status)

    evil = full_of(EVIL)
    assert evil.tags == full_of("harmless").tags
    assert evil.text.count("<script>alert(1)</script>") == 13


def test_policy_allows_the_page() -> None:
    """The policy's hashes are those of the page's own script and style, as they are sent."""
    source = page.render(view(), from_mapping({}), Status(from_mapping({})).metrics)
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page.CONTENT_SECURITY_POLICY


def test_page_loads_nothing() -> None:
    """The page has all it needs in itself."""
    source = page.render(view(), from_mapping({}), Status(from_mapping({})).metrics)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import|https?://""", source)


@pytest.mark.parametrize(
    ("consumed", "expected"),
    [
        ([], []),
        ([{0: 5}], []),
        ([{0: 5}, {0: 25}], [{0: 10.0}]),
        ([{0: 5}, {0: 5, 1: 8}], [{0: 0.0, 1: 4.0}]),
        ([{0: 5, 1: 8}, {1: 8}], [{1: 0.0}]),
        ([{0: 5}, {}, {0: 4}], [{}, {0: 2.0}]),
        ([{0: 50}, {0: 4}], [{0: 0.0}]),
    ],
)
def test_rates(consumed: Sequence[dict[int, int]], expected: list[dict[int, float]]) -> None:
    """A partition that comes starts at zero, one that goes takes its count along; no rate is negative."""
    samples = [Sample(10.0 + 2 * index, counts, 0) for index, counts in enumerate(consumed)]
    assert [rates for _, rates in page.rates(samples)] == expected


@pytest.fixture
def recent() -> Iterator[Recent]:
    """Give a listener to our log."""
    recent = Recent()
    recent.attach()
    yield recent
    recent.detach()


def test_recent(recent: Recent) -> None:
    """The last warnings and errors of ours are kept, the newest first; no one else's, and none of less weight."""
    ours = get_logger("worker.test")
    logging.getLogger("worker").setLevel(logging.DEBUG)
    for number in range(KEPT + 5):
        ours.warning("commit-failed", number=number)
    ours.info("partition-started")
    logging.getLogger("aiokafka").error("Unable to connect")
    ours.error("worker-failed", error="x" * 1000, exc_info=True)
    entries = recent.entries()
    assert len(entries) == KEPT
    assert (entries[0].level, entries[0].event, len(entries[0].fields)) == ("error", "worker-failed", 300)
    assert [entry.fields for entry in entries[1:]] == [f"number={n}" for n in range(KEPT + 4, 5, -1)]


def test_recent_says_plain_records_too(recent: Recent) -> None:
    """A record that did not come through structlog is shown as it was said."""
    logging.getLogger("worker.other").warning("took %d s", 5)
    assert [(entry.event, entry.fields) for entry in recent.entries()] == [("took 5 s", "")]
