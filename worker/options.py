"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def env_file(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--env-file``."""
    return click.option(
        "--env-file",
        type=click.Path(path_type=Path),
        help="A file of NAME=value lines for settings that the environment leaves open; only WORKER_ names count.",
    )(command)
