"""What the provider is sent: valid on each wire, only what was set, and nothing that is ours."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.executor import AGENTS, chat_chunk, completed, frames_of, raw, turn_of
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import sent, shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
LONG = "x" * 65


@pytest.fixture(scope="module", params=["chat_completions", "responses"])
def own_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    settings = {"TURNWIRE_MODEL_API": request.param, "TURNWIRE_AGENTS": AGENTS}
    with ServiceProcess(tmp_path_factory.mktemp("requests"), upstream_origin, **settings) as service:
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


async def seeded(client: TurnwireClient, *items: JsonObject) -> str:
    response = await client.http.post("/v1/conversations", json={"items": list(items)})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def long_ids(value: Any) -> list[str]:
    """The `id`s of more than 64 characters in it, wherever they stand."""
    if isinstance(value, dict):
        here = [value["id"]] if isinstance(value.get("id"), str) and len(value["id"]) > 64 else []
        return here + [i for v in value.values() for i in long_ids(v)]
    return [i for v in value for i in long_ids(v)] if isinstance(value, list) else []


async def test_what_an_assistant_said_in_a_plain_string_reaches_the_model(
    client: TurnwireClient, scenario: Scenario
) -> None:
    conversation = await seeded(
        client, {"role": "user", "content": "kelp?"}, {"role": "assistant", "content": "Weed."}
    )
    await client.run("and moss?", conversation=conversation)
    request = await scenario.last_request()
    assert sent(request.history) == [("user", "kelp?"), ("assistant", "Weed."), ("user", "and moss?")]
    assert request.problems == []


async def test_ids_that_are_too_long_are_neither_stored_nor_sent(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    arguments = '{"q":"kelp"}'
    if wire == "responses":
        part = {"type": "output_text", "text": "Look.", "annotations": [{"type": "file_path", "id": LONG}]}
        message = {"type": "message", "id": LONG, "role": "assistant", "content": [part]}
        call = {"type": "function_call", "id": LONG, "call_id": LONG, "name": "lookup", "arguments": arguments}
        reply = raw(completed(message, call))
    else:
        tool = {"index": 0, "id": LONG, "function": {"name": "lookup", "arguments": arguments}}
        annotation = {"type": "file_path", "file_path": {"id": LONG}}
        first = chat_chunk({"content": "Look.", "annotations": [annotation]})
        reply = raw(first, chat_chunk({"tool_calls": [tool]}, "tool_calls"))
    await scenario.script(reply, {"text": "Weed."})
    turn = turn_of(await frames_of(client, agent="talker"))
    items = await client.items(turn["conversation_id"])
    assert long_ids(items) == []
    call_ids = {item["call_id"] for item in items if "call_id" in item}
    assert len(call_ids) == 1
    assert len(call_ids.pop()) <= 64
    await client.run("and moss?", conversation=turn["conversation_id"])
    for request in await scenario.requests():
        assert (long_ids(request.body), request.problems) == ([], [])


async def test_reasoning_goes_back_with_what_follows_it_and_only_so(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    calls = [{"name": "lookup", "arguments": {"q": "kelp"}}]
    await scenario.script({"reasoning": "Hm.", "tool_calls": calls}, {"reasoning": "Ah.", "text": "Weed."})
    turn = await client.run("kelp?", agent="talker")
    second = (await scenario.last_request()).history
    if wire == "responses":
        kinds = [entry.get("type") for entry in second]
        assert kinds[-3:] == ["reasoning", "function_call", "function_call_output"]
    else:
        (asked,) = (entry for entry in second if entry.get("tool_calls"))
        assert asked["reasoning_content"] == "Hm."
    await client.run("and moss?", conversation=turn["conversation_id"])
    assert (await scenario.last_request()).problems == []


async def test_what_our_wires_note_on_items_is_not_shown_and_not_sent(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"reasoning": "Hm.", "text": "Weed."})
    turn = await client.run("kelp?")
    stored = await client.items(turn["conversation_id"])
    assert [shape[0] for shape in shapes(stored)] == ["user", "reasoning", "assistant"]
    assert "provider_data" not in json.dumps(stored)
    await client.run("and moss?", conversation=turn["conversation_id"])
    assert "provider_data" not in json.dumps((await scenario.last_request()).body)


async def test_a_provider_that_keeps_nothing_is_asked_for_encrypted_reasoning(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    message = {"type": "message", "id": "m_1", "content": [{"type": "output_text", "text": "Weed."}]}
    await scenario.script(raw(completed(thought, message)) if wire == "responses" else {"text": "Weed."})
    turn = await client.run("kelp?", agent="forgetful")
    await client.run("and moss?", agent="forgetful", conversation=turn["conversation_id"])
    first, second = await scenario.requests()
    assert first.body["store"] is False
    if wire == "responses":
        assert first.body["include"] == ["reasoning.encrypted_content"]
        assert [e["encrypted_content"] for e in second.history if e.get("type") == "reasoning"] == ["sealed"]


async def test_a_transient_message_is_for_this_turn_only(client: TurnwireClient, scenario: Scenario) -> None:
    said = [
        {"role": "developer", "content": "It is noon.", "transient": True},
        {"role": "user", "content": "What time is it?"},
    ]
    turn = await client.run(said)
    assert "It is noon." in json.dumps((await scenario.last_request()).history)
    assert "It is noon." not in json.dumps(await client.items(turn["conversation_id"]))
    await client.run("Thanks.", conversation=turn["conversation_id"])
    request = await scenario.last_request()
    assert "It is noon." not in json.dumps(request.body)
    assert "transient" not in json.dumps(request.body)


async def test_only_what_was_set_is_sent(client: TurnwireClient, scenario: Scenario, wire: str) -> None:
    await client.run("hello")
    body = (await scenario.last_request()).body
    usage = {"stream_options"} if wire == "chat_completions" else set()
    history = "messages" if wire == "chat_completions" else "input"
    allowed = {"model", "stream", history, "instructions", "tools", "tool_choice"} | usage
    assert body.keys() <= allowed


async def test_what_was_set_is_sent_in_the_words_of_the_wire(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    await client.run(
        "hello",
        agent="talker",
        reasoning_effort="max",
        temperature=0.5,
        max_output_tokens=77,
        parallel_tool_calls=False,
    )
    body = (await scenario.last_request()).body
    assert (body["temperature"], body["parallel_tool_calls"]) == (0.5, False)
    if wire == "responses":
        assert (body["max_output_tokens"], body["reasoning"]) == (77, {"effort": "xhigh"})
    else:
        assert (body["max_tokens"], body["reasoning_effort"]) == (77, "xhigh")


async def test_usage_is_asked_for_and_a_server_that_refuses_that_is_asked_without(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    refusal = {"status": 400, "body": {"error": {"message": "Unknown field: stream_options"}}}
    await scenario.script(refusal, {"text": "Weed.", "usage": None}, {"text": "Moss.", "usage": None})
    with ServiceProcess(tmp_path, upstream_origin) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        turns = [await client.run(said) for said in ("kelp?", "and moss?")]
        await client.aclose()
        service.check_log()
    assert [turn["output_text"] for turn in turns] == ["Weed.", "Moss."]
    asked = ["stream_options" in request.body for request in await scenario.requests()]
    assert asked == [True, False, False]
    assert turns[0]["usage"]["unreported_requests"] == 1


async def test_ids_of_calls_agree_when_a_provider_reuses_them(
    client: TurnwireClient, scenario: Scenario
) -> None:
    step = {"tool_calls": [{"id": "call_0", "name": "lookup", "arguments": {"q": "kelp"}}]}
    await scenario.script(step, step, {"text": "Weed."})
    turn = await client.run("kelp?", agent="talker")
    await client.run("again?", agent="talker", conversation=turn["conversation_id"])
    assert [request.problems for request in await scenario.requests()] == [[]] * 4
