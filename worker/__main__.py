"""``python -m worker`` is ``worker``."""

from worker.cli import main

main(prog_name="worker")
