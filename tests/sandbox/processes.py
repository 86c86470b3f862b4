"""What runs on this machine, for tests that nothing is left behind."""

import os
from pathlib import Path

from tests.bounds import until
from tests.sandbox.conftest import Inside

FOR_A_WHILE = f"86399.{os.getpid()}"
"""A number of seconds that no other process sleeps: tests that run beside these sleep for their own."""


def sleepers() -> list[str]:
    """The commands on this machine that sleep for `FOR_A_WHILE`, wherever they are confined."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if FOR_A_WHILE.encode() in arguments[1:2]:
            found.append(path.parent.name)
    return found


async def until_file(inside: Inside, name: str) -> None:
    """Wait until a command has made a file in the workspace."""
    await until((inside.folder / name).exists)
