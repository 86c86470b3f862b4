import json

import pytest

from app.api.strict_json import count_members, parse
from app.errors import BadRequest


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "hi", "n": [1, 2.5, -0, 1e5, true, false, null], "o": {}}',
        r'{"a\\": "x:\":\\\"", "b": [{"c:": "\\"}, {"d": ":"}]}',
        '{"emoji": "\\ud83d\\ude00", "line": "\\u2028"}',
        "[" * 64 + "]" * 64,
        '"text"',
    ],
)
def test_valid_json_is_read_as_it_stands(text: str) -> None:
    assert parse(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("body", "loc", "message"),
    [
        (b'{"a": {"b": NaN}}', ["body", "a", "b"], "not a JSON number"),
        (b'{"a": [-Infinity]}', ["body", "a", 0], "not a JSON number"),
        (b'{"a": 1e999}', ["body", "a"], "not a JSON number"),
        (rb'{"a": ["x", "\ud800"]}', ["body", "a", 1], "a string holds half of a surrogate pair"),
        (rb'{"\udc00": 1}', ["body"], "a name holds half of a surrogate pair"),
        (rb'{"a": [{"b": 1}, 2, "\u0000"]}', ["body", "a", 2], "a string holds NUL (U+0000)"),
        (rb'{"a": {"\u0000": 1}}', ["body", "a"], "a name holds NUL (U+0000)"),
        (b'{"a": {"b": 1, "b": 2}}', ["body", "b"], "this name stands twice in one object"),
        (rb'{"b": 1, "\u0062": 2}', ["body", "b"], "this name stands twice in one object"),
        (b"[" * 65 + b"]" * 65, ["body", *[0] * 64], "nested deeper than 64"),
        (b"[" * 100_000, None, "nested deeper than 64"),
        (b'{"a": 1,}', ["body", 7], None),
        (b'{"a": 1} x', ["body", 9], None),
        (b"{'a': 1}", ["body", 1], None),
        (b'{"a": "\xff"}', None, None),
        (b"\xef\xbb\xbf{}", None, None),
    ],
)
def test_what_is_refused_is_refused_with_its_place(
    body: bytes, loc: list[str | int] | None, message: str | None
) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(body)
    (error,) = refused.value.errors or []
    assert loc is None or error["loc"] == loc
    assert error["message"] == message if message else error["message"].startswith("not valid JSON: ")


def test_a_name_that_is_too_long_to_be_shown_is_shown_short() -> None:
    with pytest.raises(BadRequest) as refused:
        parse(json.dumps({"n" * 100_000: ["\0"]}).encode())
    (error,) = refused.value.errors or []
    assert error["loc"] == ["body", "n" * 128, 0]
    assert len(refused.value.detail) < 400


@pytest.mark.parametrize(
    ("body", "members"),
    [(b"[]", 0), (b'{"a":1,"b":{"c":[{"d":":"}]}}', 4), (rb'{"\\":"\":","\\\"":{}}', 2), (b'":"', 0)],
)
def test_members_are_counted_outside_of_strings(body: bytes, members: int) -> None:
    assert count_members(body) == members
