"""`make demo`: what the terminal shows of the desk at work."""

import subprocess
import sys

from demo.screen import lines
from tests.bounds import PROCESS_S
from tests.service.process import REPOSITORY


def test_a_nested_call_is_shown_below_its_agent_and_cut_to_a_line() -> None:
    event = {
        "type": "tool_call.requested",
        "tool": "exec_command",
        "arguments": {"cmd": "grep " * 100},
        "parent_call_id": "call_1",
    }
    (line,) = lines(event)
    assert line.startswith("    > exec_command ")
    assert line.endswith("…")


def test_deltas_and_steps_are_not_shown() -> None:
    assert lines({"type": "message.delta", "delta": "Hel"}) == []
    assert lines({"type": "step.started"}) == []


def test_the_demo_runs_two_cases_to_their_end() -> None:
    command = [sys.executable, "-m", "demo", "--yes"]
    shown = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("\ncompleted\n") == 2
    assert "handoff_id: HUMAN-" in shown.stdout
    assert "--- policy_findings.md" in shown.stdout
