"""A time-out that is set anew at every read, for next to nothing.

`asyncio.Timeout.reschedule` cancels a timer and makes another. Here a read only moves the deadline; the timer
that is running finds out when it is due, and waits for what is left.
"""

import asyncio
from types import TracebackType
from typing import Self


class Patience:
    """`async with Patience(seconds) as patience`: raises TimeoutError once the wait is over."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._deadline = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._deadline, self._due)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def wait(self, seconds: float) -> None:
        """Wait no longer than so many seconds from now."""
        self._deadline = self._loop.time() + seconds
        if self._deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline, self._due)

    def _due(self) -> None:
        if self._loop.time() >= self._deadline:
            self._timeout.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_at(self._deadline, self._due)
