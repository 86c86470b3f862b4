"""Files of turns on a real store and a real folder."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from app.artifacts import ArtifactLimits, ArtifactStore
from app.domain.ids import ArtifactId
from app.domain.ports import ArtifactRefused, StoredArtifact
from app.domain.turn import Turn
from app.errors import NotFound
from app.store import SqliteStore, open_store
from tests.store.scene import Scene

pytestmark = pytest.mark.anyio

LIMITS = ArtifactLimits(file_bytes=1000, turn_files=3, turn_bytes=2000)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(tmp_path / "turnwire.sqlite3", owner="this process") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def artifacts(store: SqliteStore, folder: Path) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(folder, store, LIMITS)
    yield opened
    opened.close()


@pytest.fixture
async def turn(store: SqliteStore) -> Turn:
    return (await Scene(store).admit()).turn


async def content_of(artifacts: ArtifactStore, artifact: StoredArtifact) -> bytes:
    return b"".join([piece async for piece in artifacts.content(artifact)])


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_a_file_is_kept_and_found_again_by_another_process(
    artifacts: ArtifactStore, store: SqliteStore, folder: Path, turn: Turn
) -> None:
    added = await artifacts.add(turn, "findings.md", b"# Findings\n\xff")
    assert (added.name, added.media_type, added.size) == ("findings.md", "text/markdown", 12)
    assert added.url == f"/v1/turns/{turn.id}/artifacts/{added.id}"
    again = ArtifactStore(folder, store)
    assert await again.of_turn(turn) == [added]
    assert await again.get(turn, added.id) == added
    assert await content_of(again, added) == b"# Findings\n\xff"


async def test_a_file_is_named_by_its_id_alone_and_is_its_owners(
    artifacts: ArtifactStore, folder: Path, turn: Turn
) -> None:
    added = await artifacts.add(turn, "findings.md", b"x")
    assert files_in(folder) == [added.id]
    assert [mode_of(path) for path in (folder, folder / added.id)] == [0o700, 0o600]


async def test_two_files_may_have_one_name(artifacts: ArtifactStore, turn: Turn) -> None:
    first = await artifacts.add(turn, "a.txt", b"first")
    second = await artifacts.add(turn, "a.txt", b"second")
    assert [await content_of(artifacts, one) for one in (first, second)] == [b"first", b"second"]


async def test_another_turns_files_are_not_found(
    artifacts: ArtifactStore, store: SqliteStore, turn: Turn
) -> None:
    added = await artifacts.add(turn, "a.txt", b"x")
    other = (await Scene(store).admit("other")).turn
    assert await artifacts.of_turn(other) == []
    with pytest.raises(NotFound):
        await artifacts.get(other, added.id)
    with pytest.raises(NotFound):
        await artifacts.get(turn, "../turnwire.sqlite3")


async def test_a_large_file_is_refused(artifacts: ArtifactStore, folder: Path, turn: Turn) -> None:
    with pytest.raises(ArtifactRefused, match="more than 1000 bytes"):
        await artifacts.add(turn, "big", bytes(1001))
    assert files_in(folder) == []


async def test_one_file_too_many_is_refused_and_leaves_nothing(
    artifacts: ArtifactStore, folder: Path, turn: Turn
) -> None:
    for number in range(3):
        await artifacts.add(turn, f"{number}", b"x")
    with pytest.raises(ArtifactRefused, match="3 files at most"):
        await artifacts.add(turn, "one more", b"x")
    assert len(files_in(folder)) == 3


async def test_files_are_limited_together_also_when_added_at_once(
    artifacts: ArtifactStore, folder: Path, turn: Turn
) -> None:
    refused = []

    async def add(name: str) -> None:
        try:
            await artifacts.add(turn, name, bytes(900))
        except ArtifactRefused as error:
            refused.append(str(error))

    async with anyio.create_task_group() as group:
        for name in ("a", "b", "c"):
            group.start_soon(add, name)
    assert refused == ["the files of a turn have 2000 bytes at most"]
    assert len(files_in(folder)) == 2


async def test_files_go_with_their_conversation(
    artifacts: ArtifactStore, store: SqliteStore, folder: Path, turn: Turn
) -> None:
    await artifacts.add(turn, "a", b"x")
    other = await artifacts.add((await Scene(store).admit("other")).turn, "b", b"x")
    ids = await artifacts.of_conversation(turn.conversation_key)
    await store.delete_conversation(turn.conversation_key)
    await artifacts.remove(ids)
    assert files_in(folder) == [other.id]
    assert await artifacts.of_turn(turn) == []


async def test_a_file_that_is_removed_meanwhile_is_not_found(artifacts: ArtifactStore, turn: Turn) -> None:
    added = await artifacts.add(turn, "a", b"x")
    await artifacts.remove([added.id])
    with pytest.raises(NotFound):
        await content_of(artifacts, added)


async def test_the_sweep_removes_what_has_no_row(artifacts: ArtifactStore, folder: Path, turn: Turn) -> None:
    kept = await artifacts.add(turn, "a", b"x")
    for name in ("art_lost", "art_half.part", "stray"):
        (folder / name).touch()
    assert await artifacts.sweep() == 3
    assert files_in(folder) == [kept.id]


async def test_the_sweep_leaves_files_that_are_being_added(
    artifacts: ArtifactStore, folder: Path, turn: Turn
) -> None:
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(artifacts.add, turn, f"{number}", b"x")
        for _ in range(10):
            await artifacts.sweep()
    assert files_in(folder) == sorted(one.id for one in await artifacts.of_turn(turn))


async def test_a_sweep_of_nothing_is_fine(artifacts: ArtifactStore) -> None:
    assert await artifacts.sweep() == 0


async def test_a_path_is_no_artifact(artifacts: ArtifactStore) -> None:
    with pytest.raises(ValueError, match="not the id of an artifact"):
        await artifacts.remove([ArtifactId("../turnwire.sqlite3")])


async def test_a_planted_link_is_not_followed(
    artifacts: ArtifactStore, folder: Path, tmp_path: Path, turn: Turn
) -> None:
    added = await artifacts.add(turn, "a", b"x")
    (tmp_path / "secret").write_text("a secret of the host")
    (folder / added.id).unlink()
    (folder / added.id).symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        await content_of(artifacts, added)
