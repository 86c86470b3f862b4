"""What Responses servers send, and what must come of it."""

import json

import pytest

from app.domain.usage import TokenCounts
from app.runtime.models.transport import UpstreamLimits
from tests.runtime.models.harness import exchange
from tests.runtime.models.loopback import Answer, completed_event, frames
from tests.runtime.models.loopback import response_event as event
from tests.runtime.models.responses_answers import added, answered, call, delta, done, message, refused

pytestmark = pytest.mark.anyio

COUNTS = TokenCounts(1, 0, 11, 4, 7, 0, 7, 0, 18)


TEXT = [
    event("response.created", response={"id": "resp_1"}),
    added(message("", content=[])),
    event("response.content_part.added", item_id="msg_1", output_index=0),
    delta("output_text", "msg_1", "Hel"),
    delta("output_text", "msg_1", "lo"),
    event("response.output_text.done", item_id="msg_1", text="Hello"),
]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*TEXT, done(message()), completed_event([message()])], id="as the page says"),
        pytest.param([*TEXT, done(message()), completed_event([])], id="final response is empty"),
        pytest.param([*TEXT, completed_event([message()])], id="never done"),
        pytest.param([*TEXT, completed_event([])], id="deltas alone"),
        pytest.param([*TEXT, done(message(content=[])), completed_event([])], id="done without content"),
        pytest.param([*TEXT, done(message(id="msg_9")), completed_event([message(id="x")])], id="ids rotate"),
        pytest.param(
            [
                delta("output_text", "msg_1", "Hel", None),
                delta("output_text", "msg_1", "lo", None),
                done(message(), None),
                completed_event([message()]),
            ],
            id="no places, nothing announced",
        ),
        pytest.param(
            [
                delta("output_text", None, "Hel", None),
                delta("output_text", None, "lo", None),
                completed_event(),
            ],
            id="neither ids nor places",
        ),
    ],
)
async def test_text_comes_out_once_whatever_events_carry_it(events: list[object]) -> None:
    seen = await answered(*events)
    assert seen.texts("text") == ["Hel", "lo"]
    assert seen.text == "Hello"
    assert len(seen.output or []) == 1
    assert seen.kinds() == ["text", "message done", "completed"]
    assert seen.counts == COUNTS


@pytest.mark.parametrize("events", [[done(message())], []])
async def test_text_without_deltas_is_one_whole_message(events: list[object]) -> None:
    seen = await answered(*events, completed_event([message()]))
    assert seen.kinds() == ["message done", "completed"]
    assert seen.text == "Hello"


async def test_a_server_s_own_ids_are_kept() -> None:
    seen = await answered(*TEXT, done(message()), done(call(), 1), completed_event([message(), call()]))
    assert [(i["id"], i.get("call_id")) for i in seen.output or []] == [("msg_1", None), ("fc_1", "call_a")]


async def test_calls_of_a_server_that_numbers_nothing_are_whole() -> None:
    """llama.cpp leaves out `output_index` and `sequence_number`."""
    seen = await answered(
        added(call(""), None),
        delta("function_call_arguments", "fc_1", '{"q', None),
        delta("function_call_arguments", "fc_1", '":1}', None),
        done(call(), None),
        completed_event([call()]),
    )
    assert seen.calls == [("f", '{"q":1}')]
    assert seen.texts("arguments") == ['{"q', '":1}']
    assert seen.kinds() == ["call", "arguments", "function_call done", "completed"]


async def test_parallel_calls_interleaved_are_told_apart() -> None:
    second = call('{"q":2}', id="fc_2", call_id="call_b")
    seen = await answered(
        added(call(""), 0),
        added({**second, "arguments": ""}, 1),
        delta("function_call_arguments", "fc_1", '{"q":1}', 0),
        delta("function_call_arguments", "fc_2", '{"q":2}', 1),
        done(second, 1),
        done(call(), 0),
        completed_event([call(), second]),
    )
    assert [i["call_id"] for i in seen.output or []] == ["call_a", "call_b"]
    assert [e[1] for e in seen.told if e[0] == "arguments"] == ["call_a", "call_b"]


@pytest.mark.parametrize(("sent", "kept"), [("", "{}"), (None, "{}"), ({"q": 1}, '{"q":1}'), ("[1]", "[1]")])
async def test_arguments_are_text_and_an_object_where_there_are_none(sent: object, kept: str) -> None:
    assert (await answered(done(call(sent)), completed_event([]))).calls == [("f", kept)]


async def test_one_call_id_twice_is_two_calls() -> None:
    seen = await answered(done(call(), 0), done(call(id="fc_2"), 1), completed_event([]))
    ids = [i["call_id"] for i in seen.output or []]
    assert ids[0] == "call_a"
    assert len(set(ids)) == 2


async def test_reasoning_s_summary_and_text_are_told_apart() -> None:
    summary = [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "opaque"}
    seen = await answered(
        added({**item, "summary": []}),
        event("response.reasoning_summary_part.added", item_id="rs_1", summary_index=0),
        delta("reasoning_summary_text", "rs_1", "First."),
        event("response.reasoning_summary_part.added", item_id="rs_1", summary_index=1),
        delta("reasoning_summary_text", "rs_1", "Second."),
        done(item),
        delta("reasoning_text", "rs_2", "Hm", 1),
        done({"type": "reasoning", "id": "rs_2", "summary": []}, 1),
        done(message(), 2),
        completed_event([]),
    )
    assert "".join(seen.texts("summary")) == "First.\n\nSecond."
    assert seen.texts("thought") == ["Hm"]
    assert seen.output is not None
    assert seen.output[0] == item
    assert seen.output[1]["content"] == [{"type": "reasoning_text", "text": "Hm"}]


