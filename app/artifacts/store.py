"""The files that turns produced: kept in the data folder, found by the turn and the artifact's id."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from app.artifacts.files import ArtifactFiles
from app.artifacts.names import checked, media_type_of
from app.domain.ids import ArtifactId, new_artifact_id
from app.domain.ports import ArtifactRefused, Store, StoredArtifact
from app.domain.turn import Turn, now
from app.errors import NotFound

T = TypeVar("T")

MIB = 1 << 20
_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ArtifactLimits:
    """Of one file, and of all files of a turn."""

    file_bytes: int = 20 * MIB
    turn_files: int = 100
    turn_bytes: int = 200 * MIB


class ArtifactStore:
    """See `app.domain.ports.ArtifactKeeper`. Rows are the store's, files lie in `folder`; a file comes before
    its row and goes after it, so that no row is ever without its file. `close` it when the service stops."""

    def __init__(self, folder: Path, store: Store, limits: ArtifactLimits | None = None) -> None:
        self._files = ArtifactFiles(folder)
        self._store = store
        self._limits = limits or ArtifactLimits()
        self._threads = ThreadPoolExecutor(2, "turnwire-artifacts")
        self._adding: set[ArtifactId] = set()

    async def add(self, turn: Turn, name: str, content: bytes, media_type: str | None = None) -> StoredArtifact:
        """Keep a file, durably. Raises ArtifactRefused beyond the limits or for an impossible name."""
        if len(content) > self._limits.file_bytes:
            raise ArtifactRefused(f"{checked(name)!r} has more than {self._limits.file_bytes} bytes")
        artifact = StoredArtifact(
            id=new_artifact_id(),
            turn_id=turn.id,
            name=checked(name),
            media_type=await self._work(lambda: media_type_of(name, content, media_type)),
            size=len(content),
            created_at=now(),
        )
        self._adding.add(artifact.id)
        try:
            await self._work(lambda: self._files.write(artifact.id, content))
            await self._add_row(turn, artifact)
        finally:
            self._adding.discard(artifact.id)
        return artifact

    async def of_turn(self, turn: Turn) -> list[StoredArtifact]:
        """In the order in which they were added."""
        return await self._store.artifacts(turn.key)

    async def get(self, turn: Turn, artifact_id: str) -> StoredArtifact:
        """Raises NotFound."""
        return await self._store.artifact(turn.key, artifact_id)

    async def content(self, artifact: StoredArtifact) -> AsyncIterator[bytes]:
        """The file's bytes in pieces. Raises NotFound before the first if it was removed meanwhile."""
        pieces = self._files.read(artifact.id, _PIECE_BYTES)
        try:
            while (piece := await self._work(lambda: next(pieces, None))) is not None:
                yield piece
        except FileNotFoundError as error:
            raise NotFound(f"artifact {artifact.id!r} was removed") from error
        finally:
            await asyncio.shield(self._work(pieces.close))  # type: ignore[attr-defined]

    async def of_conversation(self, conversation_key: int) -> list[ArtifactId]:
        """Ask before a conversation is deleted, for `remove` after it."""
        return await self._store.artifact_ids(conversation_key)

    async def remove(self, artifact_ids: list[ArtifactId]) -> None:
        """Remove files whose rows are gone."""
        await self._work(lambda: self._files.remove(artifact_ids))

    async def sweep(self) -> int:
        """Remove the files that have no row: what a crash or the end of old conversations left. At start, and
        after conversations expired; it may run while files are added. Returns how many."""
        names = await self._work(self._files.names)
        known = set(await self._store.artifact_ids()) | self._adding
        stray = [name for name in names if name.removesuffix(".part") not in known]
        await self._work(lambda: self._files.remove_names(stray))
        return len(stray)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _add_row(self, turn: Turn, artifact: StoredArtifact) -> None:
        limits = self._limits
        try:
            await self._store.add_artifact(
                turn.key, artifact, max_count=limits.turn_files, max_bytes=limits.turn_bytes
            )
        except ArtifactRefused:
            await self.remove([artifact.id])
            raise

    def _work(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.wrap_future(self._threads.submit(function))
