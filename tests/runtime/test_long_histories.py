"""A turn on a long history does not hold up the others: the SDK is not given what it would only copy."""

import threading
import time
from typing import Any

import pytest
from agents import AgentHooks

from app.domain.conversation import NewItem
from app.domain.ids import new_item_id
from app.domain.ports import RunCompleted
from app.runtime.history import looked_through
from app.runtime.models.outgoing import LIGHT_CHARACTERS, LIGHT_ITEMS
from app.runtime.models.transport import Wire
from tests.runtime.one_turn import bench, dialogue, plain
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


class Onlooker(AgentHooks[Any]):
    """For whom the SDK is given the history item by item."""

    async def on_llm_start(self, *args: object, **more: object) -> None:
        pass


# The upstream is a process of its own: what it does with so long a request costs nothing here.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("wire", ["responses", "chat_completions"])
async def test_a_turn_on_ten_thousand_items_hardly_costs_the_loop_anything(
    wire: Wire, scenario: Scenario
) -> None:
    await scenario.script(*[{"text": "Hi."}] * 4)
    history = dialogue(10_000)
    spent: dict[bool, list[float]] = {True: [], False: []}
    for is_seen in (True, False):
        agent = plain(hooks=Onlooker()) if is_seen else plain()
        async with bench(scenario.control.base_url, agent, wire=wire) as turns:
            for _ in range(2):
                before = time.thread_time()  # of the loop's thread alone: what others do meanwhile is no matter
                outcome, _ = await turns.run(history, model=scenario.model)
                spent[is_seen].append(time.thread_time() - before)
                assert outcome == RunCompleted("Hi.", None)
    assert [(len(r.history), r.problems) for r in await scenario.requests()] == [(10_001, [])] * 4
    assert min(spent[False]) < min(spent[True]) / 2


@pytest.mark.parametrize(
    ("count", "text", "at_once"),
    [
        (0, "", True),
        (LIGHT_ITEMS, "hello", True),
        (LIGHT_ITEMS + 1, "hello", False),
        (1, "x" * LIGHT_CHARACTERS, False),
    ],
)
async def test_a_short_history_is_looked_through_at_once(count: int, text: str, at_once: bool) -> None:
    history = [NewItem(new_item_id(), {"role": "user", "content": text})] * count
    thread = await looked_through(history, threading.get_ident)
    assert (thread == threading.get_ident()) == at_once
