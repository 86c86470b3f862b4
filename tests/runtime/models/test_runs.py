"""Whole runs of the SDK's runner over our model, against a loopback upstream."""

import asyncio
import json
from typing import Any

import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    RunConfig,
    Runner,
    RunResultStreaming,
    Tool,
    function_tool,
)
from pydantic import BaseModel

from app.runtime.failures import turn_error
from app.runtime.models.model import UpstreamModel
from app.runtime.models.transport import Wire
from app.runtime.observer import current_scope
from tests.runtime.models.harness import recording, upstream_of
from tests.runtime.models.loopback import (
    Answer,
    Loopback,
    chunk,
    completed_event,
    frames,
    response_event,
    text_answer,
)
from tests.runtime.models.recorder import RecordingScope

pytestmark = pytest.mark.anyio

CONFIG = RunConfig(tracing_disabled=True)


@function_tool
def lookup(q: str) -> str:
    """Look something up."""
    return f"found {q}"


@function_tool
def get_time() -> str:
    """What time it is."""
    return "noon"


def calls(*wanted: tuple[str | None, str, Any], **delta: Any) -> Answer:
    """A Chat Completions answer that calls tools, all numbered 0."""
    entries = [{"index": 0, "id": i, "function": {"name": n, "arguments": a}} for i, n, a in wanted]
    return Answer(
        frames(
            chunk(delta),
            *(chunk({"tool_calls": [e]}) for e in entries),
            chunk(finish="tool_calls"),
            done=True,
        )
    )


async def run(
    *answers: Answer, tools: list[Tool] | None = None, wire: Wire = "chat_completions", **agent: Any
) -> tuple[RunResultStreaming, list[dict[str, Any]], RecordingScope]:
    """Run an agent to its end: the result, the bodies that the upstream was sent, the recording."""
    max_turns = agent.pop("max_turns", 10)
    async with Loopback(*answers) as server, upstream_of(server, wire) as upstream, recording() as scope:
        subject = Agent(
            "tester", model=UpstreamModel(upstream, "m"), tools=tools or [lookup, get_time], **agent
        )
        result = Runner.run_streamed(subject, "Go.", run_config=CONFIG, max_turns=max_turns)
        async for _ in result.stream_events():
            pass
        return result, [r.body for r in server.requests], scope


