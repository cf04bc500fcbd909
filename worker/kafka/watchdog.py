"""A small process that cleans up after us, whatever ends us (``kill -9`` too).

It reads a pipe that closes when this Python ends; then it kills the process it was told of and removes the folder.
Linux could tie a child to us by itself (``PR_SET_PDEATHSIG``), but that fires when the starting *thread* ends, and
macOS has nothing like it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Reads process ids, a line each, 0 for none; the pipe's end is our own end.
_SCRIPT = """
import os, shutil, signal, sys, time
pid = 0
for line in sys.stdin:
    pid = int(line)
if pid:
    try:
        os.kill(pid, signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    except OSError:
        pass
for _ in range(50):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


class Watchdog:
    """Watches one folder and, at any time, one process."""

    def __init__(self, folder: Path) -> None:
        """Start watching."""
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-I", "-S", "-c", _SCRIPT, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal reaches the whole group, and would end it first
            cwd=tempfile.gettempdir(),
        )

    def watch(self, pid: int) -> None:
        """Name the process to kill; 0 when none runs."""
        pipe = self._process.stdin
        if pipe is not None:
            with suppress(
                OSError
            ):  # somebody killed the watchdog: then nobody looks after us, which is no reason to fail
                pipe.write(b"%d\n" % pid)
                pipe.flush()

    def leave(self) -> None:
        """End the watch: it removes the folder if we have not, and goes."""
        self._process.communicate()
