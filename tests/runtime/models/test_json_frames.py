import json

import pytest

from app.runtime.models.json_frames import NotJson, TextJoiner, as_index, dumps, loads, mended

SMILE = "\U0001f600"


def joined(*pieces: str) -> tuple[list[str], str]:
    joiner = TextJoiner()
    return [joiner.feed(p) for p in pieces], joiner.finish()


def test_what_strict_parsers_refuse_is_read_all_the_same() -> None:
    assert loads(b'{"a": "\\ud83d"}') == {"a": "\ud83d"}
    assert loads(b'{"a": "tab\there"}') == {"a": "tab\there"}
    assert loads(b'{"a": "\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize("data", [b"", b"{", b"<html>", b"[" * 100_000, b'{"a": 1} {"b": 2}'])
def test_what_is_no_json_is_told_so(data: bytes) -> None:
    with pytest.raises(NotJson):
        loads(data)


def test_a_pair_torn_apart_is_joined() -> None:
    assert joined("nice \ud83d", "\ude00!") == (["nice ", SMILE + "!"], "")


def test_lone_halves_are_replaced() -> None:
    assert joined("a\ud83d", "b\ude00c") == (["a", "\ufffdb\ufffdc"], "")
    assert joined("a\ud83d") == (["a"], "\ufffd")
    assert joined("\ud83d", "\ud83d", "\ude00") == (["", "\ufffd", SMILE], "")


def test_text_without_surrogates_passes_as_it_is() -> None:
    text = "NUL \x00, \u2028 and " + SMILE
    assert joined(text) == ([text], "")


def test_values_are_mended_at_any_depth() -> None:
    assert mended({"a": ["\ud83d\ude00", {"\ud800": 1}], "b": 2}) == {"a": [SMILE, {"\ufffd": 1}], "b": 2}


def test_lone_surrogates_do_not_hinder_a_request() -> None:
    sent = dumps({"text": "x\ud83d", "pair": "\ud83d\ude00", "big": 2**70})
    assert json.loads(sent) == {"text": "x\ufffd", "pair": SMILE, "big": 2**70}


def test_a_place_may_be_written_as_text_or_with_a_point() -> None:
    assert [as_index(place) for place in (3, "3", 3.0)] == [3, 3, 3]
    nowhere: list[object] = [True, "", "x", "1" * 40, 1.5, float("inf"), None, [], "\u00b2"]
    assert [as_index(other) for other in nowhere] == [None] * len(nowhere)
