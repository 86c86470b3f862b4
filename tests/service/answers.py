"""Answers to paused turns, as a client sends them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.service.client import JsonObject, TurnwireClient
from tests.service.sse import EventStream


def approvals(turn: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = turn["pause"]["approvals"]
    return found


def decisions(turn: JsonObject, decision: str = "approve", **more: Any) -> JsonObject:
    """The same decision for everything that waits for a person."""
    return {
        "decisions": [
            {"approval_id": one["approval_id"], "decision": decision, **more} for one in approvals(turn)
        ]
    }


def outputs(turn: JsonObject, *given: Any) -> JsonObject:
    """An output for each client tool that waits, in order; an exception is a tool's error."""
    calls = turn["pause"]["tool_calls"]
    return {"outputs": [_output(call["call_id"], one) for call, one in zip(calls, given, strict=True)]}


def _output(call_id: str, given: Any) -> JsonObject:
    if isinstance(given, Exception):
        return {"call_id": call_id, "output": None, "error": str(given)}
    return {"call_id": call_id, "output": given}


def resume(turn: JsonObject) -> JsonObject:
    return {"pause_id": turn["pause"]["id"]}


def route(body: JsonObject) -> str:
    if "decisions" in body:
        return "decisions"
    return "tool_outputs" if "outputs" in body else "resume"


async def answer(
    client: TurnwireClient, turn_id: str, body: JsonObject, *, accept: str = "application/json", **headers: str
) -> httpx.Response:
    path = f"/v1/turns/{turn_id}/{route(body)}"
    return await client.http.post(path, json=body, headers={"accept": accept, **headers})


async def answered(client: TurnwireClient, turn_id: str, body: JsonObject) -> JsonObject:
    """The turn once it has paused again or ended."""
    response = await answer(client, turn_id, body)
    assert response.status_code == 200, response.text
    turn: JsonObject = response.json()
    return turn


@asynccontextmanager
async def following(client: TurnwireClient, turn_id: str, body: JsonObject) -> AsyncIterator[EventStream]:
    """The events that follow the answer."""
    path = f"/v1/turns/{turn_id}/{route(body)}"
    sent = {"accept": "text/event-stream"}
    async with client.http.stream("POST", path, json=body, headers=sent) as response:
        assert response.status_code == 200, await response.aread()
        yield EventStream(response)
