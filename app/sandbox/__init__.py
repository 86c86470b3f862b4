"""Sandboxes of agents: every command of a model runs confined, on files that last as long as the turn."""

from app.sandbox.client import BubblewrapClient, BubblewrapOptions
from app.sandbox.limits import SandboxLimits
from app.sandbox.sandboxes import Backend, Sandboxes, open_sandboxes

__all__ = [
    "Backend",
    "BubblewrapClient",
    "BubblewrapOptions",
    "SandboxLimits",
    "Sandboxes",
    "open_sandboxes",
]
