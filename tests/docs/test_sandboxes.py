"""The limits and the example of docs/sandboxes.md are those of the code."""

import re
from pathlib import Path

from agents.sandbox import SandboxAgent

from app.sandbox.limits import MIB, SandboxLimits

PAGE = (Path(__file__).parents[2] / "docs/sandboxes.md").read_text()


def test_the_table_has_the_limits_that_hold() -> None:
    limits = SandboxLimits()
    told = re.findall(r"^\| [^|]+ \| (\d+)(?: (s|MiB))? \| [^|]+ \|$", PAGE, re.M)
    assert [int(number) * (MIB if unit == "MiB" else 1) for number, unit in told] == [
        limits.wall_s,
        limits.cpu_s,
        limits.memory_bytes,
        limits.processes,
        limits.file_bytes,
        limits.open_files,
        limits.temporary_bytes,
        limits.workspace_bytes,
        limits.files,
        limits.output_bytes,
        limits.commands,
    ]
    assert f"every {limits.watch_s * 1000:g} ms" in PAGE


def test_the_example_is_an_agent() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    made: dict[str, object] = {}
    exec(source, made)
    assert isinstance(made["explorer"], SandboxAgent)
