"""The ways in which Responses servers say the same thing, and the ways in which they say that it went wrong."""

import json
from typing import Any

import pytest

from app.runtime.failures import UpstreamFailure
from tests.runtime.models.harness import exchange
from tests.runtime.models.loopback import USAGE, Answer, completed_event, frames
from tests.runtime.models.loopback import response_event as event
from tests.runtime.models.responses_answers import added, answered, call, delta, done, message, refused

pytestmark = pytest.mark.anyio

BEGUN = added(message("", content=[]))
END = completed_event()
DELTAS = [delta("output_text", "msg_1", "Hel"), delta("output_text", "msg_1", "lo")]
TEXT = [BEGUN, *DELTAS, done(message())]


def created(response_id: str = "resp_1", **fields: Any) -> dict[str, Any]:
    return event("response.created", response={"id": response_id, "output": [], **fields})


def without(name: str, item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != name}


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "Hello",
        {"type": "output_text", "text": "Hello"},
        ["Hello"],
        [{"type": "text", "text": "Hello", "annotations": None}],
        [{"type": "output_text", "text": {"value": "Hello"}}],
        [{"type": "picture", "x": 1}, {"type": "output_text", "text": "Hello"}],
    ],
)
async def test_a_message_s_content_is_read_in_every_shape(content: Any) -> None:
    seen = await answered(completed_event([message(content=content)]))
    assert seen.text == "Hello"
    assert seen.output is not None
    assert {part["type"] for part in seen.output[0]["content"]} == {"output_text"}


TEXT_ONLY = event("response.output_text.done", item_id="msg_1", output_index=0, text="Hello")
PART_ONLY = event("response.content_part.done", item_id="msg_1", part={"type": "output_text", "text": "Hello"})


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([TEXT_ONLY, END], id="its text alone"),
        pytest.param([PART_ONLY, END], id="its part alone"),
        pytest.param([BEGUN, *DELTAS, TEXT_ONLY, PART_ONLY, END], id="all of them"),
        pytest.param([BEGUN, delta("output_text", "msg_1", {"text": "Hello"}), END], id="an object"),
        pytest.param([completed_event(output_text="Hello")], id="the final text alone"),
        pytest.param([completed_event([without("type", message())])], id="no type"),
        pytest.param([{"type": "response.completed", "output": [message()], "usage": {}}], id="no response"),
        pytest.param([*TEXT, event("response.completed", response=None)], id="a null response"),
        pytest.param([completed_event([message()])["response"]], id="a response for an event"),
        pytest.param([event("response.completed", response={"output": message()})], id="no list"),
        pytest.param([*TEXT, *DELTAS, TEXT_ONLY, completed_event([message()])], id="late deltas"),
        pytest.param([*TEXT, done(message()), completed_event([message()])], id="done twice"),
        pytest.param([BEGUN, *TEXT, completed_event([message()])], id="announced twice"),
        pytest.param(
            [added(message("", id=1), "0"), delta("output_text", 1, "Hello", "0"), END],
            id="numbers for ids, texts for places",
        ),
        pytest.param(
            [
                BEGUN,
                delta("output_text", "msg_1", "Hello", 3),
                done(message(), 3),
                completed_event([message()]),
            ],
            id="places that do not agree",
        ),
        pytest.param([created(), created(), [BEGUN], [*DELTAS, done(message())], END], id="lists"),
        pytest.param([created("resp_0"), created(), *TEXT, END], id="a second beginning in time"),
        pytest.param(["[]", event("response.new", x=1), {"type": "ping"}, *TEXT, END], id="noise"),
    ],
)
async def test_text_comes_out_once_however_it_is_told(events: list[object]) -> None:
    seen = await answered(*events)
    assert seen.text == "Hello"
    assert len(seen.output or []) == 1
    assert seen.kinds()[-2:] == ["message done", "completed"]
    assert "".join(seen.texts("text")) in ("Hello", "")


