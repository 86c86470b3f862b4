"""A stage: turns that pause, are answered and run, on a real store and log. The runtime is the test's own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel

from app.domain.caller import ANONYMOUS
from app.domain.events import TurnPaused
from app.domain.ids import TurnId, new_pause_id
from app.domain.pause import Answers, Pause
from app.domain.ports import EventBatch, EventSink, Prepared, RunCompleted, RunControl, RunJob, Runtime, Store
from app.domain.turn import Turn, now
from app.errors import StoreUnavailable
from app.event_log import EventLogs, encoded
from app.store import SqliteStore, open_store
from app.turns.execution import Execution, TurnLimits
from app.turns.pausing import Pauses
from app.turns.places import Places
from tests.turns.test_retention import a_turn

LIMITS = TurnLimits(
    max_turns=10,
    max_turns_per_caller=10,
    queue_limit=1,
    turn_timeout_s=10,
    cancel_wait_s=0,
    disconnect_grace_s=0,
    pause_expiry_s=10,
    max_listeners=1,
)


class Runs:
    """A runtime whose runs end when the test lets them."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.may_end = anyio.Event()

    def prepare(self, request: object, *, agent: str | None, last_agent: str | None = None) -> Prepared:
        return Prepared(agent or "assistant", None, ())

    async def run(self, job: RunJob, sink: EventSink, control: RunControl, deadline: float) -> RunCompleted:
        self.begun.set()
        await self.may_end.wait()
        return RunCompleted("done", None)

    async def ended(self, turn: Turn) -> None:
        """Nothing was kept."""


class Intervening:
    """A store that refuses what the test says, and lets it act in the moment in which a turn was resumed."""

    def __init__(self, store: SqliteStore, intervene: Callable[[], object], refused: set[str]) -> None:
        self._store = store
        self._intervene = intervene
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        return _refuse if name in self._refused else getattr(self._store, name)

    async def resume(self, turn: Turn, answers: Answers, batch: EventBatch) -> bool:
        resumed = await self._store.resume(turn, answers, batch)
        self._intervene()
        await anyio.lowlevel.checkpoint()
        return resumed


async def _refuse(*_: object, **__: object) -> None:
    raise StoreUnavailable("The disk is full.")


@dataclass
class Stage:
    store: SqliteStore
    logs: EventLogs
    execution: Execution
    pauses: Pauses
    runs: Runs
    on_resumed: Callable[[], object] = field(default=lambda: None)
    """Called when the store has taken the last answer to a pause, and nobody was told yet."""
    refused: set[str] = field(default_factory=set)
    """Methods of the store that fail."""
    lost: list[TurnId] = field(default_factory=list)
    """Turns that the execution could not bring to an end."""

    async def paused(self, *, expires_in: timedelta = timedelta(hours=1)) -> Turn:
        """A turn that waits for a go-ahead."""
        turn = await a_turn(self.store, over=False)
        pause = Pause(new_pause_id(), "step", now() + expires_in)
        turn = replace(turn, status="paused", pause=pause, last_event_id=2)
        event = encoded(TurnPaused(turn.as_json(with_input=False)), turn_id=turn.id, seq=2)
        await self.store.pause(turn, b"state", EventBatch((event,)))
        return turn

    async def go_on(self, turn: Turn) -> None:
        assert turn.pause is not None
        await self.pauses.resume(turn.caller, turn.id, turn.pause.id, None)

    async def status(self, turn: Turn) -> str:
        return (await self.store.turn(ANONYMOUS, turn.id)).status


@asynccontextmanager
async def stage(folder: Path, limits: TurnLimits = LIMITS) -> AsyncIterator[Stage]:
    runs, refused = Runs(), set[str]()
    async with open_store(folder / "db", owner="test") as store, anyio.create_task_group() as tasks:
        shown = cast(Store, Intervening(store, lambda: made.on_resumed(), refused))
        logs = EventLogs(shown, window_bytes=1000)
        runtime = cast(Runtime, runs)
        execution = Execution(
            shown,
            logs,
            runtime,
            limits,
            on_ended=lambda live, turn: None,
            on_lost=lambda turn: made.lost.append(turn.id),
            on_upstream_failed=lambda code: None,
        )
        execution.attach(tasks)
        places = Places(execution, limits)
        pauses = Pauses(shown, logs, runtime, execution, limits, places, on_resumed=lambda live: None)
        made = Stage(store, logs, execution, pauses, runs, refused=refused)
        yield made
        runs.may_end.set()
