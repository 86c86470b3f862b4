"""Agents that bring an SDK model of their own are watched like any other."""

import asyncio
from collections.abc import AsyncIterator
from json import JSONDecodeError
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    Usage,
    function_tool,
)
from agents.items import TResponseStreamEvent
from agents.testing import ScriptedModel, assistant_message, function_call
from openai import AsyncOpenAI

from app.runtime.failures import UpstreamFailure, turn_error
from app.runtime.models.foreign import TappedModel
from app.runtime.models.sdk_objects import sdk_item
from tests.runtime.models.harness import recording
from tests.runtime.models.loopback import (
    USAGE_CHUNK,
    Answer,
    Loopback,
    chunk,
    completed_event,
    frames,
    response_event,
)

pytestmark = pytest.mark.anyio

CONFIG = RunConfig(tracing_disabled=True)


@function_tool
def lookup(q: str) -> str:
    """Look something up."""
    return f"found {q}"


async def test_a_scripted_model_is_watched_step_by_step() -> None:
    script = ScriptedModel(
        [
            [function_call("lookup", {"q": "x"}, call_id="c")],
            [function_call("lookup", {"q": "y"}, call_id="c")],
            [assistant_message("Done.")],
        ]
    )
    async with recording() as scope:
        agent = Agent("a", model=TappedModel(script), tools=[lookup])
        result = Runner.run_streamed(agent, "Go.", run_config=CONFIG)
        async for _ in result.stream_events():
            pass
    assert result.final_output == "Done."
    assert [c.calls for c in scope.calls] == [[("lookup", '{"q":"x"}')], [("lookup", '{"q":"y"}')], []]
    assert scope.last.text == "Done."
    assert scope.last.texts("text") == ["Done."]
    ids = [i["call_id"] for c in scope.calls for i in c.output or [] if i["type"] == "function_call"]
    assert len(set(ids)) == 2
    sent = [i for i in script.calls[2].input if isinstance(i, dict) and i.get("type") == "function_call_output"]
    assert [i["call_id"] for i in sent] == ids


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_sdk_s_own_chat_model_shows_its_deltas_either_way(streamed: bool) -> None:
    body = frames(
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "He"}),
        chunk({"content": "llo"}),
        chunk(finish="stop"),
        USAGE_CHUNK,
        done=True,
    )
    async with (
        Loopback(Answer(body)) as server,
        AsyncOpenAI(base_url=server.url, api_key="k") as client,
        recording() as scope,
    ):
        agent = Agent("a", model=TappedModel(OpenAIChatCompletionsModel("m", client)))
        if streamed:
            result: Any = Runner.run_streamed(agent, "Go.", run_config=CONFIG)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "Go.", run_config=CONFIG)
    assert result.final_output == "Hello"
    assert scope.last.texts("text") == ["He", "llo"]
    assert scope.last.texts("summary") == ["Hm."]
    assert scope.last.counts is not None
    assert scope.last.counts.total_tokens == 18
    assert not any("__fake_id__" in str(entry) for entry in scope.last.told)


async def test_the_sdk_s_own_responses_model_keeps_its_server_s_ids() -> None:
    part = {"type": "output_text", "text": "Hi", "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    body = frames(
        response_event("response.output_item.added", item={**message, "content": []}, output_index=0),
        response_event(
            "response.output_text.delta",
            item_id="msg_1",
            output_index=0,
            content_index=0,
            delta="Hi",
            logprobs=[],
        ),
        response_event("response.output_item.done", item=message, output_index=0),
        completed_event([message]),
    )
    async with (
        Loopback(Answer(body)) as server,
        AsyncOpenAI(base_url=server.url, api_key="k") as client,
        recording() as scope,
    ):
        agent = Agent("a", model=TappedModel(OpenAIResponsesModel("m", client)))
        result = await Runner.run(agent, "Go.", run_config=CONFIG)
    assert result.final_output == "Hi"
    assert scope.last.texts("text") == ["Hi"]
    assert (scope.last.output or [])[0]["id"] == "msg_1"


async def test_a_foreign_stream_that_is_cut_has_its_code() -> None:
    error = {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}
    async with (
        Loopback(Answer(frames(error))) as server,
        AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        recording() as scope,
    ):
        agent = Agent("a", model=TappedModel(OpenAIResponsesModel("m", client)))
        with pytest.raises(Exception, match="slow down") as caught:
            await Runner.run(agent, "Go.", run_config=CONFIG)
    assert turn_error(caught.value).code == "rate_limited"
    assert len(scope.last.failures) == 1
    assert scope.last.failed_requests == ["rate_limited"]


class Unstreamed(Model):
    """A model that can only be asked whole."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        part = {"type": "output_text", "text": "Whole.", "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        return ModelResponse([sdk_item(item)], Usage(1, input_tokens=2, output_tokens=3, total_tokens=5), "r")

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_model_that_cannot_stream_is_asked_whole(streamed: bool) -> None:
    async with recording() as scope:
        agent = Agent("a", model=TappedModel(Unstreamed()))
        if streamed:
            result: Any = Runner.run_streamed(agent, "Go.", run_config=CONFIG)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "Go.", run_config=CONFIG)
    assert result.final_output == "Whole."
    assert scope.last.text == "Whole."
    assert scope.last.counts is not None
    assert scope.last.counts.total_tokens == 5


class Hanging(Unstreamed):
    """A model whose stream never ends, and which knows when it is closed."""

    def __init__(self) -> None:
        self.began, self.closed = asyncio.Event(), asyncio.Event()

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        try:
            self.began.set()
            await asyncio.Event().wait()
            yield  # type: ignore[misc]
        finally:
            self.closed.set()


async def test_a_cancel_reaches_a_foreign_model() -> None:
    model = Hanging()
    async with recording() as scope:
        result = Runner.run_streamed(Agent("a", model=TappedModel(model)), "Go.", run_config=CONFIG)
        await asyncio.wait_for(model.began.wait(), 2)
        result.cancel()
        await asyncio.wait_for(model.closed.wait(), 2)
        async for _ in result.stream_events():
            pass
    assert scope.last.failures == [None]


class Garbled(Unstreamed):
    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise JSONDecodeError("bad", "x", 0)
        yield


async def test_what_a_foreign_client_cannot_read_is_a_protocol_failure() -> None:
    with pytest.raises(UpstreamFailure) as caught:
        await Runner.run(Agent("a", model=TappedModel(Garbled())), "Go.", run_config=CONFIG)
    assert caught.value.code == "upstream_protocol"
