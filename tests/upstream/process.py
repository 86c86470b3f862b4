"""The upstream as a process of its own, for as long as a block of a test runs."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bounds import PROCESS_S

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def upstream_process(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Start it; gives its origin, `http://127.0.0.1:PORT`. It ends with the block, or with this process."""
    command = [sys.executable, "-m", "tests.upstream", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["base_url"]).removesuffix("/v1")
        finally:
            process.stdin.close()
            process.wait(timeout=PROCESS_S)  # after an hour it has much to let go of
