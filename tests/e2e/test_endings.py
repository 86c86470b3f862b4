"""The other ways a turn ends: by its upstream, a guardrail, a limit, its listeners, its conversation."""

import pytest

from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import API_KEY, ServiceProcess
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
LOOKUP = {"name": "lookup", "arguments": {"q": "kelp"}}
STEP = [("call", "lookup", '{"q":"kelp"}'), ("output", "kelp: found")]
HELLO = ("user", "hello")


async def ended(client: TurnwireClient, turn: JsonObject) -> JsonObject:
    """The turn once it has ended, its log checked."""
    frames = await client.log(turn["id"])
    done = await client.turn(turn["id"])
    check_log(frames, done)
    return done


# --- the upstream -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        pytest.param({"status": 500, "body": {"error": {"message": "x"}}}, "upstream_error", True, id="500"),
        pytest.param(
            {"status": 400, "body": {"error": {"message": "x"}}}, "upstream_rejected", False, id="400"
        ),
        pytest.param({"status": 401, "body": {"error": {"message": "x"}}}, "upstream_auth", False, id="401"),
        pytest.param({"status": 429, "body": {"error": {"message": "x"}}}, "rate_limited", True, id="429"),
        pytest.param({"text": "one", "frames": 1, "end": "reset"}, "upstream_protocol", True, id="a reset"),
        pytest.param({"text": "one", "frames": 1, "end": "hang"}, "upstream_timeout", True, id="silence"),
        pytest.param({"status": 200, "body": "<html>"}, "upstream_protocol", True, id="HTML"),
    ],
)
async def test_a_failure_before_any_text_leaves_nothing(
    hasty_client: TurnwireClient, scenario: Scenario, reply: JsonObject, code: str, retryable: bool
) -> None:
    await scenario.script(reply)
    turn = await ended(hasty_client, await hasty_client.run("hello"))
    assert (turn["status"], turn["error"]["code"]) == ("failed", code)
    assert turn["error"]["retryable"] is retryable
    assert "html" not in turn["error"]["message"]
    assert await hasty_client.items(turn["conversation_id"]) == []
    await the_next_turn_is_valid(hasty_client, scenario, turn["conversation_id"], [])


async def test_an_answer_that_ends_before_it_began_is_asked_for_once_more(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    cut = {"text": "one", "frames": 1}
    await scenario.script(cut, {"text": "Here."}, cut, cut)
    good = await hasty_client.run("hello")
    bad = await ended(hasty_client, await hasty_client.run("hello"))
    assert (good["status"], good["output_text"]) == ("completed", "Here.")
    assert (bad["status"], bad["error"]["code"]) == ("failed", "upstream_protocol")
    assert await hasty_client.items(bad["conversation_id"]) == []


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        pytest.param({"frames": 3, "end": "reset"}, "upstream_protocol", id="a reset"),
        pytest.param({"frames": 3}, "upstream_protocol", id="an end too soon"),
        pytest.param({"frames": 3, "end": "hang"}, "upstream_timeout", id="silence"),
    ],
)
async def test_a_failure_after_text_keeps_what_was_shown(
    hasty_client: TurnwireClient, scenario: Scenario, reply: JsonObject, code: str
) -> None:
    await scenario.script({"text": "one two three"} | reply)
    turn = await ended(hasty_client, await hasty_client.run("hello"))
    assert (turn["status"], turn["error"]["code"], turn["output_text"]) == ("failed", code, "one two ")
    kept = [HELLO, ("assistant", "one two ")]
    assert shapes(await hasty_client.items(turn["conversation_id"])) == kept
    assert len(await scenario.requests()) == 1
    await the_next_turn_is_valid(hasty_client, scenario, turn["conversation_id"], kept)


async def test_a_failure_after_a_step_keeps_the_step_and_its_usage(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [LOOKUP]}, {"status": 500, "body": {"error": {"message": "x"}}})
    turn = await ended(hasty_client, await hasty_client.run("hello", agent="worker"))
    assert turn["status"] == "failed"
    assert (turn["usage"]["requests"], turn["usage"]["total_tokens"]) == (2, 18)
    assert shapes(await hasty_client.items(turn["conversation_id"])) == [HELLO, *STEP]
    await the_next_turn_is_valid(hasty_client, scenario, turn["conversation_id"], [HELLO, *STEP])


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("error-in-stream", "upstream_error"),
        ("context-length", "context_length_exceeded"),
        ("content-filter", "content_filtered"),
        ("no-finish", "upstream_protocol"),
        ("echoed-key", "upstream_auth"),
    ],
)
async def test_what_the_upstream_says_becomes_a_code(
    hasty_client: TurnwireClient, scenario: Scenario, case: str, code: str
) -> None:
    await scenario.replay(case)
    turn = await ended(hasty_client, await hasty_client.run("hello"))
    assert turn["error"]["code"] == code
    assert len(await scenario.requests()) == 1


