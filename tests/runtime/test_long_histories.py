"""A turn on a long history does not hold up the others: the SDK is not given what it would only copy."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.domain.conversation import NewItem
from app.domain.ids import new_item_id
from app.domain.ports import RunCompleted
from app.runtime.history import looked_through
from app.runtime.models.outgoing import LIGHT_CHARACTERS, LIGHT_ITEMS
from app.runtime.models.transport import Wire
from tests.runtime.one_turn import bench, dialogue, plain
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


class Pulse:
    """Beats each millisecond; `worst_s` is how much later than that it came at worst."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def beat(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            at = clock()
            await asyncio.sleep(0.001)
            self.worst_s = max(self.worst_s, clock() - at - 0.001)


@asynccontextmanager
async def pulse() -> AsyncIterator[Pulse]:
    taken = Pulse()
    task = asyncio.create_task(taken.beat())
    try:
        yield taken
    finally:
        task.cancel()
        await asyncio.wait([task])


# The upstream is a process of its own: what it does with so long a request holds up nobody here.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("wire", ["responses", "chat_completions"])
async def test_a_turn_on_ten_thousand_items_hardly_holds_up_the_loop(wire: Wire, scenario: Scenario) -> None:
    await scenario.script(*[{"text": "Hi."}] * 3)
    history = dialogue(10_000)
    stalls = []
    async with bench(scenario.control.base_url, plain(), wire=wire) as turns:
        for _ in range(3):
            async with pulse() as taken:
                outcome, _ = await turns.run(history, model=scenario.model)
            assert outcome == RunCompleted("Hi.", None)
            stalls.append(taken.worst_s)
    assert [(len(r.history), r.problems) for r in await scenario.requests()] == [(10_001, [])] * 3
    assert min(stalls) < 0.06


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
