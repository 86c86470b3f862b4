"""What tools return: to the model, in events, and how the call is said to have gone."""

import json
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from agents import ItemHelpers, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel, SecretStr

from app.domain.events import ToolStatus
from app.runtime.outputs import classify, json_text, model_output, plain_json, shown_output


class Color(Enum):
    RED = "red"


class Name(StrEnum):
    ANN = "ann"


class Plan(BaseModel):
    title: str
    due: date
    owner: SecretStr = SecretStr("s3cret")


@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)
    parent: "Node | None" = None


class Plain:
    pass


class Told:
    def __str__(self) -> str:
        return "told"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no")


class BrokenModel(BaseModel):
    value: Any


def sent(output: Any) -> Any:
    """What the SDK makes of a tool's output for the model."""
    call = ResponseFunctionToolCall(type="function_call", call_id="c", name="t", arguments="{}")
    return ItemHelpers.tool_call_output_item(call, model_output(output))["output"]


# --- what the model gets ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["plain", "", "{'not': 'json'}", "line\nline\u2028end"])
def test_text_goes_to_the_model_as_it_is(text: str) -> None:
    assert sent(text) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None]}, '{"a": [true, null], "b": 1}'),
        (OrderedDict(z=1, a=2), '{"a": 2, "z": 1}'),
        ({"é": "ü"}, '{"é": "ü"}'),
        ([1, "two"], '[1, "two"]'),
        ((1, 2), "[1, 2]"),
        (deque([1]), "[1]"),
        ([], "[]"),
        ({}, "{}"),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (1.5, "1.5"),
        ({1: "a", None: "b", False: "c"}, '{"1": "a", "false": "c", "null": "b"}'),
        ({3, 1, 2}, "[1, 2, 3]"),
        (frozenset({"b", "a"}), '["a", "b"]'),
        ({"x": float("nan"), "y": float("-inf")}, '{"x": "NaN", "y": "-Infinity"}'),
        (Color.RED, "red"),
        (Name.ANN, "ann"),
        ({"c": Color.RED}, '{"c": "red"}'),
        (Plan(title="t", due=date(2026, 1, 2)), '{"due": "2026-01-02", "owner": "**********", "title": "t"}'),
        ([Node("a", [Node("b")])], None),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        ([timedelta(minutes=1)], "[60.0]"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"n": Decimal("1.10")}, '{"n": "1.10"}'),
        ([PurePosixPath("a/b")], '["a/b"]'),
        (b"\xff\x00", "/wA="),
        ([2**70], f'["{2**70}"]'),
        ([Told()], '["told"]'),
        (Plain(), "<Plain>"),
        (Broken(), "<Broken>"),
        (Plain, "<Plain>"),
        (len, "<len>"),
        ((n for n in [1]), None),
    ],
)
def test_every_other_value_goes_as_json_and_never_as_a_repr(value: Any, expected: str | None) -> None:
    text = sent(value)
    assert expected is None or text == expected
    assert " at 0x" not in text
    assert isinstance(text, str)


def test_a_dataclass_is_an_object() -> None:
    assert json.loads(sent(Node("a"))) == {"name": "a", "children": [], "parent": None}


def test_the_same_value_is_the_same_text_whatever_the_order_of_its_keys() -> None:
    assert model_output({"a": {"y": 1, "x": 2}, "b": 0}) == model_output({"b": 0, "a": {"x": 2, "y": 1}})


def test_a_cycle_ends() -> None:
    parent = Node("p")
    parent.children.append(Node("c", parent=parent))
    own: list[Any] = []
    own.append(own)
    assert json.loads(json_text(parent))["children"][0]["parent"] == "<cycle>"
    assert json_text(own) == '["<cycle>"]'


def test_a_value_that_is_used_twice_is_no_cycle() -> None:
    shared = {"a": 1}
    assert json_text([shared, shared]) == '[{"a": 1}, {"a": 1}]'


def test_nesting_has_an_end() -> None:
    value: Any = "core"
    for _ in range(10_000):
        value = [value]
    assert "<too deep>" in json_text(value)


def test_a_model_that_cannot_be_serialised_is_still_told() -> None:
    assert "lambda" in json_text(BrokenModel(value=lambda: 1))


def test_nul_and_lone_surrogates_become_replacement_characters() -> None:
    assert sent("a\x00b\ud800c") == "a\ufffdb\ufffdc"
    assert sent({"k\x00": "\udfff"}) == '{"k\ufffd": "\ufffd"}'
    assert sent(ToolOutputText(text="a\x00")) == [{"type": "input_text", "text": "a\ufffd"}]
    assert sent({"type": "text", "text": "a\x00"}) == [{"type": "input_text", "text": "a\ufffd"}]


IMAGE = ToolOutputImage(image_url="data:image/png;base64,AAAA")


