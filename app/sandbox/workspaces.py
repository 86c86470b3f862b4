"""Where the workspaces of turns lie: `<data>/workspaces/<turn id>`, one folder below for each sandbox in it."""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from uuid import UUID, uuid5

from app.domain.ids import TurnId
from app.sandbox.launcher import Launcher

_TURN_ID = re.compile(r"turn_[A-Za-z0-9]{1,64}")
_NAMES = UUID("6f0d3c5e-6f6a-4c0e-9a52-0d0f5f1f6f3a")


@dataclass(frozen=True, slots=True)
class Workspace:
    """One sandbox's folder, and the mark beside it that says that it was filled. Made by `Workspaces`."""

    folder: Path
    mark: Path

    def make(self) -> bool:
        """Make the folder; True if it is there already, filled. What a crash left half-filled is removed."""
        if self.mark.exists() and self.folder.is_dir():
            return True
        if self.folder.exists():
            remove_tree(self.folder)
        self.folder.mkdir(mode=0o700, parents=True)
        return False

    def filled(self) -> None:
        self.mark.touch(mode=0o600)


class Workspaces:
    """They survive pauses and restarts, and are found again by the turn's id. No name comes from input."""

    def __init__(self, root: Path, launcher: Launcher) -> None:
        self._root = root.absolute()
        self._launcher = launcher

    def open(self, turn_id: TurnId) -> "TurnWorkspaces":
        """The workspaces of a turn; nothing is made yet."""
        return TurnWorkspaces(turn_id, self._of(turn_id))

    async def remove(self, turn_id: TurnId) -> None:
        """Remove all that the turn left. Its sandboxes are closed already: nothing of them runs."""
        folder = self._of(turn_id)
        if _is_there(folder):  # most turns never had any: to look costs less than a thread
            await self._launcher.work(lambda: remove_tree(folder))

    async def sweep(self, keep: Collection[TurnId]) -> int:
        """Remove what a crash left: everything but the workspaces of these turns; returns how many."""
        return await self._launcher.work(lambda: self._sweep(keep))

    def _of(self, turn_id: TurnId) -> Path:
        if not _TURN_ID.fullmatch(turn_id):
            raise ValueError("not the id of a turn")
        return self._root / turn_id

    def _sweep(self, keep: Collection[TurnId]) -> int:
        if not self._root.is_dir():
            return 0
        stale = [entry for entry in self._root.iterdir() if entry.name not in keep]
        for entry in stale:
            remove_tree(entry)
        return len(stale)


@dataclass(frozen=True, slots=True)
class TurnWorkspaces:
    """The workspaces of one turn: a sandbox of the same name, or of the same id, finds its own again."""

    turn_id: TurnId
    root: Path

    def id_of(self, name: str) -> UUID:
        return uuid5(_NAMES, f"{self.turn_id}/{name}")

    def workspace(self, sandbox_id: UUID) -> Workspace:
        return Workspace(self.root / sandbox_id.hex, self.root / f"{sandbox_id.hex}.filled")


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def remove_tree(path: Path) -> None:
    """Remove a folder whatever lies in it: folders without rights, and folders nested deeper than a path can
    say (each is moved up beside the first before it is read). No link is followed. Nothing else uses it."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    pending = [path]
    while pending:
        folder = pending.pop()
        pending += _folders_of(folder, path)
        if folder != path:
            folder.rmdir()
    path.rmdir()


def _folders_of(folder: Path, top: Path) -> list[Path]:
    """Remove the files of a folder; its folders end up directly below `top` and are returned."""
    folders: list[Path] = []
    with os.scandir(folder) as scanned:
        entries = list(scanned)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            continue
        os.chmod(entry.path, 0o700)
        moved = Path(entry.path) if folder == top else top / token_hex(16)
        os.rename(entry.path, moved)
        folders.append(moved)
    return folders
