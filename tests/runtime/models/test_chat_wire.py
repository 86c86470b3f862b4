"""What Chat Completions servers send, as it was reported from the field, and what must come of it."""

import json
from typing import Any

import pytest

from app.domain.usage import TokenCounts
from app.runtime.failures import UpstreamFailure
from app.runtime.models.transport import UpstreamLimits
from tests.runtime.models.chat_answers import CALLS, STOP, answered, call, refused
from tests.runtime.models.harness import QUICK, exchange
from tests.runtime.models.loopback import USAGE, USAGE_CHUNK, Answer, chunk, frames, text_answer

pytestmark = pytest.mark.anyio

COUNTS = TokenCounts(1, 0, 11, 0, 11, 0, 7, 0, 18)


async def test_text_is_shown_as_it_comes_and_whole_at_the_end() -> None:
    seen = await answered(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "He"}),
        chunk({"content": "llo"}),
        STOP,
        USAGE_CHUNK,
    )
    assert seen.texts("text") == ["He", "llo"]
    assert seen.text == "Hello"
    assert seen.kinds() == ["text", "message done", "completed"]
    assert seen.counts == COUNTS


async def test_content_may_be_a_list_of_typed_blocks() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    seen = await answered(
        chunk({"content": [thought]}), chunk({"content": [{"type": "text", "text": "Hello"}]}), STOP
    )
    assert seen.texts("summary") == ["Hm."]
    assert seen.text == "Hello"
    assert seen.output is not None
    assert seen.output[0]["summary"] == [{"type": "summary_text", "text": "Hm."}]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_fields_are_reasoning_and_end_where_text_begins(field: str) -> None:
    seen = await answered(chunk({field: "I "}), chunk({field: "think"}), chunk({"content": "Yes"}), STOP)
    assert seen.kinds() == ["thought", "reasoning done", "text", "message done", "completed"]
    assert seen.output is not None
    assert seen.output[0]["content"] == [{"type": "reasoning_text", "text": "I think"}]


async def test_thought_that_is_sent_in_two_fields_is_shown_once() -> None:
    seen = await answered(chunk({"reasoning": "Hm", "reasoning_content": "Hm"}), chunk({"content": "x"}), STOP)
    assert seen.texts("thought") == ["Hm"]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([call(0, "a", "f", '{"q":1}'), call(0, "b", "f", '{"q":2}')], id="all numbered 0"),
        pytest.param([call(None, "a", "f", '{"q":1}'), call(None, "b", "f", '{"q":2}')], id="no index"),
        pytest.param([call(0, None, "f", '{"q":1}'), call(1, None, "f", '{"q":2}')], id="no ids"),
        pytest.param([call(0, None, "f", '{"q":1}'), call(0, None, "f", '{"q":2}')], id="no ids, all 0"),
        pytest.param([call(None, None, "f", '{"q":1}'), call(None, None, "f", '{"q":2}')], id="nothing"),
        pytest.param([call(0, "a", "f", '{"q":1}'), call(1, "a", "f", '{"q":2}')], id="one id for two"),
        pytest.param([call(0, "a", "f", {"q": 1}), call(1, "b", "f", {"q": 2})], id="objects"),
        pytest.param(
            [
                call(0, "a", "f", '{"q'),
                call(0, None, None, '":1}'),
                call(0, "b", "f"),
                call(0, None, None, '{"q":2}'),
            ],
            id="all 0, in pieces",
        ),
        pytest.param(
            [
                call(0, "a", "f", '{"q'),
                call(0, "a", "f", '":1}'),
                call(1, "b", "f", '{"q":'),
                call(1, "b", "f", "2}"),
            ],
            id="id and name repeated",
        ),
        pytest.param(
            [call(0, None, "f", '{"q'), call(0, "late", None, '":1}'), call(1, "b", "f", '{"q":2}')],
            id="an id that comes late",
        ),
        pytest.param(
            [call(0, "a", None, '{"q'), call(0, None, "f", '":1}'), call(1, "b", "f", '{"q":2}')],
            id="a name that comes late",
        ),
        pytest.param(
            [
                {
                    "tool_calls": [
                        call(0, "a", "f", '{"q":1}')["tool_calls"][0],
                        call(1, "b", "f", '{"q":2}')["tool_calls"][0],
                    ]
                }
            ],
            id="in one chunk",
        ),
    ],
)
async def test_parallel_calls_are_told_apart(deltas: list[dict[str, Any]]) -> None:
    seen = await answered(*(chunk(d) for d in deltas), CALLS)
    assert [(name, json.loads(arguments)) for name, arguments in seen.calls] == [
        ("f", {"q": 1}),
        ("f", {"q": 2}),
    ]
    ids = [i["call_id"] for i in seen.output or []]
    assert len(set(ids)) == 2
    assert all(ids)
    shown = [entry for entry in seen.told if entry[0] == "arguments"]
    for call_id, (_, arguments) in zip(ids, seen.calls, strict=True):
        assert "".join(str(e[2]) for e in shown if e[1] == call_id) == arguments


