"""How long tests wait for what must come.

The bounds end what hangs, and are far from what anything takes: a machine that is busy with ten other things
passes all the same. Where the time is the point of a test, it is measured against something that takes longer.
"""

from collections.abc import Callable
from typing import Final

import anyio

BOUND_S: Final = 60.0
"""For an event within what already runs."""
PROCESS_S: Final = 180.0
"""For a process: its start, its work and its end."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does: it has no event to give."""
    with anyio.fail_after(BOUND_S):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)
