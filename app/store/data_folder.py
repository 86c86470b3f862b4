"""The folder that holds everything that must last, and the lock that gives it to one process at a time."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from app.store.database import FILE_NAME

LOCK_NAME = "turnwire.lock"
_POLL_S = 0.05


class FolderInUse(Exception):
    """Another process serves this data folder."""


class DataFolder:
    """Made if it is missing (for its owner alone), and held from `acquire` to `release`, or inside a `with`.

    The lock goes with the process, however it ends. `wait_s` is how long a process that is stopping may still
    hold it. Waiting blocks the thread: acquire before the event loop runs, or in a thread.
    """

    def __init__(self, path: Path, *, wait_s: float = 0) -> None:
        self.path = path
        self.database = path / FILE_NAME
        self._wait_s = wait_s
        self._lock: int | None = None

    def acquire(self) -> None:
        """Raises FolderInUse."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(lock)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _wait_for(self, lock: int) -> None:
        deadline = time.monotonic() + self._wait_s
        while not _locked(lock):
            if time.monotonic() >= deadline:
                raise FolderInUse(
                    "another process serves this data folder: stop it, or set TURNWIRE_DATA_DIR to another one"
                )
            time.sleep(_POLL_S)

    def __enter__(self) -> "DataFolder":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
