"""How much the processes of a workspace use, read from `/proc` and from the workspace itself.

The processes may be hostile and change while they are counted. Nothing here follows a link that they made,
and a count stops as soon as it is beyond its limit. Blocking: for a thread that may wait.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.limits import SandboxLimits

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_IN_MEMORY = ("tmp", "dev/shm")
_MAX_DEPTH = 64


class Exceeded(Exception):
    """A limit is passed; the message is for whoever ran the command."""


@dataclass(slots=True)
class DiskUse:
    files: int = 0
    bytes: int = 0

    def add(self, files: int, size: int, limits: SandboxLimits) -> None:
        self.files += files
        self.bytes += size
        if self.files > limits.files:
            raise Exceeded(f"more than {limits.files} files")
        if self.bytes > limits.workspace_bytes:
            raise Exceeded(f"more than {limits.workspace_bytes} bytes in the workspace")


def check(inits: Iterable[int], workspace: Path, limits: SandboxLimits) -> None:
    """Raise Exceeded if the processes below these, or what they left in the workspace, pass a limit."""
    processes = _processes(inits, limits)
    _check_threads(processes, limits)
    _check_cpu(processes, limits)
    _check_memory(processes, limits)
    disk = check_disk(workspace, limits)
    _add_deleted(processes, disk, limits)
    _add_temporary(inits, disk, limits)


def check_disk(workspace: Path, limits: SandboxLimits) -> DiskUse:
    """Count what lies in the workspace. Raises Exceeded."""
    use = DiskUse()
    pending = [(os.fspath(workspace), 0)]
    while pending:
        folder, depth = pending.pop()
        for name, status in _entries(folder):
            use.add(1, status.st_blocks * 512, limits)
            if stat.S_ISDIR(status.st_mode):
                if depth >= _MAX_DEPTH:
                    raise Exceeded(f"folders more than {_MAX_DEPTH} deep")
                pending.append((f"{folder}/{name}", depth + 1))
    return use


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return  # gone, or replaced by something that was counted as an entry of its folder
    except OSError as error:
        raise Exceeded("a folder that cannot be read") from error
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    yield entry.name, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
    finally:
        os.close(descriptor)


def _processes(inits: Iterable[int], limits: SandboxLimits) -> list[int]:
    """Every process below the first processes of the sandboxes, those included."""
    found = list(inits)
    for pid in found:  # grows while it is read
        found += _children(pid)
        if len(found) > 2 * limits.processes:
            break
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        return children
    return children


def _check_threads(processes: list[int], limits: SandboxLimits) -> None:
    threads = sum(_threads(pid) for pid in processes)
    if threads > limits.processes:
        raise Exceeded(f"more than {limits.processes} processes and threads")


def _threads(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def _check_cpu(processes: list[int], limits: SandboxLimits) -> None:
    """Children that ended are counted in their parents, orphans in the sandbox's first process."""
    ticks = 0
    for pid in processes:
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    if ticks > limits.cpu_s * _TICKS_PER_S:
        raise Exceeded(f"more than {limits.cpu_s:g} s of CPU time")


def _check_memory(processes: list[int], limits: SandboxLimits) -> None:
    """Resident pages first, which is cheap and counts shared ones more than once; then exactly."""
    resident = sum(_resident(pid) for pid in processes)
    if resident > limits.memory_bytes and sum(map(_proportional, processes)) > limits.memory_bytes:
        raise Exceeded(f"more than {limits.memory_bytes} bytes of memory")


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _add_deleted(processes: list[int], disk: DiskUse, limits: SandboxLimits) -> None:
    """Files without a name (deleted ones, memfd) take room as long as they are open."""
    seen: set[tuple[int, int]] = set()
    for pid in processes:
        for status in _descriptors(pid):
            identity = (status.st_dev, status.st_ino)
            if status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and identity not in seen:
                seen.add(identity)
                disk.add(1, status.st_blocks * 512, limits)


def _descriptors(pid: int) -> Iterator[os.stat_result]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue


def _add_temporary(inits: Iterable[int], disk: DiskUse, limits: SandboxLimits) -> None:
    """The file systems in memory are bounded in bytes by their size, in files by nothing but this."""
    for pid in inits:
        for folder in _IN_MEMORY:
            try:
                status = os.statvfs(f"/proc/{pid}/root/{folder}")
            except OSError:
                continue
            disk.add(status.f_files - status.f_ffree, 0, limits)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
