"""One model call on the Chat Completions wire, and the frames that answer it."""

from typing import Any

from app.runtime.failures import UpstreamFailure
from tests.runtime.models.harness import exchange
from tests.runtime.models.loopback import Answer, chunk, frames
from tests.runtime.models.recorder import Recorder

STOP, CALLS = chunk(finish="stop"), chunk(finish="tool_calls")


async def answered(*events: object, done: bool = True, **options: Any) -> Recorder:
    """The recording of a call that went well."""
    _, scope, failure = await exchange(Answer(frames(*events, done=done)), **options)
    assert failure is None
    return scope.last


async def refused(*events: object, done: bool = True, **options: Any) -> tuple[UpstreamFailure, Recorder]:
    """The failure of a call that went wrong, and its recording."""
    _, scope, failure = await exchange(Answer(frames(*events, done=done)), **options)
    assert isinstance(failure, UpstreamFailure)
    assert scope.last.output is None
    return failure, scope.last


def call(index: Any = 0, id: Any = None, name: Any = None, arguments: Any = "") -> dict[str, Any]:
    """A delta with one tool call entry, nulls and all."""
    entry = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [entry if index is None else {"index": index, **entry}]}