def test_structured_outputs_reach_the_model_as_parts() -> None:
    assert sent(IMAGE) == [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    assert sent({"type": "text", "text": "hi"}) == [{"type": "input_text", "text": "hi"}]
    assert [p["type"] for p in sent([{"type": "text", "text": "hi"}, ToolOutputFileContent(file_id="f")])] == [
        "input_text",
        "input_file",
    ]


def test_text_beside_structured_outputs_becomes_a_part() -> None:
    assert [p["type"] for p in sent(["a chart", IMAGE, {"n": 1}])] == [
        "input_text",
        "input_image",
        "input_text",
    ]


def test_a_dict_that_only_looks_structured_is_json() -> None:
    assert sent({"type": "image", "pixels": 3}) == '{"pixels": 3, "type": "image"}'
    assert sent({"type": "text"}) == '{"type": "text"}'


def test_plain_json_is_what_json_can_hold() -> None:
    value = {"set": {1}, "when": date(2026, 1, 2), "deep": Plan(title="t", due=date(2026, 1, 2))}
    assert json.loads(json.dumps(plain_json(value))) == plain_json(value)


# --- how it went --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "status", "error"),
    [
        ("all good", "success", None),
        ("error: in plain text", "success", None),
        ('{"error": "no such file"}', "error", "no such file"),
        ({"error": "no such file"}, "error", "no such file"),
        ('{"error": {"message": "denied", "code": 3}}', "error", "denied"),
        ('{"error": {"n": 3}}', "error", '{"n": 3}'),
        ('{"error": true, "message": "it broke"}', "error", "it broke"),
        ('{"error": true}', "error", "error"),
        ('{"error": 404}', "error", "404"),
        ('{"error": null, "ok": 1}', "success", None),
        ('{"error": "", "blocked": false, "cancelled": 0}', "success", None),
        ('{"blocked": true, "reason": "policy"}', "blocked", "policy"),
        ('{"blocked": "by policy"}', "blocked", "by policy"),
        ('{"blocked": true}', "blocked", "blocked"),
        ('{"cancelled": true}', "cancelled", None),
        ('{"cancelled": true, "reason": "user"}', "cancelled", "user"),
        ('{"cancelled": true, "error": "x", "blocked": true}', "cancelled", None),
        ('{"error": "x", "blocked": true}', "error", "x"),
        ('{"blocked": true, "result": {"error": "inner"}}', "error", "inner"),
        ('{"error": "x", "output": [{"cancelled": true}]}', "cancelled", None),
        ('{"content": [{"type": "text", "text": "{\\"error\\": \\"deep\\"}"}]}', "error", "deep"),
        ('"{\\"error\\": \\"twice\\"}"', "error", "twice"),
        ('[{"ok": 1}, {"result": "{\\"blocked\\": true, \\"reason\\": \\"r\\"}"}]', "blocked", "r"),
        ('{"data": {"error": "not looked into"}}', "success", None),
        ('  \n{"error": "after white space"}', "error", "after white space"),
        ('{"error": "cut', "success", None),
        (ToolOutputText(text='{"error": "structured"}'), "error", "structured"),
        ([ToolOutputText(text="fine"), ToolOutputText(text='{"cancelled": 1}')], "cancelled", None),
        ({"type": "text", "text": '{"error": "dict form"}'}, "error", "dict form"),
        (ToolOutputImage(file_id="f"), "success", None),
        (None, "success", None),
        (7, "success", None),
    ],
)
def test_a_result_says_how_its_call_went(output: Any, status: ToolStatus, error: str | None) -> None:
    assert classify(output) == (status, error)


def test_looking_for_a_verdict_is_bounded() -> None:
    deep: Any = {"error": "too deep"}
    for _ in range(50):
        deep = {"result": deep}
    assert classify(deep) == ("success", None)
    assert classify([{"ok": 1}] * 100_000 + [{"error": "too far"}]) == ("success", None)
    assert classify('{"error": "x", "pad": "' + "a" * (1 << 21) + '"}') == ("success", None)


def test_an_errors_text_is_bounded_and_safe() -> None:
    status, error = classify({"error": "\x00" + "a" * 100_000})
    assert status == "error"
    assert error is not None
    assert len(error) < 2_100
    assert "\x00" not in error


# --- what events show ---------------------------------------------------------------------------


def test_events_show_what_the_model_sees() -> None:
    assert shown_output({"b": 1, "a": 2}, 1000) == ('{"a": 2, "b": 1}', False)
    assert shown_output("text", 1000) == ("text", False)
    assert shown_output([ToolOutputText(text="hi"), IMAGE], 1000) == (
        [{"type": "text", "text": "hi"}, {"type": "image", "image_url": "data:image/png;base64,AAAA"}],
        False,
    )


@pytest.mark.parametrize("limit", range(8))
def test_a_long_text_is_cut_on_a_character(limit: int) -> None:
    text, truncated = shown_output("aé🙂z", limit)
    assert truncated
    assert "aé🙂z".startswith(text)
    assert len(text.encode()) <= limit


def test_text_of_exactly_the_limit_is_whole() -> None:
    assert shown_output("aé🙂z", 8) == ("aé🙂z", False)


def test_a_long_structured_output_is_cut_as_json_text() -> None:
    shown, truncated = shown_output(ToolOutputText(text="x" * 1000), 100)
    assert truncated
    assert isinstance(shown, str)
    assert len(shown) == 100
