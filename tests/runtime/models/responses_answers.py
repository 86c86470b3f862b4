"""One model call on the Responses wire, and the events that answer it."""

from typing import Any

from app.runtime.failures import UpstreamFailure
from app.runtime.models.transport import UpstreamLimits
from tests.runtime.models.harness import exchange
from tests.runtime.models.loopback import Answer, frames
from tests.runtime.models.loopback import response_event as event
from tests.runtime.models.recorder import Recorder


async def answered(*events: object) -> Recorder:
    """The recording of a call that went well."""
    _, scope, failure = await exchange(Answer(frames(*events)), wire="responses")
    assert failure is None
    return scope.last


async def refused(*events: object, limits: UpstreamLimits | None = None) -> tuple[UpstreamFailure, Recorder]:
    """The failure of a call that went wrong, and its recording."""
    answer = Answer(frames(*events))
    quick = limits or UpstreamLimits(retries=0)
    _, scope, failure = await exchange(answer, wire="responses", limits=quick)
    assert isinstance(failure, UpstreamFailure)
    assert scope.last.output is None
    return failure, scope.last


def message(text: str = "Hello", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    } | more


def call(arguments: Any = '{"q":1}', **more: Any) -> dict[str, Any]:
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "f", "arguments": arguments}
    return item | {"status": "completed"} | more


def added(item: dict[str, Any], place: Any = 0) -> dict[str, Any]:
    return event("response.output_item.added", item=item, **_place(place))


def done(item: dict[str, Any], place: Any = 0) -> dict[str, Any]:
    return event("response.output_item.done", item=item, **_place(place))


def delta(kind: str, item_id: Any, piece: Any, place: Any = 0) -> dict[str, Any]:
    return event(f"response.{kind}.delta", item_id=item_id, delta=piece, **_place(place))


def _place(place: Any) -> dict[str, Any]:
    return {} if place is None else {"output_index": place}
