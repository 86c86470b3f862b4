"""The models of the demo: each request goes to the brain that plays its agent."""

from typing import Any

from demo import healthcare_brain
from tests.upstream.brain import Seen


def brain(seen: Seen) -> Any:
    if "send_postcard" in seen.tools:
        return postcards(seen)
    return healthcare_brain.brain(seen)


def postcards(seen: Seen) -> dict[str, Any]:
    """Sends what it was asked for to Ada, and passes on what became of it."""
    if seen.new_outputs:
        return {"text": seen.new_outputs[-1]}
    postcard = {"to": "Ada", "text": "Rome is warm, and the coffee is good."}
    return {"text": "Shall I send this?", "tool_calls": [{"name": "send_postcard", "arguments": postcard}]}
