from typing import Any

import orjson
import pytest

from app.domain.events import LogEntry
from app.wire.plain_text import PlainTextEncoder


def text_of(*events: tuple[str, dict[str, Any]]) -> str:
    encoder = PlainTextEncoder()
    entries = [LogEntry(i, kind, orjson.dumps(fields)) for i, (kind, fields) in enumerate(events, start=1)]
    frames = [frame for entry in entries for frame in encoder.encode(entry)] + encoder.closing()
    return b"".join(frames).decode()


def delta(text: str, item_id: str = "item_1", **more: Any) -> tuple[str, dict[str, Any]]:
    return "message.delta", {"item_id": item_id, "delta": text, **more}


STARTED = ("turn.started", {"agent": "assistant"})
COMPLETED = ("turn.completed", {"turn": {"status": "completed", "error": None}})


def test_only_the_text_is_shown() -> None:
    reasoning = ("reasoning.delta", {"item_id": "item_0", "kind": "text", "delta": "hm"})
    assert text_of(STARTED, reasoning, delta("Hel"), delta("lo\n"), COMPLETED) == "Hello\n"


def test_a_blank_line_stands_between_messages() -> None:
    assert text_of(delta("One"), delta("Two", "item_2"), delta(".", "item_2"), COMPLETED) == "One\n\nTwo."


def test_what_a_nested_agent_says_is_not_shown() -> None:
    nested = delta("hidden", "item_2", agent="inner", parent_call_id="call_1")
    assert text_of(delta("A"), nested, delta("B")) == "AB"


def test_a_refusal_is_what_the_agent_says() -> None:
    assert text_of(("refusal.delta", {"item_id": "item_1", "delta": "I cannot."}), COMPLETED) == "I cannot."


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            (
                "turn.failed",
                {"turn": {"status": "failed", "error": {"code": "timeout", "message": "Too\nslow."}}},
            ),
            "[failed: timeout: Too slow.]\n",
        ),
        (
            ("turn.paused", {"turn": {"status": "paused", "error": None, "pause": {"reason": "approval"}}}),
            "[paused: waiting for approval]\n",
        ),
        (("turn.cancelled", {"turn": {"status": "cancelled", "error": None}}), "[cancelled]\n"),
    ],
)
def test_an_end_that_is_no_success_is_a_last_line_in_brackets(
    event: tuple[str, dict[str, Any]], line: str
) -> None:
    assert text_of(STARTED, event) == line
    assert text_of(delta("Hel"), event) == "Hel\n\n" + line


def test_a_pause_that_was_left_again_is_not_mentioned() -> None:
    paused = ("turn.paused", {"turn": {"status": "paused", "error": None, "pause": {"reason": "step"}}})
    assert (
        text_of(delta("A"), paused, ("turn.resumed", {"run": 2}), delta("B", "item_2"), COMPLETED) == "A\n\nB"
    )
