"""A conversation: the durable dialogue that holds the history, and the pages in which lists are read.

History is a tree of turns: each turn names the turn it followed. The items that the model sees are those of
the turns on the way from the conversation's newest turn (its head) to the start; all others are superseded.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from app.domain.caller import Caller
from app.domain.ids import ConversationId, ItemId, TurnId
from app.domain.json_types import Item, JsonObject
from app.domain.turn import timestamp

T = TypeVar("T")
BOOKKEEPING = "provider_data"
"""What our wires note on an item, so that its provider gets it back: no part of what was said."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """`key` is the database's own number. `last_agent` spoke last, after a handoff."""

    key: int
    id: ConversationId
    caller: Caller
    agent: str | None
    last_agent: str | None
    created_at: datetime
    active_at: datetime
    metadata: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        return {
            "id": self.id,
            "object": "conversation",
            "agent": self.agent,
            "last_agent": self.last_agent,
            "metadata": self.metadata,
            "created_at": timestamp(self.created_at),
            "active_at": timestamp(self.active_at),
        }


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to store. `origin` names the upstream that made it; None for what callers and tools said."""

    id: ItemId
    item: Item
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it stands in history; `turn_id` is None for what a conversation was created with."""

    id: ItemId
    turn_id: TurnId | None
    created_at: datetime
    superseded: bool
    item: Item
    origin: str | None = None
    is_summary: bool = False
    """True if it stands for older items that a turn has compacted."""

    def as_json(self) -> JsonObject:
        return {
            "id": self.id,
            "turn_id": self.turn_id,
            "created_at": timestamp(self.created_at),
            "superseded": self.superseded,
            "item": {name: value for name, value in self.item.items() if name != BOOKKEEPING},
        }


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a turn does to the history before it: `summary` stands for the items `compacted` from then on."""

    summary: tuple[NewItem, ...]
    compacted: tuple[ItemId, ...]


@dataclass(frozen=True, slots=True)
class PageRequest:
    limit: int = 20
    cursor: str | None = None
    order: str = "asc"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`next` is the cursor of the following page, None on the last one."""

    data: list[T]
    next: str | None
