"""A room for each test, in a folder of its own."""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.builtin_agents.healthcare_support.records import PACKAGED, Records
from app.sandbox import Sandboxes, open_sandboxes
from tests.builtin_agents.rooms import Room

Edit = Callable[[str, str, str], Records]


@pytest.fixture
async def sandboxes(tmp_path: Path) -> AsyncIterator[Sandboxes]:
    """The real ones: without bubblewrap these tests fail."""
    async with open_sandboxes(tmp_path, "bubblewrap") as sandboxes:
        yield sandboxes


@pytest.fixture
def room(sandboxes: Sandboxes) -> Room:
    return Room(sandboxes)


@pytest.fixture
def edited(tmp_path_factory: pytest.TempPathFactory) -> Edit:
    """`edited(file, old, new)`: the records after a change in one of their files."""

    def edit(file: str, old: str, new: str) -> Records:
        folder = tmp_path_factory.mktemp("records") / "data"
        shutil.copytree(PACKAGED, folder)
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
        return Records.load(folder)

    return edit