async def test_two_messages_of_one_id_are_two() -> None:
    for place in (0, 1):
        again = [added(message("", content=[]), place), delta("output_text", "msg_1", "You", place)]
        seen = await answered(*TEXT, *again, done(message("You"), place), END)
        assert seen.text == "Hello|You"
        assert len({item["id"] for item in seen.output or []}) == 2


async def test_messages_of_one_id_side_by_side_are_told_apart_by_their_places() -> None:
    seen = await answered(
        BEGUN,
        added(message("", content=[]), 1),
        delta("output_text", "msg_1", "Hello", 0),
        delta("output_text", "msg_1", "You", 1),
        done(message("You"), 1),
        done(message("Hello"), 0),
        completed_event([message("Hello"), message("You")]),
    )
    assert seen.text == "Hello|You"


@pytest.mark.parametrize("summary", ["Hm.", ["Hm."], [{"text": "Hm."}]])
async def test_reasoning_is_read_in_every_shape(summary: Any) -> None:
    seen = await answered(
        done({"type": "reasoning", "id": "rs_1", "summary": summary}), *TEXT, completed_event()
    )
    assert seen.output is not None
    assert seen.output[0]["summary"] == [{"type": "summary_text", "text": "Hm."}]


@pytest.mark.parametrize("kind", ["reasoning_text", "reasoning_content", "reasoning", "reasoning_summary"])
async def test_reasoning_streams_under_every_name(kind: str) -> None:
    seen = await answered(delta(kind, "rs_1", "Hm."), done(message(), 1), END)
    assert seen.texts("thought") + seen.texts("summary") == ["Hm."]


async def test_blanks_are_no_answer() -> None:
    for events in ([done(message(" \n"))], [BEGUN, delta("output_text", "msg_1", " \n"), done(message(" \n"))]):
        server, scope, failure = await exchange(
            Answer(frames(*events, completed_event(usage=None))), wire="responses"
        )
        assert isinstance(failure, UpstreamFailure)
        assert (failure.code, len(server.requests)) == ("empty_completion", 2)
        assert "message done" not in scope.last.kinds()


@pytest.mark.parametrize(
    "events",
    [
        [event("response.refusal.done", item_id="msg_1", refusal="No.")],
        [event("response.content_part.done", item_id="msg_1", part={"type": "refusal", "refusal": "No."})],
        [done(message(content=[{"type": "refusal", "text": "No."}]))],
    ],
)
async def test_a_refusal_is_read_in_every_shape(events: list[object]) -> None:
    seen = await answered(*events, END)
    assert seen.output is not None
    assert seen.output[0]["content"] == [{"type": "refusal", "refusal": "No."}]


# --- items --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        {"type": "weird_thing", "id": "w", "call_id": "call_a", "x": {"y": 1}},
        {"type": "weird_call", "id": "fc_1", "call_id": "call_a", "name": "f"},
        {"type": "function_call_output", "id": "fo_1", "call_id": "call_a", "output": "42"},
        {"type": "shell_call_output", "id": "so_1", "call_id": "call_a", "output": []},
        {"type": "we\ud83dird", "\ud83d": 1},
    ],
)
async def test_items_that_have_no_place_are_told_once_and_left_out(item: dict[str, Any]) -> None:
    seen = await answered(done(call()), added(item, 1), done(item, 1), completed_event([call(), item]))
    assert seen.calls == [("f", '{"q":1}')]
    assert [i["type"] for i in seen.output or []] == ["function_call"]
    assert seen.warnings == ["unknown_item"]
    assert "hosted" not in seen.kinds()
    json.dumps(seen.told, ensure_ascii=False).encode()


