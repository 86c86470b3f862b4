"""The scope of a turn's run: where its events go, which ids are taken, which run a piece of code works for.

A turn has one `TurnScope`. Each run of the SDK's runner inside it, the top agent's or that of an agent that
runs as a tool, has a `RunFrame`; `current_scope` leads there from any code of the run. A frame counts its
steps and closes each one after its last tool.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar

from agents import RunConfig, Tool

from app.domain.conversation import NewItem
from app.domain.events import (
    AgentEnded,
    AgentHandedOff,
    AgentStarted,
    Event,
    Origin,
    StepCompleted,
    StepStarted,
    ToolCallCompleted,
    Warned,
)
from app.domain.ids import new_call_id, new_item_id
from app.domain.json_types import Item
from app.domain.pause import ToolOutput
from app.domain.ports import EventSink
from app.domain.usage import TokenCounts, Usage
from app.runtime.failures import PolicyDenied
from app.runtime.origins import native_items
from app.runtime.outputs import shown_output
from app.runtime.policy import TurnPolicy, Warn, about_model_call, about_tool_call, ask_before
from app.runtime.step import Step, ToolCall
from app.runtime.translator import ModelCall

current_call: ContextVar[str | None] = ContextVar("turnwire_current_call", default=None)
"""The id of the tool call that code runs for; an agent that it runs is nested in that call."""

_USABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACEHOLDERS = frozenset({"__fake_id__"})


class Ids:
    """Ids that are unique in the conversation, whatever the upstream sends."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self.claimed: set[str] = set()
        """Those of this turn; nested agents' stand in no history."""

    def go_on(self, claimed: Iterable[str]) -> None:
        """Go on with the ids that the turn claimed before it was paused."""
        self.claimed |= set(claimed)
        self._taken |= self.claimed

    def claim_item(self, upstream_id: str | None) -> str:
        return self._claim(upstream_id, new_item_id)

    def claim_call(self, upstream_id: str | None) -> str:
        return self._claim(upstream_id, new_call_id)

    def _claim(self, wanted: str | None, make: Callable[[], str]) -> str:
        usable = bool(
            wanted
            and wanted not in self._taken
            and wanted not in _PLACEHOLDERS
            and _USABLE_ID.fullmatch(wanted)
        )
        claimed = wanted if usable and wanted else make()
        self._taken.add(claimed)
        self.claimed.add(claimed)
        return claimed


