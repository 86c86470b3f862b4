"""The ways in which Chat Completions servers say the same thing, and those in which they say what failed."""

import json
from typing import Any

import pytest

from app.runtime.failures import UpstreamFailure
from app.runtime.models.transport import UpstreamLimits
from tests.runtime.models.chat_answers import CALLS, STOP, answered, call, refused
from tests.runtime.models.harness import exchange
from tests.runtime.models.loopback import USAGE, Answer, chunk, frames

pytestmark = pytest.mark.anyio


def choice(**fields: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [fields]}


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([chunk({"content": ["Hel", "lo"]}), STOP], id="a list of texts"),
        pytest.param([chunk({"content": {"type": "text", "text": "Hello"}}), STOP], id="one block"),
        pytest.param([chunk({"content": [{"type": "text", "text": {"value": "Hello"}}]}), STOP], id="a value"),
        pytest.param([chunk({"content": [{"type": "text", "content": "Hello"}]}), STOP], id="content again"),
        pytest.param([choice(text="Hel"), choice(text="lo", finish_reason="stop")], id="plain completions"),
        pytest.param(
            [choice(message={"content": "Hel"}), choice(message={"content": "lo"}, finish_reason="stop")],
            id="messages for deltas",
        ),
        pytest.param(
            [chunk({"content": "Hello"}), choice(delta={}, message={"content": "Hello"}, finish_reason="stop")],
            id="all again at the end",
        ),
        pytest.param(
            [chunk({"role": "assistant", "content": ""}), choice(message={"content": "Hello"}), STOP],
            id="nothing in pieces, all at the end",
        ),
        pytest.param(
            [choice(index="0", delta={"content": "Hello"}), choice(index="0", finish_reason="stop")],
            id="a number as text",
        ),
        pytest.param(
            [choice(index=1, delta={"content": "Hello"}), choice(index=1, finish_reason="stop")],
            id="choices from 1",
        ),
        pytest.param(
            [{"choices": {"delta": {"content": "Hello"}}}, {"choices": {"finish_reason": "stop"}}],
            id="one choice without a list",
        ),
        pytest.param([[chunk({"content": "Hello"})], [STOP]], id="lists of chunks"),
        pytest.param([chunk({"content": "Hello"}), "[]", STOP], id="an empty list between"),
        pytest.param([chunk({"content": "Hello"}), STOP, '"[DONE]"'], id="the end as JSON"),
    ],
)
async def test_text_is_read_in_every_shape_once(events: list[object]) -> None:
    seen = await answered(*events)
    assert seen.text == "".join(seen.texts("text")) == "Hello"
    assert seen.kinds() == ["text", "message done", "completed"]


@pytest.mark.parametrize(
    "field",
    [
        "reasoning_content",
        "reasoning",
        "reasoning_text",
        "thinking",
        "thought",
        "reasoning_details",
        "thinking_blocks",
    ],
)
@pytest.mark.parametrize("value", ["Hm.", {"content": "Hm."}, [{"type": "reasoning.text", "text": "Hm."}]])
async def test_thought_is_read_in_every_field_and_shape(field: str, value: Any) -> None:
    seen = await answered(chunk({field: value}), chunk({"content": "Yes"}), STOP)
    assert seen.texts("thought") == ["Hm."]
    assert seen.text == "Yes"


DETAILS = [
    [{"type": "reasoning.text", "text": "H", "signature": None, "index": 0}],
    [
        {"type": "reasoning.text", "text": "m.", "index": 0},
        {"type": "reasoning.text", "signature": "s", "index": 0},
    ],
    [
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
        {"type": "reasoning.encrypted", "data": "y"},
        7,
    ],
]


async def test_what_a_provider_adds_to_thought_is_kept_whole_for_it() -> None:
    thought = [
        chunk({"reasoning": t, "reasoning_details": d}) for t, d in zip(["H", "m.", ""], DETAILS, strict=True)
    ]
    seen = await answered(*thought, chunk(call(0, "a", "f", "{}")), CALLS)
    assert seen.texts("thought") == ["H", "m."]
    assert seen.output is not None
    assert seen.output[0]["provider_data"]["details"] == {
        "reasoning_details": [
            {"type": "reasoning.text", "text": "Hm.", "signature": "s", "index": 0},
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
            {"type": "reasoning.encrypted", "data": "y"},
        ]
    }


