"""What an upstream may get of what another one made."""

from typing import Any

import pytest

from app.runtime.origins import native_items, neutral

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "final_answer",
    "content": [
        {"type": "output_text", "text": "Yes.", "annotations": [{"type": "file_citation"}], "logprobs": []}
    ],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
    "status": "x",
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gibberish"}
HOSTED = {"type": "web_search_call", "id": "ws_1", "action": {}}
COMPACTED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gibberish"}


def of_a(item: dict[str, Any]) -> str | None:
    return None if item.get("role") == "user" else "a"


def test_an_upstream_s_own_items_go_back_as_they_are() -> None:
    items: list[dict[str, Any]] = [REASONING, HOSTED, COMPACTED, MESSAGE, CALL, OUTPUT]
    assert native_items(items, "a", of_a) == items


@pytest.mark.parametrize("item", [REASONING, HOSTED, COMPACTED])
def test_what_only_its_maker_can_read_reaches_no_other(item: dict[str, Any]) -> None:
    assert native_items([item], "b", of_a) == []


def test_what_was_said_and_called_reaches_everybody_without_ids_and_marks() -> None:
    assert native_items([MESSAGE, CALL, OUTPUT], "b", of_a) == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        OUTPUT,
    ]


def test_what_has_no_origin_is_left_alone() -> None:
    said = {"role": "user", "id": "msg_2", "content": "Hi"}
    assert native_items([said], "b", of_a) == [said]


def test_the_items_themselves_are_not_changed() -> None:
    before = str(MESSAGE)
    neutral(MESSAGE)
    assert str(MESSAGE) == before


def test_reasoning_can_go_back_without_its_id() -> None:
    (thought,) = native_items([REASONING], "a", of_a, omit_reasoning_ids=True)
    assert thought == {"type": "reasoning", "summary": [], "encrypted_content": "gibberish"}


def test_who_is_said_to_have_made_an_item_goes_to_nobody() -> None:
    told = HOSTED | {"created_by": "someone"}
    assert native_items([told], "a", of_a) == [HOSTED]
