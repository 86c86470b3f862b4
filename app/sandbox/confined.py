"""A workspace in which commands run confined: starts them, watches them together, ends them together."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.sandbox.bubblewrap import Confinement
from app.sandbox.command import Command
from app.sandbox.launcher import Launcher, LaunchError
from app.sandbox.usage import Exceeded, check

_REST = 4


class ConfinedWorkspace:
    """`close` it: nothing of its commands is left then."""

    def __init__(self, confinement: Confinement, launcher: Launcher) -> None:
        self.confinement = confinement
        self.launcher = launcher
        self._commands: set[Command] = set()
        self._starting = 0
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self, command: list[str], *, tty: bool = False, merged: bool = False) -> Command:
        """Raises LaunchError, also if too many run already."""
        limits = self.confinement.limits
        if self._closed:
            raise LaunchError("the sandbox is closed")
        if len(self._commands) + self._starting >= limits.commands:
            raise LaunchError(f"{limits.commands} commands run already: wait for one of them, or end it")
        self._starting += 1
        try:
            launched = await self.launcher.start(self.confinement, command, tty=tty)
        finally:
            self._starting -= 1
        started = Command(launched, limits, self._commands.discard, merged=merged)
        self._commands.add(started)
        if self._closed:
            started.stop("the sandbox is closed")
        elif self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_all(), name="turnwire-sandbox-watch")
        return started

    def protect(self, names: Sequence[str]) -> None:
        """From the next command on, these can only be read. They must exist."""
        self.confinement = replace(self.confinement, protected=tuple(names))

    async def end_all(self) -> None:
        """Kill every command, and return when nothing of them is left."""
        running = tuple(self._commands)
        for command in running:
            command.stop("the sandbox ended it")
        for command in running:
            await command.close()

    async def close(self) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self.end_all()

    async def _watch_all(self) -> None:
        """Look at all commands together until none runs; one that passes a limit ends them all."""
        limits = self.confinement.limits
        workspace = self.confinement.workspace
        while running := tuple(self._commands):
            inits = [command.init_pid for command in running]
            began = time.monotonic()
            try:
                await self.launcher.work(partial(check, inits, workspace, limits))
            except Exceeded as exceeded:
                _stop(running, str(exceeded))
            except Exception:
                _stop(running, "it could not be watched")
                raise
            # A large workspace takes long to count: never more than a small part of the time.
            await asyncio.sleep(max(limits.watch_s, _REST * (time.monotonic() - began)))


def _stop(commands: Sequence[Command], reason: str) -> None:
    for command in commands:
        command.stop(reason)