async def test_what_a_provider_adds_to_thought_is_bounded() -> None:
    blocks = [{"type": "thinking", "thinking": "", "signature": "x" * 600}]
    small = UpstreamLimits(retries=0, max_message_bytes=1_000)
    failure, _ = await refused(*[chunk({"thinking_blocks": blocks})] * 2, STOP, limits=small)
    assert (failure.code, "1000" in failure.message) == ("upstream_protocol", True)


async def test_blanks_are_no_answer_and_stay_where_text_follows() -> None:
    seen = await answered(chunk({"content": "\n"}), chunk({"content": " "}), chunk({"content": "Hi \n"}), STOP)
    assert seen.texts("text") == ["\n Hi \n"]
    seen = await answered(chunk({"content": "\n\n"}), chunk(call(0, "a", "f", "{}")), CALLS)
    assert [item["type"] for item in seen.output or []] == ["function_call"]
    blank = Answer(frames(chunk({"reasoning_content": "Hm."}), chunk({"content": " \n"}), STOP, done=True))
    server, scope, failure = await exchange(blank)
    assert isinstance(failure, UpstreamFailure)
    assert (failure.code, len(server.requests)) == ("empty_completion", 2)
    assert not scope.last.texts("text")


async def test_a_refusal_is_read_in_every_shape() -> None:
    for refusal in ("No.", ["No."], [{"type": "refusal", "text": "No."}]):
        assert (await answered(chunk({"refusal": refusal}), STOP)).texts("refusal") == ["No."]


async def test_halves_in_names_and_ids_reach_nobody() -> None:
    seen = await answered(chunk(call(0, "a\ud83d", "f\ud83d", "{}"), id="c\ud83d", model="m\ud83d"), CALLS)
    assert seen.calls == [("f\ufffd", "{}")]
    json.dumps(seen.told, ensure_ascii=False).encode()


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["null", "None", "", " ", {"type": "stop"}, 0, [], None])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_what_is_no_reason_ends_nothing(reason: Any, end: Any) -> None:
    body = frames(chunk({"content": "Part"}, finish=reason), chunk({"content": " of"}, finish=reason))
    _, scope, failure = await exchange(Answer(body, end=end))
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "upstream_protocol"
    assert scope.last.texts("text") == ["Part", " of"]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("content-filter", "content_filtered"),
        ("content_filter: SAFETY", "content_filtered"),
        ("PROHIBITED_CONTENT", "content_filtered"),
        ("refusal", "content_filtered"),
        ("MAX_TOKENS", "incomplete"),
        ("maxTokens", "incomplete"),
        ("model_context_window_exceeded", "incomplete"),
        ("canceled", "upstream_error"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "upstream_error"),
    ],
)
async def test_an_answer_that_was_stopped_says_by_what(reason: str, code: str) -> None:
    failure, seen = await refused(chunk({"content": "Hal"}), chunk(finish=reason, usage=USAGE))
    assert failure.code == code
    assert seen.failures[0] is not None


@pytest.mark.parametrize("reason", ["STOP", "end_turn", "eos", "FinishReason.STOP", "stop_sequence"])
async def test_other_words_for_the_end_are_one(reason: str) -> None:
    assert (await answered(chunk({"content": "Hi"}), chunk(finish=reason))).text == "Hi"


async def test_calls_that_are_announced_and_never_come_are_a_failure() -> None:
    failure, seen = await refused(chunk({"content": "Let me see."}), CALLS)
    assert (failure.code, seen.texts("text")) == ("upstream_protocol", ["Let me see."])


# --- errors -------------------------------------------------------------------------------------

