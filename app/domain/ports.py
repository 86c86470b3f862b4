"""The few places where the rooms meet: what `turns` asks of the store, the log and the runtime.

Everything here is typed and small on purpose. `store` implements `Store`, `event_log` implements `EventLog`
and `TurnLog`, `runtime` implements `Runtime`; `turns` is written against these and nothing else.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from app.domain.caller import Caller
from app.domain.conversation import Compaction, Conversation, NewItem, Page, PageRequest, StoredItem
from app.domain.events import Event, LogEntry, Origin
from app.domain.ids import ArtifactId, ConversationId, TurnId
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Approval, Asked, PauseReason, PendingCall
from app.domain.turn import Cancel, CancelMode, Turn, TurnError, TurnRequest, TurnStatus
from app.domain.usage import Usage

# --- the event log ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events of one turn, numbered and encoded, and the history items that came with them.

    A batch is committed in one transaction and published only after that.
    """

    entries: tuple[LogEntry, ...]
    items: tuple[NewItem, ...] = ()
    compaction: Compaction | None = None

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq


class TurnLog(Protocol):
    """The log of one live turn: one writer, any number of listeners that it never sees."""

    @property
    def turn_id(self) -> TurnId: ...

    @property
    def next_seq(self) -> int:
        """The number that the next appended event gets."""
        ...

    @property
    def published_seq(self) -> int:
        """The number of the last event that listeners can see; 0 if there is none."""
        ...

    def append(self, event: Event, origin: Origin | None = None, items: Sequence[NewItem] = ()) -> None:
        """Add an event; it is committed within moments (with all that was appended in the same loop pass),
        and shown to listeners after that. Adjacent deltas of one item in one pass are joined. Never blocks."""
        ...

    def add_items(self, items: Sequence[NewItem]) -> None:
        """Add history items without an event; they are committed with the next flush."""
        ...

    def compact(self, event: Event, compaction: Compaction) -> None:
        """Add an event and the compaction that it tells of; both are committed together."""
        ...

    def take(self) -> EventBatch:
        """Everything that was appended and not yet handed to the store, for a transaction of the caller's own.

        The caller commits it (`Store.start`, `pause`, `settle`…) and then calls `publish`.
        """
        ...

    def publish(self, batch: EventBatch) -> None:
        """Show a committed batch to the listeners."""
        ...

    async def flush(self) -> None:
        """Return once everything appended so far is committed; raises StoreUnavailable if it cannot be."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """Why this log can no longer be written, or None."""
        ...


class EventLog(Protocol):
    """All logs: the live ones in memory, the others in the store."""

    def open(self, turn_id: TurnId, *, turn_key: int | None = None, next_seq: int = 1) -> TurnLog:
        """Begin (or go on with) the log of a live turn. `turn_key` may follow later: see `bind`."""
        ...

    def bind(self, log: TurnLog, turn_key: int, conversation_key: int) -> None:
        """Tell the log the database's number of its turn, once admission has given one; those who follow the
        conversation learn of the new turn."""
        ...

    def close(self, turn_id: TurnId) -> None:
        """The turn has paused or ended and its last batch is published: listeners drain and leave."""
        ...

    def cut_all(self) -> None:
        """The service stops: break every listener that is left."""
        ...

    async def turn_changed(self, turn_id: TurnId, after: int) -> None:
        """Wait until the log of a paused turn has an event after number `after`."""
        ...

    def cut(self, turn_id: TurnId) -> None:
        """Break every listener of this log without a terminal frame: nothing more can be written to it."""
        ...

    def tail(self, turn: Turn, after: int) -> AsyncIterator[list[LogEntry]]:
        """Entries after number `after`, in order, without gap or repeat, until the turn pauses or ends.

        Yields what waits in one list. While the turn is live it follows; only committed entries are shown.
        Raises LogCut if the log was cut, EventsExpired if retention removed what was asked for.
        """
        ...

    def listeners(self, turn_id: TurnId) -> int: ...

    async def conversation_changed(self, conversation_key: int, after_key: int) -> None:
        """Wait until a turn with a number above `after_key` was admitted to the conversation."""
        ...

    def on_last_listener_left(self, turn_id: TurnId, callback: Callable[[], None]) -> None:
        """Call back each time the number of listeners of a live turn falls to zero."""
        ...


class LogCut(Exception):
    """The stream cannot be brought to a clean end: cut the connection, the listener resumes later."""


# --- the store ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """`fingerprint` is a digest of the path and the canonical JSON body."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """What an idempotency key stands for: a turn, and the event after which its answer's stream begins."""

    turn: Turn
    after: int


