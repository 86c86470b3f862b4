"""What the executor's tests share: the service with agents that ask much of it, by either wire."""

import base64
import json
from typing import Any

from tests.e2e.checks import check_log
from tests.service.client import JsonObject, TurnwireClient
from tests.service.sse import Frame

AGENTS = "tests.service.executor_agents:AGENTS"


def raw(*frames: JsonObject, end: str = "data: [DONE]\n\n") -> JsonObject:
    """A reply of exactly these frames."""
    body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + end
    return {"raw": base64.b64encode(body.encode()).decode()}


def chat_chunk(delta: JsonObject | None = None, finish: str | None = None, **more: Any) -> JsonObject:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def completed(*output: JsonObject, **usage: int) -> JsonObject:
    """The final event of a Responses stream."""
    counts = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10} | usage
    return {
        "type": "response.completed",
        "response": {"id": "resp_x", "status": "completed", "output": list(output), "usage": counts},
    }


async def frames_of(client: TurnwireClient, said: Any = "hello", **fields: Any) -> list[Frame]:
    """The whole log of a turn that ends, checked."""
    async with client.stream(said, **fields) as stream:
        frames = await stream.rest()
    check_log(frames, await client.turn(stream.turn_id))
    return frames


def told(frames: list[Frame], kind: str, field: str = "delta") -> list[Any]:
    return [frame.data[field] for frame in frames if frame.type == kind]


def turn_of(frames: list[Frame]) -> JsonObject:
    turn: JsonObject = frames[-1].data["turn"]
    return turn
