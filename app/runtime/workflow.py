"""A registered agent that is more than one `Agent`: what it prepares, what it saves, how it finishes.

Running, pausing and stopping are the service's. A workflow says what to run (`open`), and makes of the result
what the turn gives back (`WorkflowRun.finish`), with more runs on the same history if it wants. All of it is
one turn: one stream, one DELETE. Registering a workflow is as easy as registering an `Agent`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from agents import Agent, RunConfig, RunHooks
from agents.result import RunResultBase

from app.domain.json_types import Item, JsonObject


class Artifacts(Protocol):
    """Where a turn's files go: outside of every sandbox, announced as `artifact.created`."""

    async def add(self, name: str, content: bytes, media_type: str | None = None) -> JsonObject:
        """Store a file and announce it; returns `{artifact_id, name, media_type, size, url}`.

        `name` is kept and never used as a path. Raises ArtifactRefused beyond the limits.
        """
        ...


@dataclass(frozen=True, slots=True)
class WorkflowTurn:
    """The turn that a workflow runs for."""

    turn_id: str
    conversation_id: str
    caller: str
    user: str | None
    metadata: dict[str, str]
    input: list[Item]
    """The turn's input items, as the model would see them."""
    input_text: str
    """Their text, joined by blank lines."""
    history: list[Item]
    """What came before in the conversation."""
    trace_id: str
    """One over all runs of the turn, also after a restart."""
    trace_url: str | None
    """Where a person can look at the trace, if there is such a place."""
    report: Callable[[str, Any], None]
    """Report a `workflow.event`: `report("scenario_loaded", {...})`."""
    artifacts: Artifacts
    saved: JsonObject | None = None
    """What `WorkflowRun.save` gave when the turn was paused; None when it begins."""


class RunMore(Protocol):
    """Runs another agent in the same turn: it sees all that came before in the turn."""

    def __call__(self, agent: Agent[Any], input: str, *, context: Any = None) -> Awaitable[RunResultBase]: ...


@dataclass(slots=True)
class WorkflowRun:
    """What to run. `agent` of the same name must come back when a paused turn is opened again."""

    agent: Agent[Any]
    input: list[Item]
    """What the model gets after the history, in place of the turn's input."""
    context: Any = None
    run_config: RunConfig | None = None
    """Merged with the service's: its model provider and tracing switch always hold."""
    hooks: RunHooks[Any] | None = None
    max_approval_rounds: int | None = None
    """After so many pauses for approval the turn ends as `approval_rounds_exceeded`."""
    save: Callable[[], JsonObject] = field(default=dict)
    """Called when the turn pauses; its JSON comes back as `WorkflowTurn.saved`, also after a restart."""
    finish: Callable[[RunResultBase, RunMore], Awaitable[Any]] | None = None
    """Called with the result of the main run; what it returns is the turn's structured `output`."""


class Workflow(ABC):
    """Register an instance where an `Agent` could stand."""

    name: str
    description: str = ""
    examples: tuple[str, ...] = ()
    needs_sandbox: bool = False
    """True: where the service has no sandboxes, a turn is refused before it begins."""

    @property
    @abstractmethod
    def agents(self) -> list[Agent[Any]]:
        """The agents that runs may begin with, for `GET /v1/agents` and for adoption at start."""

    @abstractmethod
    def open(self, turn: WorkflowTurn) -> AbstractAsyncContextManager[WorkflowRun]:
        """Prepare a run; the context ends when the turn pauses or ends, however it ends.

        It is opened again, with `turn.saved`, when a paused turn goes on, also after a restart.
        """

    async def ended(self, turn_id: str) -> None:  # noqa: B027
        """The turn has ended for good: remove what was kept for it. Also called for turns of a crash."""