async def test_a_hosted_tool_s_names_are_texts_or_nothing() -> None:
    item = {"type": "mcp_call", "id": "mc_1", "name": {"x": 1}, "server_label": ["y"], "arguments": {"q": 1}}
    seen = await answered(added(item), done(item), *TEXT, END)
    assert seen.output is not None
    assert seen.output[0] == {"type": "mcp_call", "id": "mc_1", "arguments": '{"q":1}'}
    assert seen.told[0] == ("hosted", "mc_1", "mcp", "provider")


async def test_an_answer_of_nothing_known_is_an_empty_one() -> None:
    for kind in ("weird_thing", "mcp_list_tools"):
        server, _, failure = await exchange(
            Answer(frames(done({"type": kind, "id": "w"}), completed_event(usage=None))), wire="responses"
        )
        assert isinstance(failure, UpstreamFailure)
        assert (failure.code, len(server.requests)) == ("empty_completion", 2)


SECOND = call('{"q":2}', id="fc_2", call_id="call_b")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [
                added(call("", id="fc"), 0),
                added({**SECOND, "id": "fc", "arguments": ""}, 1),
                delta("function_call_arguments", "fc", '{"q":1}', 0),
                delta("function_call_arguments", "fc", '{"q":2}', 1),
                done({**SECOND, "id": "fc"}, 1),
                done(call(id="fc"), 0),
            ],
            id="one item id",
        ),
        pytest.param(
            [
                added(call("")),
                added({**SECOND, "arguments": ""}),
                delta("function_call_arguments", "fc_1", '{"q":1}'),
                delta("function_call_arguments", "fc_2", '{"q":2}'),
                done(call()),
                done(SECOND),
            ],
            id="one place",
        ),
        pytest.param(
            [added(call(""), 0), added(call(""), 1), done(call(), 0), done(call('{"q":2}'), 1)],
            id="all ids alike",
        ),
        pytest.param(
            [done(call(id=None, call_id=None), 0), done(call('{"q":2}', id=None, call_id=None), 1)],
            id="no ids",
        ),
        pytest.param([done(SECOND, 1), done(call(), 0)], id="the second first"),
    ],
)
async def test_calls_are_told_apart_by_whatever_differs(events: list[object]) -> None:
    for final in ([], [call(), SECOND]):
        seen = await answered(*events, completed_event(final))
        assert seen.calls[:2] == [("f", '{"q":1}'), ("f", '{"q":2}')]
        assert len({item["call_id"] for item in seen.output or []}) == len(seen.output or [])


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([done(call()), done(call()), completed_event([call()])], id="done twice"),
        pytest.param([added(call("")), added(call("")), done(call()), END], id="announced twice"),
        pytest.param(
            [
                added(call("", id="a")),
                delta("function_call_arguments", "b", '{"q":1}'),
                done(call(id="c")),
                completed_event([call(id="d")]),
            ],
            id="a new item id each time",
        ),
        pytest.param(
            [added(call("", call_id="a")), done(call(call_id="b")), completed_event([call(call_id="c")])],
            id="a new call id each time",
        ),
        pytest.param(
            [delta("function_call_arguments", "x", '{"q":1}'), completed_event([call()])],
            id="a stranger's deltas",
        ),
        pytest.param(
            [
                added(call("", name=None)),
                delta("function_call_arguments", "fc_1", '{"q":1}'),
                event("response.function_call_arguments.done", item_id="fc_1", name="f", arguments='{"q":1}'),
                completed_event(),
            ],
            id="its name with the end of its arguments",
        ),
        pytest.param(
            [
                added(call("")),
                event("response.function_call_arguments.done", item_id="fc_1", arguments={"q": 1}),
                completed_event(),
            ],
            id="arguments at their end alone",
        ),
        pytest.param(
            [added(call("")), delta("function_call_arguments", "fc_1", {"q": 1}), END],
            id="an object for a delta",
        ),
        pytest.param([done(call(json.dumps('{"q":1}'))), END], id="JSON within a text"),
        pytest.param([done(without("type", call())), END], id="no type"),
    ],
)
async def test_one_call_is_one_however_it_is_told(events: list[object]) -> None:
    seen = await answered(*events)
    assert [(name, json.loads(arguments)) for name, arguments in seen.calls] == [("f", {"q": 1})]
    assert len([told for told in seen.told if told[0] == "call"]) == 1


