"""The agents that ship. `builtin_agents()` makes new ones; the registry lets the user's own win over them."""

from typing import Any

from agents import Agent

from app.builtin_agents.assistant import assistant
from app.builtin_agents.healthcare_support import HealthcareSupport
from app.builtin_agents.postcards import postcards
from app.runtime.workflow import Workflow
from app.sandbox import Sandboxes


def builtin_agents(sandboxes: Sandboxes | None = None) -> list[Agent[Any] | Workflow]:
    """Those that work in a sandbox come only with the `sandboxes` to work in. Reads their files: blocks."""
    if sandboxes is None:
        return [assistant(), postcards()]
    return [assistant(), postcards(), HealthcareSupport(sandboxes)]
