"""Starting a turn: what each kind of answer holds, and what cannot start one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import sent
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
AXIOS = "application/json, text/plain, */*"


def without_repeats(types: list[str]) -> list[str]:
    return [kind for index, kind in enumerate(types) if index == 0 or types[index - 1] != kind]


async def test_a_turn_streams_from_its_start_to_its_end(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "Good morning to you."})
    async with either_client.stream("hello") as stream:
        frames = await stream.rest()
    assert without_repeats(stream.types) == [
        "turn.started",
        "agent.started",
        "step.started",
        "message.started",
        "message.delta",
        "message.completed",
        "step.completed",
        "agent.ended",
        "turn.completed",
    ]
    assert stream.text == "Good morning to you."
    turn = frames[-1].data["turn"]
    assert (turn["status"], turn["output_text"], turn["agent"]) == ("completed", stream.text, "plain")
    assert turn["usage"]["total_tokens"] == 18
    assert "input" not in turn
    assert turn["last_event_id"] == len(frames)
    assert {frame.data["turn_id"] for frame in frames} == {stream.turn_id}


async def test_the_stream_opens_before_the_model_answers(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    async with client.stream("hello") as stream:
        first = await anext(stream)
        assert first.type == "turn.started"
        await scenario.held("headers")
        await scenario.release("headers")
        assert (await stream.rest())[-1].type == "turn.completed"


async def test_json_is_the_turn_once_it_has_ended(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "Good morning."})
    response = await client.post("hello", metadata={"colour": "blue"})
    turn = response.json()
    assert response.headers["content-type"] == "application/json"
    assert response.headers["location"] == f"/v1/turns/{turn['id']}"
    assert response.headers["x-turn-id"] == turn["id"]
    assert response.headers["x-conversation-id"] == turn["conversation_id"]
    assert response.headers["x-request-id"]
    assert (turn["object"], turn["status"], turn["output_text"]) == ("turn", "completed", "Good morning.")
    assert (turn["metadata"], turn["runs"], turn["error"], turn["pause"]) == ({"colour": "blue"}, 1, None, None)
    assert await client.turn(turn["id"]) == turn | {"input": "hello"}


async def test_waiting_for_json_sends_spaces(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    headers = {"accept": "application/json"}
    async with client.http.stream("POST", "/v1/turns", json=client.body("hello"), headers=headers) as response:
        parts = response.aiter_raw()
        assert (await anext(parts)).strip() == b""
        await scenario.release("headers")
        rest = b"".join([part async for part in parts])
    assert response.status_code == 200
    assert rest.strip().startswith(b'{"id":"turn_')


async def test_a_failed_turn_is_a_good_json_answer(hasty_client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"status": 500, "body": {"error": {"message": "broken"}}})
    response = await hasty_client.post("hello")
    assert response.status_code == 200
    assert (response.json()["status"], response.json()["error"]["code"]) == ("failed", "upstream_error")


async def test_text_is_the_words_and_nothing_else(client: TurnwireClient, scenario: Scenario) -> None:
    call = {"name": "lookup", "arguments": {"q": "kelp"}}
    await scenario.script({"text": "Let me look.", "tool_calls": [call]}, {"text": "It is green."})
    response = await client.post("kelp?", accept="text/plain", agent="worker")
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text.rstrip("\n") == "Let me look.\n\nIt is green."


async def test_text_of_a_failure_ends_with_a_line_in_brackets(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.replay("error-in-stream")
    response = await hasty_client.post("hello", accept="text/plain")
    lines = response.text.strip().split("\n")
    assert lines[0] == "It is "
    assert lines[-1].startswith("[")
    assert lines[-1].endswith("]")


async def test_a_background_turn_is_answered_at_once(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    response = await client.post("hello", background=True)
    assert response.status_code == 202
    assert response.json()["status"] == "running"
    await scenario.release("headers")
    assert (await client.ended(response.json()["id"]))["status"] == "completed"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        pytest.param("text/event-stream", "text/event-stream", id="a stream"),
        pytest.param("*/*", "text/event-stream", id="anything"),
        pytest.param("", "text/event-stream", id="an empty header"),
        pytest.param(AXIOS, "application/json", id="what axios sends"),
        pytest.param("text/plain;q=0.5, application/json;q=0.9", "application/json", id="the highest q"),
        pytest.param("text/plain, text/event-stream", "text/plain", id="the first of equals"),
        pytest.param("application/*", "application/json", id="a range"),
    ],
)
async def test_the_answer_follows_accept(client: TurnwireClient, accept: str, kind: str) -> None:
    response = await client.post("hello", accept=accept)
    assert response.status_code == 200
    assert response.headers["content-type"].split(";")[0] == kind


async def test_an_answer_that_nobody_can_give_is_406(client: TurnwireClient, scenario: Scenario) -> None:
    response = await client.post("hello", accept="image/png")
    assert (response.status_code, response.json()["code"]) == (406, "not_acceptable")
    assert await scenario.requests() == []


async def test_a_conversation_takes_the_callers_own_id(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = scenario.gate("chat_1")
    turn = await client.run("hello", conversation=conversation)
    again = await client.run("and again", conversation=conversation)
    assert turn["conversation_id"] == again["conversation_id"] == conversation
    assert [t["id"] for t in await client.turns(conversation)] == [turn["id"], again["id"]]


@pytest.mark.parametrize(
    ("fields", "status", "code", "place"),
    [
        pytest.param({"input": "  \n"}, 422, None, "input", id="blank input"),
        pytest.param({"input": "\u200b"}, 422, None, "input", id="invisible input"),
        pytest.param({"input": []}, 422, None, "input", id="an empty list"),
        pytest.param({"input": [{"role": "king", "content": "x"}]}, 422, None, "role", id="an unknown role"),
        pytest.param({"colour": "blue"}, 422, "invalid_request", "colour", id="an unknown field"),
        pytest.param({"max_steps": 0}, 422, "invalid_request", "max_steps", id="a limit of nothing"),
        pytest.param({"agent": "nobody"}, 404, "agent_not_found", "", id="an unknown agent"),
        pytest.param({"on_conflict": "fight"}, 422, "invalid_request", "on_conflict", id="an unknown policy"),
        pytest.param({"metadata": {"a": 1}}, 422, "invalid_request", "metadata", id="metadata of numbers"),
    ],
)
async def test_a_request_that_cannot_start_a_turn_is_a_problem_and_stores_nothing(
    client: TurnwireClient,
    scenario: Scenario,
    fields: JsonObject,
    status: int,
    code: str | None,
    place: str,
) -> None:
    conversation = scenario.gate("chat")
    path = f"/v1/conversations/{conversation}/turns"
    headers = {"accept": "text/event-stream"}
    response = await client.http.post(path, json=client.body("hello") | fields, headers=headers)
    problem = response.json()
    assert response.status_code == status, problem
    assert response.headers["content-type"].startswith("application/problem+json")
    assert problem["request_id"] == response.headers["x-request-id"]
    assert code is None or problem["code"] == code
    assert place in str(problem.get("errors", ""))
    assert (await client.http.get(f"/v1/conversations/{conversation}")).status_code == 404
    assert await scenario.requests() == []


@pytest.mark.parametrize("name", ["white space", "a" * 129, "dots.not", "ümlaut"])
async def test_a_conversation_id_out_of_bounds_is_refused(client: TurnwireClient, name: str) -> None:
    response = await client.post("hello", conversation=name)
    assert response.status_code == 422


@pytest.mark.parametrize("body", [b"", b"{", b'{"input": NaN}', b"[" * 100_000, b'{"input": "a\\u0000b"}'])
async def test_a_body_that_is_no_sound_json_is_refused(client: TurnwireClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = await client.http.post("/v1/turns", content=body, headers=headers)
    assert 400 <= response.status_code < 500
    assert response.headers["content-type"].startswith("application/problem+json")


@pytest.mark.parametrize("path", ["agents", "conversations", "turns", "nothing"])
async def test_a_refusal_shows_little_of_a_long_id(client: TurnwireClient, path: str) -> None:
    answer = await client.http.get(f"/v1/{path}/" + "x" * 60_000)
    assert answer.status_code == 404
    assert len(answer.content) < 2_000


async def test_a_body_over_the_limit_is_413_also_without_a_length(hasty_client: TurnwireClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    headers = {"content-type": "application/json"}
    with_length = await hasty_client.http.post("/v1/turns", content=b" " * 10_000, headers=headers)
    chunked = await hasty_client.http.post("/v1/turns", content=parts(), headers=headers)
    for answer in (with_length, chunked):
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
        assert "4096 bytes" in answer.json()["detail"]


async def test_overrides_reach_the_model(client: TurnwireClient, scenario: Scenario) -> None:
    await client.run("hello", temperature=0.25, reasoning_effort="max", instructions="Speak like a pirate.")
    body = (await scenario.last_request()).body
    assert body["temperature"] == 0.25
    assert body["reasoning_effort"] == "xhigh"
    assert body["messages"][0]["content"] == "Speak like a pirate."


async def test_an_output_schema_gives_structured_output(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    await scenario.script({"text": '{"answer":"42"}'})
    turn = await either_client.run("hello", output_schema=schema)
    assert (turn["status"], turn["output"]) == ("completed", {"answer": "42"})


async def test_input_as_a_list_reaches_the_model_in_order(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    parts = [{"type": "input_text", "text": "What is this?"}, {"type": "text", "text": "And that?"}]
    said = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": parts},
    ]
    await either_client.run(said)
    said_to_model = sent((await scenario.last_request()).history)
    assert said_to_model[:2] == [("user", "Hello."), ("assistant", "Hi.")]
    assert "".join(said_to_model[2][1].split()) == "Whatisthis?Andthat?"


async def test_many_turns_run_side_by_side(client: TurnwireClient, scenario: Scenario) -> None:
    count = 20
    await scenario.script(*[{"text": "late", "hold": {"text:1": scenario.gate("text")}}] * count)
    running = [asyncio.create_task(client.run("hello")) for _ in range(count)]
    await scenario.requested(count)
    await scenario.release("text")
    turns = await asyncio.gather(*running)
    assert {turn["status"] for turn in turns} == {"completed"}
    assert len({turn["conversation_id"] for turn in turns}) == count