async def test_halves_in_names_and_ids_reach_nobody() -> None:
    seen = await answered(
        done(call(name="f\ud83d", id="i\ud83d", call_id="c\ud83d")), completed_event(id="\ud83d")
    )
    assert seen.calls == [("f\ufffd", '{"q":1}')]
    json.dumps([seen.told, seen.output], ensure_ascii=False).encode()


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"error": "it broke"}, "upstream_error"),
        ({"error": [{"message": "it broke", "code": 429}]}, "rate_limited"),
        ({"last_error": {"code": "server_error", "message": "it broke"}}, "upstream_error"),
        ({"status_details": {"error": {"code": "rate_limit_exceeded", "message": "it broke"}}}, "rate_limited"),
        ({"error": {"type": "invalid_request_error", "message": "it broke"}}, "upstream_rejected"),
    ],
)
async def test_a_response_that_failed_says_why_in_every_shape(error: dict[str, Any], code: str) -> None:
    for last in (
        event("response.failed", response=error),
        event("response.failed", **error),
        completed_event(**({"status": None} | error))
        if "error" in error
        else event("response.failed", **error),
        created(status="failed", **error),
    ):
        failure, _ = await refused(last)
        assert failure.code == code
        assert "it broke" in failure.message


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("safety", "content_filtered"),
        ("content-filter", "content_filtered"),
        ("server_error", "upstream_error"),
        ("whatever", "incomplete"),
        (None, "incomplete"),
    ],
)
async def test_an_incomplete_response_says_what_stopped_it(reason: str | None, code: str) -> None:
    for details in ({"reason": reason}, reason):
        last = event("response.incomplete", response={"incomplete_details": details, "usage": USAGE})
        failure, seen = await refused(*TEXT, last)
        assert failure.code == code
        assert seen.failures[0] is not None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "it broke"}, "rate_limited"),
        ({"detail": "it broke"}, "upstream_error"),
        ({"object": "error", "message": "it broke", "code": 500}, "upstream_error"),
        ({"code": 500, "msg": "it broke"}, "upstream_error"),
        ([{"error": {"message": "it broke", "code": 503}}], "upstream_error"),
        ({"type": "error", "code": None, "message": "it broke", "param": None}, "upstream_error"),
    ],
)
async def test_an_error_is_told_in_every_shape(error: Any, code: str) -> None:
    for before in ([], [BEGUN, *DELTAS]):
        failure, _ = await refused(*before, error)
        assert failure.code == code
        assert "it broke" in failure.message


async def test_a_response_that_begins_again_after_text_is_no_answer() -> None:
    failure, seen = await refused(created(), BEGUN, DELTAS[0], created("resp_2"), *TEXT, END)
    assert failure.code == "upstream_protocol"
    assert seen.texts("text") == ["Hel"]


async def test_a_response_that_is_not_finished_is_no_answer() -> None:
    body = json.dumps(completed_event([message()], status="in_progress")["response"]).encode()
    _, _, failure = await exchange(Answer(body, content_type="application/json"), wire="responses")
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "upstream_protocol"


async def test_usage_is_found_wherever_it_stands() -> None:
    early = event("response.in_progress", response={"usage": USAGE})
    for events in (
        [early, completed_event(usage=None)],
        [early, completed_event(usage=dict.fromkeys(USAGE, 0))],
        [event("response.completed", usage=USAGE, response={"output": []})],
        [completed_event(usage={k: str(v) for k, v in USAGE.items()})],
    ):
        seen = await answered(*TEXT, *events)
        assert seen.counts is not None
        assert seen.counts.total_tokens == 18
    _, seen = await refused(*TEXT, early)
    assert seen.failures[0] is not None
