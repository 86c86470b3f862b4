"""Turns on PyPI's llmock: its faults are scripted, and it judges how its client took them."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.bounds import BOUND_S
from tests.e2e.checks import check_log
from tests.service.client import TurnwireClient
from tests.service.sse import Frame

pytestmark = pytest.mark.anyio
_numbers = itertools.count(1)


class Llmock:
    """Its control routes, for the requests of one model name that nobody else uses."""

    def __init__(self, origin: str) -> None:
        self.model = f"foreign-{next(_numbers)}"
        self._http = httpx.AsyncClient(base_url=f"{origin}/_llmock", trust_env=False, timeout=BOUND_S)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def script(self, *behaviors: dict[str, Any]) -> None:
        matched = [{**b, "match": {"model": self.model, **b.get("match", {})}} for b in behaviors]
        response = await self._http.post("/scenario", json={"behaviors": matched})
        assert response.status_code == 201, response.text

    async def requests(self) -> list[dict[str, Any]]:
        served = (await self._http.get("/requests")).json()["requests"]
        return [request for request in served if request["model"] == self.model]

    async def findings(self) -> list[str]:
        """What it has against how this model's faults were taken."""
        own = {request["seq"] for request in await self.requests()}
        verdict = (await self._http.get("/verdict")).json()
        return [found["code"] for found in verdict["findings"] if own & set(found["requests"])]


@pytest.fixture
async def server(llmock: str) -> AsyncIterator[Llmock]:
    control = Llmock(llmock)
    yield control
    await control.aclose()


async def frames_of(client: TurnwireClient, server: Llmock, said: str, **fields: Any) -> list[Frame]:
    async with client.stream(said, model=server.model, **fields) as stream:
        frames = await stream.rest()
    if frames[-1].type != "turn.paused":
        check_log(frames, await client.turn(stream.turn_id))
    return frames


