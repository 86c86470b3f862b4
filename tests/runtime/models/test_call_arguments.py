import json

import pytest

from app.runtime.models.call_arguments import readable, settled


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


@pytest.mark.parametrize("text", ["", " \n", "null", "None", "[]", '""', "{}"])
def test_what_says_that_there_are_none_is_an_empty_object(text: str) -> None:
    assert settled([text]) == "{}"
    assert settled([]) == "{}"


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"q":1}'],
        [json.dumps('{"q":1}')],
        [json.dumps(json.dumps('{"q":1}'))],
        ['```json\n{"q":1}\n```'],
        ["{}", '{"q":1}'],
        ['{"q":1}{"q":1}'],
        ['{"q"', ":1}", '{"q":1}'],
        ['{"', '{"q":', '{"q":1}'],
    ],
)
def test_what_amounts_to_one_object_is_that(pieces: list[str]) -> None:
    assert settled(pieces) == '{"q":1}'


@pytest.mark.parametrize("text", ['{"q":', "[1]", '"x"', "7", "q=1", '{"q":1}{"q":2}', '{"q":1}x', '{"q":1}{'])
def test_what_does_not_is_kept_as_it_came(text: str) -> None:
    assert settled([text]) == text


def test_what_breaks_the_rules_of_json_is_written_anew() -> None:
    assert json.loads(settled(['{"q":"a\nb\x01"}'])) == {"q": "a\nb\x01"}
    assert settled(['{"q":NaN,"r":[1]}']) == '{"q":null,"r":[1]}'


def test_what_is_very_long_is_not_read_again() -> None:
    text = json.dumps(json.dumps({"q": "x" * 100_000}))
    assert settled([text]) == text
