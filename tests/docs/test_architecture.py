"""The picture of a turn's states is made from the table that is the law."""

import re
from pathlib import Path

from app.domain.turn import TERMINAL, TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def picture() -> str:
    arrows = [
        f"    {state} --> {to}" for state, onward in TRANSITIONS.items() for to in TRANSITIONS if to in onward
    ]
    ends = [f"    {state} --> [*]" for state in TRANSITIONS if state in TERMINAL]
    return "\n".join(["stateDiagram-v2", "    [*] --> queued", "    [*] --> running", *arrows, *ends])


def test_the_page_shows_the_picture_of_the_table() -> None:
    shown = re.search(r"```mermaid\n(.*?)\n?```", PAGE.read_text(), re.S)
    assert shown
    assert shown.group(1) == picture()
