"""The rows of files that turns produced; the files themselves are the artifacts' room's."""

from sqlalchemy import Connection, func, insert, select

from app.domain.ids import ArtifactId, TurnId
from app.domain.ports import ArtifactRefused, StoredArtifact
from app.errors import NotFound
from app.store.cursors import AnyRow
from app.store.tables import artifacts, turns


def add(
    connection: Connection, turn_key: int, artifact: StoredArtifact, *, max_count: int, max_bytes: int
) -> None:
    """Raises ArtifactRefused if the turn would have more files, or more bytes in them, than these."""
    count, size = connection.execute(
        select(func.count(), func.coalesce(func.sum(artifacts.c.size), 0)).where(
            artifacts.c.turn_key == turn_key
        )
    ).one()
    if count >= max_count:
        raise ArtifactRefused(f"a turn has {max_count} files at most")
    if size + artifact.size > max_bytes:
        raise ArtifactRefused(f"the files of a turn have {max_bytes} bytes at most")
    row = {
        "id": artifact.id,
        "turn_key": turn_key,
        "name": artifact.name,
        "media_type": artifact.media_type,
        "size": artifact.size,
        "location": artifact.id,
        "created_at": artifact.created_at,
    }
    connection.execute(insert(artifacts), row)


def of_turn(connection: Connection, turn_key: int) -> list[StoredArtifact]:
    """In the order in which they were added."""
    query = select(artifacts, turns.c.id.label("turn_id")).join(turns).where(artifacts.c.turn_key == turn_key)
    return [_artifact(row) for row in connection.execute(query.order_by(artifacts.c.key))]


def get(connection: Connection, turn_key: int, artifact_id: str) -> StoredArtifact:
    query = select(artifacts, turns.c.id.label("turn_id")).join(turns)
    row = connection.execute(
        query.where(artifacts.c.turn_key == turn_key, artifacts.c.id == artifact_id)
    ).one_or_none()
    if row is None:
        raise NotFound(f"the turn has no artifact {artifact_id[:128]!r}")
    return _artifact(row)


def ids(connection: Connection, conversation_key: int | None) -> list[ArtifactId]:
    """Of a conversation; None: of all."""
    query = select(artifacts.c.id)
    if conversation_key is not None:
        query = query.join(turns).where(turns.c.conversation_key == conversation_key)
    return [ArtifactId(found) for found in connection.scalars(query)]


def _artifact(row: AnyRow) -> StoredArtifact:
    return StoredArtifact(
        id=ArtifactId(row.id),
        turn_id=TurnId(row.turn_id),
        name=row.name,
        media_type=row.media_type,
        size=row.size,
        created_at=row.created_at,
    )