async def test_calls_of_different_names_numbered_alike_are_two() -> None:
    seen = await answered(chunk(call(0, None, "f", "{}")), chunk(call(0, None, "g", "{}")), CALLS)
    assert [name for name, _ in seen.calls] == ["f", "g"]


async def test_nulls_in_continuations_overwrite_nothing() -> None:
    entry = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": '{"q":1}'}}
    seen = await answered(chunk(call(0, "a", "f")), chunk({"content": None, "tool_calls": [entry]}), CALLS)
    assert seen.calls == [("f", '{"q":1}')]
    assert seen.told[0][2:] == ("a", "f")


@pytest.mark.parametrize("arguments", ["", "  \n", None, "null"])
async def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    seen = await answered(chunk(call(0, "a", "now", arguments)), CALLS)
    assert seen.calls == [("now", "{}")]


@pytest.mark.parametrize("arguments", ['{"q":', "[1]", '"x"', "7", "q=1", '{"q":1}{"q":2}'])
async def test_arguments_that_are_no_object_are_kept_as_they_came(arguments: str) -> None:
    seen = await answered(chunk(call(0, "a", "f", arguments)), CALLS)
    assert seen.calls == [("f", arguments)]


async def test_the_old_function_call_is_a_call() -> None:
    seen = await answered(
        chunk({"function_call": {"name": "f", "arguments": '{"q'}}),
        chunk({"function_call": {"arguments": '":1}'}}),
        chunk(finish="function_call"),
    )
    assert seen.calls == [("f", '{"q":1}')]


async def test_calls_count_whatever_the_finish_is_called() -> None:
    seen = await answered(chunk(call(0, "a", "f", "{}")), STOP)
    assert seen.calls == [("f", "{}")]


async def test_arguments_without_a_name_are_no_call() -> None:
    failure, seen = await refused(chunk(call(0, "a", None, '{"q":1}')), CALLS)
    assert failure.code == "upstream_protocol"
    assert not seen.calls


async def test_text_before_a_call_ends_where_the_call_begins() -> None:
    seen = await answered(chunk({"content": "Let me see."}), chunk(call(0, "a", "f", "{}")), CALLS)
    assert seen.kinds() == ["text", "message done", "call", "arguments", "function_call done", "completed"]


async def test_what_a_provider_attached_to_a_call_is_kept_for_it() -> None:
    entry = call(0, "a", "f", "{}")["tool_calls"][0] | {"extra_content": {"google": {"thought_signature": "s"}}}
    seen = await answered(chunk({"tool_calls": [entry]}), CALLS)
    assert seen.output is not None
    assert seen.output[0]["provider_data"]["extra_content"] == {"google": {"thought_signature": "s"}}


async def test_chunks_without_choices_without_delta_and_of_other_choices_are_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
    seen = await answered(
        {"id": "", "choices": [], "prompt_filter_results": []},
        chunk({"content": "Hi"}),
        other,
        {"choices": None},
        "null",
        chunk(finish="stop"),
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]},
        {"choices": [{"index": 0, "delta": None}]},
        USAGE_CHUNK,
    )
    assert seen.text == "Hi"
    assert seen.counts == COUNTS


