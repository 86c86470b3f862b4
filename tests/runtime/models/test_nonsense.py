"""Whatever stands where in a frame: an answer, or an upstream's failure, and never anything else."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pytest

from app.domain.history import repaired
from app.runtime.failures import UpstreamFailure
from app.runtime.models.chat_completions import ChatDecoder
from app.runtime.models.chat_messages import messages_of
from app.runtime.models.decoding import feed_frames, finish
from app.runtime.models.outgoing import for_responses
from app.runtime.models.reply import MAX_ITEMS, Decoder, Reply
from app.runtime.models.responses import ResponsesDecoder
from app.runtime.models.sdk_objects import completed_events
from tests.runtime.models.loopback import USAGE_CHUNK, chunk, completed_event, response_event
from tests.runtime.models.recorder import Recorder

NONSENSE: list[Any] = [None, 7, True, 10**30, float("inf"), "", "x", "\ud83d", [], ["x"], {}, {"x": [7]}]

CHAT = [
    chunk({"role": "assistant", "content": [{"type": "reasoning", "summary": [{"text": "Hm."}]}]}),
    chunk({"reasoning_content": "Hm.", "refusal": "No."}),
    chunk(
        {
            "content": [{"type": "text", "text": "Hello"}],
            "annotations": [{"type": "url_citation", "url_citation": {}}],
        }
    ),
    chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}),
    chunk({"function_call": {"name": "f", "arguments": "{}"}}),
    chunk(finish="stop"),
    USAGE_CHUNK,
]

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [{"type": "url_citation"}]}],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "content": [],
}
HOSTED = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
RESPONSES = [
    response_event("response.output_item.added", item=REASONING, output_index=0),
    response_event("response.reasoning_summary_text.delta", item_id="rs_1", output_index=0, delta="Hm."),
    response_event("response.output_item.done", item=REASONING, output_index=0),
    response_event("response.output_item.added", item=MESSAGE, output_index=1),
    response_event("response.output_text.delta", item_id="msg_1", output_index=1, delta="Hello"),
    response_event("response.output_text.annotation.added", item_id="msg_1", output_index=1, annotation={}),
    response_event("response.output_item.done", item=MESSAGE, output_index=1),
    response_event("response.output_item.added", item=CALL, output_index=2),
    response_event("response.function_call_arguments.delta", item_id="fc_1", output_index=2, delta="{}"),
    response_event("response.output_item.done", item=CALL, output_index=2),
    response_event("response.output_item.added", item=HOSTED, output_index=3),
    completed_event([REASONING, MESSAGE, CALL, HOSTED]),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value within."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from places(inner, (*path, key))


def with_nonsense(frames: list[Any]) -> Iterator[list[Any]]:
    """The stream with each of its values replaced by each kind of nonsense, one at a time, and left out."""
    for path in list(places(frames)):
        if not path:
            continue
        for nonsense in NONSENSE:
            changed, holder = copied(frames, path)
            holder[path[-1]] = nonsense
            yield changed
        changed, holder = copied(frames, path)
        del holder[path[-1]]
        yield changed


def copied(frames: list[Any], path: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """A copy, and what holds the value at `path` in it."""
    changed = copy.deepcopy(frames)
    return changed, reduce(lambda holder, key: holder[key], path[:-1], changed)


def out_of_order(frames: list[Any]) -> Iterator[list[Any]]:
    """The stream with each frame left out, sent twice, sent again at the end, and before the one before it."""
    for i, frame in enumerate(frames):
        yield frames[:i] + frames[i + 1 :]
        yield [*frames[: i + 1], frame, *frames[i + 1 :]]
        yield [*frames[:-1], frame, frames[-1]]
        yield [*frames[: max(0, i - 1)], frame, *frames[max(0, i - 1) : i], *frames[i + 1 :]]


def decoded(wire: str, frames: list[Any]) -> tuple[Recorder, Reply | None]:
    """What was told of a stream, and its reply if it is an answer."""
    recorder = Recorder()
    decoder: Decoder = (
        ChatDecoder(recorder, upstream="u", max_item_size=1000)
        if wire == "chat"
        else ResponsesDecoder(recorder, max_item_size=1000)
    )
    try:
        feed_frames([(b"", json.dumps(f).encode()) for f in frames], decoder)
        reply = finish(decoder)
    except UpstreamFailure:
        return recorder, None
    finally:
        assert decoder.counts is None or decoder.counts.total_tokens < 10**17
    decoder.accept()
    return recorder, reply


def check_told(recorder: Recorder) -> None:
    """All of it can be encoded, and nothing follows an item that is done."""
    json.dumps(recorder.told, ensure_ascii=False).encode()
    done: set[object] = set()
    for kind, item_id, *_ in (told for told in recorder.told if len(told) > 1):
        assert item_id not in done, recorder.told
        if str(kind).endswith(" done"):
            done.add(item_id)


@pytest.mark.parametrize(("wire", "stream"), [("chat", CHAT), ("responses", RESPONSES)])
def test_nonsense_makes_an_answer_or_a_failure(wire: str, stream: list[Any]) -> None:
    answers = 0
    for frames in with_nonsense(stream):
        recorder, reply = decoded(wire, frames)
        check_told(recorder)
        if reply is None:
            continue
        answers += 1
        list(completed_events(reply, "m"))
        history = repaired([{"role": "user", "content": "Hi"}, *reply.output])
        messages_of(history, upstream="u", replay_reasoning="always", developer_role="system")
        for_responses(history, "u")
        ids = [i["id"] for i in reply.output]
        assert len(set(ids)) == len(ids)
        assert all(
            isinstance(e[-1], str) for e in recorder.told if e[0] in ("text", "arguments", "thought", "refusal")
        )
    assert answers > 300


@pytest.mark.parametrize(("wire", "stream"), [("chat", CHAT), ("responses", RESPONSES)])
def test_lost_doubled_and_swapped_frames_tell_nothing_of_what_is_done(wire: str, stream: list[Any]) -> None:
    answers = 0
    for frames in out_of_order(stream):
        recorder, reply = decoded(wire, frames)
        check_told(recorder)
        answers += reply is not None
    assert answers > 20


@pytest.mark.parametrize(
    ("decoder", "one_more"),
    [
        (
            lambda: ChatDecoder(Recorder(), upstream="loop", max_item_size=9),
            lambda n: chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": "f"}}]}),
        ),
        (
            lambda: ResponsesDecoder(Recorder(), max_item_size=9),
            lambda n: response_event("response.output_item.added", item=HOSTED | {"id": f"ws_{n}"}),
        ),
    ],
    ids=["chat_completions", "responses"],
)
def test_an_answer_with_too_many_items_is_none(
    decoder: Callable[[], Decoder], one_more: Callable[[int], Any]
) -> None:
    answer = decoder()
    frames = [(b"", json.dumps(one_more(n)).encode()) for n in range(MAX_ITEMS + 1)]
    feed_frames(frames[:-1], answer)
    with pytest.raises(UpstreamFailure, match="1000 items"):
        feed_frames(frames[-1:], answer)
