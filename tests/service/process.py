"""The real service, `python -m app`, in a process of its own: started, killed, started again on its folder."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.bounds import BOUND_S, PROCESS_S

REPOSITORY = Path(__file__).parents[2]
POLL_S = 0.05
API_KEY = "sk-scripted-upstream-1234567890"
"""The key that the service sends to the upstream: no answer and no log line may ever show it."""


class ServiceProcess:
    """`with ServiceProcess(folder, origin, TURNWIRE_MAX_STEPS=4) as service`: ready inside the block."""

    def __init__(self, folder: Path, upstream_origin: str, **settings: object) -> None:
        self.folder = folder
        self.root = REPOSITORY
        """Where the code is that runs."""
        self.log: list[str] = []
        self.environment = _environment(folder, upstream_origin, settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._address: tuple[str, int] | None = None
        self._logged = threading.Condition()

    @property
    def base_url(self) -> str:
        assert self._address, "the service is not started"
        return f"http://{self._address[0]}:{self._address[1]}"

    @property
    def address(self) -> tuple[str, int]:
        assert self._address, "the service is not started"
        return self._address

    @property
    def pid(self) -> int:
        assert self._process, "the service is not started"
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process and return once it says where it listens."""
        self._address = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app"], cwd=self.root, env=self.environment, stderr=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read_log, args=(self._process,), daemon=True)
        self._reader.start()
        self._wait(lambda: self._address is not None, PROCESS_S, "said where it listens")

    def wait_ready(self) -> None:
        deadline = time.monotonic() + PROCESS_S
        while time.monotonic() < deadline:
            if _status(f"{self.base_url}/readyz") == 200:
                return
            assert self._running, self._story("ended before it was ready")
            threading.Event().wait(POLL_S)
        raise AssertionError(self._story(f"was not ready within {PROCESS_S} s"))

    def kill(self) -> None:
        """SIGKILL, as a crash would be."""
        if self._process and self._running:
            self._process.kill()
        self._reap()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self._process
        self._process.send_signal(number)

    def wait(self, limit_s: float = PROCESS_S) -> int:
        """The exit code, once the process has ended by itself."""
        assert self._process
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._story(f"did not end within {limit_s} s")) from None
        return self._reap()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> None:
        """Kill it and start it again on the same folder."""
        self.kill()
        self.start()
        self.wait_ready()

    def entries(self, event: str) -> list[dict[str, Any]]:
        """The log's JSON lines that have this `event`."""
        found = (_json(line) for line in list(self.log))
        return [entry for entry in found if entry.get("event") == event]

    def wait_logged(self, event: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """The log's lines of this event and these fields, once there are so many."""

        def found() -> list[dict[str, Any]]:
            return [entry for entry in self.entries(event) if fields.items() <= entry.items()]

        self._wait(lambda: len(found()) >= count, BOUND_S, f"logged {event!r} {fields} {count} times")
        return found()

    def check_log(self) -> None:
        """Raises AssertionError if the log shows a traceback or the upstream's key."""
        for line in list(self.log):
            assert API_KEY not in line, line
            assert "Traceback" not in line, line

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _reap(self) -> int:
        if self._process is None:
            return 0
        code = self._process.wait(PROCESS_S)
        if self._reader:
            self._reader.join(PROCESS_S)
        if self._process.stderr:
            self._process.stderr.close()
        return code

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        for raw in process.stderr:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            entry = _json(line)
            with self._logged:
                self.log.append(line)
                if entry.get("event") == "service.started":
                    self._address = (str(entry["host"]), int(entry["port"]))
                self._logged.notify_all()

    def _wait(self, true: Callable[[], bool], limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        with self._logged:
            while not true():
                assert self._running, self._story(f"ended before it {what}")
                assert time.monotonic() < deadline, self._story(f"has not {what} within {limit_s} s")
                self._logged.wait(POLL_S)

    def _story(self, what: str) -> str:
        return "\n".join([f"the service {what}; its log ends with:", *self.log[-30:]])


def _environment(folder: Path, upstream_origin: str, settings: Mapping[str, object]) -> dict[str, str]:
    """Nothing of the test's own environment but the path; settings of None are left out."""
    base: dict[str, object] = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": f"{upstream_origin}/v1",
        "OPENAI_API_KEY": API_KEY,
        "TEST_CONTROL_URL": upstream_origin,
        "TURNWIRE_PORT": 0,
        "TURNWIRE_DATA_DIR": folder,
        "TURNWIRE_AGENTS": "tests.service.agents:AGENTS",
        "TURNWIRE_CONTEXT": "tests.service.contexts:made",
        "TURNWIRE_MODEL": "scripted",
    }
    return {name: str(value) for name, value in (base | dict(settings)).items() if value is not None}


def _status(url: str) -> int | None:
    try:
        return httpx.get(url, trust_env=False, timeout=BOUND_S).status_code
    except httpx.TransportError:
        return None


def _json(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
