"""The files of a workspace, as our own code reads and writes them on the host.

A command may have put a symbolic link where a file or a folder should be, and may do so while we look. So
every path is walked from the workspace's root, one folder at a time, by descriptors that follow no link: what
a link points to exists for commands inside the sandbox, and never for us. Blocking: for a thread that may wait.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.sandbox.limits import SandboxLimits
from app.sandbox.usage import check_disk

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder of the host, and where it stands inside."""

    path: PurePosixPath
    host: Path
    writable: bool


class WorkspaceFiles:
    """Paths are those inside of the sandbox, absolute and without `..`. Errors are OSError; a link is ELOOP."""

    def __init__(self, workspace: Tree, others: Sequence[Tree], limits: SandboxLimits) -> None:
        self._workspace = workspace
        self._trees = sorted((workspace, *others), key=lambda tree: len(tree.path.parts), reverse=True)
        self._limits = limits

    def read(self, path: PurePosixPath, limit: int | None = None) -> bytes:
        """Up to `limit` bytes; without one the whole file, OSError EFBIG beyond the limit for files."""
        most = self._limits.file_bytes + 1 if limit is None else limit
        with self._file(path, os.O_RDONLY) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(most)
        if limit is None and len(content) == most:
            raise _error(errno.EFBIG, path)
        return content

    def write(self, path: PurePosixPath, content: bytes, *, new: bool = False) -> None:
        """Write a file whole, with the folders that it needs. `new`: FileExistsError if anything is there."""
        self._check_room(path, len(content))
        with (
            self._file(path, os.O_WRONLY | os.O_CREAT | (os.O_EXCL if new else 0)) as descriptor,
            os.fdopen(os.dup(descriptor), "wb") as file,
        ):
            os.ftruncate(descriptor, 0)
            file.write(content)

    def entries(self, path: PurePosixPath) -> list[tuple[str, os.stat_result]]:
        """The entries of a folder by name, links as links."""
        with self._folder(path) as folder, os.scandir(folder) as entries:
            return sorted(
                ((entry.name, entry.stat(follow_symlinks=False)) for entry in entries), key=lambda e: e[0]
            )

    def make_folder(self, path: PurePosixPath, *, parents: bool) -> None:
        """A folder that is there already is fine."""
        if path == self._workspace.path:
            return
        with self._parent(path, writing=True, create=parents) as (folder, name):
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise

    def remove(self, path: PurePosixPath, *, recursive: bool) -> None:
        with self._parent(path, writing=True) as (folder, name):
            _remove(folder, name, recursive)

    def move(self, source: PurePosixPath, destination: PurePosixPath) -> None:
        """A regular file or a link, replacing what is there; a folder that is there is an error."""
        with (
            self._parent(source, writing=True) as (from_folder, from_name),
            self._parent(destination, writing=True) as (to_folder, to_name),
        ):
            mode = os.stat(from_name, dir_fd=from_folder, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise _error(errno.EINVAL, source)
            os.rename(from_name, to_name, src_dir_fd=from_folder, dst_dir_fd=to_folder)

    def same(self, left: PurePosixPath, right: PurePosixPath) -> bool:
        """Whether two paths name one file or folder; a link is never the same as anything."""
        try:
            found = [self._status(path) for path in (left, right)]
        except FileNotFoundError:
            return False
        return not any(stat.S_ISLNK(status.st_mode) for status in found) and os.path.samestat(*found)

    # walking

    def _locate(self, path: PurePosixPath, *, writing: bool) -> tuple[Path, tuple[str, ...]]:
        for tree in self._trees:
            if path.is_relative_to(tree.path):
                if writing and not tree.writable:
                    raise _error(errno.EROFS, path)
                return tree.host, path.relative_to(tree.path).parts
        raise _error(errno.ENOENT, path)

    @contextmanager
    def _parent(
        self, path: PurePosixPath, *, writing: bool = False, create: bool = False
    ) -> Iterator[tuple[int, str]]:
        host, parts = self._locate(path, writing=writing)
        if not parts or ".." in parts:
            raise _error(errno.EINVAL, path)
        descriptor = os.open(host, _FOLDER)
        try:
            for part in parts[:-1]:
                below = _enter(descriptor, part, create)
                os.close(descriptor)
                descriptor = below
            yield descriptor, parts[-1]
        finally:
            os.close(descriptor)

    @contextmanager
    def _folder(self, path: PurePosixPath) -> Iterator[int]:
        host, parts = self._locate(path, writing=False)
        if not parts:
            descriptor = os.open(host, _FOLDER)
        else:
            with self._parent(path) as (folder, name):
                descriptor = os.open(name, _FOLDER, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _file(self, path: PurePosixPath, flags: int) -> Iterator[int]:
        """Only a regular file: opening must neither wait for a pipe's other end nor touch a device."""
        writing = flags & os.O_ACCMODE != os.O_RDONLY
        host, parts = self._locate(path, writing=writing)
        if not parts:  # a single file was granted
            descriptor = os.open(host, flags | _FILE)
        else:
            with self._parent(path, writing=writing, create=writing) as (folder, name):
                descriptor = os.open(name, flags | _FILE, 0o644, dir_fd=folder)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise _error(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, path)
            yield descriptor
        finally:
            os.close(descriptor)

    def _status(self, path: PurePosixPath) -> os.stat_result:
        with self._parent(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def _check_room(self, path: PurePosixPath, size: int) -> None:
        if size > self._limits.file_bytes:
            raise _error(errno.EFBIG, path)
        check_disk(self._workspace.host, self._limits).add(1, size, self._limits)


def _enter(folder: int, name: str, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # a command was faster; if it made a link, opening it fails
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _remove(folder: int, name: str, recursive: bool) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    if recursive:
        below = os.open(name, _FOLDER, dir_fd=folder)
        try:
            for child in os.listdir(below):
                _remove(below, child, recursive)
        finally:
            os.close(below)
    os.rmdir(name, dir_fd=folder)


def _error(number: int, path: PurePosixPath) -> OSError:
    return OSError(number, os.strerror(number), str(path))
