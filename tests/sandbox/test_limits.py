"""Commands try to use more than they may."""

import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import anyio
import pytest
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, WorkspaceArchiveWriteError
from agents.sandbox.manifest import Manifest

from app.domain.ids import TurnId
from app.sandbox import Sandboxes, open_sandboxes
from tests.bounds import until
from tests.sandbox.conftest import LIMITS, Inside, folder_of
from tests.sandbox.processes import FOR_A_WHILE, sleepers, until_file

pytestmark = pytest.mark.anyio


async def test_a_command_that_sleeps_past_the_limit_is_stopped(inside: Inside) -> None:
    started = time.monotonic()
    said = await inside.sh(f"echo before; sleep {FOR_A_WHILE}")
    assert LIMITS.wall_s <= time.monotonic() - started < LIMITS.wall_s + 2
    assert (said.code, said.out) == (137, "before\n")
    assert "[stopped: it ran longer than 5 s]" in said.err
    assert sleepers() == []


async def test_the_callers_own_timeout_ends_the_command(inside: Inside) -> None:
    with pytest.raises(ExecTimeoutError):
        await inside.session.exec(f"sleep {FOR_A_WHILE}", timeout=0.2)
    assert sleepers() == []


BOMB = "bomb() { [ $1 = 0 ] || { bomb $(($1 - 1)) | bomb $(($1 - 1)) & }; sleep 60; }"
"""It doubles as fast as any, and stops by itself at some thousands: the machine is also the other tests'."""


async def test_a_fork_bomb_is_stopped(inside: Inside) -> None:
    """By the watch; where the kernel's own limit holds it down first (not for root), by the clock."""
    with anyio.fail_after(LIMITS.wall_s + 3):
        said = await inside.sh(f"{BOMB}; bomb 11; sleep 60")
    assert said.code == 137
    held_down = "Cannot fork" in said.err and "it ran longer than" in said.err
    assert held_down or "more than 24 processes and threads" in said.err


