"""Attempts that came to nothing: which are made again, which fail the turn, and by which code."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.e2e.checks import the_next_turn_is_valid
from tests.e2e.executor import chat_chunk, frames_of, raw, told, turn_of
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import sent, shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
SOON = {"retry-after": "0"}
EMPTY: JsonObject = {"text": "", "usage": None}


@pytest.fixture(scope="module", params=["chat_completions", "responses"])
def own_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    settings = {"TURNWIRE_MODEL_API": request.param, "TURNWIRE_UPSTREAM_FIRST_BYTE_S": 1}
    with ServiceProcess(tmp_path_factory.mktemp("attempts"), upstream_origin, **settings) as service:
        yield service
        service.check_log()


@pytest.fixture
async def client(own_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


@pytest.fixture
def wire(own_service: ServiceProcess) -> str:
    return own_service.environment["TURNWIRE_MODEL_API"]


def error_body(**error: Any) -> JsonObject:
    return {"error": error}


def failed_stream(wire: str, **error: Any) -> JsonObject:
    """A stream that says, before anything else, that it has failed."""
    if wire == "responses":
        return raw({"type": "response.failed", "response": {"status": "failed", "error": error}})
    return raw({"error": error})


async def bodies(scenario: Scenario) -> list[str]:
    return [json.dumps(request.body) for request in await scenario.requests()]


# empty attempts


@pytest.mark.parametrize("reasoning", [None, "Hm, what is it?"])
async def test_an_empty_attempt_is_made_once_more_from_the_same_state(
    client: TurnwireClient, scenario: Scenario, reasoning: str | None
) -> None:
    await scenario.script({"text": None, "reasoning": reasoning}, {"reasoning": reasoning, "text": "Weed."})
    frames = await frames_of(client)
    assert told(frames, "warning", "code") == ["empty_attempt"]
    assert turn_of(frames)["output_text"] == "".join(told(frames, "message.delta")) == "Weed."
    assert told(frames, "reasoning.completed", "partial") == ([True, False] if reasoning else [])
    first, second = await bodies(scenario)
    assert first == second
    assert turn_of(frames)["usage"]["requests"] == 2
    assert [s[0] for s in shapes(await client.items(turn_of(frames)["conversation_id"])) if s[0] == "user"] == [
        "user"
    ]


async def test_nothing_twice_is_an_empty_completion(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script(EMPTY, EMPTY, {"text": "Too late."})
    turn = turn_of(await frames_of(client))
    assert (turn["status"], turn["error"]["code"], turn["error"]["retryable"]) == (
        "failed",
        "empty_completion",
        True,
    )
    assert len(await scenario.requests()) == 2
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], [])


async def test_nothing_twice_that_was_billed_is_an_empty_answer(
    client: TurnwireClient, scenario: Scenario
) -> None:
    billed = {"text": "", "usage": {"input_tokens": 5, "output_tokens": 9}}
    await scenario.script(billed, billed)
    turn = turn_of(await frames_of(client))
    assert (turn["status"], turn["output_text"]) == ("completed", "")
    assert turn["usage"]["output_tokens"] == 18


async def test_a_stream_that_ends_before_anything_came_is_an_empty_attempt(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    cut = raw({"type": "response.created", "response": {}} if wire == "responses" else chat_chunk(), end="")
    await scenario.script(cut, {"text": "Weed."})
    frames = await frames_of(client)
    assert turn_of(frames)["output_text"] == "Weed."
    assert told(frames, "warning", "code") == ["empty_attempt"]
    await scenario.script(cut, cut)
    turn = turn_of(await frames_of(client))
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_protocol")


# what is retried


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_refusal_that_may_pass_is_retried_with_a_warning(
    client: TurnwireClient, scenario: Scenario, status: int
) -> None:
    refusal = {"status": status, "headers": SOON, "body": error_body(message="later")}
    await scenario.script(refusal, refusal, {"text": "Weed."})
    frames = await frames_of(client)
    assert turn_of(frames)["output_text"] == "Weed."
    assert told(frames, "warning", "code") == ["upstream_retry"] * 2
    assert len(set(await bodies(scenario))) == 1
    assert await kept_inputs(client, turn_of(frames)) == ["hello"]


async def kept_inputs(client: TurnwireClient, turn: JsonObject) -> list[str]:
    return [s[1] for s in shapes(await client.items(turn["conversation_id"])) if s[0] == "user"]


async def test_a_connection_that_breaks_before_any_output_is_retried(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "lost", "frames": 1, "end": "reset"}, {"text": "Weed."})
    frames = await frames_of(client)
    assert turn_of(frames)["output_text"] == "Weed."
    assert told(frames, "warning", "code") == ["upstream_retry"]


@pytest.mark.parametrize("status", [429, 503])
async def test_an_error_frame_that_names_a_status_is_retried_as_that_would_be(
    client: TurnwireClient, scenario: Scenario, status: int
) -> None:
    await scenario.script(raw({"error": {"code": status, "message": "Busy."}}), {"text": "Weed."})
    frames = await frames_of(client)
    assert turn_of(frames)["output_text"] == "Weed."
    assert told(frames, "warning", "code") == ["upstream_retry"]


async def test_the_number_of_retries_is_a_setting_and_the_last_failure_is_the_turns(
    client: TurnwireClient, scenario: Scenario
) -> None:
    busy = {"status": 503, "headers": SOON, "body": error_body(message="Busy.")}
    await scenario.script(*[busy] * 5)
    frames = await frames_of(client)
    assert turn_of(frames)["error"]["code"] == "upstream_error"
    assert len(await scenario.requests()) == 4
    assert len(told(frames, "warning", "code")) == 3


async def test_nothing_is_retried_beyond_the_turns_time_and_what_the_server_asks_is_told(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(
        {"status": 429, "headers": {"retry-after": "60"}, "body": error_body(message="Slow.")}
    )
    frames = await frames_of(client, timeout_s=10)
    error = turn_of(frames)["error"]
    assert (error["code"], error["retryable"], error["retry_after_s"]) == ("rate_limited", True, 60)
    assert told(frames, "warning", "code") == []
    assert len(await scenario.requests()) == 1


@pytest.mark.parametrize("end", ["reset", "close"])
async def test_nothing_is_retried_once_output_was_shown(
    client: TurnwireClient, scenario: Scenario, wire: str, end: str
) -> None:
    await scenario.script({"text": "Half of it is", "frames": 6 if wire == "responses" else 3, "end": end})
    frames = await frames_of(client)
    turn = turn_of(frames)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_protocol")
    assert told(frames, "message.delta")
    assert told(frames, "warning", "code") == []
    assert len(await scenario.requests()) == 1


# codes


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"code": "context_length_exceeded", "message": "no"}, "context_length_exceeded"),
        (400, {"code": "max_tokens_exceeded", "message": "no"}, "context_length_exceeded"),
        (400, {"code": "string_above_max_length", "message": "no"}, "context_length_exceeded"),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, "context_length_exceeded"),
        (400, {"message": "prompt is too long: 9000 tokens > 8192 maximum"}, "context_length_exceeded"),
        (400, {"message": "the request exceeds the available context size"}, "context_length_exceeded"),
        (413, {"message": "Input is too long for requested model: too many tokens"}, "context_length_exceeded"),
        (400, {"code": "content_filter", "message": "no"}, "content_filtered"),
        (400, {"message": "bad field"}, "upstream_rejected"),
        (404, {"code": "model_not_found", "message": "no such model"}, "upstream_rejected"),
        (422, {"message": "unprocessable"}, "upstream_rejected"),
        (401, {"message": "who are you"}, "upstream_auth"),
        (403, {"message": "not you"}, "upstream_auth"),
    ],
)
async def test_what_a_provider_refuses_has_a_code_and_is_asked_once(
    client: TurnwireClient, scenario: Scenario, status: int, error: JsonObject, code: str
) -> None:
    await scenario.script({"status": status, "body": error_body(**error)})
    turn = turn_of(await frames_of(client))
    assert (turn["status"], turn["error"]["code"]) == ("failed", code)
    assert turn["error"]["message"]
    assert len(await scenario.requests()) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("context_length_exceeded", "context_length_exceeded"),
        ("invalid_prompt", "upstream_rejected"),
        ("server_error", "upstream_error"),
        ("rate_limit_exceeded", "rate_limited"),
        ("content_filter", "content_filtered"),
    ],
)
async def test_an_error_within_the_stream_has_a_code_too(
    client: TurnwireClient, scenario: Scenario, wire: str, code: str, expected: str
) -> None:
    await scenario.script(failed_stream(wire, code=code, message="It cannot be."))
    turn = turn_of(await frames_of(client))
    assert (turn["error"]["code"], "It cannot be." in turn["error"]["message"]) == (expected, True)
    assert len(await scenario.requests()) == 1


@pytest.mark.parametrize(
    "failure",
    [
        {"status": 400, "body": error_body(message="no")},
        {"status": 401, "body": error_body(message="no")},
        {"status": 400, "body": error_body(code="context_length_exceeded", message="no")},
        {"body": "<html>A page</html>"},
        {"text": "x", "hold": "never"},
        {"text": None, "finish": "content_filter"},
    ],
    ids=["rejected", "auth", "context", "page", "silence", "filtered"],
)
async def test_sending_it_again_after_a_failure_reaches_the_model_once(
    client: TurnwireClient, scenario: Scenario, failure: JsonObject
) -> None:
    if "hold" in failure:
        failure = failure | {"hold": scenario.gate("never")}
    replies = [failure] * (4 if "hold" in failure else 1)
    await scenario.script(*replies)
    fields = {"timeout_s": 2} if "hold" in failure else {}
    turn = turn_of(await frames_of(client, "kelp?", **fields))
    assert turn["status"] == "failed"
    await scenario.script(*[{"text": "Weed."}] * 4)
    again = await client.run("kelp?", conversation=turn["conversation_id"])
    assert again["status"] == "completed", again["error"]
    last = await scenario.last_request()
    said = [shape for shape in sent(last.history) if shape[0] == "user"]
    assert (said, last.problems) == ([("user", "kelp?")], [])


async def test_usage_of_every_attempt_is_counted(client: TurnwireClient, scenario: Scenario, wire: str) -> None:
    """By the provider's real objects: cached and reasoning tokens too."""
    usage = {"input_tokens": 10, "output_tokens": 6, "cached_tokens": 4, "reasoning_tokens": 2}
    await scenario.script({"text": "", "usage": usage}, {"text": "Weed.", "usage": usage})
    counts = turn_of(await frames_of(client))["usage"]
    expected = {
        "requests": 2,
        "unreported_requests": 0,
        "input_tokens": 20,
        "cached_input_tokens": 8,
        "uncached_input_tokens": 12,
        "output_tokens": 12,
        "reasoning_tokens": 4,
        "total_tokens": 32,
        "context_tokens": 16,
    }
    assert {name: counts[name] for name in expected} == expected
    assert [entry["model"] for entry in counts["by_model"]] == [scenario.model]
