"""Turns in memory, for tests of the HTTP side: a `TurnService` whose turns do what the test tells them.

A turn that is started has its first event and then waits; `say`, `pause`, `end` and `cut` move it on.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import orjson

from app.domain.caller import Caller
from app.domain.conversation import Conversation, Page, PageRequest, StoredItem
from app.domain.events import LogEntry
from app.domain.ids import ConversationId, ItemId, PauseId, TurnId
from app.domain.json_types import JsonObject
from app.domain.pause import Decision, Pause, ToolOutput
from app.domain.ports import IdempotencyKey, LogCut, StoredArtifact, Taker
from app.domain.turn import Cancel, CancelMode, Turn, TurnError, TurnRequest, TurnStatus
from app.errors import (
    AgentNotFound,
    IdempotencyKeyReused,
    InvalidEventId,
    NoActiveTurn,
    NotFound,
    TurnwireError,
)
from app.turns.service import Attached, Cancelled
from tests.bounds import BOUND_S

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
OVER = frozenset({"paused", "completed", "failed", "cancelled"})


@dataclass
class FakeTurn:
    turn: Turn
    entries: list[LogEntry] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    is_cut: bool = False
    listeners: int = 0
    counted: anyio.Event = field(default_factory=anyio.Event)

    def count(self, change: int) -> None:
        self.listeners += change
        self.counted.set()
        self.counted = anyio.Event()

    def add(self, kind: str, **fields: Any) -> None:
        seq = len(self.entries) + 1
        event = {"type": kind, "seq": seq, "turn_id": self.turn.id, **fields}
        self.entries.append(LogEntry(seq, kind, orjson.dumps(event)))
        self.turn = replace(self.turn, last_event_id=seq)
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def move(self, status: TurnStatus, **changes: Any) -> None:
        self.turn = replace(self.turn, status=status, last_event_id=len(self.entries) + 1, **changes)
        self.add(f"turn.{status}", turn=self.turn.as_json(with_input=False))


class FakeTurns:
    """See `app.turns.service.TurnService`. `refusal` is what the next call that starts a turn raises."""

    def __init__(self) -> None:
        self.all: dict[str, FakeTurn] = {}
        self.keys: dict[tuple[Caller, str], tuple[IdempotencyKey, str]] = {}
        self.made: dict[str, Conversation] = {}
        self.files: dict[str, tuple[StoredArtifact, bytes]] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.refusal: Exception | None = None
        self.tail_refusal: TurnwireError | None = None
        self.draining = False
        self.is_ready = True
        self.admitted = anyio.Event()

    # what tests do

    def say(self, turn_id: str, *deltas: str, item_id: str = "item_1", **more: Any) -> None:
        for delta in deltas:
            self.all[turn_id].add("message.delta", item_id=item_id, delta=delta, **more)

    def end(self, turn_id: str, status: TurnStatus = "completed", **changes: Any) -> None:
        self.all[turn_id].move(status, ended_at=AT, **changes)

    def fail(self, turn_id: str, code: str, message: str) -> None:
        self.end(turn_id, "failed", error=TurnError(code, message))

    def pause(self, turn_id: str) -> None:
        self.all[turn_id].move("paused", pause=Pause(PauseId("pause_1"), "approval", AT))

    def cut(self, turn_id: str) -> None:
        self.all[turn_id].is_cut = True
        self.all[turn_id].wake()

    @property
    def only(self) -> str:
        (turn_id,) = self.all
        return turn_id

    async def first(self) -> str:
        """The id of the turn that a request in another task starts."""
        with anyio.fail_after(BOUND_S):
            await self.admitted.wait()
        return self.only

    async def listeners(self, turn_id: str, number: int) -> None:
        """Wait until the turn has that many listeners."""
        fake = self.all[turn_id]
        with anyio.fail_after(BOUND_S):
            while fake.listeners != number:
                await fake.counted.wait()

    # turns

    async def known(
        self, caller: Caller, idempotency: IdempotencyKey, last_event_id: int | None
    ) -> Attached | None:
        known = self.keys.get((caller, idempotency.key))
        if known is None:
            return None
        if known[0] != idempotency:
            raise IdempotencyKeyReused("This key was used with another body.")
        attached = await self.attach(caller, known[1], last_event_id or 0)
        return replace(attached, replayed=True)

    async def start(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        request: TurnRequest,
        idempotency: IdempotencyKey | None,
        *,
        trace_parent: str | None = None,
    ) -> Attached:
        self.calls.append(("start", caller, conversation_id, request))
        if self.refusal is not None:
            raise self.refusal
        turn = Turn(
            key=len(self.all) + 1,
            id=TurnId(f"turn_{len(self.all) + 1}"),
            conversation_key=1,
            conversation_id=conversation_id or ConversationId("conv_1"),
            caller=caller,
            status="running",
            agent="assistant",
            model="gpt-test",
            request=request,
            created_at=AT,
            metadata=request.metadata,
        )
        fake = self.all[turn.id] = FakeTurn(turn)
        if idempotency is not None:
            self.keys[caller, idempotency.key] = (idempotency, turn.id)
        fake.add("turn.started", conversation_id=turn.conversation_id, agent="assistant", run=1, at="now")
        self.admitted.set()
        return Attached(fake.turn, 0)

    def _own(self, caller: Caller, turn_id: str) -> FakeTurn:
        fake = self.all.get(turn_id)
        if fake is None or fake.turn.caller != caller:
            raise NotFound(f"There is no turn {turn_id!r}.")
        return fake

    async def turn(self, caller: Caller, turn_id: str) -> Turn:
        return self._own(caller, turn_id).turn

    async def turns(
        self,
        caller: Caller,
        page: PageRequest,
        *,
        conversation_id: str | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
    ) -> Page[Turn]:
        self.calls.append(("turns", page, conversation_id, status, agent))
        found = [fake.turn for fake in self.all.values() if fake.turn.caller == caller]
        return Page(found[: page.limit], "more" if len(found) > page.limit else None)

    async def attach(self, caller: Caller, turn_id: str, after: int) -> Attached:
        fake = self._own(caller, turn_id)
        if after > len(fake.entries):
            raise InvalidEventId(f"Event {after} is beyond the log.")
        over = fake.turn.status in OVER and after == len(fake.entries)
        return Attached(fake.turn, after, nothing_left=over)

    async def tail(
        self, attached: Attached, taker: Taker | None = None
    ) -> AsyncGenerator[list[LogEntry], None]:
        if self.tail_refusal is not None:
            raise self.tail_refusal
        fake = self.all[attached.turn.id]
        fake.count(1)
        seen = attached.after
        try:
            while True:
                if fake.is_cut:
                    raise LogCut
                changed = fake.changed
                if waiting := fake.entries[seen:]:
                    seen = waiting[-1].seq
                    yield waiting
                elif fake.turn.status in OVER:
                    return
                else:
                    await changed.wait()
        finally:
            fake.count(-1)

    async def events(self, caller: Caller, turn_id: str, after: int, limit: int) -> tuple[list[LogEntry], bool]:
        waiting = self._own(caller, turn_id).entries[after:]
        return waiting[:limit], len(waiting) > limit

    async def outcome(self, attached: Attached) -> Turn:
        async for _ in self.tail(attached):
            pass
        return self.all[attached.turn.id].turn

    async def cancel(self, caller: Caller, turn_id: str, mode: CancelMode | None) -> Cancelled:
        fake = self._own(caller, turn_id)
        self.calls.append(("cancel", turn_id, mode))
        if mode == "after_step":
            return Cancelled(fake.turn, settled=False)
        if not fake.turn.ended:
            self.end(turn_id, "cancelled", cancel=Cancel(mode or "keep", "caller", AT))
        return Cancelled(fake.turn, settled=True)

    async def cancel_active(
        self,
        caller: Caller,
        conversation_id: str,
        mode: CancelMode | None,
        queued: Literal["keep", "cancel"],
    ) -> Cancelled:
        self.calls.append(("cancel_active", conversation_id, mode, queued))
        for turn_id, fake in self.all.items():
            if fake.turn.conversation_id == conversation_id and not fake.turn.ended:
                return await self.cancel(caller, turn_id, mode)
        raise NoActiveTurn("No turn is under way.")

    def _continued(self, caller: Caller, turn_id: str, *call: Any) -> Attached:
        fake = self._own(caller, turn_id)
        self.calls.append((*call, turn_id))
        after = len(fake.entries)
        fake.turn = replace(fake.turn, status="running", pause=None)
        fake.add("turn.resumed", reason="approval", run=2)
        self.end(turn_id)
        return Attached(fake.turn, after)

    async def decide(
        self, caller: Caller, turn_id: str, decisions: Sequence[Decision], idempotency: IdempotencyKey | None
    ) -> Attached:
        return self._continued(caller, turn_id, "decide", tuple(decisions))

    async def give_outputs(
        self, caller: Caller, turn_id: str, outputs: Sequence[ToolOutput], idempotency: IdempotencyKey | None
    ) -> Attached:
        return self._continued(caller, turn_id, "give_outputs", tuple(outputs))

    async def resume(
        self, caller: Caller, turn_id: str, pause_id: str, idempotency: IdempotencyKey | None
    ) -> Attached:
        return self._continued(caller, turn_id, "resume", pause_id)

    async def approvals(self, caller: Caller, page: PageRequest, status: str) -> Page[JsonObject]:
        return Page([], None)

    async def artifacts(self, caller: Caller, turn_id: str) -> list[StoredArtifact]:
        self._own(caller, turn_id)
        return [artifact for artifact, _ in self.files.values()]

    async def artifact(
        self, caller: Caller, turn_id: str, artifact_id: str
    ) -> tuple[StoredArtifact, AsyncIterator[bytes]]:
        self._own(caller, turn_id)
        if artifact_id not in self.files:
            raise NotFound(f"There is no artifact {artifact_id!r}.")
        artifact, content = self.files[artifact_id]

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        return artifact, pieces()

    # conversations

    async def create_conversation(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        *,
        agent: str | None,
        metadata: dict[str, str],
        items: Sequence[JsonObject],
    ) -> Conversation:
        self.calls.append(("create_conversation", agent, metadata, tuple(items)))
        made = Conversation(
            key=1,
            id=conversation_id or ConversationId("conv_1"),
            caller=caller,
            agent=agent,
            last_agent=None,
            created_at=AT,
            active_at=AT,
            metadata=metadata,
        )
        self.made[made.id] = made
        return made

    async def conversation(self, caller: Caller, conversation_id: str) -> Conversation:
        made = self.made.get(conversation_id)
        if made is None or made.caller != caller:
            raise NotFound(f"There is no conversation {conversation_id!r}.")
        return made

    async def conversations(self, caller: Caller, page: PageRequest) -> Page[Conversation]:
        return Page([made for made in self.made.values() if made.caller == caller], None)

    async def update_conversation(
        self, caller: Caller, conversation_id: str, changes: JsonObject
    ) -> Conversation:
        self.calls.append(("update_conversation", changes))
        self.made[conversation_id] = replace(await self.conversation(caller, conversation_id), **changes)
        return self.made[conversation_id]

    async def delete_conversation(self, caller: Caller, conversation_id: str) -> None:
        del self.made[(await self.conversation(caller, conversation_id)).id]

    async def fork_conversation(
        self, caller: Caller, conversation_id: str, *, after_turn: TurnId | None, whole: bool
    ) -> Conversation:
        self.calls.append(("fork_conversation", after_turn, whole))
        return replace(await self.conversation(caller, conversation_id), id=ConversationId("conv_2"))

    async def items(self, caller: Caller, conversation_id: str, page: PageRequest) -> Page[StoredItem]:
        await self.conversation(caller, conversation_id)
        self.calls.append(("items", page))
        item = StoredItem(
            ItemId("item_1"), None, AT, False, {"type": "message", "role": "user", "content": "hi"}
        )
        return Page([item], None)

    async def follow(
        self, caller: Caller, conversation_id: str, after: tuple[str, int] | None
    ) -> AsyncGenerator[tuple[TurnId, list[LogEntry]], None]:
        for turn_id in list(self.all):
            start = after[1] if after and after[0] == turn_id else 0
            async for entries in self.tail(await self.attach(caller, turn_id, start)):
                yield TurnId(turn_id), entries
        raise LogCut

    async def check_follow(self, caller: Caller, conversation_id: str, after: tuple[str, int] | None) -> None:
        if after is not None and after[0] not in self.all:
            raise InvalidEventId(f"There is no event {after[0]}:{after[1]} here.")

    # agents and health

    def agents(self) -> list[JsonObject]:
        return [{"name": "assistant"}]

    def agent(self, name: str) -> JsonObject:
        if name != "assistant":
            raise AgentNotFound(f"There is no agent {name!r}.")
        return {"name": "assistant"}

    async def ready(self) -> bool:
        return self.is_ready
