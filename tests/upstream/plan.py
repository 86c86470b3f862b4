"""From a reply to what is done on the socket: a list of steps. Pure, so that it is tested without one."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from tests.upstream import chat_completions, responses
from tests.upstream.frames import Frame, encode
from tests.upstream.reply import Reply

Wire = Literal["chat_completions", "responses"]
SSE = "text/event-stream; charset=utf-8"
CUT_PAUSE_S = 0.02
"""Between two writes at a `cut_at`, so that they are two reads for the peer."""


@dataclass(frozen=True, slots=True)
class Head:
    """The status line and headers. `length` is None for a body in chunked transfer encoding."""

    status: int
    headers: dict[str, str]
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until the test releases the gate of this name."""

    gate: str


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Finish:
    """`close`: end the body. `reset`: abort the connection. `hang`: stay silent until the peer closes."""

    how: Literal["close", "reset", "hang"]


Step = Head | Send | Hold | Wait | Finish


def planned(reply: Reply, wire: Wire, request: dict[str, Any]) -> list[Step]:
    """What to do on the socket to answer `request` with `reply`."""
    before = [Hold(reply.holds["headers"])] if "headers" in reply.holds else []
    if reply.raw is not None:
        return before + _raw_steps(reply, base64.b64decode(reply.raw))
    if reply.body is not None or reply.status != 200:
        return before + _plain_steps(reply)
    if not request.get("stream"):
        module = responses if wire == "responses" else chat_completions
        return before + _plain_steps(reply.model_copy(update={"body": module.whole(reply, request)}))
    render = responses.stream if wire == "responses" else chat_completions.stream
    return before + _stream_steps(reply, render(reply, request))


def _stream_steps(reply: Reply, frames: Sequence[Frame]) -> list[Step]:
    steps: list[Step] = [Head(reply.status, {"content-type": SSE, **reply.headers})]
    seen: Counter[str] = Counter()
    started = ended = False
    for frame in frames[: reply.frames]:
        if not started:
            steps += _holds(reply, "start")
            started = True
        if frame.kind == "finish" and not ended:
            steps += _holds(reply, "end")
            ended = True
        steps.append(Send(frame.data))
        seen[frame.kind] += 1
        steps += _holds(reply, f"{frame.kind}:{seen[frame.kind]}")
        if reply.delay_s:
            steps.append(Wait(reply.delay_s))
    return [*steps, Finish(reply.end)]


def _holds(reply: Reply, place: str) -> list[Step]:
    return [Hold(reply.holds[place])] if place in reply.holds else []


def _plain_steps(reply: Reply) -> list[Step]:
    """A body with a length, as error answers have; without one if it does not come to a good end."""
    body = reply.body.encode() if isinstance(reply.body, str) else encode(reply.body or {})
    kind = "text/html" if isinstance(reply.body, str) else "application/json"
    length = len(body) if reply.end == "close" else None
    head = Head(reply.status, {"content-type": kind, **reply.headers}, length)
    return [head, Send(body), Finish(reply.end)]


def _raw_steps(reply: Reply, body: bytes) -> list[Step]:
    head = Head(reply.status, {"content-type": SSE, **reply.headers})
    writes: Iterable[bytes] = [body]
    pause = reply.pause
    if reply.cut_at:
        cuts = [0, *reply.cut_at, len(body)]
        writes = [body[a:b] for a, b in pairwise(cuts)]
        pause = CUT_PAUSE_S
    elif pause:
        writes = [frame + b"\n\n" for frame in body.split(b"\n\n") if frame]
    steps: list[Step] = [head]
    for data in writes:
        steps.append(Send(data))
        if pause:
            steps.append(Wait(pause))
    return [*steps, Finish(reply.end)]


def request_json(body: bytes) -> dict[str, Any]:
    """The request's body as an object; empty if it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
