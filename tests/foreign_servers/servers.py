"""Servers of models that nobody here wrote, each a process of its own for as long as a block of a test runs."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bounds import BOUND_S, PROCESS_S

FOLDER = Path(__file__).parent
AIMOCK = FOLDER / "node_modules/@copilotkit/aimock/dist/cli.js"
FIXTURES = FOLDER / "aimock_fixtures.json"


@contextmanager
def llmock_server() -> Iterator[str]:
    """PyPI's llmock, a little slow, so that a stream can be left; gives its origin."""
    llmock = Path(sys.executable).with_name("llmock")
    command = [str(llmock), "serve", "-h", "127.0.0.1", "-p", "0", "--stream-chunk-delay-ms", "20"]
    with _running(command, r"running on (http://127\.0\.0\.1:\d+)") as origin:
        yield origin


@contextmanager
def aimock_server() -> Iterator[str]:
    """npm's aimock on the answers of `aimock_fixtures.json`; gives its origin."""
    node = shutil.which("node")
    assert node, "the tests of foreign servers need Node.js 20 and npm: node is not on the PATH"
    assert AIMOCK.exists(), f"aimock is not installed: `make test` does it, by `npm ci` in {FOLDER.name}"
    command = [node, str(AIMOCK), "-p", "0", "-f", str(FIXTURES), "--log-level", "info"]
    with _running(command, r"listening on (http://127\.0\.0\.1:\d+)") as origin:
        yield origin


@contextmanager
def _running(command: Sequence[str], says: str) -> Iterator[str]:
    """A process that says where it listens; all that it writes is read, so that it never blocks on it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        found: list[str] = []
        told = threading.Event()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if not found and (match := re.search(says, line)):
                    found.append(match[1])
                    told.set()
            told.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            assert told.wait(PROCESS_S), f"{command[0]} did not start"
            assert found, f"{command[0]} ended before it said where it listens"
            yield found[0]
        finally:
            process.kill()
            reader.join(BOUND_S)
