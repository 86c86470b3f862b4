"""The upstream as a process of its own, for as long as a block of a test runs."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def upstream_process(arguments: Sequence[str] = ()) -> Iterator[str]:
    """Start it; gives its origin, `http://127.0.0.1:PORT`. It ends with the block, or with this process."""
    command = [sys.executable, "-m", "tests.upstream", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["base_url"]).removesuffix("/v1")
        finally:
            process.stdin.close()
            process.wait(timeout=10)