@dataclass(frozen=True, slots=True)
class Admission:
    """Everything the one transaction that admits a turn needs.

    `first_batch` is called inside it with the turn as it will be stored and its place in the queue (0: it runs
    at once), and returns the batch with `turn.queued` or `turn.started`, and the input items if it runs.
    """

    turn_id: TurnId
    caller: Caller
    conversation_id: ConversationId
    must_exist: bool
    request: TurnRequest
    agent: str
    model: str | None
    first_batch: Callable[[Turn, int], EventBatch]
    queue_limit: int
    idempotency: IdempotencyKey | None = None
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """`replayed`: the idempotency key was known and nothing was stored. `ahead`: turns to stop first
    (policies `cancel` and `rollback`), the active one first, then the queued ones in order."""

    turn: Turn
    position: int
    batch: EventBatch | None
    replayed: bool = False
    after: int = 0
    ahead: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a turn ends, in one transaction: its final row, its items, its last events.

    `items` replaces every item of the turn but the summary of a compaction. `rollback` undoes that too, and
    gives the conversation back the head it had.
    """

    turn: Turn
    items: tuple[NewItem, ...]
    batch: EventBatch
    rollback: bool


class Store(Protocol):
    """All that must last. Every method is one transaction and may raise StoreUnavailable.

    A `caller` argument makes other people's things NotFound.
    """

    # conversations
    async def create_conversation(
        self,
        caller: Caller,
        conversation_id: ConversationId,
        *,
        agent: str | None,
        metadata: dict[str, str],
        items: Sequence[NewItem],
    ) -> Conversation:
        """Raises ConversationExists."""
        ...

    async def conversation(self, caller: Caller, conversation_id: str) -> Conversation: ...

    async def find_conversation(self, caller: Caller, conversation_id: str) -> Conversation | None: ...

    async def conversations(self, caller: Caller, page: PageRequest) -> Page[Conversation]:
        """Newest activity first."""
        ...

    async def update_conversation(self, key: int, changes: dict[str, Any]) -> Conversation:
        """`changes` holds any of `agent`, `metadata`."""
        ...

    async def delete_conversation(self, key: int) -> None:
        """Remove it with its turns, items, events, approvals, artifacts and idempotency keys."""
        ...

    async def fork_conversation(
        self, source: Conversation, new_id: ConversationId, *, after_turn: TurnId | None, whole: bool
    ) -> Conversation:
        """A copy with the history as it was after that turn (`whole`: as it is now)."""
        ...

    async def items(self, conversation_key: int, page: PageRequest) -> Page[StoredItem]: ...

    async def history(self, conversation_key: int) -> list[StoredItem]:
        """What the model sees: the items that are not superseded, in order."""
        ...

    async def unfolded_history(self, conversation_key: int) -> list[StoredItem]:
        """The same as if nothing had ever been compacted: without summaries, with what they stand for."""
        ...

    async def context_tokens(self, turn_key: int) -> int | None:
        """How full the model's window was at the newest call before that turn, on the way to it; None if it is
        not known, also because a compaction came after that call."""
        ...

    async def turn_items(self, turn_key: int) -> list[NewItem]:
        """The items that a turn has recorded so far, in order."""
        ...

    # turns
    async def known_answer(self, caller: Caller, idempotency: IdempotencyKey) -> KnownAnswer | None:
        """Raises IdempotencyKeyReused if the key stands for another body. Keys last 24 hours."""
        ...

    async def remember_answer(
        self, caller: Caller, idempotency: IdempotencyKey, turn_key: int, after: int
    ) -> None: ...

    async def admit(self, admission: Admission) -> Admitted:
        """Admit a turn by its request's `on_conflict`. Raises TurnInProgress, QueueFull, NotFound (the
        conversation, if `must_exist`), InvalidRequest (`after_turn`), IdempotencyKeyReused."""
        ...

    async def turn(self, caller: Caller, turn_id: str) -> Turn: ...

    async def turns(
        self,
        caller: Caller,
        page: PageRequest,
        *,
        conversation_key: int | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
    ) -> Page[Turn]:
        """Of a conversation in order of admission; without one, newest first."""
        ...

    async def active_turn(self, conversation_key: int) -> Turn | None:
        """The turn that runs or is paused."""
        ...

    async def queued_turns(self, conversation_key: int) -> list[Turn]:
        """In order of admission."""
        ...

    async def newest_turn_key(self, conversation_key: int) -> int:
        """The number of the turn admitted last, 0 if there is none."""
        ...

    async def next_turn(self, conversation_key: int, after_key: int) -> Turn | None:
        """The first turn admitted after the one with number `after_key`."""
        ...

    async def start(self, turn: Turn, batch: EventBatch) -> bool:
        """queued → running, with `turn.started` and the input items. False if another turn is active."""
        ...

    async def pause(self, turn: Turn, state: bytes, batch: EventBatch) -> None:
        """running → paused; stores the pause, its approvals and the run's state."""
        ...

    async def answer(self, turn: Turn, answers: Answers, batch: EventBatch) -> None:
        """Keep a partial answer of a paused turn: `turn.pause` holds what is left."""
        ...

    async def resume(self, turn: Turn, answers: Answers, batch: EventBatch) -> bool:
        """paused → running. False if it is not paused any more."""
        ...

    async def asked(self, turn_key: int) -> list[Asked]:
        """Everything a turn has asked for in any of its pauses, with its answers."""
        ...

    async def paused_state(self, turn_key: int) -> tuple[bytes, Answers]: ...

    async def request_cancel(self, turn_key: int, cancel: Cancel) -> Cancel | None:
        """Store a cancel unless an earlier one holds (an `after_step` gives way). Returns the one that
        holds now, None if the turn has ended."""
        ...

    async def settle(self, settlement: Settlement) -> None:
        """End a turn. Synced to disk before it returns."""
        ...

    async def orphans(self) -> list[Turn]:
        """Running turns whose owner is gone, for recovery."""
        ...

    async def waiting_conversations(self) -> list[int]:
        """Conversations that have queued turns, also behind a paused one."""
        ...

    async def paused_turns(self) -> list[Turn]: ...

    async def approvals(self, caller: Caller, page: PageRequest, *, status: str) -> Page[JsonObject]: ...

    # events
    async def append(self, turn_key: int, batch: EventBatch) -> None: ...

    def submit(self, turn_key: int, batch: EventBatch) -> "Future[None]":
        """`append` without a task: the future is done once the batch is committed. Batches of a turn are
        committed in the order in which they are submitted."""
        ...

    async def events(
        self, turn_key: int, after: int, *, limit: int = 1000, max_bytes: int = 1 << 20
    ) -> list[LogEntry]:
        """Committed events after number `after`, at least one if there is any. Raises EventsExpired."""
        ...

    async def expire_events(self, before: datetime) -> int:
        """Remove the events of turns that ended before; returns how many turns. In small transactions."""
        ...

    async def expire_conversations(self, before: datetime) -> int:
        """Remove the conversations without activity since in which nothing is under way; returns how many."""
        ...

    # artifacts
    async def add_artifact(
        self, turn_key: int, artifact: "StoredArtifact", *, max_count: int, max_bytes: int
    ) -> None:
        """Raises ArtifactRefused if the turn would have more files, or more bytes in them, than these."""
        ...

    async def artifacts(self, turn_key: int) -> list["StoredArtifact"]:
        """In the order in which they were added."""
        ...

    async def artifact(self, turn_key: int, artifact_id: str) -> "StoredArtifact":
        """Raises NotFound."""
        ...

    async def artifact_ids(self, conversation_key: int | None = None) -> list[ArtifactId]:
        """Of a conversation; None: of all."""
        ...

    async def ready(self) -> bool: ...


