"""Turns that are let in, against the limit of turns."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import anyio
import pytest

from app.domain.caller import ANONYMOUS
from app.domain.ports import Admitted, Runtime
from app.domain.turn import TurnRequest
from app.turns.admission import Admissions
from app.turns.live import LiveTurn
from app.turns.places import Places
from tests.turns.stage import LIMITS, stage

pytestmark = pytest.mark.anyio


async def test_a_turn_that_was_just_let_in_is_counted_once(tmp_path: Path) -> None:
    limits = replace(LIMITS, max_turns=2)
    async with stage(tmp_path, limits) as scene:
        seconds: list[asyncio.Task[Admitted]] = []

        def admitted(live: LiveTurn) -> None:
            """The second is asked for in the moment in which the first has become a live turn."""
            if not seconds:
                seconds.append(asyncio.ensure_future(admit()))

        async def admit() -> Admitted:
            return await admissions.admit(ANONYMOUS, None, TurnRequest(input="hi"), None)

        admissions = Admissions(
            scene.store,
            scene.logs,
            cast(Runtime, scene.runs),
            scene.execution,
            limits,
            Places(scene.execution, limits),
            on_admitted=admitted,
        )
        with anyio.fail_after(5):
            await admit()
            await seconds[0]
        assert len(scene.execution.running()) == 2