async def test_threads_count_as_processes(inside: Inside) -> None:
    said = await inside.python(
        "import threading, time\n"
        "threading.stack_size(65536)\n"
        "for _ in range(30): threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    assert "more than 24 processes and threads" in said.err or "can't start new thread" in said.err


async def test_one_process_cannot_have_all_memory(inside: Inside) -> None:
    said = await inside.python("b = bytearray(1 << 30)")
    assert "MemoryError" in said.err


async def test_many_processes_cannot_have_all_memory_together(inside: Inside) -> None:
    said = await inside.python(
        "import os, time\nfor _ in range(3): os.fork()\nb = os.urandom(1 << 20) * 100; time.sleep(60)"
    )
    assert f"more than {LIMITS.memory_bytes} bytes of memory" in said.err


async def test_memory_that_is_a_file_without_a_name_counts(inside: Inside) -> None:
    said = await inside.python(
        "import os, time\n"
        "for i in range(100): os.write(os.memfd_create(str(i)), bytes(1 << 20))\n"
        "time.sleep(60)"
    )
    assert "bytes in the workspace" in said.err


async def test_cpu_time_is_limited_over_all_processes(data: Path, turn_id: TurnId) -> None:
    async with (
        open_sandboxes(data / "workspaces", "bubblewrap", replace(LIMITS, cpu_s=0.5)) as sandboxes,
        sandboxes.session(turn_id, Manifest()) as session,
    ):
        result = await session.exec("for i in 1 2 3; do (while :; do :; done) & done; wait")
    assert b"more than 0.5 s of CPU time" in result.stderr


async def test_a_file_cannot_grow_past_its_limit(inside: Inside) -> None:
    said = await inside.sh("dd if=/dev/zero of=big bs=1M count=10; ls -l big | awk '{print $5}'")
    assert int(said.out.split()[-1]) == LIMITS.file_bytes


async def test_the_disk_cannot_be_filled(inside: Inside) -> None:
    said = await inside.sh("i=0; while :; do i=$((i+1)); head -c 1000000 /dev/urandom > f$i || exit; done")
    assert "bytes in the workspace" in said.err
    assert sum(path.stat().st_size for path in inside.folder.iterdir()) < 20 * LIMITS.workspace_bytes


async def test_deleted_files_that_are_open_fill_no_disk_either(inside: Inside) -> None:
    said = await inside.python(
        "import os, time\n"
        "for i in range(50):\n"
        "    fd = os.open('f', os.O_CREAT | os.O_WRONLY); os.unlink('f'); os.write(fd, os.urandom(1 << 20))\n"
        "time.sleep(60)"
    )
    assert "bytes in the workspace" in said.err


async def test_a_full_workspace_stops_the_next_command_too(inside: Inside) -> None:
    for _ in range(2):
        said = await inside.sh(
            "for i in 1 2 3 4 5 6 7 8; do head -c 1500000 /dev/urandom > f$i; done; sleep 60"
        )
        assert "bytes in the workspace" in said.err


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/dev/shm"])
async def test_files_are_limited_in_number(inside: Inside, folder: str) -> None:
    said = await inside.sh(f"cd {folder}; i=0; while :; do i=$((i+1)); : > f$i; done")
    assert "more than 200 files" in said.err


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
async def test_the_temporary_folders_are_bounded(inside: Inside, folder: str) -> None:
    said = await inside.sh(f"dd if=/dev/zero of={folder}/big bs=64k count=100; stat -c %s {folder}/big")
    assert "No space left" in said.err
    assert int(said.out) == LIMITS.temporary_bytes


async def test_endless_output_is_cut(inside: Inside) -> None:
    said = await inside.sh("yes")
    assert (said.code, len(said.out)) == (137, LIMITS.output_bytes)
    assert "it said more than 200000 bytes" in said.err


async def test_only_so_many_commands_run_at_a_time(inside: Inside) -> None:
    async with anyio.create_task_group() as group:
        for number in range(LIMITS.commands):
            group.start_soon(inside.sh, f"touch ready{number}; sleep {FOR_A_WHILE}")
        for number in range(LIMITS.commands):
            await until_file(inside, f"ready{number}")
        with pytest.raises(ExecTransportError, match="4 commands run already"):
            await inside.sh("true")
        group.cancel_scope.cancel()
    assert (await inside.sh("echo again")).out == "again\n"


async def test_our_own_writes_are_held_to_the_limits(inside: Inside) -> None:
    with pytest.raises(WorkspaceArchiveWriteError) as too_large:
        await inside.session.write(Path("big"), BytesIO(bytes(LIMITS.file_bytes + 1)))
    assert "File too large" in str(too_large.value.context)
    for number in range(3):
        await inside.session.write(Path(f"f{number}"), BytesIO(b"x" * LIMITS.file_bytes))
    with pytest.raises(WorkspaceArchiveWriteError) as too_many:
        await inside.session.write(Path("one more"), BytesIO(b"x" * LIMITS.file_bytes))
    assert "bytes in the workspace" in str(too_many.value.context)


async def test_a_folder_that_hides_its_files_stops_the_command(inside: Inside) -> None:
    said = await inside.sh("d=.; for i in $(seq 100); do d=$d/d; mkdir $d; done; sleep 60")
    assert "folders more than 64 deep" in said.err


async def test_a_stopped_command_takes_its_siblings_along(
    sandboxes: Sandboxes, data: Path, turn_id: TurnId
) -> None:
    """Limits are those of a workspace: what runs beside the one that passes them is part of it."""
    async with sandboxes.session(turn_id, Manifest()) as session, anyio.create_task_group() as group:
        ends: list[int] = []

        async def sleep() -> None:
            ends.append((await session.exec("touch ready; sleep 60")).exit_code)

        group.start_soon(sleep)
        await until((folder_of(data, turn_id) / "ready").exists)
        await session.exec("i=0; while :; do i=$((i+1)); : > f$i; done")
        await until(lambda: ends)
    assert ends == [137]
