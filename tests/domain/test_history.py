"""What a turn leaves behind, and in which shape a strict provider takes it."""

import json
import random
from typing import Any

import pytest

from app.domain.conversation import NewItem
from app.domain.history import has_finished_step, left_behind, newest, repaired
from app.domain.ids import ItemId
from app.domain.json_types import Item
from app.domain.ledger import ShownMessage

USER: Item = {"type": "message", "role": "user", "content": "Hi"}
SAID: Item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
THOUGHT: Item = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH: Item = {"type": "web_search_call", "id": "ws_1"}


def call(call_id: str = "a", arguments: Any = "{}", kind: str = "function_call") -> Item:
    return {"type": kind, "call_id": call_id, "name": "f", "arguments": arguments}


def out(call_id: str = "a", text: str = "1", kind: str = "function_call_output") -> Item:
    return {"type": kind, "call_id": call_id, "output": text}


def test_what_is_valid_stays_as_it_is() -> None:
    items = [USER, THOUGHT, SAID, call("a"), call("b"), out("a"), out("b"), THOUGHT, SAID, USER, SAID]
    assert repaired(items) == items


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        pytest.param([USER, out("a")], [USER], id="an output without its call"),
        pytest.param([USER, call("a"), USER], [USER, call("a"), out("a", "cancelled"), USER], id="no output"),
        pytest.param(
            [call("a"), call("b"), out("b")],
            [call("a"), call("b"), out("a", "cancelled"), out("b")],
            id="one of two",
        ),
        pytest.param([call("a"), out("a"), out("a", "2")], [call("a"), out("a")], id="answered twice"),
        pytest.param(
            [call("a"), USER, out("a")], [call("a"), out("a"), USER], id="strayed behind the user's words"
        ),
        pytest.param([out("a"), call("a"), USER], [call("a"), out("a"), USER], id="before its call"),
        pytest.param([call("a"), call("a"), out("a")], [call("a"), out("a")], id="one call twice in a step"),
        pytest.param([call("a"), SAID, out("a")], [call("a"), SAID, out("a")], id="words within a step"),
        pytest.param(
            [call("b"), call("a"), out("a"), out("b")],
            [call("b"), call("a"), out("b"), out("a")],
            id="outputs out of order",
        ),
        pytest.param([USER, THOUGHT], [USER], id="reasoning at the end"),
        pytest.param([THOUGHT, USER, SAID], [USER, SAID], id="reasoning before the user's words"),
        pytest.param([THOUGHT, {**SAID, "content": []}, USER], [USER], id="reasoning before nothing"),
        pytest.param([USER, {**SAID, "content": ""}], [USER], id="no words"),
        pytest.param(
            [USER, {"type": "function_call", "name": "f", "arguments": "{}"}], [USER], id="no call id"
        ),
        pytest.param(
            [USER, call("a", kind="computer_call")], [USER], id="a call that only its tool can answer"
        ),
    ],
)
def test_what_is_broken_is_mended(broken: list[Item], whole: list[Item]) -> None:
    assert repaired(broken) == whole
    assert repaired(whole) == whole


def test_a_provider_s_request_for_approval_stays_only_with_its_answer() -> None:
    request = {"type": "mcp_approval_request", "id": "r", "name": "erase", "arguments": "{}"}
    response = {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}
    assert repaired([USER, request, response, SAID]) == [USER, request, response, SAID]
    assert repaired([USER, THOUGHT, request, USER]) == [USER, USER]
    assert repaired([USER, response, SAID]) == [USER, SAID]


def test_an_id_that_is_used_again_is_another_call() -> None:
    items = [call("a"), out("a", "1"), USER, call("a"), out("a", "2")]
    assert repaired(items) == items
    assert repaired(items[:-1]) == [*items[:-1], out("a", "cancelled")]


def test_empty_parts_go_and_with_the_last_one_its_message() -> None:
    empty = {"type": "output_text", "text": ""}
    assert repaired([{**SAID, "content": [empty]}]) == []
    assert repaired([{**SAID, "content": [empty, *SAID["content"]]}]) == [SAID]
    refusal = {**SAID, "content": [{"type": "refusal", "refusal": "No."}]}
    assert repaired([refusal]) == [refusal]


@pytest.mark.parametrize("arguments", ["[1]", "q=1", '{"q":', "7", '"x"', '{"a":1}{"b":2}'])
def test_arguments_that_are_no_object_are_wrapped_in_one(arguments: str) -> None:
    (mended, _) = repaired([call("a", arguments), out("a")])
    assert json.loads(mended["arguments"]) == {"invalid_arguments": arguments}


