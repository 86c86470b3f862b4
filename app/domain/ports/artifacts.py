"""Files that turns produce, and what `turns` and `runtime` ask of their keeper."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from app.domain.ids import ArtifactId, TurnId
from app.domain.json_types import JsonObject
from app.domain.turn import Turn


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
