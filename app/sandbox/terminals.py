"""The commands of one session that go on between calls: what `exec_command` and `write_stdin` talk to."""

import asyncio
import errno
import time
from dataclasses import dataclass, field

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
)

from app.sandbox.command import Command

_KEPT = 32
_START_YIELD_MS = 10_000
_WRITE_YIELD_MS = 250
_ECHO_S = 0.1
_GONE = frozenset({errno.EIO, errno.EBADF, errno.EPIPE})


@dataclass(slots=True)
class _Terminal:
    command: Command
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = field(default_factory=time.monotonic)


class Terminals:
    """Numbers are the SDK's. A command that has ended is kept until its last output is fetched, or until
    too many are: then the one that was not asked for longest goes."""

    def __init__(self) -> None:
        self._open: dict[int, _Terminal] = {}

    async def begin(
        self, command: Command, yield_time_s: float | None, max_tokens: int | None
    ) -> PtyExecUpdate:
        """A caller that is cancelled ends the command."""
        number = allocate_pty_process_id(set(self._open))
        self._open[number] = _Terminal(command)
        self._forget_one()
        wait_ms = clamp_pty_yield_time_ms(_milliseconds(yield_time_s, _START_YIELD_MS))
        try:
            return await self._update(number, wait_ms, max_tokens)
        except asyncio.CancelledError:
            self._open.pop(number, None)
            await command.close()
            raise

    async def write(
        self, number: int, chars: str, yield_time_s: float | None, max_tokens: int | None
    ) -> PtyExecUpdate:
        """A caller that is cancelled ends the command, as with `begin`."""
        terminal = self._open.get(number)
        if terminal is None:
            raise PtySessionNotFoundError(session_id=number)
        if chars:
            _type(terminal.command, chars)
        wait_ms = resolve_pty_write_yield_time_ms(
            yield_time_ms=_milliseconds(yield_time_s, _WRITE_YIELD_MS), input_empty=chars == ""
        )
        try:
            if chars:
                await asyncio.sleep(_ECHO_S)
            return await self._update(number, wait_ms, max_tokens)
        except asyncio.CancelledError:
            self._open.pop(number, None)
            await terminal.command.close()
            raise

    def forget_all(self) -> None:
        """Their commands are ended by whoever started them."""
        self._open.clear()

    async def _update(self, number: int, wait_ms: int, max_tokens: int | None) -> PtyExecUpdate:
        terminal = self._open[number]
        command = terminal.command
        output, tokens, over = await collect_pty_output(
            output_chunks=command.said[0],
            output_lock=terminal.lock,
            output_notify=command.changed,
            is_done=command.ended.is_set,
            yield_time_ms=wait_ms,
            max_output_tokens=max_tokens,
        )
        terminal.used = time.monotonic()
        if over:
            self._open.pop(number, None)
        return PtyExecUpdate(
            process_id=None if over else number,
            output=output,
            exit_code=command.exit_code if over else None,
            original_token_count=tokens,
        )

    def _forget_one(self) -> None:
        ended = [n for n, terminal in self._open.items() if terminal.command.ended.is_set()]
        if len(self._open) > _KEPT and ended:
            del self._open[min(ended, key=lambda n: self._open[n].used)]


def _milliseconds(seconds: float | None, default: int) -> int:
    return default if seconds is None else int(seconds * 1000)


def _type(command: Command, chars: str) -> None:
    try:
        command.write(chars.encode())
    except OSError as error:
        if error.errno not in _GONE and not isinstance(error, BlockingIOError):
            raise