ERRORS: list[tuple[Any, str]] = [
    ({"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "it broke"}, "rate_limited"),
    ({"detail": "it broke"}, "upstream_error"),
    ({"code": 500, "msg": "it broke"}, "upstream_error"),
    ({"message": "it broke"}, "upstream_error"),
    ({"errors": [{"message": "it broke", "code": 429}]}, "rate_limited"),
    ({"success": False, "message": "it broke", "code": "503"}, "upstream_error"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "it broke"}}, "upstream_error"),
    ({"base_resp": {"status_code": 1000, "status_msg": "it broke"}}, "upstream_error"),
    ([{"error": {"code": 503, "message": "it broke", "status": "UNAVAILABLE"}}], "upstream_error"),
    ({"choices": [{"delta": {"error": {"message": "it broke"}}, "finish_reason": "error"}]}, "upstream_error"),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
@pytest.mark.parametrize("before", [[], [chunk({"content": "Part"})]])
async def test_an_error_is_told_in_every_shape_before_and_after_text(
    error: Any, code: str, before: list[object]
) -> None:
    failure, _ = await refused(*before, error)
    assert failure.code == code
    assert "it broke" in failure.message


async def test_an_error_event_may_hold_a_text_alone() -> None:
    _, _, failure = await exchange(Answer(b'event: error\ndata: "it broke"\n\n'))
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "upstream_error"
    assert "it broke" in failure.message


async def test_frames_that_say_nothing_are_no_errors() -> None:
    seen = await answered(
        {"choices": [], "prompt_filter_results": []},
        {"type": "ping", "message": "still here"},
        chunk({"content": "Hi"}),
        {"choices": [], "base_resp": {"status_code": 0, "status_msg": ""}},
        STOP,
    )
    assert seen.text == "Hi"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("context_length_exceeded", "context_length_exceeded"),
        (429, "rate_limited"),
        (503, "upstream_error"),
        ("invalid_api_key", "upstream_auth"),
        (None, "upstream_protocol"),
    ],
)
async def test_an_error_document_with_status_200_fails_by_its_code(code: Any, expected: str) -> None:
    body = json.dumps({"error": {"message": "it broke", "code": code}}).encode()
    _, _, failure = await exchange(Answer(body, content_type="application/json"))
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == expected
    assert "it broke" in failure.message


# --- usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([chunk(usage=USAGE), chunk(usage=dict.fromkeys(USAGE, 0))], id="zeros behind it"),
        pytest.param([chunk(usage=USAGE), chunk(usage=dict.fromkeys(USAGE))], id="nulls behind it"),
        pytest.param([chunk(usage={k: str(v) for k, v in USAGE.items()})], id="texts"),
        pytest.param([chunk(usage={k: float(v) for k, v in USAGE.items()})], id="floats"),
        pytest.param([chunk(usage=USAGE | {"total_tokens": 7})], id="a total of less"),
        pytest.param(
            [chunk(usage={"prompt_tokens": 11, "total_tokens": 11}), chunk(usage={"completion_tokens": 7})],
            id="in two parts",
        ),
        pytest.param([{"choices": [], "x_groq": {"usage": USAGE}}], id="in a provider's own field"),
        pytest.param([choice(delta={"usage": USAGE})], id="in a delta"),
        pytest.param([choice(index=1, delta={}, usage=USAGE)], id="in another choice"),
    ],
)
async def test_usage_is_found_wherever_it_stands(events: list[object]) -> None:
    seen = await answered(chunk({"content": "Hi"}), STOP, *events)
    assert seen.counts is not None
    assert (seen.counts.input_tokens, seen.counts.output_tokens, seen.counts.total_tokens) == (11, 7, 18)


@pytest.mark.parametrize("usage", ["none", [], {"prompt_tokens": True}, dict.fromkeys(USAGE, 0)])
async def test_usage_that_counts_nothing_is_unknown(usage: Any) -> None:
    assert (await answered(chunk({"content": "Hi"}), STOP, chunk(usage=usage))).counts is None


@pytest.mark.parametrize("number", ["1e999", "NaN", "1" * 40, "-Infinity"])
async def test_numbers_beyond_all_tokens_count_nothing(number: str) -> None:
    usage = f'{{"choices": [], "usage": {{"prompt_tokens": {number}, "completion_tokens": 7}}}}'
    seen = await answered(chunk({"content": "Hi"}), STOP, usage)
    assert seen.counts is not None
    assert seen.counts.total_tokens == 7
