"""Nothing of a command outlives it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from agents.sandbox.manifest import Manifest

from app.domain.ids import TurnId
from app.sandbox import Sandboxes
from tests.bounds import until
from tests.sandbox.conftest import Inside, folder_of
from tests.sandbox.processes import FOR_A_WHILE, sleepers

pytestmark = pytest.mark.anyio

DAEMON = f"(setsid sleep {FOR_A_WHILE} >/dev/null 2>&1 &); trap '' TERM HUP INT;"
"""A process that has forked twice, in a session of its own; and a shell that shrugs."""


async def test_a_daemon_ends_with_the_command_that_left_it(inside: Inside) -> None:
    said = await inside.sh(f"{DAEMON} echo left")
    assert said.out == "left\n"
    assert sleepers() == []


async def test_a_cancel_ends_the_command_and_its_daemons_at_once(inside: Inside) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(inside.sh, f"{DAEMON} sleep {FOR_A_WHILE}")
        await until(lambda: len(sleepers()) == 2)
        group.cancel_scope.cancel()
    assert sleepers() == []


async def test_a_cancel_while_the_command_is_being_started_leaves_nothing(inside: Inside) -> None:
    for delay in range(30):
        task = asyncio.create_task(inside.sh(f"sleep {FOR_A_WHILE}"))
        await asyncio.sleep(delay / 1000)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert sleepers() == []


async def test_a_cancel_of_exec_command_ends_the_command(inside: Inside) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(inside.session.pty_exec_start, f"{DAEMON} sleep {FOR_A_WHILE}")
        await until(lambda: len(sleepers()) == 2)
        group.cancel_scope.cancel()
    assert sleepers() == []


async def test_the_end_of_a_session_ends_commands_in_the_background(
    sandboxes: Sandboxes, data: Path, turn_id: TurnId
) -> None:
    async with sandboxes.session(turn_id, Manifest()) as session:
        update = await session.pty_exec_start(f"{DAEMON} sleep {FOR_A_WHILE}", yield_time_s=0.25)
        assert update.process_id is not None
        await until(lambda: len(sleepers()) == 2)
    assert sleepers() == []


async def test_nothing_outlives_a_service_that_is_killed(data: Path) -> None:
    """The kernel ends what runs inside together with the process that started it."""
    script = f"""
import asyncio, sys
from pathlib import Path
from agents.sandbox.manifest import Manifest
from app.domain.ids import new_turn_id
from app.sandbox import open_sandboxes

async def main():
    async with open_sandboxes(Path({str(data / "workspaces")!r}), "bubblewrap") as sandboxes:
        async with sandboxes.session(new_turn_id(), Manifest()) as session:
            await session.exec({f"{DAEMON} touch ready; sleep {FOR_A_WHILE}"!r})

asyncio.run(main())
"""
    service = await anyio.open_process([sys.executable, "-c", script], cwd=os.getcwd(), stderr=subprocess.PIPE)
    await until(lambda: service.returncode is not None or list(data.glob("workspaces/turn_*/*/ready")))
    await until(lambda: len(sleepers()) == 2)
    service.send_signal(signal.SIGKILL)
    await service.wait()
    await service.aclose()
    await until(lambda: not sleepers())


async def test_the_end_of_a_turn_removes_whatever_a_command_made(
    sandboxes: Sandboxes, data: Path, turn_id: TurnId
) -> None:
    async with sandboxes.session(turn_id, Manifest()) as session:
        await session.exec(
            "mkdir a; echo x > a/x; chmod 000 a; ln -s /etc e; mkfifo p;"
            " touch -- '-rf' 'new\nline' $(printf '\\377')",
            shell=["sh", "-c"],
        )
        await session.exec(
            "python3", "-c", "import os\nfor _ in range(2000): os.mkdir('dddd'); os.chdir('dddd')", shell=False
        )
        assert folder_of(data, turn_id).is_dir()
    await sandboxes.remove(turn_id)
    assert list((data / "workspaces").iterdir()) == []


async def test_removing_what_is_not_there_is_fine(sandboxes: Sandboxes, turn_id: TurnId) -> None:
    await sandboxes.remove(turn_id)


async def test_a_path_is_no_turn(sandboxes: Sandboxes) -> None:
    for name in ("..", "turn_1/../..", "turn_", "/etc", "turn_a\n"):
        with pytest.raises(ValueError, match="not the id of a turn"):
            await sandboxes.remove(TurnId(name))


async def test_the_sweep_keeps_what_is_paused(sandboxes: Sandboxes, data: Path) -> None:
    for name in ("turn_paused", "turn_gone", "turn_lost"):
        async with sandboxes.session(TurnId(name), Manifest()):
            pass
    (data / "workspaces" / "stray").touch()
    assert await sandboxes.sweep({TurnId("turn_paused")}) == 3
    assert [path.name for path in (data / "workspaces").iterdir()] == ["turn_paused"]