# --- artifacts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """A file that a turn produced; `name` is what its maker called it and never a path. `size` in bytes."""

    id: ArtifactId
    turn_id: TurnId
    name: str
    media_type: str
    size: int
    created_at: datetime

    @property
    def url(self) -> str:
        return f"/v1/turns/{self.turn_id}/artifacts/{self.id}"

    def as_json(self) -> JsonObject:
        return {
            "artifact_id": self.id,
            "name": self.name,
            "media_type": self.media_type,
            "size": self.size,
            "url": self.url,
        }


class ArtifactKeeper(Protocol):
    """Where the files of turns are kept, outside of every sandbox."""

    async def add(self, turn: Turn, name: str, content: bytes, media_type: str | None) -> StoredArtifact:
        """Keep a file, durably. Raises ArtifactRefused beyond the limits or for an impossible name."""
        ...

    async def of_turn(self, turn: Turn) -> list[StoredArtifact]:
        """In the order in which they were added."""
        ...

    async def get(self, turn: Turn, artifact_id: str) -> StoredArtifact:
        """Raises NotFound."""
        ...

    def content(self, artifact: StoredArtifact) -> AsyncIterator[bytes]:
        """The file's bytes in pieces. Raises NotFound before the first if it was removed meanwhile."""
        ...

    async def of_conversation(self, conversation_key: int) -> list[ArtifactId]:
        """Ask before a conversation is deleted, for `remove` after it."""
        ...

    async def remove(self, artifact_ids: list[ArtifactId]) -> None:
        """Remove files whose rows are gone."""
        ...

    async def sweep(self) -> int:
        """Remove the files that have no row; returns how many."""
        ...


class ArtifactRefused(Exception):
    """A file is too large, one too many, or has no name that can be kept."""


# --- the runtime --------------------------------------------------------------------------------


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
