"""The moments at which a turn is cancelled: how to bring a turn there, and what each mode leaves behind.

Where a step is under way its script has a second one, so that `after_step` ends a turn that would have gone on.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.service.shapes import Shape
from tests.upstream.client import Scenario

JsonObject = dict[str, Any]
USER: Shape = ("user", "What is kelp?")
SAID: Shape = ("assistant", "Let me look.")
LOOKUP: Shape = ("call", "lookup", '{"q":"kelp"}')
FOUND: Shape = ("output", "kelp: found")
GONE: Shape = ("output", "cancelled")
GREEN: Shape = ("assistant", "It is green.")
_LOOKUP_CALL = {"name": "lookup", "arguments": {"q": "kelp"}, "chunks": 3}
_STEP = {"text": "Let me look.", "chunks": ["Let ", "me ", "look."], "tool_calls": [_LOOKUP_CALL]}
_LAST = {"text": "It is green."}


@dataclass(frozen=True)
class Moment:
    """`replies` make the upstream hold at the gate `here`; `keep` and `after_step` are the items expected then.

    `open_request`: the upstream is answering at this moment, and must see its peer leave.
    """

    name: str
    replies: Callable[[Scenario], list[JsonObject]]
    keep: Callable[[Scenario], list[Shape]]
    after_step: Callable[[Scenario], list[Shape]]
    open_request: bool
    agent: str = "worker"
    shown: str = ""
    metadata: Callable[[Scenario], dict[str, str]] = field(default=lambda scenario: {})
    after_step_status: str = "cancelled"
    gone_from_gate: bool = False


def _held(place: str) -> Callable[[Scenario], list[JsonObject]]:
    return lambda scenario: [_STEP | {"hold": {place: scenario.gate("here")}}, _LAST]


def _tool(name: str, scenario: Scenario) -> JsonObject:
    return {"name": name, "arguments": {"q": scenario.gate("here")}}


def _tool_step(name: str) -> Callable[[Scenario], list[JsonObject]]:
    return lambda scenario: [_STEP | {"tool_calls": [_LOOKUP_CALL, _tool(name, scenario)]}, _LAST]


def _tool_call(name: str, scenario: Scenario) -> Shape:
    return ("call", name, json.dumps({"q": scenario.gate("here")}, separators=(",", ":")))


def _with_tool(name: str, *outputs: Shape) -> Callable[[Scenario], list[Shape]]:
    return lambda scenario: [USER, SAID, LOOKUP, _tool_call(name, scenario), *outputs]


def _slow_found(name: str, said: str) -> Callable[[Scenario], list[Shape]]:
    return lambda scenario: _with_tool(name, FOUND, ("output", f"{scenario.gate('here')}: {said}"))(scenario)


def _always(*shapes: Shape) -> Callable[[Scenario], list[Shape]]:
    return lambda scenario: list(shapes)


_ASK: Shape = ("call", "ask_helper", '{"input":"kelp?"}')
_ASKING = {"text": "Let me look.", "tool_calls": [{"name": "ask_helper", "arguments": {"input": "kelp?"}}]}

MOMENTS = [
    Moment(
        "in set-up",
        lambda scenario: [],
        keep=_always(USER),
        after_step=_always(USER),
        open_request=False,
        metadata=lambda scenario: {"set_up_gate": scenario.gate("here")},
    ),
    Moment(
        "before the upstream's headers",
        _held("headers"),
        keep=_always(USER),
        after_step=_always(USER, SAID, LOOKUP, FOUND),
        open_request=True,
    ),
    Moment(
        "between deltas",
        _held("text:2"),
        keep=_always(USER, ("assistant", "Let me ")),
        after_step=_always(USER, SAID, LOOKUP, FOUND),
        open_request=True,
        shown="Let me ",
    ),
    Moment(
        "in tool-argument deltas",
        _held("arguments:2"),
        keep=_always(USER, SAID),
        after_step=_always(USER, SAID, LOOKUP, FOUND),
        open_request=True,
        shown="Let me look.",
    ),
    Moment(
        "in an async tool",
        _tool_step("slow_async"),
        keep=_with_tool("slow_async", FOUND, GONE),
        after_step=_slow_found("slow_async", "found slowly"),
        open_request=False,
        shown="Let me look.",
        gone_from_gate=True,
    ),
    Moment(
        "in a sync tool that cannot be stopped",
        _tool_step("slow_sync"),
        keep=_with_tool("slow_sync", FOUND, GONE),
        after_step=_slow_found("slow_sync", "found in a thread"),
        open_request=False,
        shown="Let me look.",
    ),
    Moment(
        "in a nested agent",
        lambda s: [_ASKING, {"text": "Sea weed.", "hold": {"text:1": s.gate("here")}}, _LAST],
        keep=_always(USER, SAID, _ASK, GONE),
        after_step=_always(USER, SAID, _ASK, ("output", "Sea weed.")),
        open_request=True,
        agent="boss",
        shown="Let me look.",
    ),
    Moment(
        "in a nested agent's tool",
        lambda s: [_ASKING, {"tool_calls": [_tool("slow_async", s)]}, {"text": "Sea weed."}, _LAST],
        keep=_always(USER, SAID, _ASK, GONE),
        after_step=_always(USER, SAID, _ASK, ("output", "Sea weed.")),
        open_request=False,
        agent="boss",
        shown="Let me look.",
        gone_from_gate=True,
    ),
    Moment(
        "between steps",
        lambda s: [_STEP, _LAST | {"hold": s.gate("here")}],
        keep=_always(USER, SAID, LOOKUP, FOUND),
        after_step=_always(USER, SAID, LOOKUP, FOUND, GREEN),
        open_request=True,
        shown="Let me look.",
        after_step_status="completed",
    ),
]
