"""The scripted upstream does what its scripts say, as stock clients see it."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from tests.bounds import BOUND_S
from tests.upstream.brain import Seen, echo
from tests.upstream.client import Scenario, UpstreamControl
from tests.upstream.process import upstream_process
from tests.upstream.replay import BODIES, case, cases, is_responses_case
from tests.upstream.server import Upstream

pytestmark = pytest.mark.anyio


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with asyncio.timeout(BOUND_S), Upstream(brains={"parrot": echo}) as upstream:
        yield upstream


@pytest.fixture
async def scenario(upstream: Upstream) -> AsyncIterator[Scenario]:
    control = UpstreamControl(upstream.origin)
    yield control.scenario()
    await control.aclose()


@pytest.fixture
async def openai(upstream: Upstream) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="key", base_url=upstream.base_url, max_retries=0) as client:
        yield client


@pytest.fixture
async def http(upstream: Upstream) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=upstream.base_url, trust_env=False, verify=False) as client:
        yield client


async def chat(client: AsyncOpenAI, scenario: Scenario, text: str = "hi") -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(
        model=scenario.model,
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )
    return [chunk async for chunk in stream]


async def respond(client: AsyncOpenAI, scenario: Scenario, text: str = "hi") -> list[ResponseStreamEvent]:
    stream = await client.responses.create(model=scenario.model, input=text, stream=True)
    return [event async for event in stream]


def chat_body(scenario: Scenario, **more: object) -> dict[str, object]:
    return {
        "model": scenario.model,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    } | more


async def test_a_chat_client_gets_text_calls_and_usage(openai: AsyncOpenAI, scenario: Scenario) -> None:
    call = {"name": "lookup", "arguments": {"q": "kelp"}, "id": "call_7", "chunks": 3}
    await scenario.script({"text": "Let me look.", "tool_calls": [call], "usage": {"input_tokens": 5}})
    chunks = await chat(openai, scenario)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert "".join(delta.content or "" for delta in deltas) == "Let me look."
    assert [c.id for c in calls if c.id] == ["call_7"]
    assert "".join(c.function.arguments or "" for c in calls if c.function) == '{"q":"kelp"}'
    assert [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason] == ["tool_calls"]
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.total_tokens) == (5, 12)


async def test_a_responses_client_gets_a_whole_sequence(openai: AsyncOpenAI, scenario: Scenario) -> None:
    call = {"name": "lookup", "arguments": {"q": "kelp"}, "id": "call_7", "chunks": 2}
    await scenario.script({"reasoning": "Think first.", "text": "Let me look.", "tool_calls": [call]})
    events = await respond(openai, scenario)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert texts == ["Let ", "me ", "look."]
    last = events[-1]
    assert last.type == "response.completed"
    assert [item.type for item in last.response.output] == ["reasoning", "message", "function_call"]
    assert last.response.output_text == "Let me look."
    assert last.response.usage is not None
    assert last.response.usage.total_tokens == 18


async def test_without_streaming_the_answer_is_one_object(openai: AsyncOpenAI, scenario: Scenario) -> None:
    await scenario.script({"text": "One."}, {"text": "Two.", "refusal": "Not three."})
    completion = await openai.chat.completions.create(
        model=scenario.model, messages=[{"role": "user", "content": "hi"}]
    )
    response = await openai.responses.create(model=scenario.model, input="hi")
    assert completion.choices[0].message.content == "One."
    assert response.output_text == "Two."
    assert [item.type for item in response.output] == ["message", "message"]


async def test_scripts_of_two_models_do_not_mix(openai: AsyncOpenAI, scenario: Scenario) -> None:
    other = scenario.control.scenario()
    await scenario.script({"text": "mine"})
    await other.script({"text": "theirs"})
    assert "theirs" in str(await chat(openai, other))
    assert "mine" in str(await chat(openai, scenario))
    assert "All good" in str(await respond(openai, scenario))


async def test_a_reply_can_be_meant_for_some_requests_only(openai: AsyncOpenAI, scenario: Scenario) -> None:
    await scenario.script({"text": "azure", "when": "blue"}, {"text": "anything"})
    assert "anything" in str(await chat(openai, scenario, "red"))
    assert "azure" in str(await chat(openai, scenario, "blue"))


@pytest.mark.parametrize("place", ["headers", "start", "text:2", "arguments:1", "end"])
async def test_a_reply_waits_at_its_gate_until_it_is_released(
    openai: AsyncOpenAI, scenario: Scenario, place: str
) -> None:
    call = {"name": "lookup", "arguments": {"q": "kelp"}, "chunks": 3}
    await scenario.script({"text": "a b c", "tool_calls": [call], "hold": {place: scenario.gate("gate")}})
    asking = asyncio.create_task(chat(openai, scenario))
    await scenario.held("gate")
    assert not asking.done()
    await scenario.release("gate")
    assert (await asking)[-1].usage is not None


async def test_an_early_close_is_seen_at_once(http: httpx.AsyncClient, scenario: Scenario) -> None:
    await scenario.script({"text": "a b c", "hold": {"text:1": scenario.gate("gate")}})
    async with http.stream("POST", "/chat/completions", json=chat_body(scenario)):
        await scenario.held("gate")
        left_at = time.monotonic()
    received = await scenario.closed()
    assert received.closed_at is not None
    assert left_at <= received.closed_at < left_at + 0.1
    assert (await scenario.control.connections())["under_way"] == 0


async def test_a_reset_is_an_error_to_the_client(http: httpx.AsyncClient, scenario: Scenario) -> None:
    await scenario.script({"text": "a b c", "frames": 2, "end": "reset"})
    with pytest.raises(httpx.ReadError):
        await http.post("/chat/completions", json=chat_body(scenario))


async def test_a_short_answer_can_end_cleanly(http: httpx.AsyncClient, scenario: Scenario) -> None:
    await scenario.script({"text": "a b c", "frames": 2})
    response = await http.post("/chat/completions", json=chat_body(scenario))
    assert response.text.count("data: ") == 2
    assert "[DONE]" not in response.text


async def test_an_error_answer_is_sent_as_it_is(http: httpx.AsyncClient, scenario: Scenario) -> None:
    await scenario.script({"status": 429, "headers": {"retry-after": "1"}, "body": {"error": {"code": "slow"}}})
    response = await http.post("/chat/completions", json=chat_body(scenario))
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert response.json() == {"error": {"code": "slow"}}


async def test_a_strict_provider_refuses_a_broken_history(http: httpx.AsyncClient, scenario: Scenario) -> None:
    broken = chat_body(scenario, messages=[{"role": "tool", "tool_call_id": "a", "content": "x"}])
    refused = await http.post("/chat/completions", json=broken)
    await scenario.script(strict=False)
    taken = await http.post("/chat/completions", json=broken)
    assert (refused.status_code, taken.status_code) == (400, 200)
    assert "follows no call" in refused.json()["error"]["message"]
    assert [len(request.problems) for request in await scenario.requests()] == [1, 1]


async def test_a_brain_answers_where_no_script_does(http: httpx.AsyncClient, scenario: Scenario) -> None:
    messages = [{"role": "user", "content": "kelp"}]
    response = await http.post("/chat/completions", json={"model": "parrot", "messages": messages})
    assert response.json()["choices"][0]["message"]["content"] == "You said: kelp"


def test_a_brain_sees_the_same_on_both_wires() -> None:
    tool = {"type": "function", "name": "lookup", "function": {"name": "lookup"}}
    on_chat = Seen.of(
        {
            "model": "m",
            "tools": [tool],
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "kelp"}]},
                {"role": "assistant", "tool_calls": []},
                {"role": "tool", "tool_call_id": "a", "content": "green"},
            ],
        }
    )
    on_responses = Seen.of(
        {
            "model": "m",
            "tools": [tool],
            "instructions": "Be kind.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "kelp"}]},
                {"type": "function_call", "call_id": "a", "name": "lookup", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "green"},
            ],
        }
    )
    assert on_chat == on_responses
    assert on_chat.new_outputs == ("green",)


@pytest.mark.parametrize("number", [number for number in cases() if number not in ("reset", "slow")])
async def test_a_body_is_replayed_byte_for_byte(
    http: httpx.AsyncClient, scenario: Scenario, number: str
) -> None:
    first = case(number)[0]
    await scenario.replay(number)
    path = "/responses" if is_responses_case(number) else "/chat/completions"
    body = chat_body(scenario, stream_options={"include_usage": True})
    received = b""
    async with http.stream("POST", path, json=body) as response:
        async for part in response.aiter_raw():
            received += part
            if first.end == "hang":
                break
    assert response.status_code == first.status
    assert received in {path.read_bytes() for path in BODIES.glob("*.txt")}


async def test_a_server_that_refuses_an_option_takes_requests_without_it(
    http: httpx.AsyncClient, scenario: Scenario
) -> None:
    await scenario.replay("stream-options")
    without = await http.post("/chat/completions", json=chat_body(scenario))
    refused = await http.post("/chat/completions", json=chat_body(scenario, stream_options={}))
    assert (without.status_code, refused.status_code) == (200, 422)


async def test_a_process_of_its_own_serves_the_same_and_ends_with_the_block() -> None:
    with upstream_process(["--brain", "parrot=tests.upstream.brain:echo"]) as origin:
        async with httpx.AsyncClient(base_url=origin, trust_env=False, verify=False) as client:
            models = await client.get("/v1/models")
            body = {"model": "parrot", "input": "kelp"}
            answer = await client.post("/v1/responses", json=body)
            assert models.json()["data"][0]["id"] == "scripted"
            assert "You said: kelp" in answer.text
            client_origin = httpx.URL(origin)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(client_origin.host, client_origin.port)
