"""A step: one model call with the tool calls that follow it."""

from dataclasses import dataclass, field

from app.domain.events import Executor, ToolStatus
from app.domain.json_types import Item, JsonObject
from app.domain.usage import Usage
from app.runtime.outputs import classify


@dataclass(slots=True)
class ToolCall:
    """A function call that was requested; `status` and `error` are what its tool said before it ended."""

    call_id: str
    tool: str
    item: Item
    executor: Executor
    started_at: float | None = None
    raised: str | None = None
    blocked: str | None = None
    interrupted: bool = False
    ended: bool = False

    def verdict(self, output: object) -> tuple[ToolStatus, str | None]:
        """How the call ended: what its tool did comes before what its output says."""
        if self.blocked is not None:
            return "blocked", self.blocked
        if self.raised is not None:
            return "error", self.raised
        return classify(output)


@dataclass(slots=True)
class Step:
    """A model call and the tool calls that follow it."""

    number: int
    agent: str
    usage: JsonObject | None = None
    responded: bool = False
    calls: dict[str, ToolCall] = field(default_factory=dict)
    spent: list[Usage] = field(default_factory=list)

    def add_usage(self, usage: Usage) -> None:
        self.spent.append(usage)

    @property
    def spent_usage(self) -> Usage:
        total = Usage()
        for usage in self.spent:
            total = total.plus(usage, top_level=True)
        return total

    def usage_json(self) -> JsonObject | None:
        return self.spent_usage.as_json()

    @property
    def done(self) -> bool:
        return self.responded and all(call.ended for call in self.calls.values())