@pytest.mark.parametrize(
    "events",
    [
        [chunk({"content": "Hi"}, usage=USAGE), chunk(finish="stop", usage=None)],
        [chunk({"content": "Hi"}), chunk(finish="stop", usage=USAGE), chunk(usage=None)],
        [chunk({"content": "Hi"}), chunk(finish="stop"), USAGE_CHUNK],
        [chunk({"content": "Hi"}, usage={**USAGE, "completion_tokens": 1}), chunk(finish="stop", usage=USAGE)],
        [chunk({"content": "Hi"}), {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}],
    ],
)
async def test_the_last_usage_that_was_told_counts(events: list[object]) -> None:
    assert (await answered(*events)).counts == COUNTS


async def test_usage_that_was_not_told_is_unknown() -> None:
    assert (await answered(chunk({"content": "Hi"}), STOP)).counts is None


async def test_details_of_usage_are_read_by_any_name() -> None:
    usage = USAGE | {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    seen = await answered(chunk({"content": "Hi"}), chunk(finish="stop", usage=usage))
    assert seen.counts == TokenCounts(1, 0, 11, 4, 7, 0, 7, 5, 18)


async def test_text_after_the_finish_still_counts() -> None:
    seen = await answered(chunk({"content": "a"}), STOP, chunk({"content": "b"}))
    assert seen.text == "ab"


async def test_the_done_frame_may_be_missing() -> None:
    assert (await answered(chunk({"content": "Hi"}), STOP, done=False)).text == "Hi"


async def test_a_stream_without_a_finish_reason_is_no_answer() -> None:
    for done in (True, False):
        failure, seen = await refused(chunk({"content": "Part of an ans"}), done=done)
        assert failure.code == "upstream_protocol"
        assert seen.texts("text") == ["Part of an ans"]


async def test_the_token_limit_cuts_an_answer() -> None:
    failure, seen = await refused(chunk({"content": "Hal"}), chunk(finish="length"), USAGE_CHUNK)
    assert failure.code == "incomplete"
    assert seen.failures == [COUNTS]


async def test_a_filtered_answer_keeps_its_usage_and_is_asked_for_once() -> None:
    answer = Answer(frames(chunk({"content": ""}), chunk(finish="content_filter"), USAGE_CHUNK, done=True))
    server, scope, failure = await exchange(answer, limits=UpstreamLimits(retries=3))
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "content_filtered"
    assert scope.last.failures == [COUNTS]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ({"message": "overloaded", "type": "server_error", "code": 503}, "upstream_error", "overloaded"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limited", "slow down"),
        ({"message": "m", "code": "context_length_exceeded"}, "context_length_exceeded", "m"),
        ({"message": "no reason"}, "upstream_error", "no reason"),
        ("just text", "upstream_error", "just text"),
        ({"message": "bad", "code": 400}, "upstream_rejected", "bad"),
    ],
)
async def test_an_error_within_a_stream_keeps_what_it_says(error: Any, code: str, said: str) -> None:
    failure, seen = await refused(chunk({"content": "Part"}), {"error": error})
    assert failure.code == code
    assert said in failure.message
    assert seen.texts("text") == ["Part"]


