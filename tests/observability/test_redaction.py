import json

import pytest

from app.observability.redaction import MASK, Redactor


@pytest.mark.parametrize(
    "secret",
    ["correct horse", 'quo"te\\d-secret', "p@ss/word:1", "k1", "ключ-секрет", "  padded-secret  "],
)
def test_a_configured_secret_is_masked_in_every_shape_it_is_written_in(secret: str) -> None:
    redactor = Redactor([secret])
    for text in (f"it is {secret}.", f"json {json.dumps({'a': secret})}"):
        masked = redactor.redact(text)
        assert secret not in masked
        assert json.dumps(secret)[1:-1] not in masked
        assert MASK in masked


def test_a_secret_is_masked_where_a_url_holds_it_encoded() -> None:
    assert "p%40ss%2Fword" not in Redactor(["p@ss/word"]).redact("postgresql://db/x?options=p%40ss%2Fword")


def test_a_short_secret_does_not_mask_parts_of_words() -> None:
    assert Redactor(["test"]).redact("the latest test: test1") == f"the latest {MASK}: test1"


def test_of_two_secrets_where_one_begins_the_other_both_are_masked_whole() -> None:
    assert Redactor(["secret-key", "secret-key-2"]).redact("secret-key-2 secret-key") == f"{MASK} {MASK}"


def test_blank_secrets_mask_nothing() -> None:
    assert Redactor(["", "  "]).redact("a b") == "a b"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-proj-abcdefgh12345678 wrong", f"key {MASK} wrong"),
        ("Authorization: Bearer abc.def-ghi", f"Authorization: Bearer {MASK}"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "{'authorization': 'Basic " + MASK + "'}"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def", f"token {MASK}"),
        ("api_key=abcdef&x=1", f"api_key={MASK}&x=1"),
        ('"api-key": "abcdef", "x": 1', f'"api-key": "{MASK}", "x": 1'),
        ("postgresql://user:pass@db/turns", f"postgresql://user:{MASK}@db/turns"),
        ("dapi0123456789abcdef0123456789abcdef", MASK),
        ("AKIAABCDEFGHIJKLMNOP", MASK),
    ],
)
def test_what_looks_like_a_key_is_masked(text: str, masked: str) -> None:
    assert Redactor().redact(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "turn_0123456789abcdef",
        "conversation 7f3d2696-9890",
        "http://127.0.0.1:8000/v1/turns",
        "task-list, ask-me",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor(["a-configured-secret"]).redact(text) == text


def test_values_are_masked_at_any_depth_and_numbers_stay_numbers() -> None:
    value = {"a": [{"hunter22": 1.5}, ("x hunter22", None, True)], "b": ValueError("hunter22")}
    assert Redactor(["hunter22"]).redact_value(value) == {
        "a": [{MASK: 1.5}, [f"x {MASK}", None, True]],
        "b": MASK,
    }
