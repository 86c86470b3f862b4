"""One confined command that runs: its output as it comes, its end, and how it is stopped."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import anyio

from app.sandbox.launcher import Launched
from app.sandbox.limits import SandboxLimits

_READ_BYTES = 65536
_GONE_WITHIN_S = 5
"""The kernel has seconds at most to end what was killed; nobody waits for it longer."""
_KILLED = 137  # as a shell says it: 128 + SIGKILL


class Command:
    """`said` holds what stdout and stderr have said and nobody has taken (`merged`: in one place, as it came);
    `changed` is set with every new piece.

    `ended` is set when every process of the command is gone and everything it said is in `said`. `stopped`
    says which limit ended it, if one did; it is also the last line of what the command said on stderr.
    """

    def __init__(
        self,
        launched: Launched,
        limits: SandboxLimits,
        on_end: Callable[["Command"], None],
        *,
        merged: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._launched = launched
        self._limits = limits
        self._on_end = on_end
        self._open = set(launched.outputs)
        self._left = limits.output_bytes
        stdout: deque[bytes] = deque()
        stderr: deque[bytes] = stdout if merged else deque()
        self.said = (stdout, stderr)
        self._said_by = dict(zip(launched.outputs, self.said, strict=False))
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()
        self.stopped: str | None = None
        for output in launched.outputs:
            self._loop.add_reader(output, self._read, output)
        self._loop.add_reader(launched.init, self._init_ended)
        self._clock = self._loop.call_later(limits.wall_s, self.stop, f"it ran longer than {limits.wall_s:g} s")

    @property
    def init_pid(self) -> int:
        return self._launched.init_pid

    @property
    def exit_code(self) -> int | None:
        code = self._launched.process.returncode
        return _KILLED if self.stopped is not None or (code is not None and code < 0) else code

    def stop(self, reason: str) -> None:
        """Kill it because of a limit."""
        if self.stopped is None and not self.ended.is_set():
            self.stopped = reason
        self._launched.kill()

    async def close(self) -> None:
        """Kill it, and return when nothing of it is left."""
        self._launched.kill()
        with anyio.move_on_after(_GONE_WITHIN_S, shield=True):
            await self.ended.wait()

    def write(self, data: bytes) -> None:
        """Type into its terminal. Raises BlockingIOError if the command does not read what was typed."""
        if self._launched.terminal is None:
            raise RuntimeError("stdin is not available for this process")
        if not self.ended.is_set():
            os.write(self._launched.terminal, data)

    def taken(self) -> list[bytes]:
        """What stdout and stderr have said since the last call."""
        pieces = [b"".join(chunks) for chunks in self.said]
        for chunks in self.said:
            chunks.clear()
        return pieces

    def _read(self, output: int) -> None:
        try:
            data = os.read(output, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: a terminal that no process holds any more
        if not data:
            self._close_output(output)
            return
        if len(data) > self._left:
            self.stop(f"it said more than {self._limits.output_bytes} bytes")
        self._say(output, data[: self._left])
        self._left -= min(self._left, len(data))

    def _say(self, output: int, data: bytes) -> None:
        if data:
            self._said_by[output].append(data)
            self.changed.set()

    def _close_output(self, output: int) -> None:
        self._loop.remove_reader(output)
        self._open.discard(output)

    def _init_ended(self) -> None:
        """The sandbox's first process is gone, and so is every other."""
        self._loop.remove_reader(self._launched.init)
        os.close(self._launched.init)
        self._clock.cancel()
        for output in tuple(self._open):
            self._drain(output)
        self._reap()

    def _drain(self, output: int) -> None:
        """What is left fits into the pipe: there is nobody to write more."""
        while output in self._open:
            before = self._left
            self._read(output)
            if self._left == before:
                self._close_output(output)

    def _reap(self) -> None:
        """Bubblewrap itself ends within a moment; it has no output and holds nothing."""
        if self._launched.process.poll() is None:
            self._loop.call_later(0.005, self._reap)
            return
        for output in self._launched.outputs:
            with suppress(OSError):
                os.close(output)
        if self.stopped is not None:
            self._say(self._launched.outputs[-1], f"\n[stopped: {self.stopped}]\n".encode())
        self.ended.set()
        self.changed.set()
        self._on_end(self)
