"""What a turn shows, in the order in which it happened, on both wires."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.executor import AGENTS, chat_chunk, completed, frames_of, raw, told, turn_of
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["chat_completions", "responses"])
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    settings = {"TURNWIRE_AGENTS": AGENTS, "TURNWIRE_MODEL_API": request.param}
    with ServiceProcess(tmp_path_factory.mktemp("executor"), upstream_origin, **settings) as service:
        yield service
        service.check_log()


@pytest.fixture
async def client(executor: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(executor.base_url, model=scenario.model)
    yield client
    await client.aclose()


@pytest.fixture
def wire(executor: ServiceProcess) -> str:
    return executor.environment["TURNWIRE_MODEL_API"]


async def test_everything_comes_in_the_order_in_which_it_happened(
    client: TurnwireClient, scenario: Scenario
) -> None:
    calls = [{"name": "lookup", "arguments": {"q": "kelp"}, "chunks": 3}]
    await scenario.script({"reasoning": "Hm.", "text": "Let me look.", "tool_calls": calls}, {"text": "Weed."})
    frames = await frames_of(client, agent="talker")
    kinds = [frame.type for frame in frames if not frame.type.startswith(("turn.", "agent.", "step."))]
    order = [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]]
    assert order == [
        "reasoning.started",
        "reasoning.delta",
        "reasoning.completed",
        "message.started",
        "message.delta",
        "message.completed",
        "tool_call.started",
        "tool_call.delta",
        "tool_call.requested",
        "tool_call.completed",
    ]


async def test_empty_deltas_are_never_shown(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "Weed.", "chunks": ["", "We", "", "ed.", ""]})
    frames = await frames_of(client)
    assert "" not in told(frames, "message.delta")
    assert "".join(told(frames, "message.delta")) == "Weed."


async def test_a_summary_of_reasoning_is_told_from_its_full_text(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "In short."}]}
    if wire == "responses":
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
        message = {"type": "message", "id": "m_1", "content": [{"type": "output_text", "text": "Weed."}]}
        at = {"item_id": "rs_1", "output_index": 0}
        await scenario.script(
            raw(
                {"type": "response.output_item.added", "output_index": 0, "item": thought},
                {
                    "type": "response.reasoning_summary_text.delta",
                    **at,
                    "summary_index": 0,
                    "delta": "In short.",
                },
                {"type": "response.output_item.done", "output_index": 0, "item": thought},
                {
                    "type": "response.reasoning_text.delta",
                    "item_id": "rs_2",
                    "delta": "At length.",
                    "output_index": 1,
                },
                {"type": "response.output_text.delta", "item_id": "m_1", "output_index": 2, "delta": "Weed."},
                completed(thought, {**thought, "id": "rs_2"}, message),
            )
        )
    else:
        await scenario.script(
            raw(chat_chunk({"content": [summary]}), chat_chunk({"content": "Weed."}), chat_chunk(finish="stop"))
        )
        frames = await frames_of(client)
        assert told(frames, "reasoning.delta", "kind") == ["summary"]
        await scenario.script(
            raw(chat_chunk({"reasoning_content": "At length."}), chat_chunk({"content": "Weed."}, "stop"))
        )
        frames = await frames_of(client)
        assert told(frames, "reasoning.delta", "kind") == ["text"]
        return
    frames = await frames_of(client)
    shown = list(zip(told(frames, "reasoning.delta", "kind"), told(frames, "reasoning.delta"), strict=True))
    assert shown == [("summary", "In short."), ("text", "At length.")]


async def test_citations_are_annotations(client: TurnwireClient, scenario: Scenario, wire: str) -> None:
    citation = {"type": "url_citation", "url": "https://example.com", "title": "Kelp"}
    if wire == "responses":
        message = {"type": "message", "id": "m_1", "content": [{"type": "output_text", "text": "Weed."}]}
        at = {"item_id": "m_1", "output_index": 0, "content_index": 0}
        reply = raw(
            {"type": "response.output_text.delta", **at, "delta": "Weed."},
            {"type": "response.output_text.annotation.added", **at, "annotation": citation},
            completed(message),
        )
    else:
        nested = {"type": "url_citation", "url_citation": {k: citation[k] for k in ("url", "title")}}
        reply = raw(chat_chunk({"content": "Weed."}), chat_chunk({"annotations": [nested]}, "stop"))
    await scenario.script(reply)
    assert told(await frames_of(client), "message.annotation", "annotation") == [citation]


async def test_text_that_comes_whole_is_one_message_with_one_delta(
    client: TurnwireClient, scenario: Scenario, wire: str
) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Weed."}]}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Weed."}, "finish_reason": "stop"}
    body: JsonObject = {"choices": [choice]}
    if wire == "responses":
        body = {"id": "resp_1", "status": "completed", "output": [message]}
    await scenario.script({"body": body})
    frames = await frames_of(client)
    assert told(frames, "message.delta") == ["Weed."]
    assert turn_of(frames)["output_text"] == "Weed."


async def test_a_tools_output_as_the_answer_is_one_message(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [{"name": "lookup", "arguments": {"q": "kelp"}}]})
    frames = await frames_of(client, agent="stopper")
    assert told(frames, "message.delta") == ["kelp: found"]
    assert turn_of(frames)["output_text"] == "kelp: found"


@pytest.mark.parametrize(
    ("output", "status", "error"),
    [
        ("fine", "success", None),
        ('{"error": "no such kelp"}', "error", "no such kelp"),
        ('{"blocked": true, "reason": "not for you", "error": "x"}', "error", "x"),
        ('{"blocked": true, "reason": "not for you"}', "blocked", "not for you"),
        ('{"cancelled": true, "error": "x", "blocked": true}', "cancelled", None),
        ('{"result": {"content": [{"text": "{\\"error\\": \\"deep down\\"}"}]}}', "error", "deep down"),
        ('{"error": null, "cancelled": false, "blocked": 0}', "success", None),
        ('the word "error" alone', "success", None),
    ],
)
async def test_a_tools_result_says_how_the_call_went(
    client: TurnwireClient, scenario: Scenario, output: str, status: str, error: str | None
) -> None:
    await scenario.script({"tool_calls": [{"name": "says", "arguments": {"text": output}}]})
    frames = await frames_of(client, agent="talker")
    (completed_call,) = (frame.data for frame in frames if frame.type == "tool_call.completed")
    assert completed_call["status"] == status
    if error is not None:
        assert completed_call["error"] == error
    assert turn_of(frames)["status"] == "completed"
    assert json.dumps(output)[1:-1] in json.dumps((await scenario.last_request()).history)


async def test_a_nested_agent_with_its_own_run_config_uses_our_provider_and_our_switch(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(
        {"tool_calls": [{"name": "ask_scout", "arguments": {"q": "kelp?"}}]},
        {"tool_calls": [{"name": "traced", "arguments": {}}]},
        {"text": "Scouted."},
        {"text": "So it is."},
    )
    frames = await frames_of(client, agent="leader")
    assert turn_of(frames)["output_text"] == "So it is."
    nested = [frame.data for frame in frames if "parent_call_id" in frame.data]
    assert {data["agent"] for data in nested} == {"scout"}
    traces = [d["output"] for d in nested if d["type"] == "tool_call.completed"]
    assert traces in (["NoneType"], ["NoOpTrace"])
    assert turn_of(frames)["usage"]["requests"] == 4
    assert len(await scenario.requests()) == 4


async def test_an_agent_that_a_guardrail_runs_uses_our_provider_and_shows_nothing(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "It is good.", "when": "I am the judge."}, {"text": "Weed."})
    frames = await frames_of(client, agent="judged")
    assert turn_of(frames)["output_text"] == "Weed."
    assert "".join(told(frames, "message.delta")) == "Weed."
    assert turn_of(frames)["usage"]["requests"] == 2
    await scenario.script({"text": "It is bad.", "when": "I am the judge."})
    assert turn_of(await frames_of(client, agent="judged"))["error"]["code"] == "guardrail_tripped"


async def test_an_agent_may_bring_a_model_of_its_own(executor: ServiceProcess, scenario: Scenario) -> None:
    client = TurnwireClient(executor.base_url)
    frames = await frames_of(client, agent="parrot")
    await client.aclose()
    assert told(frames, "message.delta") == ["I am my own model."]
    assert turn_of(frames)["usage"]["total_tokens"] == 8
    assert await scenario.requests() == []


async def test_a_run_that_fails_while_it_is_stopped_is_a_cancelled_one(
    executor: ServiceProcess, scenario: Scenario
) -> None:
    """Its failure is nobody's, and must not come up as a defect when the run is forgotten."""
    client = TurnwireClient(executor.base_url)
    for _ in range(20):
        async with client.stream("hello", agent="sulker") as stream:
            await stream.until("step.started")
            await client.cancel(stream.turn_id, "keep")
            assert (await stream.rest())[-1].type == "turn.cancelled"
    await client.aclose()


async def test_an_exception_without_text_still_gives_a_message(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    with ServiceProcess(tmp_path, upstream_origin, TURNWIRE_AGENTS=AGENTS) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        error = turn_of(await frames_of(client, agent="speechless"))["error"]
        await client.aclose()
    assert error["code"] == "internal"
    assert error["message"]
