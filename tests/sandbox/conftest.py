"""A confined sandbox in a data folder that holds a secret. Where bubblewrap is missing, every test fails."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession

from app.domain.ids import TurnId, new_turn_id
from app.sandbox import Sandboxes, SandboxLimits, open_sandboxes

LIMITS = SandboxLimits(
    wall_s=5,
    cpu_s=5,
    memory_bytes=256 << 20,
    processes=24,
    file_bytes=2 << 20,
    temporary_bytes=1 << 20,
    workspace_bytes=6 << 20,
    files=200,
    output_bytes=200_000,
    commands=4,
    watch_s=0.02,
)
"""Small enough to hit; a limit that a test is not about is out of its way."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a service, with something in it that is nobody's business."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "turnwire.db").write_text("a secret of the host")
    return folder


@pytest.fixture
async def sandboxes(data: Path) -> AsyncIterator[Sandboxes]:
    async with open_sandboxes(data / "workspaces", "bubblewrap", LIMITS) as opened:
        yield opened


@pytest.fixture
def turn_id() -> TurnId:
    return new_turn_id()


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


class Inside:
    """A session as a model would use it."""

    def __init__(self, session: SandboxSession, folder: Path) -> None:
        self.session = session
        self.folder = folder
        """The workspace, as the host sees it."""

    async def sh(self, script: str) -> Said:
        result = await self.session.exec(script, shell=["sh", "-c"])
        return Said(result.exit_code, result.stdout.decode(), result.stderr.decode())

    async def python(self, script: str) -> Said:
        result = await self.session.exec("python3", "-c", script, shell=False)
        return Said(result.exit_code, result.stdout.decode(), result.stderr.decode())


def folder_of(data: Path, turn_id: TurnId) -> Path:
    (folder,) = (path for path in (data / "workspaces" / turn_id).iterdir() if path.is_dir())
    return folder


@pytest.fixture
async def inside(sandboxes: Sandboxes, data: Path, turn_id: TurnId) -> AsyncIterator[Inside]:
    async with sandboxes.session(turn_id, Manifest()) as session:
        yield Inside(session, folder_of(data, turn_id))