def reply(text: str | None = None, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    tools = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {"type": "reply", "text": text, "tool_calls": tools}


async def test_text_comes_in_pieces_and_the_next_turn_goes_on(
    on_llmock: TurnwireClient, server: Llmock
) -> None:
    await server.script(reply("Hello from elsewhere, at some length."), reply("And again."))
    frames = await frames_of(on_llmock, server, "hello")
    turn = frames[-1].data["turn"]
    assert turn["output_text"] == "Hello from elsewhere, at some length."
    deltas = [frame.data["delta"] for frame in frames if frame.type == "message.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == turn["output_text"]
    assert turn["usage"]["output_tokens"] > 0
    again = await on_llmock.run("more", model=server.model, conversation=turn["conversation_id"])
    assert again["output_text"] == "And again."


async def test_tools_are_called_and_their_results_sent_back(on_llmock: TurnwireClient, server: Llmock) -> None:
    await server.script(reply(None, ("lookup", {"q": "kelp"}), ("get_time", {})), reply("Found at noon."))
    frames = await frames_of(on_llmock, server, "kelp?", agent="worker")
    results = [f.data for f in frames if f.type == "tool_call.completed"]
    assert sorted((r["tool"], r["status"]) for r in results) == [("get_time", "success"), ("lookup", "success")]
    assert frames[-1].data["turn"]["output_text"] == "Found at noon."
    assert "kelp: found" in str((await server.requests())[-1]["body"])


async def test_structured_output_handoffs_and_nested_agents_pass(
    on_llmock: TurnwireClient, server: Llmock
) -> None:
    shaped = (await frames_of(on_llmock, server, "kelp?", agent="shaped"))[-1].data["turn"]
    assert list(shaped["output"]) == ["answer"]
    await server.script(reply(None, ("transfer_to_expert", {})), reply("I know."))
    handed = (await frames_of(on_llmock, server, "kelp?", agent="desk"))[-1].data["turn"]
    assert (handed["last_agent"], handed["output_text"]) == ("expert", "I know.")
    await server.script(reply(None, ("ask_helper", {"input": "kelp?"})), reply("Weed."), reply("It is weed."))
    nested = (await frames_of(on_llmock, server, "kelp?", agent="boss"))[-1].data["turn"]
    assert nested["output_text"] == "It is weed."


async def test_an_approval_waits_and_the_turn_goes_on_after_it(
    on_llmock: TurnwireClient, server: Llmock
) -> None:
    await server.script(reply(None, ("guarded", {"q": "kelp"})), reply("Behind the guard."))
    frames = await frames_of(on_llmock, server, "kelp?", agent="keeper")
    turn = frames[-1].data["turn"]
    (approval,) = turn["pause"]["approvals"]
    decisions = {"decisions": [{"approval_id": approval["approval_id"], "decision": "approve"}]}
    answer = await on_llmock.http.post(
        f"/v1/turns/{turn['id']}/decisions", json=decisions, headers={"accept": "application/json"}
    )
    assert answer.json()["output_text"] == "Behind the guard."


async def test_refusals_that_may_pass_are_retried_as_late_as_the_server_asks(
    on_llmock: TurnwireClient, server: Llmock
) -> None:
    await server.script(
        {"type": "fail", "status": 429, "retry_after": 0.3}, {"type": "fail", "status": 503}, reply("At last.")
    )
    frames = await frames_of(on_llmock, server, "hello")
    assert frames[-1].data["turn"]["output_text"] == "At last."
    assert [f.data["code"] for f in frames if f.type == "warning"] == ["upstream_retry"] * 2
    assert [r["status"] for r in await server.requests()] == [429, 503, 200]
    assert await server.findings() == []


@pytest.mark.parametrize(("status", "code"), [(400, "upstream_rejected"), (401, "upstream_auth")])
async def test_refusals_that_are_final_are_asked_once(
    on_llmock: TurnwireClient, server: Llmock, status: int, code: str
) -> None:
    await server.script({"type": "fail", "status": status})
    turn = (await frames_of(on_llmock, server, "hello"))[-1].data["turn"]
    assert (turn["status"], turn["error"]["code"]) == ("failed", code)
    assert len(await server.requests()) == 1
    assert await server.findings() == []


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_after_text_fails_and_what_was_shown_stays(
    on_llmock: TurnwireClient, server: Llmock, kind: str
) -> None:
    text = "One two three four five six seven eight nine ten eleven twelve."
    fault = {"type": "stream_fault", "kind": kind, "after_chunks": 8, "match": {"stream": True}}
    await server.script(reply(text), fault, reply("Fine."))
    frames = await frames_of(on_llmock, server, "hello")
    turn = frames[-1].data["turn"]
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_protocol")
    shown = "".join(f.data["delta"] for f in frames if f.type == "message.delta")
    assert shown
    assert text.startswith(shown)
    again = await on_llmock.run("and now?", model=server.model, conversation=turn["conversation_id"])
    assert again["output_text"] == "Fine."


async def test_a_stream_that_is_cut_before_anything_came_is_asked_for_again(
    on_llmock: TurnwireClient, server: Llmock
) -> None:
    fault = {"type": "stream_fault", "kind": "truncate", "after_chunks": 1, "match": {"stream": True}}
    await server.script(fault, reply("Whole."), reply("Whole."))
    frames = await frames_of(on_llmock, server, "hello")
    assert frames[-1].data["turn"]["output_text"] == "Whole."
    assert [f.data["code"] for f in frames if f.type == "warning"] == ["empty_attempt"]
    assert await server.findings() == []


async def test_a_stream_that_stalls_is_given_up(on_llmock: TurnwireClient, server: Llmock) -> None:
    fault = {"type": "stream_fault", "kind": "stall", "after_chunks": 8, "stall_seconds": 8}
    await server.script(reply("One two three four five six seven eight nine ten."), fault)
    turn = (await frames_of(on_llmock, server, "hello"))[-1].data["turn"]
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_timeout")


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_a_broken_tool_call_is_told_to_the_model(
    on_llmock: TurnwireClient, server: Llmock, kind: str
) -> None:
    await server.script(
        reply(None, ("lookup", {"q": "kelp"})), {"type": "tool_fault", "kind": kind}, reply("Sorry.")
    )
    frames = await frames_of(on_llmock, server, "kelp?", agent="worker")
    assert [f.data["status"] for f in frames if f.type == "tool_call.completed"] == ["error"]
    assert frames[-1].data["turn"]["output_text"] == "Sorry."


async def test_a_cancel_closes_the_stream_and_the_server_sees_it(
    on_llmock: TurnwireClient, server: Llmock
) -> None:
    await server.script(reply("word " * 2000))
    async with on_llmock.stream("hello", model=server.model) as stream:
        await stream.until("message.delta")
        await on_llmock.cancel(stream.turn_id)
        frames = await stream.rest()
    assert frames[-1].type == "turn.cancelled"
    (left,) = await server.requests()
    assert left["completed"] is False
