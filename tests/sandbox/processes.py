"""What runs on this machine, for tests that nothing is left behind."""

from collections.abc import Callable
from pathlib import Path

import anyio

from tests.sandbox.conftest import Inside

FOR_A_WHILE = "86399.25"
"""A number of seconds that no other process sleeps."""


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


async def until(condition: Callable[[], object], bound_s: float = 5) -> None:
    """Wait for what another process does: it has no event to give."""
    with anyio.fail_after(bound_s):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def until_file(inside: Inside, name: str) -> None:
    """Wait until a command has made a file in the workspace."""
    await until((inside.folder / name).exists)
