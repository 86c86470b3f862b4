import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from app.store import DataFolder, SqliteStore, open_store
from tests.store.scene import ALICE

pytestmark = pytest.mark.anyio


def killed_after(lines: int, folder: Path) -> list[bytes]:
    """What a child that was killed behind so many lines has shown, to the last byte of its pipe."""
    command = [sys.executable, "-m", "tests.event_log.crash_child", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            shown = [child.stdout.readline() for _ in range(lines)]
        finally:
            child.kill()
        shown += child.stdout.readlines()
    assert shown[0], "the child did not start"
    return [line for line in shown if line.endswith(b"\n")]


async def stored(store: SqliteStore, turn_key: int) -> list[bytes]:
    lines: list[bytes] = []
    after = 0
    while entries := await store.events(turn_key, after):
        assert [entry.seq for entry in entries] == list(range(after + 1, after + 1 + len(entries)))
        after = entries[-1].seq
        lines += [entry.data for entry in entries]
    return lines


@pytest.mark.parametrize("lines", [1, 30, 250, 900, 2500])
async def test_killed_process_loses_nothing_that_it_has_shown(tmp_path: Path, lines: int) -> None:
    shown: dict[int, list[bytes]] = defaultdict(list)
    for line in killed_after(lines, tmp_path):
        turn_key, _, data = line.rstrip(b"\n").partition(b" ")
        shown[int(turn_key)].append(data)

    with DataFolder(tmp_path, wait_s=5) as folder:
        async with open_store(folder.database, owner="the next process") as store:
            for key, lines_shown in shown.items():
                log = await stored(store, key)
                assert log[: len(lines_shown)] == lines_shown
            orphans = {turn.key for turn in await store.orphans()}
            assert shown.keys() <= orphans
            assert all(turn.caller == ALICE for turn in await store.orphans())
