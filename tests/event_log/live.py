"""Live turns: a scene whose turns have a log, and listeners that note what they were shown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from anyio import fail_after

from app.domain.events import LogEntry, MessageDelta, TurnCompleted, TurnPaused, TurnStarted
from app.domain.ports import EventBatch, LogCut, Settlement
from app.domain.turn import Turn, now
from app.event_log import EventLogs
from app.event_log.live_log import LiveLog
from app.store import SqliteStore
from tests.bounds import BOUND_S
from tests.store.scene import Scene, pause_for


def delta(text: str, item_id: str = "item_1") -> MessageDelta:
    return MessageDelta(item_id, text)


class LiveScene(Scene):
    def __init__(self, store: SqliteStore, logs: EventLogs) -> None:
        super().__init__(store)
        self.logs = logs

    async def begin(self, conversation: str = "chat", **request: Any) -> tuple[Turn, LiveLog]:
        """A running turn; its log holds `turn.started`."""
        admitted = await self.admit(conversation, **request)
        log = self.logs.open(admitted.turn.id)
        log.append(TurnStarted(admitted.turn.conversation_id, admitted.turn.agent, 1, "now"))
        log.take()  # the scene has stored a plainer one under its number
        self.logs.bind(log, admitted.turn.key, admitted.turn.conversation_key)
        log.publish(admitted.batch or EventBatch(()))
        return admitted.turn, log

    async def end(self, turn: Turn, log: LiveLog) -> Turn:
        ended = replace(turn, status="completed", ended_at=now(), last_event_id=log.next_seq)
        log.append(TurnCompleted({"id": turn.id}))
        last = log.take()
        await self.store.settle(Settlement(ended, (), last, rollback=False))
        log.publish(last)
        self.logs.close(turn.id)
        return ended

    async def pause(self, turn: Turn, log: LiveLog) -> Turn:
        paused = replace(turn, status="paused", pause=pause_for("pause_1"), last_event_id=log.next_seq)
        log.append(TurnPaused({"id": turn.id}))
        last = log.take()
        await self.store.pause(paused, b"", last)
        log.publish(last)
        self.logs.close(turn.id)
        return paused

    @asynccontextmanager
    async def listening(self, turn: Turn, after: int = 0) -> AsyncIterator["Listener"]:
        """A listener that reads along while the block runs."""
        listener = Listener(self.logs, turn, after)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(listener.read())
            yield listener
            task.cancel()


class Listener:
    """`cut`: its stream broke instead of ending. `hold` keeps it from taking more."""

    def __init__(self, logs: EventLogs, turn: Turn, after: int) -> None:
        self._logs = logs
        self._turn = turn
        self._after = after
        self._changed = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self.entries: list[LogEntry] = []
        self.over = False
        self.cut = False

    async def read(self) -> None:
        try:
            async with aclosing(self._logs.tail(self._turn, self._after)) as source:
                async for entries in source:
                    self.entries += entries
                    self._note()
                    await self._free.wait()
        except LogCut:
            self.cut = True
        self.over = True
        self._note()

    def hold(self) -> None:
        self._free.clear()

    def go_on(self) -> None:
        self._free.set()

    @property
    def numbers(self) -> list[int]:
        return [entry.seq for entry in self.entries]

    @property
    def types(self) -> list[str]:
        return [entry.type for entry in self.entries]

    async def until(self, done: Callable[["Listener"], bool]) -> None:
        with fail_after(BOUND_S):
            while not done(self):
                changed = self._changed
                await changed.wait()

    async def to_end(self) -> None:
        await self.until(lambda listener: listener.over)

    async def to(self, seq: int) -> None:
        await self.until(lambda listener: bool(listener.entries) and listener.entries[-1].seq >= seq)

    def _note(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
