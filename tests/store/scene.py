"""A scene: turns that are admitted, moved and settled on a real store, without anything that runs them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from app.domain.caller import Caller
from app.domain.conversation import Conversation, NewItem
from app.domain.events import LogEntry
from app.domain.ids import ConversationId, ItemId, new_turn_id
from app.domain.pause import Pause
from app.domain.ports import Admission, Admitted, EventBatch, IdempotencyKey, Settlement
from app.domain.turn import TerminalStatus, Turn, TurnRequest, now
from app.store import SqliteStore

ALICE = Caller("alice")


def item(item_id: str, text: str = "") -> NewItem:
    return NewItem(ItemId(item_id), {"type": "message", "role": "user", "content": text or item_id})


def event(seq: int, kind: str = "message.delta", text: str = "") -> LogEntry:
    return LogEntry(seq, kind, f'{{"type":"{kind}","seq":{seq},"delta":"{text}"}}'.encode())


def batch(*entries: LogEntry, items: Sequence[NewItem] = ()) -> EventBatch:
    return EventBatch(tuple(entries), tuple(items))


def pause_for(pause_id: str, *, hours: float = 24, **waits: Any) -> Pause:
    reason = "approval" if waits.get("approvals") else "tool_output" if waits.get("tool_calls") else "step"
    return Pause(pause_id, reason, now() + timedelta(hours=hours), **waits)  # type: ignore[arg-type]


class Scene:
    """One caller's conversations. Turns are given by the ids of the items that they leave."""

    def __init__(self, store: SqliteStore, caller: Caller = ALICE) -> None:
        self.store = store
        self.caller = caller

    async def admit(
        self,
        conversation: str = "chat",
        *,
        items: Sequence[str] = (),
        key: IdempotencyKey | None = None,
        queue_limit: int = 10,
        **request: Any,
    ) -> Admitted:
        """A turn with the item ids it begins with, if it runs at once."""

        def first_batch(turn: Turn, position: int) -> EventBatch:
            if position:
                return batch(event(1, "turn.queued"))
            return batch(event(1, "turn.started"), items=[item(i) for i in items])

        return await self.store.admit(
            Admission(
                turn_id=new_turn_id(),
                caller=self.caller,
                conversation_id=ConversationId(conversation),
                request=TurnRequest.model_validate({"input": "hello"} | request),
                agent=request.get("agent") or "assistant",
                model="some-model",
                first_batch=first_batch,
                queue_limit=queue_limit,
                idempotency=key,
            )
        )

    async def start(self, turn: Turn, *items: str) -> bool:
        running = replace(turn, status="running", runs=1, started_at=now())
        return await self.store.start(running, self._next(turn, "turn.started", items))

    async def settle(
        self,
        turn: Turn,
        *items: str,
        status: TerminalStatus = "completed",
        rollback: bool = False,
        with_batch: EventBatch | None = None,
        **changes: Any,
    ) -> Turn:
        """End a turn whose log holds `turn.last_event_id` events."""
        last = with_batch or self._next(turn, f"turn.{status}")
        ended = replace(turn, status=status, ended_at=now(), last_event_id=last.last_seq, **changes)
        await self.store.settle(Settlement(ended, tuple(item(i) for i in items), last, rollback))
        return ended

    async def ran(self, conversation: str = "chat", *items: str, **request: Any) -> Turn:
        """A turn from its admission to its end, leaving these items."""
        admitted = await self.admit(conversation, items=items[:1], **request)
        return await self.settle(admitted.turn, *items)

    async def history(self, conversation: Conversation | Turn) -> list[str]:
        key = conversation.key if isinstance(conversation, Conversation) else conversation.conversation_key
        return [stored.id for stored in await self.store.history(key)]

    def _next(self, turn: Turn, kind: str, items: Sequence[str] = ()) -> EventBatch:
        return batch(event(turn.last_event_id + 1, kind), items=[item(i) for i in items])
