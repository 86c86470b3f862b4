"""A cancel that meets the answer to a pause."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import anyio
import pytest

from app.domain.ports import Prepared, Runtime
from app.event_log import EventLogs
from app.observability.metrics import Metrics
from app.store import open_store
from app.turns.cancelling import Cancels
from app.turns.execution import Execution
from app.turns.live import LiveTurn
from app.turns.measures import TurnMeasures
from app.turns.pausing import Pauses
from app.turns.places import Places
from tests.turns.stage import LIMITS
from tests.turns.test_retention import a_turn

pytestmark = pytest.mark.anyio
NOTHING_RUNS = cast(Runtime, None)


async def test_a_turn_that_was_paused_and_runs_again_once_it_is_looked_at_is_cancelled(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db", owner="test") as store, anyio.create_task_group() as tasks:
        logs = EventLogs(store, window_bytes=1000)
        execution = Execution(
            store,
            logs,
            NOTHING_RUNS,
            LIMITS,
            on_ended=lambda live, turn: None,
            on_lost=lambda turn: None,
            on_upstream_failed=lambda code: None,
        )
        execution.attach(tasks)
        places = Places(execution, LIMITS)
        pauses = Pauses(store, logs, NOTHING_RUNS, execution, LIMITS, places, on_resumed=lambda live: None)
        measures = TurnMeasures(Metrics(), lambda model: None)
        cancels = Cancels(store, logs, execution, pauses, LIMITS, measures, "keep")
        turn = await a_turn(store, over=False)
        live = LiveTurn(
            turn, Prepared(turn.agent, turn.model, ()), logs.open(turn.id, turn_key=turn.key, next_seq=2)
        )
        # As soon as the cancel waits for the store: the turn was answered after it was read.
        asyncio.get_running_loop().call_soon(execution.add, live)
        await cancels.cancel(replace(turn, status="paused"), "keep", by="caller")
        assert live.stopped
        logs.close(turn.id)