async def test_a_response_that_fails_is_a_failure(
    responses_service: ServiceProcess, scenario: Scenario
) -> None:
    client = TurnwireClient(responses_service.base_url, model=scenario.model)
    await scenario.replay("responses-failed-late")
    turn = await ended(client, await client.run("hello"))
    kept = shapes(await client.items(turn["conversation_id"]))
    await client.aclose()
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_error")
    assert "the model stumbled" in turn["error"]["message"]
    assert kept == [HELLO, ("assistant", "It is ")]


async def test_no_answer_shows_a_key(hasty_client: TurnwireClient, scenario: Scenario) -> None:
    said = f"Incorrect API key provided: {API_KEY}, and also sk-INVENTED-1234567890abcdef"
    await scenario.script({"status": 401, "body": {"error": {"message": said}}})
    async with hasty_client.stream("hello") as stream:
        await stream.rest()
    shown = stream.raw.decode() + str(await hasty_client.turn(stream.turn_id))
    assert stream.types[-1] == "turn.failed"
    assert API_KEY not in shown
    assert "sk-INVENTED" not in shown


async def test_a_text_cut_by_the_token_limit_is_incomplete(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two", "finish": "length"})
    turn = await ended(either_client, await either_client.run("hello"))
    assert (turn["status"], turn["error"]["code"]) == ("failed", "incomplete")
    assert turn["usage"]["total_tokens"] == 18
    assert shapes(await either_client.items(turn["conversation_id"])) == [HELLO, ("assistant", "one two")]


async def test_a_rate_limit_is_waited_out_and_told(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.replay("rate-limited")
    async with client.stream("hello") as stream:
        frames = await stream.rest()
    first, second = await scenario.requests()
    assert frames[-1].type == "turn.completed"
    assert "warning" in stream.types
    assert second.received_at - first.received_at >= 1


async def test_an_empty_answer_is_asked_for_once_more(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    nothing = {"text": "", "usage": {"input_tokens": 5, "output_tokens": 0}}
    await scenario.script(nothing, {"text": "Here."}, nothing, nothing)
    good = await either_client.run("hello")
    bad = await ended(either_client, await either_client.run("hello"))
    assert (good["status"], good["output_text"]) == ("completed", "Here.")
    assert (bad["status"], bad["error"]["code"]) == ("failed", "empty_completion")
    assert len(await scenario.requests()) == 4


# --- guardrails ---------------------------------------------------------------------------------


async def test_an_input_guardrail_that_trips_late_stops_the_model_and_leaves_nothing(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:2": scenario.gate("text")}})
    said = f"forbidden gate={scenario.gate('guard')}"
    async with either_client.stream(said, agent="watchful") as stream:
        await stream.until_text("one two ")
        await scenario.release("guard")
        await scenario.closed()
        frames = await stream.rest()
    turn = frames[-1].data["turn"]
    assert (turn["status"], turn["error"]["code"]) == ("failed", "guardrail_tripped")
    assert await either_client.items(stream.conversation_id) == []
    check_log(frames, turn)
    await the_next_turn_is_valid(either_client, scenario, stream.conversation_id, [])


async def test_an_input_guardrail_that_comes_first_keeps_the_model_unasked(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await ended(client, await client.run("forbidden", agent="strict"))
    assert turn["error"]["code"] == "guardrail_tripped"
    assert await scenario.requests() == []
    assert await client.items(turn["conversation_id"]) == []


async def test_an_output_guardrail_fails_the_turn_and_history_stays_valid(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "That is forbidden."})
    turn = await ended(client, await client.run("hello", agent="discreet"))
    assert (turn["status"], turn["error"]["code"]) == ("failed", "guardrail_tripped")
    kept = shapes(await client.items(turn["conversation_id"]))
    assert kept == [HELLO, ("assistant", "That is forbidden.")]
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


async def test_a_tool_guardrail_that_rejects_tells_the_model(
    client: TurnwireClient, scenario: Scenario
) -> None:
    call = {"name": "watched_lookup", "arguments": {"q": "forbidden"}}
    await scenario.script({"tool_calls": [call]}, {"text": "I may not."})
    turn = await ended(client, await client.run("hello", agent="careful"))
    assert (turn["status"], turn["output_text"]) == ("completed", "I may not.")
    assert ("output", "not with these arguments") in shapes(await client.items(turn["conversation_id"]))


async def test_a_tool_guardrail_that_raises_fails_the_turn(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [{"name": "watched_lookup", "arguments": {"q": "halt"}}]})
    turn = await ended(client, await client.run("hello", agent="careful"))
    assert (turn["status"], turn["error"]["code"]) == ("failed", "guardrail_tripped")
    kept = shapes(await client.items(turn["conversation_id"]))
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


# --- limits -------------------------------------------------------------------------------------


async def test_a_turn_that_takes_too_long_fails_and_keeps_what_was_shown(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:2": scenario.gate("text")}})
    turn = await ended(either_client, await either_client.run("hello", timeout_s=0.7))
    await scenario.closed()
    assert (turn["status"], turn["error"]["code"]) == ("failed", "timeout")
    kept = [HELLO, ("assistant", "one two ")]
    assert shapes(await either_client.items(turn["conversation_id"])) == kept
    await the_next_turn_is_valid(either_client, scenario, turn["conversation_id"], kept)


async def test_a_tool_that_outlives_the_turn_ends_as_cancelled(
    client: TurnwireClient, scenario: Scenario
) -> None:
    slow = {"name": "slow_async", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"text": "Let me look.", "tool_calls": [LOOKUP, slow]})
    turn = await ended(client, await client.run("hello", agent="worker", timeout_s=0.7))
    await scenario.gone("tool")
    items = shapes(await client.items(turn["conversation_id"]))
    assert turn["error"]["code"] == "timeout"
    assert [shape[0] for shape in items] == ["user", "assistant", "call", "call", "output", "output"]
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], items)


async def test_an_unfinished_step_without_text_leaves_nothing(
    client: TurnwireClient, scenario: Scenario
) -> None:
    slow = {"name": "slow_async", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"tool_calls": [LOOKUP, slow]})
    turn = await ended(client, await client.run("hello", agent="worker", timeout_s=0.7))
    assert await client.items(turn["conversation_id"]) == []
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], [])


