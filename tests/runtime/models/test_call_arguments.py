import json

import pytest

from app.runtime.models.call_arguments import readable


@pytest.mark.parametrize(
    "arguments",
    ["{}", '{"a": [1, {"b": "\\u00e9"}]}', '{"a": "\\ud83d\\ude00"}', '{"a":', "no JSON", '"\\\\ud800"'],
)
def test_what_can_be_read_stays_as_it_is(arguments: str) -> None:
    assert readable(arguments) == arguments


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "\\ud800\\ud800"])
def test_escaped_halves_of_pairs_are_replaced(half: str) -> None:
    text = readable(f'{{"a": "x{half}y"}}')
    assert "\ufffd" in json.loads(text)["a"]
    text.encode()


def test_what_nests_too_deep_is_no_json_any_more() -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(readable('{"a":' + "[" * 900 + "]" * 900 + "}"))


def test_many_brackets_side_by_side_are_not_deep() -> None:
    arguments = json.dumps({"a": [[] for _ in range(5000)]})
    assert readable(arguments) == arguments