@pytest.mark.parametrize(
    ("kind", "tool"),
    [
        ("web_search_call", "web_search"),
        ("file_search_call", "file_search"),
        ("mcp_call", "roll"),
        ("code_interpreter_call", "code_interpreter"),
        ("image_generation_call", "image_generation"),
    ],
)
async def test_hosted_tools_are_told_when_they_begin_and_end(kind: str, tool: str) -> None:
    item = {"type": kind, "id": "ws_1", "status": "in_progress"} | (
        {"name": "roll"} if kind == "mcp_call" else {}
    )
    whole = {**item, "status": "completed"}
    seen = await answered(
        added(item),
        event(f"response.{kind}.searching", item_id="ws_1"),
        done(whole),
        done(message(), 1),
        completed_event([whole, message()]),
    )
    assert seen.told[0] == ("hosted", "ws_1", tool, "provider")
    assert seen.kinds() == ["hosted", f"{kind} done", "message done", "completed"]
    assert seen.output == [whole, message()]


async def test_custom_tool_calls_stream_their_input() -> None:
    item = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_c", "name": "patch", "input": "*** x"}
    seen = await answered(
        added({**item, "input": ""}),
        delta("custom_tool_call_input", "ct_1", "*** x"),
        done(item),
        completed_event([item]),
    )
    assert seen.told[0] == ("call", "ct_1", "call_c", "patch")
    assert seen.texts("arguments") == ["*** x"]
    assert seen.output == [item]


async def test_refusals_and_annotations_are_told() -> None:
    citation = {
        "type": "url_citation",
        "url": "https://a.example",
        "title": "A",
        "start_index": 0,
        "end_index": 1,
    }
    part = {"type": "refusal", "refusal": "No."}
    seen = await answered(
        added(message("", content=[])),
        event("response.output_text.annotation.added", item_id="msg_1", output_index=0, annotation=citation),
        delta("refusal", "msg_1", "No."),
        done(message(content=[part])),
        completed_event([]),
    )
    assert ("annotation", "msg_1", citation) in seen.told
    assert seen.texts("refusal") == ["No."]
    assert seen.output is not None
    assert seen.output[0]["content"] == [part]


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        (
            event(
                "response.failed",
                response={"status": "failed", "error": {"code": "server_error", "message": "Oh."}},
            ),
            "upstream_error",
            "server_error",
        ),
        (
            event("response.failed", response={"error": {"code": "rate_limit_exceeded", "message": "Slow."}}),
            "rate_limited",
            "Slow.",
        ),
        (event("response.failed", response={"error": None}), "upstream_error", "no reason"),
        (event("error", code="context_length_exceeded", message="Long."), "context_length_exceeded", "Long."),
        (
            event("error", error={"type": "invalid_request_error", "message": "Bad."}),
            "upstream_rejected",
            "Bad.",
        ),
        ({"error": {"message": "Oh.", "code": 500}}, "upstream_error", "Oh."),
        (
            event("response.incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}}),
            "incomplete",
            "limit",
        ),
        (
            event("response.incomplete", response={"incomplete_details": {"reason": "content_filter"}}),
            "content_filtered",
            "filter",
        ),
        (
            completed_event(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "incomplete",
            "limit",
        ),
        (
            completed_event(status="failed", error={"code": "server_error", "message": "Oh."}),
            "upstream_error",
            "Oh.",
        ),
        (event("response.in_progress", response={}), "upstream_protocol", "final"),
        ("[DONE]", "upstream_protocol", "final"),
        ("{broken", "upstream_protocol", "JSON"),
        ('"text"', "upstream_protocol", "object"),
    ],
)
async def test_an_answer_that_does_not_end_well_fails_by_what_it_says(
    last: object, code: str, said: str
) -> None:
    failure, seen = await refused(*TEXT, last)
    assert failure.code == code
    assert said in failure.message
    assert seen.texts("text") == ["Hel", "lo"]


async def test_what_was_reported_before_a_failure_is_counted() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    for kind in ("incomplete", "failed"):
        _, seen = await refused(event(f"response.{kind}", response={"usage": usage}))
        assert seen.failures[0] is not None
        assert seen.failures[0].total_tokens == 5


async def test_a_whole_response_instead_of_a_stream_is_taken() -> None:
    body = json.dumps(completed_event([message(), call()])["response"]).encode()
    _, scope, failure = await exchange(Answer(body, content_type="application/json"), wire="responses")
    assert failure is None
    assert scope.last.text == "Hello"
    assert scope.last.calls == [("f", '{"q":1}')]


async def test_halves_of_a_pair_are_joined_in_deltas_and_items() -> None:
    seen = await answered(
        added(message("", content=[])),
        delta("output_text", "msg_1", "nice \ud83d"),
        delta("output_text", "msg_1", "\ude00"),
        done(message("nice \ud83d\ude00 \ud800")),
        completed_event([]),
    )
    assert "".join(seen.texts("text")) == "nice \U0001f600"
    assert seen.text == "nice \U0001f600 \ufffd"


async def test_a_message_beyond_the_limit_is_refused_with_and_without_deltas() -> None:
    small = UpstreamLimits(retries=0, max_message_bytes=1_000)
    for events in ([delta("output_text", "msg_1", "x" * 400)] * 3, [done(message("x" * 1_001))]):
        failure, _ = await refused(*events, completed_event(), limits=small)
        assert failure.code == "upstream_protocol"
        assert "1000" in failure.message


async def test_the_request_goes_to_responses() -> None:
    server, _, _ = await exchange(Answer(frames(done(message()), completed_event([]))), wire="responses")
    assert server.requests[0].path == "/v1/responses"
    assert server.requests[0].body == {
        "model": "m",
        "stream": True,
        "input": [{"type": "message", "role": "user", "content": "Say hello."}],
    }
