"""The options of bubblewrap that confine one command.

What is inside: the system's programs, read-only; the workspace at `/workspace`; the granted paths, read-only;
`/proc` and `/dev` of its own; `/tmp` and `/dev/shm` in memory, bounded; three stubs and the linker's cache in
`/etc`. Everything else does not exist there: no network, no other process, no capability, no environment.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from app.sandbox.limits import SandboxLimits

WORKSPACE = PurePosixPath("/workspace")
PATH = "/usr/local/bin:/usr/bin:/bin"
_UID = "1000"
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FROM_ETC = ("/etc/ld.so.cache", "/etc/alternatives")
ETC_STUBS = {
    "/etc/passwd": b"sandbox:x:1000:1000::/workspace:/bin/sh\n",
    "/etc/group": b"sandbox:x:1000:\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\n",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A folder or file of the host that commands may read, at `path`."""

    path: PurePosixPath
    host: Path


@dataclass(frozen=True, slots=True)
class Confinement:
    """What the commands of one workspace see. `protected` are names in it that commands may only read."""

    program: str
    workspace: Path
    limits: SandboxLimits
    grants: tuple[Grant, ...] = ()
    protected: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def bubblewrap_options(confinement: Confinement, stubs: Mapping[str, int], info: int) -> list[str]:
    """Bubblewrap's options. `stubs` are descriptors with the files of `/etc`; `info` is where it tells what
    it made."""
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--uid", _UID, "--gid", _UID),
        *_environment(confinement.environment),
        *_system(),
        *_etc(stubs),
        *_memory(confinement.limits),
        *_workspace(confinement),
        # The mount of /proc must be read-only: where the service runs as root, the command's user is root to
        # the kernel whatever it is called inside, and owns the kernel's settings below /proc/sys. The others:
        # they live in memory, and their size has no bound.
        *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", str(WORKSPACE), "--info-fd", str(info)),
    ]


def _environment(extra: Mapping[str, str]) -> Iterator[str]:
    yield "--clearenv"
    for name, value in {"PATH": PATH, "HOME": str(WORKSPACE), "LANG": "C.UTF-8", **extra}.items():
        yield from ("--setenv", name, value)


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)


def _etc(stubs: Mapping[str, int]) -> Iterator[str]:
    for path, descriptor in stubs.items():
        yield from ("--perms", "0444", "--file", str(descriptor), path)
    for path in _FROM_ETC:
        yield from ("--ro-bind-try", path, path)


def _memory(limits: SandboxLimits) -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in ("/tmp", "/dev/shm"):  # noqa: S108 - inside of the sandbox
        yield from ("--perms", "1777", "--size", str(limits.temporary_bytes), "--tmpfs", path)


def _workspace(confinement: Confinement) -> Iterator[str]:
    for grant in confinement.grants:
        yield from ("--ro-bind", str(grant.host), str(grant.path))
    yield from ("--bind", str(confinement.workspace), str(WORKSPACE))
    for name in confinement.protected:
        yield from ("--ro-bind", str(confinement.workspace / name), str(WORKSPACE / name))
