"""A long request is prepared and written beside the event loop, which has other turns to serve."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.json_types import Item
from app.runtime.models.model import UpstreamModel
from app.runtime.models.outgoing import LIGHT_CHARACTERS, LIGHT_ITEMS, is_light
from app.runtime.models.transport import FixedEndpoint, Upstream, Wire
from app.runtime.observer import current_scope
from tests.runtime.models.harness import ask, upstream_of
from tests.runtime.models.loopback import Answer, Loopback, completed_event, frames, text_answer
from tests.runtime.models.recorder import RecordingScope

pytestmark = pytest.mark.anyio
HI = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}


def message(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@pytest.mark.parametrize(
    ("items", "light"),
    [
        ([message("hello")], True),
        ([message("hello")] * LIGHT_ITEMS, True),
        ([message("hello")] * (LIGHT_ITEMS + 1), False),
        ([message("x" * LIGHT_CHARACTERS)], False),
        ([{**message("hello"), "parts": [{}] * LIGHT_CHARACTERS}], False),
    ],
)
def test_many_items_and_much_text_are_work(items: list[Item], light: bool) -> None:
    assert is_light(items) == light


class Watched(Upstream):
    """Says in which thread its body's defaults were asked for: where a request is written."""

    writers: list[threading.Thread]

    @property
    def body_defaults(self) -> dict[str, Any]:
        self.writers.append(threading.current_thread())
        return {}

    @body_defaults.setter
    def body_defaults(self, value: dict[str, Any]) -> None:
        self.writers = []


@pytest.mark.parametrize("wire", ["chat_completions", "responses"])
@pytest.mark.parametrize("count", [1, 5_000])
async def test_a_long_request_is_written_in_another_thread(wire: Wire, count: int) -> None:
    answer = text_answer() if wire == "chat_completions" else Answer(frames(completed_event([HI])))
    async with Loopback(answer) as server:
        upstream = Watched("loop", wire, FixedEndpoint(server.url, None), trust_env=False)
        await ask(UpstreamModel(upstream, "m"), [message(f"{n}") for n in range(count)])
        await upstream.aclose()
    assert [writer is threading.main_thread() for writer in upstream.writers] == [count == 1]
    (request,) = server.requests
    assert len(request.body["messages" if wire == "chat_completions" else "input"]) == count


class WatchedScope(RecordingScope):
    """Says in which thread the items of a request were read."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[threading.Thread] = []

    def native(self, items: Sequence[Item], upstream: str) -> Sequence[Item]:
        self.readers.append(threading.current_thread())
        return items


async def test_a_long_history_is_read_in_another_thread() -> None:
    scope = WatchedScope()
    token = current_scope.set(scope)
    async with Loopback(text_answer()) as server, upstream_of(server) as upstream:
        for count in (1, 5_000):
            await ask(UpstreamModel(upstream, "m"), [message(f"{n}") for n in range(count)])
    current_scope.reset(token)
    assert [reader is threading.main_thread() for reader in scope.readers] == [True, False]