async def test_errors_come_in_other_shapes_too() -> None:
    vllm = {"object": "error", "message": "it broke", "type": "InternalServerError", "code": 500}
    in_choice = {"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "it broke"}}]}
    named = 'data: {"message": "it broke", "code": 500}\n\n'
    for body in (frames(vllm), frames(in_choice), b"event: error\n" + named.encode()):
        _, _, failure = await exchange(Answer(body))
        assert isinstance(failure, UpstreamFailure)
        assert failure.code == "upstream_error"
        assert "it broke" in failure.message


async def test_a_frame_that_is_no_json_ends_the_call() -> None:
    for frame in ('{"choices": [{"del', "ping", "[1, 2]"):
        failure, _ = await refused(chunk({"content": "Part"}), frame, STOP)
        assert failure.code == "upstream_protocol"


async def test_empty_data_lines_keep_a_stream_alive_and_say_nothing() -> None:
    seen = await answered(chunk({"content": "slow "}), "", chunk({"content": "answer"}), STOP)
    assert seen.text == "slow answer"


async def test_text_survives_whatever_framing_and_reads_it_comes_in() -> None:
    texts = ["a\u2028b\x85c", "\u2029d\re\nf", "event: done\n\ndata: {}\n\n\x00"]
    events = [json.dumps(chunk({"content": t}), ensure_ascii=False) for t in texts]
    body = frames(*events, chunk(finish="stop"), newline="\r\n", done=True)
    _, scope, failure = await exchange(Answer(body, cuts=(25, 26, 120, 121, 140, 141, 142)))
    assert failure is None
    assert scope.last.text == "".join(texts)


async def test_halves_of_a_surrogate_pair_in_two_deltas_are_one_character() -> None:
    first, second = chunk({"content": "nice \ud83d"}), chunk({"content": "\ude00 \x00!"})
    seen = await answered(first, second, STOP)
    assert seen.text == "nice \U0001f600 \x00!"
    assert seen.texts("text") == ["nice ", "\U0001f600 \x00!"]


async def test_a_half_that_stays_alone_is_replaced_at_the_end() -> None:
    seen = await answered(chunk({"content": "nice \ud83d"}), STOP)
    assert seen.text == "".join(seen.texts("text")) == "nice \ufffd"


async def test_refusals_and_citations_are_told() -> None:
    citation = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
    seen = await answered(
        chunk({"content": "See A."}), chunk({"annotations": [citation]}), chunk({"refusal": "No."}), STOP
    )
    flat = {"type": "url_citation", "url": "https://a.example", "title": "A"}
    assert seen.output is not None
    assert seen.output[0]["content"] == [
        {"type": "output_text", "text": "See A.", "annotations": [flat]},
        {"type": "refusal", "refusal": "No."},
    ]
    assert ("annotation", seen.output[0]["id"], flat) in seen.told
    assert seen.texts("refusal") == ["No."]


async def test_a_whole_completion_instead_of_a_stream_is_taken() -> None:
    message = {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
    }
    body = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }
    _, scope, failure = await exchange(Answer(json.dumps(body).encode(), content_type="application/json"))
    assert failure is None
    assert scope.last.text == "Hi"
    assert scope.last.calls == [("f", "{}")]
    assert scope.last.counts == COUNTS


@pytest.mark.parametrize(
    "body", [b"<html>oops</html>", b'{"error": {"message": "no"}}', b"[]", b"{broken", b"", b"all is well"]
)
async def test_a_document_that_is_no_answer_is_a_protocol_failure_without_its_markup(body: bytes) -> None:
    _, _, failure = await exchange(Answer(body, content_type="text/html"))
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "upstream_protocol"
    assert "<" not in failure.message


async def test_frames_and_messages_have_their_limits() -> None:
    small = UpstreamLimits(retries=0, max_frame_bytes=1_000, max_message_bytes=2_000)
    failure, _ = await refused(chunk({"content": "x" * 1_500}), STOP, limits=small)
    assert (failure.code, "1000" in failure.message) == ("upstream_protocol", True)
    failure, _ = await refused(*[chunk({"content": "x" * 500})] * 5, STOP, limits=small)
    assert (failure.code, "2000" in failure.message) == ("upstream_protocol", True)
    failure, _ = await refused(*[chunk(call(0, "a", "f", "x" * 500))] * 5, STOP, limits=small)
    assert (failure.code, "2000" in failure.message) == ("upstream_protocol", True)


async def test_the_request_asks_for_a_stream_with_usage() -> None:
    server, _, _ = await exchange(text_answer(), limits=QUICK)
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == "bearer key-for-tests-0000"
    assert server.requests[0].body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Say hello."}],
    }
