import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.store import DataFolder, FolderInUse
from tests.bounds import BOUND_S

HOLD = """
import sys
from pathlib import Path
from app.store import DataFolder

with DataFolder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with DataFolder(tmp_path / "deep" / "data") as folder:
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert folder.database.parent == folder.path


def test_second_holder_is_refused_and_told_why(tmp_path: Path) -> None:
    with DataFolder(tmp_path), pytest.raises(FolderInUse, match="another process serves this data folder"):
        DataFolder(tmp_path, wait_s=0.1).acquire()


def test_folder_can_be_held_again_after_its_release(tmp_path: Path) -> None:
    for _ in range(2):
        with DataFolder(tmp_path):
            pass


def test_starting_process_waits_for_the_one_that_stops(tmp_path: Path) -> None:
    holder = DataFolder(tmp_path)
    holder.acquire()
    acquired = threading.Event()

    def start() -> None:
        with DataFolder(tmp_path, wait_s=2 * BOUND_S):
            acquired.set()

    starting = threading.Thread(target=start)
    starting.start()
    assert not acquired.is_set()
    holder.release()
    starting.join(BOUND_S)
    assert acquired.is_set()


def test_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse):
            DataFolder(tmp_path).acquire()
        other.kill()
        with DataFolder(tmp_path, wait_s=5):
            pass
