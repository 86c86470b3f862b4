"""The tools of the test agents. Where a tool waits, its argument names the gate it waits at."""

import asyncio
from dataclasses import dataclass
from typing import Any

from agents import RunContextWrapper, function_tool
from pydantic import BaseModel

from app.runtime.progress import report
from tests.service.gates import pass_gate, pass_gate_blocking


@function_tool
def lookup(q: str) -> str:
    """Look a word up; answers at once."""
    return f"{q}: found"


@function_tool
def get_time() -> str:
    """The time of day."""
    return "12:00"


_hoard: list[bytes] = []


@function_tool
def hoards(size: int) -> str:
    """Keeps so many bytes for ever; 0: lets go of all."""
    if size:
        _hoard.append(b"x" * size)
    else:
        _hoard.clear()
    return "kept"


@function_tool
async def slow_async(q: str) -> str:
    """Waits at the gate `q`."""
    await pass_gate(q)
    return f"{q}: found slowly"


@function_tool
def slow_sync(q: str) -> str:
    """Waits at the gate `q` and blocks its thread: nothing can stop it."""
    pass_gate_blocking(q)
    return f"{q}: found in a thread"


@function_tool
async def stubborn(q: str) -> str:
    """Waits at the gate `q`, and goes on for a while when it is cancelled."""
    try:
        await pass_gate(q)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)
    return "never mind"


@function_tool(needs_approval=True)
def guarded(q: str) -> str:
    """Looks a word up, if a person approves."""
    return f"{q}: found behind the guard"


@function_tool
def breaks(q: str) -> str:
    """Raises; the model is told."""
    raise ValueError(f"no {q} here")


@function_tool(failure_error_function=None)
def breaks_hard(q: str) -> str:
    """Raises; the run fails."""
    raise ValueError(f"no {q} at all")


@function_tool(timeout=0.2)
async def limited(q: str) -> str:
    """Waits at the gate `q`, for no longer than its own limit."""
    await pass_gate(q)
    return f"{q}: in time"


@function_tool
def reports(q: str) -> str:
    """Reports its progress from its thread."""
    report("looking", {"q": q})
    return f"{q}: reported"


@function_tool
async def reports_by_context(context: RunContextWrapper[Any], q: str) -> str:
    """Reports its progress by the run context."""
    context.context.report("looking", {"q": q})
    return f"{q}: reported"


class Place(BaseModel):
    name: str
    depth: int


@dataclass
class Tide:
    low: int
    high: int


@function_tool
def as_dict() -> dict[str, Any]:
    """Returns a dict."""
    return {"b": 1, "a": {"d": None, "c": True}}


@function_tool
def as_model() -> Place:
    """Returns a pydantic model."""
    return Place(name="reef", depth=4)


@function_tool
def as_dataclass() -> Tide:
    """Returns a dataclass."""
    return Tide(low=1, high=5)


@function_tool
def big(size: int) -> str:
    """Returns so many characters."""
    return "x" * size
