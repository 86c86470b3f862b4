"""The agents that ship. `builtin_agents()` makes new ones; the registry lets the user's own win over them."""

from typing import Any

from agents import Agent

from app.builtin_agents.assistant import assistant


def builtin_agents() -> list[Agent[Any]]:
    return [assistant()]