class TurnScope:
    """What all runs of one turn share."""

    def __init__(
        self,
        sink: EventSink,
        *,
        taken_ids: Iterable[str],
        deadline: float,
        client_tools: frozenset[str],
        steps_before: int,
        max_shown_output: int,
        recorded: Iterable[NewItem] = (),
        policy: TurnPolicy | None = None,
        origins: Mapping[str, str] | None = None,
        omit_reasoning_ids: bool = False,
        observe_made: Callable[[Sequence[Tool]], None] = lambda tools: None,
    ) -> None:
        self.sink = sink
        self.items = list(recorded)
        """The turn's items so far, of all its runs."""
        self.ids = Ids(taken_ids)
        self.deadline = deadline
        self.client_tools = client_tools
        self.max_shown_output = max_shown_output
        self.steps_before = steps_before
        self.top = RunFrame(self, parent_call_id=None)
        self.supplied: dict[str, ToolOutput] = {}
        """The caller's outputs of client tools, by call id."""
        self.edited_arguments: dict[str, str] = {}
        """Arguments that a person changed when approving, as JSON text, by call id."""
        self.rejections: dict[str, str] = {}
        """Reasons of rejected calls, by call id."""
        self.decided: set[str] = set()
        """Calls whose approval or output was given in this run."""
        self._frames: dict[str, RunFrame] = {}
        self._nested: dict[str, RunFrame] = {}
        self._answered: set[str] = set()
        self.on_tripped: Callable[[str], None] = lambda name: None
        """Called when an input guardrail trips: the run is stopped at once."""
        self.policy = policy
        self.on_denied: Callable[[PolicyDenied], None] = lambda denied: None
        """Called when a model call of a nested run is denied: the turn ends by it, whoever catches it there."""
        self.origins = dict(origins or {})
        """Which upstream made an item, by its id and call id."""
        self.omit_reasoning_ids = omit_reasoning_ids
        self.observe_made = observe_made
        """Takes in tools that the SDK has made for a run and offers to the model."""
        self.run_config: RunConfig | None = None
        """The top agent's: what the caller wants of every agent of the turn stands in it."""
        self._refused: dict[str, str | None] = {}
        self._loop = asyncio.get_running_loop()

    def made(self, item: Item, upstream: str) -> None:
        """Remember who made an item."""
        for key in ("id", "call_id"):
            if isinstance(item.get(key), str):
                self.origins[item[key]] = upstream

    def origin_of(self, item: Item) -> str | None:
        return self.origins.get(item.get("id") or "") or self.origins.get(item.get("call_id") or "")

    async def tool_denied(self, tool: str, agent: str, call_id: str, arguments: str, warn: Warn) -> str | None:
        """Why the policy forbids a tool call, None if it does not; asked once for each call."""
        if self.policy is None:
            return None
        if call_id not in self._refused:
            about = about_tool_call(tool, agent, call_id, arguments)
            self._refused[call_id] = await self.policy.tool_call(about, warn)
        return self._refused[call_id]

    def requested(self, call_id: str, frame: "RunFrame") -> None:
        self._frames[call_id] = frame

    def frame_of(self, call_id: str) -> "RunFrame":
        """The run that requested a call; the top agent's if it was another run of the turn."""
        return self._frames.get(call_id, self.top)

    def nested(self, parent_call_id: str, *, go_on: bool) -> "RunFrame":
        """The run of an agent for a call: the one that has paused there, to go on with, or a new one."""
        known = self._nested.get(parent_call_id) if go_on else None
        frame = known or RunFrame(self, parent_call_id=parent_call_id)
        self._nested[parent_call_id] = frame
        return frame

    def waiting(self) -> "list[RunFrame]":
        """The runs in which something waits: the top agent's, and each nested one with an open step."""
        return [self.top, *(frame for frame in self._nested.values() if frame.step is not None)]

    def record_output(self, item: Item) -> None:
        """Record what answers a call of the top agent, unless its tool has recorded it already."""
        answered = item.get("call_id") or item["approval_request_id"]
        if answered not in self._answered:
            self._answered.add(answered)
            self.record([NewItem(new_item_id(), item)])

    def record(self, items: Sequence[NewItem]) -> None:
        """Record items that no event announces."""
        self.items.extend(items)
        self.sink.record(items)

    def answered(self, call_id: str) -> None:
        self._answered.add(call_id)

    def report(self, event: Event, origin: Origin | None) -> None:
        """Emit from any thread: a sync tool reports progress from its own."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self.sink.emit(event, origin)
        else:
            self._loop.call_soon_threadsafe(self.sink.emit, event, origin)


class RunFrame:
    """One run inside a turn. `parent_call_id` is None for the top agent's.

    A silent frame (a guardrail's own agent: nobody called it as a tool) shows no events; what it cost is
    counted with the step under way.
    """

    def __init__(self, turn: TurnScope, *, parent_call_id: str | None, silent: bool = False) -> None:
        self.turn = turn
        self.parent_call_id = parent_call_id
        self.silent = silent
        self.is_top = parent_call_id is None and not silent
        self.agent = ""
        self.step: Step | None = None
        self.last_text: str | None = None
        """The text of the newest whole message."""
        self.has_begun = False
        """True once a model call has begun: from then on the SDK can stop after a step."""
        self._steps = 0 if parent_call_id or silent else turn.steps_before
        self._started: str | None = None
        self._called_tools = False

    # what models and tools ask (`RunScope`)

    @property
    def deadline(self) -> float:
        return self.turn.deadline

    async def permit(
        self, model: str, instructions: str | None, items: Sequence[Item], tools: Sequence[Tool]
    ) -> None:
        self.turn.observe_made(tools)
        policy = self.turn.policy
        if policy is None:
            return
        ask_before(tools)
        about = about_model_call(model, self.agent, instructions, items, len(tools))
        reason = await policy.model_call(about, self.warn)
        if reason is not None:
            denied = PolicyDenied(reason)
            if not self.is_top:
                self.turn.on_denied(denied)
            raise denied

    async def tool_denied(self, tool: str, call_id: str, arguments: str) -> str | None:
        """Why the policy forbids a tool call of this run, None if it does not; its event will say so."""
        reason = await self.turn.tool_denied(tool, self.agent, call_id, arguments, self.warn)
        call = self.call(call_id)
        if reason is not None and call is not None:
            call.blocked = reason
        return reason

    def native(self, items: Sequence[Item], upstream: str) -> Sequence[Item]:
        turn = self.turn
        return native_items(items, upstream, turn.origin_of, omit_reasoning_ids=turn.omit_reasoning_ids)

    def model_call(self, model: str, upstream: str, handoffs: frozenset[str] = frozenset()) -> ModelCall:
        step = self._begin_step()
        return ModelCall(self, step, model=model, upstream=upstream, handoffs=handoffs)

    # events

    @property
    def origin(self) -> Origin | None:
        return Origin(self.agent, self.parent_call_id) if self.parent_call_id else None

    def emit(self, event: Event, items: Sequence[NewItem] = ()) -> None:
        """Report an event of this run; only the top agent's items are history."""
        if self.silent:
            return
        if self.is_top:
            self.turn.items.extend(items)
            self.turn.sink.emit(event, None, items)
        else:
            self.turn.sink.emit(event, self.origin)

    def warn(self, code: str, message: str) -> None:
        if not self.silent:
            self.turn.sink.emit(Warned(code, message), self.origin)

    # agents

    def agent_started(self, name: str) -> None:
        """An agent that goes on after a pause has started before it."""
        self.agent = name
        if self._started != name:
            self._started = name
            self.emit(AgentStarted(name))

    def agent_ended(self, name: str, output: object) -> None:
        self.close_step()
        self._started = None
        self.emit(AgentEnded(name, output))

    def handed_off(self, source: str, target: str) -> None:
        self.close_step()
        self.emit(AgentHandedOff(source, target))
        self.agent = target

    # steps

    def _begin_step(self) -> Step:
        self.close_step()
        self._steps += 1
        self.has_begun = True
        self.step = Step(self._steps, self.agent)
        self.emit(StepStarted(self.step.number, self.agent))
        return self.step

    def responded(self, step: Step, calls: Iterable[ToolCall]) -> None:
        """The step's response is whole; it ends with the last of its calls, at once if there are none."""
        step.responded = True
        step.calls = {call.call_id: call for call in calls}
        self._called_tools = bool(step.calls)
        for call_id in step.calls:
            self.turn.requested(call_id, self)
        if step.done:
            self.close_step()

    @property
    def called_tools(self) -> bool:
        """True if the newest response called tools; a handoff is none."""
        return self._called_tools

    def go_on(self, agent: str, step: Step | None) -> None:
        """Go on where the turn was paused: with this agent, in this step if it is open."""
        self.agent = self._started = agent
        self.step = step
        if step is None:
            return
        self._steps = step.number
        self.has_begun = self._called_tools = True
        for call_id in step.calls:
            self.turn.requested(call_id, self)

    def close_step(self) -> None:
        """End the step under way, if any."""
        step, self.step = self.step, None
        if step is not None:
            self.emit(StepCompleted(step.number, step.agent, step.usage_json()))

    def spend(self, step: Step, model: str, counts: TokenCounts) -> None:
        """Count a model call; a silent frame's goes to the step of the top agent."""
        usage = Usage.of_call(model, counts)
        if self.silent:
            usage = Usage(usage.total, 0, usage.by_model)
        self.turn.sink.spent(usage, top_level=self.is_top)
        if self.silent and self.turn.top.step is not None:
            step = self.turn.top.step
        step.add_usage(usage)

    # tools

    def call(self, call_id: str) -> ToolCall | None:
        """The open call of the step under way by that id."""
        call = self.step.calls.get(call_id) if self.step else None
        return call if call and not call.ended else None

    def tool_ended(self, call_id: str, output: object, output_item: Item, duration_ms: int | None) -> None:
        """A tool has ended: its event, its output in history, and the end of the step with the last one."""
        call = self.call(call_id)
        if call is None:
            return
        call.ended = True
        if call.blocked is None:
            call.blocked = self.turn.rejections.get(call_id)
        if self.is_top:
            self.turn.answered(call_id)
        shown, truncated = shown_output(output, self.turn.max_shown_output)
        status, error = call.verdict(output)
        event = ToolCallCompleted(
            call_id,
            call.tool,
            status,
            output=shown,
            output_truncated=truncated,
            error=error,
            duration_ms=duration_ms,
        )
        self.emit(event, [NewItem(new_item_id(), output_item)])
        if self.step is not None and self.step.done:
            self.close_step()