@pytest.mark.parametrize(("arguments", "kept"), [("", "{}"), (None, "{}"), (" ", "{}"), ({"q": 1}, '{"q": 1}')])
def test_arguments_are_the_text_of_an_object(arguments: object, kept: str) -> None:
    assert repaired([call("a", arguments), out("a")])[0]["arguments"] == kept


def test_the_items_themselves_are_not_changed() -> None:
    items = [
        call("a", "[1]"),
        out("a"),
        {**SAID, "content": [{"type": "output_text", "text": ""}, *SAID["content"]]},
    ]
    before = json.dumps(items)
    repaired(items)
    assert json.dumps(items) == before


def test_the_newest_items_keep_their_pairs_whole() -> None:
    items = [USER, SAID, USER, THOUGHT, call("a"), call("b"), out("a"), out("b"), SAID]
    assert newest(items, 0) == newest(items, 99) == items
    assert newest(items, 1) == [SAID]
    assert newest(items, 2) == items[3:]
    assert repaired(newest(items, 3)) == newest(items, 3)


def test_the_newest_items_keep_what_the_model_said_in_one_breath() -> None:
    items = [USER, SAID, USER, THOUGHT, SAID, call("a"), out("a"), THOUGHT, SAID]
    assert newest(items, 3) == newest(items, 4) == newest(items, 6) == items[3:]
    assert newest(items, 1) == newest(items, 2) == items[7:]
    searched = [USER, THOUGHT, SEARCH, THOUGHT, SEARCH, SAID]
    assert newest(searched, 1) == [SAID]
    assert newest(searched, 2) == newest(searched, 3) == searched[3:]
    hosted = [USER, {"type": "shell_call", "call_id": "s"}, {"type": "shell_call_output", "call_id": "s"}, SAID]
    assert newest(hosted, 2) == hosted[1:]


@pytest.mark.parametrize("seed", range(100))
def test_the_newest_items_of_a_valid_history_are_valid(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [
        USER,
        SAID,
        THOUGHT,
        {"role": "system", "content": "Be."},
        {"type": "web_search_call", "id": "ws_1"},
    ]
    for kind in ("function_call", "custom_tool_call", "shell_call"):
        kinds += [make(i, kind=kind + end) for i in "abc" for make, end in ((call, ""), (out, "_output"))]
    asked = [
        [
            {"type": "mcp_approval_request", "id": f"r{n}"},
            {"type": "mcp_approval_response"} | {"approval_request_id": f"r{n}"},
        ]
        for n in range(3)
    ]
    broken = [chance.choice(kinds) for _ in range(chance.randrange(20))]
    for request, response in asked:
        broken.insert(place := chance.randrange(len(broken) + 1), request)
        broken.insert(chance.randrange(place, len(broken)) + 1, response)
    items = repaired(broken)
    assert repaired(items) == items
    for limit in range(1, len(items)):
        cut = newest(items, limit)
        assert repaired(cut) == cut
        assert len(cut) >= limit
        assert cut == items[-len(cut) :]


# what a turn leaves behind


def made(item: Item, item_id: str = "i", origin: str | None = "here") -> NewItem:
    return NewItem(ItemId(item_id), item, origin)


def shown(text: str, item_id: str) -> ShownMessage:
    message = ShownMessage(item_id, None)
    message.parts = [text]
    return message


def test_a_step_is_finished_when_its_calls_are_answered() -> None:
    user = made(USER, origin=None)
    assert not has_finished_step([user])
    assert not has_finished_step([user, made(THOUGHT)])
    assert has_finished_step([user, made(SAID)])
    assert not has_finished_step([user, made(call("a"))])
    assert has_finished_step([user, made(call("a")), made(out("a"), origin=None)])


def test_text_that_was_cut_stays_as_a_message_without_an_upstream_s_id() -> None:
    kept = left_behind([made(USER, "u", None)], [shown("Par", "m")], output_for_open_calls="cancelled")
    assert [n.id for n in kept] == ["u", "m"]
    assert kept[1].origin is None
    assert "id" not in kept[1].item
    assert kept[1].item["content"][0]["text"] == "Par"


def test_open_calls_get_their_output_and_dangling_reasoning_goes() -> None:
    recorded = [
        made(USER, "u", None),
        made(call("a"), "c"),
        made(call("b"), "d"),
        made(out("b"), "o", None),
        made(THOUGHT, "r"),
    ]
    kept = left_behind(recorded, [], output_for_open_calls="cancelled")
    assert [n.item.get("type") for n in kept] == [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert repaired([n.item for n in kept]) == [USER, call("a"), call("b"), out("a", "cancelled"), out("b")]
