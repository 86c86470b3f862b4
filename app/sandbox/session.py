"""The SDK's sandbox session over a workspace whose commands run under bubblewrap."""

import asyncio
import io
import os
import stat as modes
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.files import EntryKind, FileEntry
from agents.sandbox.materialization import MaterializationResult
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult, Permissions, User

from app.sandbox.bubblewrap import WORKSPACE
from app.sandbox.command import Command
from app.sandbox.confined import ConfinedWorkspace
from app.sandbox.files import WorkspaceFiles
from app.sandbox.launcher import LaunchError
from app.sandbox.terminals import Terminals
from app.sandbox.usage import Exceeded
from app.sandbox.workspaces import Workspace

T = TypeVar("T")


class BubblewrapSessionState(SandboxSessionState):
    """`session_id` names the workspace within the turn's. `protected` are names in it that the manifest fills
    and that nobody may change after that."""

    type: Literal["bubblewrap"] = "bubblewrap"
    protected: tuple[str, ...] = ()


class BubblewrapSession(BaseSandboxSession):
    """Commands run confined, and see the workspace at the manifest's root. File operations are our own, on
    the host, and follow no symbolic link.

    Nothing of it runs between commands, so a pause holds nothing. The workspace outlives it: a session that
    starts on a filled one leaves its files alone and makes only what the manifest calls ephemeral anew.
    """

    state: BubblewrapSessionState

    def __init__(
        self,
        state: BubblewrapSessionState,
        workspace: Workspace,
        confined: ConfinedWorkspace,
        files: WorkspaceFiles,
    ) -> None:
        self.state = state
        self._workspace = workspace
        self._confined = confined
        self._host_files = files
        self._terminals = Terminals()
        self._running = False

    # --- beginning and end ---

    async def _prepare_backend_workspace(self) -> None:
        filled = await self._confined.launcher.work(self._workspace.make)
        self._set_start_state_preserved(filled)
        self._start_workspace_root_ready = filled

    async def _after_start(self) -> None:
        await self._confined.launcher.work(self._workspace.filled)
        self._confined.protect(self.state.protected)
        self._running = True

    async def _after_start_failed(self) -> None:
        await self._confined.close()

    async def _before_stop(self) -> None:
        await self.pty_terminate_all()

    async def _shutdown_backend(self) -> None:
        self._running = False
        await self._confined.close()

    async def running(self) -> bool:
        return self._running

    async def _apply_manifest(
        self, *, only_ephemeral: bool = False, provision_accounts: bool = True
    ) -> MaterializationResult:
        return await super()._apply_manifest(only_ephemeral=only_ephemeral, provision_accounts=False)

    async def provision_manifest_accounts(self) -> None:
        """There is one user inside, and no other can be made."""

    async def persist_workspace(self) -> io.IOBase:
        raise WorkspaceArchiveReadError(path=self._root, context={"reason": "the workspace itself is kept"})

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        raise WorkspaceArchiveWriteError(path=self._root, context={"reason": "the workspace itself is kept"})

    @property
    def _root(self) -> Path:
        return Path(self.state.manifest.root)

    # --- commands ---

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        _refuse_user(user)
        return super()._prepare_exec_command(*command, shell=shell, user=None)

    async def _exec_internal(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109 - the SDK's
    ) -> ExecResult:
        running = await self._start([str(part) for part in command])
        try:
            async with asyncio.timeout(timeout):
                await running.ended.wait()
        except TimeoutError as error:
            raise ExecTimeoutError(command=command, timeout_s=timeout, cause=error) from error
        finally:
            await running.close()
        stdout, stderr = running.taken()
        return ExecResult(stdout=stdout, stderr=stderr, exit_code=running.exit_code or 0)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,  # noqa: ASYNC109 - the SDK's
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """`timeout` is the SDK's and bounds nothing there; the limit on wall time holds."""
        prepared = self._prepare_exec_command(*command, shell=shell, user=user)
        running = await self._start(prepared, tty=tty, merged=True)
        return await self._terminals.begin(running, yield_time_s, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        return await self._terminals.write(session_id, chars, yield_time_s, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        self._terminals.forget_all()
        await self._confined.end_all()

    async def _start(self, command: list[str], *, tty: bool = False, merged: bool = False) -> Command:
        try:
            return await self._confined.start(command, tty=tty, merged=merged)
        except LaunchError as error:
            raise ExecTransportError(
                command=command, message=str(error), cause=error, retryable=False
            ) from error

    # --- files ---

    def normalize_path(self, path: Path | str, *, for_write: bool = False) -> Path:
        """By the words of the path alone: what it leads to on the host is nobody's business."""
        return Path(self._workspace_path_policy().normalize_sandbox_path(path, for_write=for_write))

    async def ls(self, path: Path | str, *, user: str | User | None = None) -> list[FileEntry]:
        _refuse_user(user)
        folder = self._inside(path)
        try:
            entries = await self._work(lambda: self._host_files.entries(folder))
        except OSError as error:
            raise _failed(("ls", "--", str(folder)), error) from error
        return [_entry(folder / name, status) for name, status in entries]

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        _refuse_user(user)
        return io.BytesIO(await self._read(path, None))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._read(path, max_bytes)

    async def _read(self, path: Path, limit: int | None) -> bytes:
        inside = self._inside(path)
        try:
            return await self._work(lambda: self._host_files.read(inside, limit))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except OSError as error:
            raise WorkspaceArchiveReadError(
                path=path, context={"reason": error.strerror}, cause=error
            ) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        _refuse_user(user)
        await self._write(path, data, new=False)

    async def _write_new_file(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        _refuse_user(user)
        await self._write(path, data, new=True)

    async def _write(self, path: Path, data: io.IOBase, *, new: bool) -> None:
        inside = self._inside(path, for_write=True)
        stream = coerce_write_payload(path=path, data=data).stream
        limit = self._confined.confinement.limits.file_bytes + 1
        await self._change(path, lambda: self._host_files.write(inside, stream.read(limit), new=new))

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        _refuse_user(user)
        inside = self._inside(path, for_write=True)
        await self._change(path, lambda: self._host_files.make_folder(inside, parents=parents))

    async def rm(self, path: Path | str, *, recursive: bool = False, user: str | User | None = None) -> None:
        _refuse_user(user)
        inside = self._inside(path, for_write=True)
        try:
            await self._work(lambda: self._host_files.remove(inside, recursive=recursive))
        except FileNotFoundError as error:
            if not recursive:
                raise _failed(("rm", "--", str(inside)), error) from error
        except OSError as error:
            raise _failed(("rm", "--", str(inside)), error) from error

    async def mv(self, source: Path | str, destination: Path | str, *, user: str | User | None = None) -> None:
        _refuse_user(user)
        old, new = self._inside(source, for_write=True), self._inside(destination, for_write=True)
        try:
            await self._work(lambda: self._host_files.move(old, new))
        except OSError as error:
            raise _failed(("mv", "--", str(old), str(new)), error) from error

    async def same_file(
        self,
        left: Path | str,
        right: Path | str,
        *,
        follow_symlinks: bool = True,
        user: str | User | None = None,
    ) -> bool:
        """Never true of a link, whatever `follow_symlinks` says."""
        _refuse_user(user)
        one, other = self._inside(left), self._inside(right)
        try:
            return await self._work(lambda: self._host_files.same(one, other))
        except OSError as error:
            raise _failed(("test", str(one), "-ef", str(other)), error) from error

    def _inside(self, path: Path | str, *, for_write: bool = False) -> PurePosixPath:
        inside = self._workspace_path_policy().normalize_sandbox_path(path, for_write=for_write)
        if for_write and self._running and any(inside.is_relative_to(one) for one in self._protected()):
            raise WorkspaceArchiveWriteError(path=Path(inside), context={"reason": "it can only be read"})
        return inside

    def _protected(self) -> list[PurePosixPath]:
        return [WORKSPACE / name for name in self.state.protected]

    async def _change(self, path: Path | str, change: Callable[[], T]) -> T:
        try:
            return await self._work(change)
        except FileExistsError:
            raise
        except (OSError, Exceeded) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise WorkspaceArchiveWriteError(
                path=Path(path), context={"reason": reason}, cause=error
            ) from error

    async def _work(self, function: Callable[[], T]) -> T:
        return await self._confined.launcher.work(function)


def _refuse_user(user: str | User | None) -> None:
    if user is not None:
        raise ValueError("run_as: there is one user in this sandbox; leave it out")


def _failed(command: tuple[str, ...], error: OSError) -> ExecNonZeroError:
    said = f"{command[0]}: {error.strerror}".encode()
    return ExecNonZeroError(ExecResult(stdout=b"", stderr=said, exit_code=1), command=command, cause=error)


def _entry(path: PurePosixPath, status: os.stat_result) -> FileEntry:
    return FileEntry(
        path=str(path),
        permissions=Permissions.from_mode(status.st_mode),
        owner=str(status.st_uid),
        group=str(status.st_gid),
        size=status.st_size,
        kind=_kind(status.st_mode),
    )


def _kind(mode: int) -> EntryKind:
    if modes.S_ISLNK(mode):
        return EntryKind.SYMLINK
    if modes.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    return EntryKind.FILE if modes.S_ISREG(mode) else EntryKind.OTHER
