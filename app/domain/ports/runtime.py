"""What `turns` asks of the runtime, and what a run reports and learns while it goes on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.domain.conversation import Compaction, NewItem, StoredItem
from app.domain.events import Event, Origin
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Approval, PauseReason, PendingCall
from app.domain.turn import CancelMode, Turn, TurnError, TurnRequest
from app.domain.usage import Usage


class EventSink(Protocol):
    """Where the runtime reports what happens, in true order."""

    def emit(self, event: Event, origin: Origin | None = None, items: Sequence[NewItem] = ()) -> None:
        """Report an event and the history items that it made final. Never blocks."""
        ...

    def compacted(self, event: Event, compaction: Compaction) -> None:
        """Report that older history was compacted."""
        ...

    def record(self, items: Sequence[NewItem]) -> None:
        """Record history items that no event announces (a handoff's output)."""
        ...

    def spent(self, cost: Usage, *, top_level: bool) -> None:
        """Report at once what a model call has cost; its `step.completed` says it again, and may never come."""
        ...

    def upstream_failed(self, code: str) -> None:
        """Report a request to a model's server that failed, by the code that would end the turn, whether it is
        sent again or not; once each."""
        ...

    async def committed(self) -> None:
        """Return once everything reported so far is durable: awaited before a step's tools run."""
        ...


class RunControl(Protocol):
    """How a run learns that it shall stop."""

    @property
    def cancel_mode(self) -> CancelMode | None: ...

    def on_cancel(self, callback: Callable[[CancelMode], None]) -> None:
        """Called (at once if it was asked for already) for each cancel that is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can run: what it fell back to, and its input as items, transient ones included."""

    agent: str
    model: str | None
    input_items: tuple[NewItem, ...]
    transient: frozenset[str] = frozenset()
    """Ids of the input items that go to the model in this turn and are not stored."""

    @property
    def stored_items(self) -> tuple[NewItem, ...]:
        return tuple(i for i in self.input_items if i.id not in self.transient)


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run of a turn. `state` and `answers` are set when it goes on after a pause (`run` > 1)."""

    turn: Turn
    prepared: Prepared
    history: tuple[StoredItem, ...]
    """What came before this turn."""
    recorded: tuple[NewItem, ...]
    """What this turn has recorded in earlier runs; empty in the first."""
    run: int
    steps_before: int
    state: bytes | None = None
    answers: Answers = field(default_factory=Answers)
    context_tokens: int | None = None
    """How full the window was before this turn."""
    unfolded: tuple[StoredItem, ...] = ()
    """The history with nothing compacted; given where it holds what only its maker can read."""


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """`text` is the string final output, None if the output is structured or there is none."""

    text: str | None
    output: Any


@dataclass(frozen=True, slots=True)
class RunPaused:
    """Nothing of the run is left but its `state`."""

    state: bytes
    reason: PauseReason
    approvals: tuple[Approval, ...] = ()
    tool_calls: tuple[PendingCall, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFailed:
    """`rollback`: whatever was shown, the turn ends as `rollback` would (an input guardrail, a policy)."""

    error: TurnError
    rollback: bool = False


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The run ended because a cancel was asked for."""


RunOutcome = RunCompleted | RunPaused | RunFailed | RunStopped


class Runtime(Protocol):
    """What runs agents. It knows nothing of HTTP, of the store, or of other turns."""

    def prepare(
        self, request: TurnRequest, *, agent: str | None = None, last_agent: str | None = None
    ) -> Prepared:
        """Check a request against the registered agents and models and normalise its input.

        `agent` and `last_agent` are the conversation's. Raises AgentNotFound, ModelNotFound,
        UnsupportedInput or InvalidRequest, with the place in `errors`.
        """
        ...

    def seed_items(self, items: Sequence[JsonObject]) -> tuple[NewItem, ...]:
        """Normalise the `items` of `POST /v1/conversations`; the same errors."""
        ...

    async def run(self, job: RunJob, sink: EventSink, control: RunControl, deadline: float) -> RunOutcome:
        """Run until the agent is done, pauses, fails or is stopped. Never raises but CancelledError.

        `deadline` is the event loop's time at which the turn times out: no retry waits beyond it.
        """
        ...

    async def ended(self, turn: Turn) -> None:
        """A turn has ended for good: whatever was kept for it alone (a workspace) goes. Never raises."""
        ...

    def check_arguments(self, agent: str, tool: str, arguments: JsonObject, loc: list[str | int]) -> None:
        """Check arguments that a person edited against the tool's schema. Raises InvalidRequest at `loc`."""
        ...

    def agents(self) -> list[JsonObject]:
        """The registered agents as `GET /v1/agents` shows them; the default one first."""
        ...
