"""What servers put into a stream beside JSON, and how a body may begin."""

import json

import pytest

from app.runtime.failures import UpstreamFailure
from app.runtime.models.transport import Wire
from tests.runtime.models.chat_answers import STOP
from tests.runtime.models.harness import exchange
from tests.runtime.models.loopback import Answer, chunk, completed_event, frames
from tests.runtime.models.responses_answers import message

pytestmark = pytest.mark.anyio


async def test_an_error_event_that_holds_plain_text_says_it() -> None:
    _, _, failure = await exchange(
        Answer(frames(chunk({"content": "Hel"})) + b"event: error\ndata: the tide is out\n\n")
    )
    assert isinstance(failure, UpstreamFailure)
    assert (failure.code, "the tide is out" in failure.message) == ("upstream_error", True)


@pytest.mark.parametrize(
    "beat",
    [
        b"event: ping\ndata: ping\n\n",
        b"event: heartbeat\ndata: 2026-01-01T00:00:00Z\n\n",
        b"event: keepalive\ndata: still here\n\n",
    ],
)
async def test_a_heartbeat_that_is_no_json_is_passed_over(beat: bytes) -> None:
    _, scope, failure = await exchange(
        Answer(frames(chunk({"content": "Hel"})) + beat + frames(chunk({"content": "lo"}), STOP, done=True))
    )
    assert failure is None
    assert scope.last.text == "Hello"


@pytest.mark.parametrize("end", ["[done]", "DONE", "[ DONE ]"])
async def test_the_end_may_be_written_otherwise_once_the_answer_is_whole(end: str) -> None:
    _, scope, failure = await exchange(Answer(frames(chunk({"content": "Hi"}), STOP, end)))
    assert failure is None
    assert scope.last.text == "Hi"


@pytest.mark.parametrize("wire", ["chat_completions", "responses"])
async def test_a_document_may_begin_with_a_byte_order_mark(wire: Wire) -> None:
    whole = (
        {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
        if wire == "chat_completions"
        else completed_event([message()])["response"]
    )
    _, scope, failure = await exchange(
        Answer(b"\xef\xbb\xbf" + json.dumps(whole).encode(), content_type="application/json"), wire=wire
    )
    assert failure is None
    assert scope.last.text == "Hello"


@pytest.mark.parametrize("encoding", ["br", "zstd"])
async def test_an_encoding_that_nobody_asked_for_is_no_missing_server(encoding: str) -> None:
    _, _, failure = await exchange(Answer(b"\x1b\x03\x00xyz", headers={"content-encoding": encoding}))
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "upstream_protocol"
