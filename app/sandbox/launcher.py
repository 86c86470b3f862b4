"""Starts confined commands, on threads of its own."""

import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio

from app.sandbox.bubblewrap import ETC_STUBS, Confinement, bubblewrap_options
from app.sandbox.limits import SandboxLimits

T = TypeVar("T")


_GATE = 'echo >&0 && read -r _ && exec "$@" </dev/null'
_GATE_TO_TERMINAL = 'echo >&0 && read -r _ && exec setsid --ctty "$@" <&1'
_SET_UP_S = 10
_NICE = 10


class LaunchError(Exception):
    """The command could not be confined, so it was not run."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A command that runs: bubblewrap, and the first process inside, with which all others end.

    `outputs` are the ends to read, not blocking; `terminal` is written to, if it has one (then it is also the
    only output). `init` is a descriptor that becomes readable when everything inside is gone.
    """

    process: subprocess.Popen[bytes]
    init_pid: int
    init: int
    outputs: tuple[int, ...]
    terminal: int | None = None

    def kill(self) -> None:
        """At once, and all of it: with the first process the kernel kills every other inside."""
        if self.process.poll() is None:
            _kill(self.init)
            self.process.kill()

    def abandon(self) -> None:
        """Kill and forget a command that nobody has attached to. Blocks for a moment."""
        self.kill()
        self.process.wait()
        select.select([self.init], [], [], _SET_UP_S)
        for descriptor in (self.init, *self.outputs):
            os.close(descriptor)


class Launcher:
    """Starts commands on one thread that lives as long as this does: the kernel kills a command together with
    the thread that started it. Other blocking work of sandboxes has a few threads beside it."""

    def __init__(self, workers: int = 4) -> None:
        self._starter = ThreadPoolExecutor(1, "turnwire-sandbox-start")
        self._workers = ThreadPoolExecutor(workers, "turnwire-sandbox")

    async def start(self, confinement: Confinement, command: list[str], *, tty: bool) -> Launched:
        """Raises LaunchError. A caller that is cancelled leaves nothing behind."""
        started = self._starter.submit(launch, confinement, command, tty)
        try:
            return await asyncio.wrap_future(started)
        except asyncio.CancelledError:
            if not started.cancel():
                abandoned = self._starter.submit(_abandon, started.result)
                with anyio.CancelScope(shield=True):
                    await asyncio.wrap_future(abandoned)
            raise

    async def work(self, function: Callable[[], T]) -> T:
        """Run something that blocks. It is finished even if the caller is cancelled, and the caller waits
        for it: nobody removes a workspace under a thread that still writes to it."""
        future = asyncio.ensure_future(asyncio.wrap_future(self._workers.submit(function)))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([future])
            raise

    def close(self) -> None:
        self._starter.shutdown(wait=False)
        self._workers.shutdown(wait=False)


def launch(confinement: Confinement, command: list[str], tty: bool = False) -> Launched:
    """Start a command, with its limits set before its first instruction. Raises LaunchError.

    A shell inside says that all is set up, and becomes the command when it is told to go on. If this process
    is killed meanwhile, the shell reads the end of its input instead, and nothing is run.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        gate, gate_end = socket.socketpair()
        ours.callback(gate.close)
        theirs.callback(gate_end.close)
        info, info_end = _pipe(ours, theirs)
        stubs = {path: _in_memory(content, theirs) for path, content in ETC_STUBS.items()}
        # Not as arguments: commands can read those of their first process, and they tell of the host.
        options = b"\0".join(map(os.fsencode, bubblewrap_options(confinement, stubs, info_end)))
        options_file = _in_memory(options, theirs)
        streams = _terminal(ours, theirs) if tty else _output_pipes(ours, theirs)
        gated = ["/bin/sh", "-c", _GATE_TO_TERMINAL if tty else _GATE, "sh", *command]
        try:
            process = subprocess.Popen(  # noqa: S603 - confining commands is what this is for
                [confinement.program, "--args", str(options_file), "--", *gated],
                stdin=gate_end.fileno(),
                stdout=streams.stdout,
                stderr=streams.stderr,
                pass_fds=(info_end, options_file, *stubs.values()),
                env={},
                cwd="/",
            )
        except (OSError, ValueError) as error:
            raise LaunchError(f"bubblewrap cannot be run: {error}") from error
        theirs.close()
        launched = _released(process, info, gate, streams, confinement.limits)
        for output in streams.outputs:
            os.set_blocking(output, False)
        streams.keep()
        return launched


@dataclass(frozen=True, slots=True)
class _Streams:
    stdout: int
    stderr: int
    outputs: tuple[int, ...]
    keep: Callable[[], object]
    terminal: int | None = None


def _in_memory(content: bytes, theirs: contextlib.ExitStack) -> int:
    descriptor = os.memfd_create("turnwire-sandbox")
    theirs.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer


def _output_pipes(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> _Streams:
    kept = ours.enter_context(contextlib.ExitStack())
    stdout, stdout_end = _pipe(kept, theirs)
    stderr, stderr_end = _pipe(kept, theirs)
    return _Streams(stdout_end, stderr_end, (stdout, stderr), kept.pop_all)


def _terminal(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> _Streams:
    kept = ours.enter_context(contextlib.ExitStack())
    master, slave = os.openpty()
    kept.callback(os.close, master)
    theirs.callback(os.close, slave)
    return _Streams(slave, slave, (master,), kept.pop_all, master)


def _released(
    process: subprocess.Popen[bytes], info: int, gate: socket.socket, streams: _Streams, limits: SandboxLimits
) -> Launched:
    """Wait until the command stands at its gate, set its limits, and let it go."""
    init: int | None = None
    try:
        init_pid = _init_pid(info)
        init = os.pidfd_open(init_pid)
        gate.settimeout(_SET_UP_S)
        if not gate.recv(1):
            raise OSError("it ended")
        _limit(init_pid, limits)
        gate.sendall(b"\n")
    except (OSError, ValueError) as error:
        if init is not None:
            _kill(init)
            os.close(init)
        process.kill()
        process.wait()
        raise LaunchError(_complaint(streams) or f"bubblewrap did not start: {error}") from error
    return Launched(process, init_pid, init, streams.outputs, streams.terminal)


def _init_pid(info: int) -> int:
    with os.fdopen(os.dup(info), "rb") as pipe:
        return int(json.loads(pipe.read())["child-pid"])


def _complaint(streams: _Streams) -> str:
    """What bubblewrap said on stderr."""
    descriptor = streams.outputs[-1]
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 2000).decode(errors="replace").strip()
    except OSError:
        return ""


def _limit(init_pid: int, limits: SandboxLimits) -> None:
    """Limit the only process below the first one: it becomes the command, and all others descend from it."""
    pid = int(Path(f"/proc/{init_pid}/task/{init_pid}/children").read_text(encoding="ascii"))
    kinds = {
        resource.RLIMIT_CPU: max(1, int(limits.cpu_s)),
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in kinds.items():
        resource.prlimit(pid, kind, (value, value))
    # Whoever watches them comes first. If the machine runs out of memory all the same, they go first.
    os.setpriority(os.PRIO_PROCESS, pid, _NICE)
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000", encoding="ascii")


def _kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _abandon(started: Callable[[], Launched]) -> None:
    with contextlib.suppress(LaunchError):
        started().abandon()
