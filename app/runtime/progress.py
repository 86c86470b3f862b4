"""Progress that a tool reports: `report("indexed", {"files": 12})` becomes a `workflow.event`."""

from typing import Any

from app.domain.events import WorkflowEvent
from app.domain.json_types import JsonObject
from app.runtime.observer import current_scope
from app.runtime.outputs import plain_json
from app.runtime.scope import RunFrame


def report(name: str, data: Any = None) -> None:
    """Report progress from any code that works for a turn: a tool (sync or async), a hook, a guardrail.

    `name` says what happened; `data` is anything that has a JSON form (pydantic models and dataclasses too).
    Outside of a turn it does nothing, so that tools can be used and tested alone. Safe from any thread.
    """
    frame = current_scope.get()
    if isinstance(frame, RunFrame):
        frame.turn.report(WorkflowEvent(name, plain_json(data)), frame.origin)


class TurnContext:
    """The run context object where none is configured: who asks, for which turn, and `report`."""

    def __init__(
        self, *, caller: str, user: str | None, conversation_id: str, turn_id: str, metadata: dict[str, str]
    ) -> None:
        self.caller = caller
        self.user = user
        self.conversation_id = conversation_id
        self.turn_id = turn_id
        self.metadata = metadata

    def report(self, name: str, data: Any = None) -> None:
        """Report progress as a `workflow.event`: `ctx.context.report("indexed", {"files": 12})`."""
        report(name, data)

    def to_state(self) -> JsonObject:
        return {}