def strictly_valid(messages: list[dict[str, Any]]) -> bool:
    """The rules of a strict provider: calls answered at once, once each, with arguments that are objects."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return False
        if message["role"] == "assistant":
            asked = message.get("tool_calls", [])
            open_calls = [c["id"] for c in asked]
            if not all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in asked):
                return False
            if not asked and not message.get("content"):
                return False
    return not open_calls


async def test_parallel_calls_numbered_alike_run_once_each() -> None:
    wanted = (("call_a", "lookup", '{"q":"alpha"}'), ("call_b", "lookup", '{"q":"beta"}'))
    result, bodies, scope = await run(calls(*wanted), text_answer())
    assert result.final_output == "All good."
    outputs = [m for m in bodies[1]["messages"] if m["role"] == "tool"]
    assert [(m["tool_call_id"], m["content"]) for m in outputs] == [
        ("call_a", "found alpha"),
        ("call_b", "found beta"),
    ]
    assert strictly_valid(bodies[1]["messages"])
    assert len(scope.calls) == 2


async def test_arguments_that_came_as_an_object_reach_the_tool() -> None:
    _, bodies, _ = await run(calls(("call_a", "lookup", {"q": "alpha"})), text_answer())
    assert bodies[1]["messages"][-1]["content"] == "found alpha"


@pytest.mark.parametrize("arguments", ["", None, " "])
async def test_a_tool_without_parameters_runs_and_its_call_goes_back_as_an_object(
    arguments: str | None,
) -> None:
    _, bodies, _ = await run(calls((None, "get_time", arguments)), text_answer())
    assert bodies[1]["messages"][-1]["content"] == "noon"
    assert bodies[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_arguments_that_are_no_object_never_reach_the_tool_and_the_model_is_told() -> None:
    reached: list[str] = []

    @function_tool
    def note(text: str = "nothing") -> str:
        """Note it down."""
        reached.append(text)
        return "noted"

    result, bodies, _ = await run(calls(("call_a", "note", "[1,")), text_answer(), tools=[note])
    assert reached == []
    assert result.final_output == "All good."
    assert strictly_valid(bodies[1]["messages"])


async def test_an_id_that_comes_again_in_a_later_step_is_a_new_call() -> None:
    step = calls(("call_a", "lookup", '{"q":"x"}'))
    _, bodies, _ = await run(step, step, text_answer())
    asked = [c["id"] for m in bodies[2]["messages"] for c in m.get("tool_calls", [])]
    assert len(set(asked)) == 2
    assert strictly_valid(bodies[2]["messages"])


async def test_ids_are_unique_without_an_observer_too() -> None:
    step = calls(("call_a", "lookup", '{"q":"x"}'))
    async with Loopback(step, step, text_answer()) as server, upstream_of(server) as upstream:
        agent = Agent("tester", model=UpstreamModel(upstream, "m"), tools=[lookup])
        result = await Runner.run(agent, "Go.", run_config=CONFIG)
    assert result.final_output == "All good."
    assert strictly_valid(server.requests[2].body["messages"])


async def test_thought_goes_back_with_its_call() -> None:
    thinking = calls(("call_a", "lookup", '{"q":"x"}'), reasoning_content="I should look it up.")
    _, bodies, _ = await run(thinking, text_answer())
    assert bodies[1]["messages"][1]["reasoning_content"] == "I should look it up."


async def test_a_tool_that_nobody_has_is_told_to_whoever_asked() -> None:
    with pytest.raises(ModelBehaviorError) as caught:
        await run(calls(("call_a", "no_such_tool", "{}")))
    assert turn_error(caught.value).code == "output_invalid"


async def test_an_agent_that_loops_ends_by_its_limit() -> None:
    with pytest.raises(MaxTurnsExceeded) as caught:
        await run(calls(("call_a", "lookup", '{"q":"again"}')), max_turns=3)
    assert turn_error(caught.value).code == "max_steps_exceeded"


class Solution(BaseModel):
    answer: str


@pytest.mark.parametrize(
    "text", ['{"answer": "42"}', '```json\n{"answer": "42"}\n```', '\n```\n{"answer": "42"}```\n']
)
async def test_structured_output_is_taken_out_of_a_fence(text: str) -> None:
    result, _, scope = await run(text_answer(text), output_type=Solution)
    assert result.final_output == Solution(answer="42")
    assert scope.last.text == text


async def test_structured_output_that_is_none_is_told_so() -> None:
    with pytest.raises(ModelBehaviorError) as caught:
        await run(text_answer("no idea"), output_type=Solution)
    assert turn_error(caught.value).code == "output_invalid"


async def test_usage_reaches_the_sdk() -> None:
    result, _, _ = await run(text_answer())
    usage = result.context_wrapper.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (1, 11, 7, 18)


def responses_call() -> list[dict[str, Any]]:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
    item = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_a",
        "name": "lookup",
        "arguments": '{"q":"x"}',
    }
    return [reasoning, item | {"status": "completed"}]


async def test_a_responses_server_gets_its_own_items_back_unchanged() -> None:
    first = [
        response_event("response.output_item.done", item=i, output_index=n)
        for n, i in enumerate(responses_call())
    ]
    message = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Done."}]}
    answers = (Answer(frames(*first, completed_event([]))), Answer(frames(completed_event([message]))))
    result, bodies, _ = await run(*answers, wire="responses")
    assert result.final_output == "Done."
    output = {"type": "function_call_output", "call_id": "call_a", "output": "found x"}
    assert bodies[1]["input"][1:] == [*responses_call(), output]


async def test_a_tool_starts_only_when_its_call_is_durable() -> None:
    durable: list[bool] = []

    @function_tool
    def act() -> str:
        """Act."""
        scope = current_scope.get()
        durable.append(isinstance(scope, RecordingScope) and scope.last.output is not None)
        return "done"

    await run(calls(("call_a", "act", "{}")), text_answer(), tools=[act])
    assert durable == [True]


async def test_an_agent_that_runs_as_a_tool_streams_and_is_watched() -> None:
    async with (
        Loopback(
            calls(("call_a", "ask_inner", '{"input":"x"}')), text_answer("inner"), text_answer()
        ) as server,
        upstream_of(server) as upstream,
        recording() as scope,
    ):
        model = UpstreamModel(upstream, "m")
        inner = Agent("inner", model=model).as_tool("ask_inner", "Asks.")
        result = await Runner.run(Agent("outer", model=model, tools=[inner]), "Go.", run_config=CONFIG)
    assert result.final_output == "All good."
    assert [c.text for c in scope.calls] == ["", "inner", "All good."]
    assert scope.calls[1].texts("text") == ["in", "ner"]
    assert all(r.body["stream"] for r in server.requests)


async def test_a_cancelled_run_closes_its_upstream() -> None:
    part = Answer(frames(chunk({"content": "Part"})), end="hang")
    async with Loopback(part) as server, upstream_of(server) as upstream, recording() as scope:
        agent = Agent("tester", model=UpstreamModel(upstream, "m"))
        result = Runner.run_streamed(agent, "Go.", run_config=CONFIG)
        await asyncio.wait_for(server.answering.wait(), 2)
        result.cancel()
        async for _ in result.stream_events():
            pass
        await asyncio.wait_for(server.peer_left.wait(), 0.5)
    assert scope.last.failures == [None]


async def test_what_a_model_is_asked_with_is_told_to_the_scope() -> None:
    async with Loopback(text_answer()) as server, upstream_of(server) as upstream, recording() as scope:
        model = UpstreamModel(upstream, "m")
        await Runner.run(Agent("a", model=model, handoffs=[Agent("b", model=model)]), "Go.", run_config=CONFIG)
    assert scope.asked == [("m", "loop", frozenset({"transfer_to_b"}))]
