"""The state of a paused run: small, whole when it comes back, and refused where it does not fit."""

from importlib.metadata import version
from typing import Any

import orjson
import pytest
from agents import Runner, RunState

from app.domain.json_types import Item
from app.runtime.paused_state import StateMismatch, packed, unpacked
from tests.runtime.paused import INPUT, LIMITS, STATES, agents, answers, notes, paused, state_of

pytestmark = pytest.mark.anyio
STORED = [pytest.param(path.read_bytes(), id=path.stem) for path in sorted(STATES.glob("*.json"))]


async def restored(state: bytes, model_input: list[Item]) -> RunState[Any]:
    found = unpacked(state)
    return await found.restored(agents(answers()), found.model_input(model_input), None)


async def goes_on(state: RunState[Any]) -> str:
    """Approve everything and run to the end; what it says then."""
    for waiting in state.get_interruptions():
        state.approve(waiting)
    result = await Runner.run(agents(answers()), state, run_config=LIMITS)
    assert result.input == INPUT
    return str(result.final_output)


@pytest.mark.parametrize("state", STORED)
async def test_what_was_paused_under_a_release_of_the_sdk_goes_on_under_this_one(state: bytes) -> None:
    """If a new release refuses an old state, it has to say so: then expect StateMismatch for that file here."""
    assert await goes_on(await restored(state, INPUT)) == "Kelp is green."


def test_a_state_of_the_installed_release_is_stored() -> None:
    """If this fails after an update: `python -m tests.runtime.paused`, and keep the old files."""
    assert (STATES / f"sdk-{version('openai-agents')}.json").is_file()


async def test_what_was_noted_comes_back() -> None:
    found = unpacked(await state_of(INPUT)).notes
    assert (found.context, found.ids, found.rules, found.rounds) == (
        {"visits": 1},
        notes().ids,
        notes().rules,
        1,
    )
    assert [(run.parent_call_id, run.agent) for run in found.runs] == [(None, "guard"), ("call_2", "clerk")]
    step = found.runs[0].step
    assert step is not None
    assert (step.number, step.agent, list(step.calls), step.done) == (2, "guard", ["call_1"], False)


async def test_the_history_is_referred_to_and_not_copied() -> None:
    long = [*({"type": "message", "role": "user", "content": "x" * 1000} for _ in range(500)), *INPUT]
    short = await state_of(INPUT)
    assert len(await state_of(long)) < len(short) + 100
    assert (await restored(await state_of(long), long))._original_input == long


async def test_a_longer_history_than_the_models_was_given_is_cut_where_it_was() -> None:
    older: Item = {"type": "message", "role": "user", "content": "long ago"}
    state = await restored(await state_of(INPUT), [older, *INPUT])
    assert await goes_on(state) == "Kelp is green."


@pytest.mark.parametrize("changed", [INPUT[:-1], [*INPUT[:-1], INPUT[-1] | {"content": "?"}]])
async def test_a_history_that_has_changed_is_refused(changed: list[Item]) -> None:
    with pytest.raises(StateMismatch, match="history"):
        await restored(await state_of(INPUT), changed)


async def test_input_that_the_sdk_has_changed_is_kept_whole() -> None:
    state = await paused(INPUT)
    state._original_input = list[Any](INPUT[-1:])
    assert (await restored(packed(state, INPUT, notes()), INPUT))._original_input == INPUT[-1:]


async def test_a_newer_format_is_refused() -> None:
    data = orjson.loads(await state_of(INPUT))
    with pytest.raises(StateMismatch, match="another release"):
        unpacked(orjson.dumps(data | {"version": 999}))
    with pytest.raises(StateMismatch, match="schema version"):
        await restored(orjson.dumps(data | {"sdk": data["sdk"] | {"$schemaVersion": "99.0"}}), INPUT)


async def test_a_nested_agent_that_does_not_fit_is_refused_and_not_begun_anew() -> None:
    changed = (await state_of(INPUT)).replace(b'"name":"clerk"', b'"name":"scribe"')
    with pytest.raises(StateMismatch):
        await restored(changed, INPUT)
