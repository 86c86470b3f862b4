"""What `turns`, the event log and the artifacts ask of the store, and what goes into its transactions."""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from app.domain.caller import Caller
from app.domain.conversation import Conversation, NewItem, Page, PageRequest, StoredItem
from app.domain.events import LogEntry
from app.domain.ids import ArtifactId, ConversationId, TurnId
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Asked
from app.domain.ports.artifacts import StoredArtifact
from app.domain.ports.event_log import EventBatch
from app.domain.turn import Cancel, Turn, TurnRequest, TurnStatus


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
        """Admit a turn by its request's `on_conflict`. Raises TurnInProgress, QueueFull, InvalidRequest
        (`after_turn`), IdempotencyKeyReused."""
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

    async def overdue_turns(self, at: datetime, limit: int) -> list[Turn]:
        """At most so many of the paused turns whose time is over, those that expired first."""
        ...

    async def approvals(self, caller: Caller, page: PageRequest, *, status: str) -> Page[JsonObject]: ...

    # events
    def journal(self, batches: Sequence[tuple[int, EventBatch]]) -> None:
        """Keep batches without items, each with its turn's number. When this returns no end of the process
        loses them, and they are in the database before anything that is written later. Cheap, and synchronous:
        the event log calls it once a loop pass. Raises StoreUnavailable."""
        ...

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
        self, turn_key: int, artifact: StoredArtifact, *, max_count: int, max_bytes: int
    ) -> None:
        """Raises ArtifactRefused if the turn would have more files, or more bytes in them, than these."""
        ...

    async def artifacts(self, turn_key: int) -> list[StoredArtifact]:
        """In the order in which they were added."""
        ...

    async def artifact(self, turn_key: int, artifact_id: str) -> StoredArtifact:
        """Raises NotFound."""
        ...

    async def artifact_ids(self, conversation_key: int | None = None) -> list[ArtifactId]:
        """Of a conversation; None: of all."""
        ...

    async def ready(self) -> bool: ...
