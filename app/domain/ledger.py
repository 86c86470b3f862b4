"""What a turn's events add up to: what is open, what was shown, what it cost.

The ledger is a fold over events. It is kept while a turn runs and made again from the stored log after a
crash, so that both end a turn in the same way: `closing()` names the events that close what is still open.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.domain.events import (
    AgentHandedOff,
    AgentStarted,
    Event,
    HistoryCompacted,
    MessageCompleted,
    MessageDelta,
    MessageStarted,
    Origin,
    ReasoningCompleted,
    ReasoningDelta,
    ReasoningStarted,
    RefusalDelta,
    StepCompleted,
    StepStarted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    ToolStatus,
    TurnPaused,
)
from app.domain.usage import Usage


@dataclass(slots=True)
class ShownMessage:
    """A message as the caller has seen it; its text and refusal grow by deltas."""

    item_id: str
    origin: Origin | None
    parts: list[str] = field(default_factory=list)
    refusal_parts: list[str] = field(default_factory=list)
    open: bool = True

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def refusal(self) -> str | None:
        return "".join(self.refusal_parts) or None


@dataclass(slots=True)
class _OpenReasoning:
    origin: Origin | None
    parts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenCall:
    tool: str
    origin: Origin | None
    requested: bool


@dataclass(slots=True)
class _OpenStep:
    step: int
    agent: str
    origin: Origin | None


class Ledger:
    """Apply every event of a turn's log, in order."""

    def __init__(self) -> None:
        self.messages: dict[str, ShownMessage] = {}
        self.usage = Usage()
        self.last_agent: str | None = None
        self.steps = 0
        """Top-level model calls begun so far, over all runs of the turn."""
        self.open_cost = Usage()
        """What model calls have cost whose `step.completed` has not told it yet."""
        self._reasoning: dict[str, _OpenReasoning] = {}
        self._calls: dict[str, _OpenCall] = {}
        self._steps: dict[str | None, _OpenStep] = {}

    def apply(self, event: Event, origin: Origin | None = None) -> None:
        match event:
            case MessageDelta():
                self.messages[event.item_id].parts.append(event.delta)
            case RefusalDelta():
                self.messages[event.item_id].refusal_parts.append(event.delta)
            case ReasoningDelta():
                self._reasoning[event.item_id].parts.append(event.delta)
            case MessageStarted():
                self.messages[event.item_id] = ShownMessage(event.item_id, origin)
            case MessageCompleted():
                message = self.messages[event.item_id]
                message.parts = [event.text]
                message.refusal_parts = [event.refusal] if event.refusal else []
                message.open = False
            case ReasoningStarted():
                self._reasoning[event.item_id] = _OpenReasoning(origin)
            case ReasoningCompleted():
                self._reasoning.pop(event.item_id, None)
            case ToolCallStarted():
                self._calls[event.call_id] = _OpenCall(event.tool, origin, requested=False)
            case ToolCallRequested():
                self._calls[event.call_id] = _OpenCall(event.tool, origin, requested=True)
            case ToolCallCompleted():
                self._calls.pop(event.call_id, None)
            case StepStarted():
                self._steps[_path(origin)] = _OpenStep(event.step, event.agent, origin)
                self.steps += origin is None
            case StepCompleted():
                self._steps.pop(_path(origin), None)
                spent = Usage.from_json(event.usage)
                self.usage = self.usage.plus(spent, top_level=origin is None)
                self.open_cost = self.open_cost.minus(spent)
            case HistoryCompacted():
                spent = Usage.from_json(event.usage)
                self.usage = self.usage.plus(spent, top_level=False)
                self.open_cost = self.open_cost.minus(spent)
            case TurnPaused():
                self.open_cost = Usage.from_json(event.turn["usage"]).minus(self.usage)
            case AgentStarted() if origin is None:
                self.last_agent = event.agent
            case AgentHandedOff() if origin is None:
                self.last_agent = event.to_agent
            case _:
                pass

    def shown(self) -> list[ShownMessage]:
        """The top agent's messages that have any text or refusal, in order."""
        return [m for m in self.messages.values() if m.origin is None and (m.parts or m.refusal_parts)]

    def spend(self, cost: Usage, *, top_level: bool) -> None:
        """A model call has cost this; the event that completes its step says so again."""
        self.open_cost = self.open_cost.plus(cost, top_level=top_level)

    @property
    def usage_so_far(self) -> Usage:
        return self.usage.plus(self.open_cost, top_level=True)

    @property
    def output_text(self) -> str:
        """The top agent's message texts, joined by a blank line."""
        return "\n\n".join(text for m in self.shown() if (text := m.text))

    def origin_of(self, call_id: str) -> Origin | None:
        """Where an open call comes from."""
        call = self._calls.get(call_id)
        return call.origin if call else None

    def closing(
        self,
        *,
        call_status: ToolStatus = "cancelled",
        reason: str | None = None,
        waiting: Iterable[str] = (),
    ) -> list[tuple[Event, Origin | None]]:
        """The events that close what is open, nested first; calls in `waiting` stay open (a pause)."""
        kept = set(waiting)
        events: list[tuple[Event, Origin | None]] = []
        for item_id, reasoning in self._reasoning.items():
            text = "".join(reasoning.parts)
            events.append((ReasoningCompleted(item_id, text, partial=True), reasoning.origin))
        for message in self.messages.values():
            if message.open:
                done = MessageCompleted(message.item_id, message.text, message.refusal, partial=True)
                events.append((done, message.origin))
        nested_first = sorted(self._calls.items(), key=lambda entry: entry[1].origin is None)
        for call_id, call in nested_first:
            if call_id not in kept:
                status: ToolStatus = call_status if call.requested else "cancelled"
                events.append((ToolCallCompleted(call_id, call.tool, status, error=reason), call.origin))
        if not kept:
            events += self._closing_steps()
        return events

    def _closing_steps(self) -> list[tuple[Event, Origin | None]]:
        """What is known of the cost of open steps goes to the last of them, the top agent's."""
        open_steps = sorted(self._steps.values(), key=lambda s: s.origin is None)
        events: list[tuple[Event, Origin | None]] = [
            (StepCompleted(s.step, s.agent, None), s.origin) for s in open_steps[:-1]
        ]
        for last in open_steps[-1:]:
            events.append((StepCompleted(last.step, last.agent, self.open_cost.as_json()), last.origin))
        return events


def _path(origin: Origin | None) -> str | None:
    return origin.parent_call_id if origin else None
