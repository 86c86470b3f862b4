import json
from typing import Any

import pytest

from app.store import json_text


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Named:
    def __str__(self) -> str:
        return "a thing \ud800"


def cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, 2.5, None, True, "é\n\x00\u2028"]}, {"a": [1, 2.5, None, True, "é\n\x00\u2028"]}),
        ("x\ud800y", "x\ufffdy"),
        ({"\udfff": ["\ud83d"]}, {"\ufffd": ["\ufffd"]}),
        (float("nan"), None),
        (["\ud800", float("inf")], ["\ufffd", None]),
        (2**80, 2**80),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        (Named(), "a thing \ufffd"),
        ({"x": Broken()}, {"x": "<Broken>"}),
        (["\ud800", Broken(), {1, 2}], ["\ufffd", "<Broken>", "{1, 2}"]),
        (cycle(), [1, "<list>"]),
    ],
)
def test_any_value_becomes_one_line_of_valid_json(value: Any, expected: Any) -> None:
    line = json_text.encode(value)

    assert b"\n" not in line
    assert json.loads(line.decode("utf-8", "strict")) == expected


def test_very_deep_values_are_cut_and_do_not_raise() -> None:
    assert b"<list>" in json_text.encode(nested(100_000))


def test_what_was_encoded_is_decoded() -> None:
    value = {"a": [1, "é", None, {"b": 2.5}]}

    assert json_text.decode(json_text.encode(value)) == value
