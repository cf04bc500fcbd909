"""The status page in a real browser: its policy lets it work, it keeps itself fresh, it says when nobody answers.

Marked ``browser``: these need chromium and fail without it, so that nobody takes a skip for a pass.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from worker.kafka.ports import free_ports
from worker.observe import http
from worker.observe.status import Status
from worker.settings import from_mapping

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
)


class Opened:
    """A status page, and what the worker's server does after the browser has it."""

    def __init__(self, folder: Path) -> None:
        """Make a worker that waits for its broker."""
        (self.port,) = free_ports(1)
        self.status = Status(from_mapping({"HTTP_PORT": str(self.port)}))
        self._folder = folder

    async def look(self, after_first: Callable[[], None], seconds: int = 8, path: str = "/") -> tuple[str, str]:
        """Open the page, do something once it has been served, and return the page some seconds later, and the log."""
        view = self.status.view
        served = asyncio.Event()

        def first() -> object:
            served.set()
            return view()

        self.status.view = first  # type: ignore[method-assign,assignment] # to know when the browser has asked
        found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert found, "chromium is needed: apt-get install chromium"
        browser = await asyncio.create_subprocess_exec(
            found,
            *FLAGS,
            f"--user-data-dir={self._folder}",
            f"--virtual-time-budget={seconds * 1000}",
            f"http://127.0.0.1:{self.port}{path}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await asyncio.wait_for(served.wait(), 60)
        after_first()
        page, said = await asyncio.wait_for(browser.communicate(), 60)
        return page.decode(), said.decode()


async def test_page_keeps_itself_fresh(tmp_path: Path) -> None:
    """What the worker does after the page was opened is seen on it; the policy refuses nothing that the page needs."""
    opened = Opened(tmp_path)
    async with http.serving(opened.status):
        page, said = await opened.look(opened.status.stopping)
    assert "<p>stopping</p>" in page
    assert re.search(r'<div id="lost"[^>]* hidden', page)
    assert "Refused" not in said
    assert "Content Security Policy" not in said


async def test_page_says_when_nobody_answers(tmp_path: Path) -> None:
    """When the worker is gone the page says so, beside what it last knew."""
    opened = Opened(tmp_path)
    serving = http.serving(opened.status)
    await serving.__aenter__()
    ending: list[asyncio.Task[bool | None]] = []
    page, _ = await opened.look(lambda: ending.append(asyncio.create_task(serving.__aexit__(None, None, None))))
    await ending[0]
    assert re.search(r'<div id="lost" role="status">', page)
    assert "waiting for the broker" in page
