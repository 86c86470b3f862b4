"""What the HTTP side asks of the turns: the whole of it, typed, in the contract's words.

Every method that takes a caller raises NotFound for what is not the caller's own.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.domain.caller import Caller
from app.domain.conversation import Conversation, Page, PageRequest, StoredItem
from app.domain.events import LogEntry
from app.domain.ids import ConversationId, TurnId
from app.domain.json_types import JsonObject
from app.domain.pause import Decision, ToolOutput
from app.domain.ports import IdempotencyKey, StoredArtifact, Taker
from app.domain.turn import CancelMode, Turn, TurnRequest, TurnStatus


@dataclass(frozen=True, slots=True)
class Attached:
    """A turn to answer with: its stream begins after event number `after`.

    `nothing_left`: the turn has ended or paused and no event follows `after` (HTTP: 204 on a stream).
    """

    turn: Turn
    after: int
    replayed: bool = False
    nothing_left: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`settled`: the turn has ended and its history is settled (200); else the cancel is under way (202)."""

    turn: Turn
    settled: bool


class TurnService(Protocol):
    # turns
    async def known(
        self, caller: Caller, idempotency: IdempotencyKey, last_event_id: int | None
    ) -> Attached | None:
        """The turn that a known idempotency key stands for; looked up before anything else.

        Raises IdempotencyKeyReused for another body, InvalidEventId for an id beyond the log.
        """
        ...

    async def start(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        request: TurnRequest,
        idempotency: IdempotencyKey | None,
        *,
        trace_parent: str | None = None,
    ) -> Attached:
        """Admit a turn. Raises what section 10 lists for a request that cannot start a turn.

        `trace_parent` is a valid W3C `traceparent`, under which the turn is traced.
        """
        ...

    async def turn(self, caller: Caller, turn_id: str) -> Turn:
        """The turn as it is now; while it runs, with the text, usage and last event shown so far."""
        ...

    async def turns(
        self,
        caller: Caller,
        page: PageRequest,
        *,
        conversation_id: str | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
    ) -> Page[Turn]: ...

    async def attach(self, caller: Caller, turn_id: str, after: int) -> Attached:
        """Raises InvalidEventId if `after` is beyond the log, EventsExpired if it was removed."""
        ...

    def tail(self, attached: Attached, taker: Taker | None = None) -> AsyncGenerator[list[LogEntry], None]:
        """The events after `attached.after` until the turn pauses or ends, without those that `taker` takes in
        the moment in which they are shown. Close it (`aclosing`).

        Raises LogCut where the connection must be cut. Overloaded if the turn has too many listeners.
        """
        ...

    async def events(self, caller: Caller, turn_id: str, after: int, limit: int) -> tuple[list[LogEntry], bool]:
        """A page of the committed log, bounded in bytes too, and whether more is there already."""
        ...

    async def outcome(self, attached: Attached) -> Turn:
        """Wait until the turn has paused or ended beyond `attached.after`, and return it. Counts as a
        listener. Raises LogCut like `tail`."""
        ...

    async def cancel(self, caller: Caller, turn_id: str, mode: CancelMode | None) -> Cancelled: ...

    async def cancel_active(
        self,
        caller: Caller,
        conversation_id: str,
        mode: CancelMode | None,
        queued: Literal["keep", "cancel"],
    ) -> Cancelled:
        """Raises NoActiveTurn."""
        ...

    async def decide(
        self, caller: Caller, turn_id: str, decisions: Sequence[Decision], idempotency: IdempotencyKey | None
    ) -> Attached: ...

    async def give_outputs(
        self, caller: Caller, turn_id: str, outputs: Sequence[ToolOutput], idempotency: IdempotencyKey | None
    ) -> Attached: ...

    async def resume(
        self, caller: Caller, turn_id: str, pause_id: str, idempotency: IdempotencyKey | None
    ) -> Attached: ...

    async def approvals(self, caller: Caller, page: PageRequest, status: str) -> Page[JsonObject]: ...

    async def artifacts(self, caller: Caller, turn_id: str) -> list[StoredArtifact]: ...

    async def artifact(
        self, caller: Caller, turn_id: str, artifact_id: str
    ) -> tuple[StoredArtifact, AsyncIterator[bytes]]:
        """A file that the turn produced, and its bytes in pieces."""
        ...

    # conversations
    async def create_conversation(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        *,
        agent: str | None,
        metadata: dict[str, str],
        items: Sequence[JsonObject],
    ) -> Conversation: ...

    async def conversation(self, caller: Caller, conversation_id: str) -> Conversation: ...

    async def conversations(self, caller: Caller, page: PageRequest) -> Page[Conversation]: ...

    async def update_conversation(
        self, caller: Caller, conversation_id: str, changes: JsonObject
    ) -> Conversation:
        """`changes` holds any of `agent` (a registered one, or null) and `metadata`."""
        ...

    async def delete_conversation(self, caller: Caller, conversation_id: str) -> None:
        """Cancels what is under way (by `deletion`), then removes everything."""
        ...

    async def fork_conversation(
        self, caller: Caller, conversation_id: str, *, after_turn: TurnId | None, whole: bool
    ) -> Conversation:
        """`whole`: `after_turn` was not given and the history is taken as it is now."""
        ...

    async def items(self, caller: Caller, conversation_id: str, page: PageRequest) -> Page[StoredItem]: ...

    def follow(
        self, caller: Caller, conversation_id: str, after: tuple[str, int] | None
    ) -> AsyncGenerator[tuple[TurnId, list[LogEntry]], None]:
        """The turn under way from its first event (or what follows `after`, a turn id and an event number),
        then every later turn, each log whole, until the service stops. Raises NotFound, InvalidEventId or
        EventsExpired before the first entries; LogCut where the connection must be cut.
        """
        ...

    async def check_follow(self, caller: Caller, conversation_id: str, after: tuple[str, int] | None) -> None:
        """Raise what `follow` would raise, before a stream is begun."""
        ...

    # agents and health
    def agents(self) -> list[JsonObject]: ...

    def agent(self, name: str) -> JsonObject:
        """Raises AgentNotFound."""
        ...

    @property
    def draining(self) -> bool: ...

    async def ready(self) -> bool: ...