async def test_a_turn_of_too_many_steps_fails_and_keeps_them(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [LOOKUP]}, {"tool_calls": [LOOKUP]}, {"tool_calls": [LOOKUP]})
    turn = await ended(either_client, await either_client.run("hello", agent="worker", max_steps=2))
    assert (turn["status"], turn["error"]["code"]) == ("failed", "max_steps_exceeded")
    assert (turn["usage"]["requests"], turn["usage"]["total_tokens"]) == (2, 36)
    assert shapes(await either_client.items(turn["conversation_id"])) == [HELLO, *STEP, *STEP]
    assert len(await scenario.requests()) == 2


async def test_a_request_can_only_lower_the_limit_of_steps(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(*[{"tool_calls": [LOOKUP]}] * 5)
    turn = await hasty_client.run("hello", agent="worker", max_steps=50)
    assert turn["error"]["code"] == "max_steps_exceeded"
    assert "3 steps" in turn["error"]["message"]
    assert len(await scenario.requests()) == 3


# --- listeners and the conversation -------------------------------------------------------------


async def test_a_turn_is_cancelled_once_its_last_listener_has_left(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    async with either_client.stream("hello", on_disconnect="cancel") as stream:
        await stream.until_text("one ")
    await scenario.closed()
    turn = await ended(either_client, await either_client.turn(stream.turn_id))
    assert (turn["status"], turn["cancel"]["by"], turn["cancel"]["mode"]) == ("cancelled", "disconnect", "keep")
    assert shapes(await either_client.items(stream.conversation_id)) == [HELLO, ("assistant", "one ")]


async def test_a_turn_goes_on_while_anybody_listens(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello", on_disconnect="cancel")
    async with client.events(turn["id"]) as staying:
        async with client.events(turn["id"]) as leaving:
            await leaving.until_text("one ")
        await staying.until_text("one ")
        await staying.until_ping()  # which comes later than the grace time has passed
        await scenario.release("text")
        await staying.rest()
    assert staying.types[-1] == "turn.completed"


async def test_without_listeners_a_turn_goes_on_by_default(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    async with client.stream("hello") as stream:
        await stream.until_text("one ")
    await scenario.release("text")
    assert (await client.ended(stream.turn_id))["output_text"] == "one two three"


async def test_deleting_a_conversation_stops_its_turn_and_removes_everything(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    async with either_client.stream("hello") as stream:
        await stream.until_text("one ")
        response = await either_client.http.delete(f"/v1/conversations/{stream.conversation_id}")
        frames = await stream.rest()
    await scenario.closed()
    assert (response.status_code, response.content) == (204, b"")
    assert (frames[-1].type, frames[-1].data["turn"]["cancel"]["by"]) == ("turn.cancelled", "deletion")
    for path in (f"turns/{stream.turn_id}", f"turns/{stream.turn_id}/events"):
        assert (await either_client.http.get(f"/v1/{path}")).status_code == 404
    for path in ("", "/items", "/turns"):
        gone = await either_client.http.get(f"/v1/conversations/{stream.conversation_id}{path}")
        assert gone.status_code == 404
