"""Tool calls that come in odd pieces: each runs once, under its whole name, with all of its arguments."""

import json
from typing import Any

import pytest

from tests.runtime.models.chat_answers import CALLS, answered, call, refused
from tests.runtime.models.loopback import chunk

pytestmark = pytest.mark.anyio

QUERY = '{"q":1}'


def entry(index: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **fields}]}


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([call(0, "a", "loo"), call(0, None, "kup"), call(0, None, None, QUERY)], id="split"),
        pytest.param([call(0, "a", "loo"), call(0, "a", "kup", QUERY)], id="split, id again, with arguments"),
        pytest.param([call(0, "a", "loo"), call(0, None, "lookup"), call(0, None, None, QUERY)], id="growing"),
        pytest.param(
            [call(0, "a", "lookup"), call(0, "", "lookup", '{"q"'), call(0, "", "lookup", ":1}")], id="again"
        ),
        pytest.param([call(0, "a", " lookup\n", QUERY)], id="blanks around"),
        pytest.param([entry(id="a", name="lookup", arguments=QUERY)], id="no function object"),
        pytest.param([entry(id="a", function={"name": "lookup", "parameters": {"q": 1}})], id="parameters"),
        pytest.param([entry(id="a", function={"name": "lookup", "input": {"q": 1}})], id="input"),
        pytest.param([{"tool_calls": call(0, "a", "lookup", QUERY)["tool_calls"][0]}], id="no list"),
        pytest.param(
            [{"content": [{"type": "tool_use", "id": "a", "name": "lookup", "input": {"q": 1}}]}], id="a block"
        ),
        pytest.param(
            [call(0, "a1", "lookup", '{"q"'), call(0, "a2", None, ":1}")], id="a new id for each chunk"
        ),
        pytest.param([call(0, "a", "lookup", QUERY), call(0, "a", "lookup", QUERY)], id="the whole call again"),
        pytest.param(
            [call(0, "a", "lookup"), call(0, None, None, QUERY), call(0, None, None, QUERY)],
            id="the arguments again",
        ),
        pytest.param(
            [call(0, "a", "lookup", '{"q'), call(0, None, None, '{"q":'), call(0, None, None, QUERY)],
            id="growing arguments",
        ),
        pytest.param([call(0, "a", "lookup", {}), call(0, None, None, QUERY)], id="an empty object first"),
        pytest.param([call("0", "a", "lookup"), call(0.0, None, None, QUERY)], id="numbers of other kinds"),
    ],
)
async def test_a_call_in_odd_pieces_is_one(deltas: list[dict[str, Any]]) -> None:
    seen = await answered(*(chunk(delta) for delta in deltas), CALLS)
    assert [(name, json.loads(arguments)) for name, arguments in seen.calls] == [("lookup", {"q": 1})]
    assert [told[3] for told in seen.told if told[0] == "call"] == ["lookup"]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                call(0, "a", "f"),
                call(0, "b", "f"),
                call(0, "a", None, '{"q":1}'),
                call(0, "b", None, '{"q":2}'),
            ],
            id="all numbered 0, by id",
        ),
        pytest.param(
            [
                call(0, "x", "f"),
                call(1, "x", "f"),
                call(0, "x", None, '{"q":1}'),
                call(1, "x", None, '{"q":2}'),
            ],
            id="one id, by number",
        ),
        pytest.param([call(0, 7, "f", '{"q":1}'), call(0, 8, "f", '{"q":2}')], id="numbers for ids"),
        pytest.param([call(0, "x", "f", '{"q":1}'), call(0, "x", "f", '{"q":2}')], id="one id, one number"),
        pytest.param([call("0", "a", "f", '{"q":1}'), call("1", "b", "f", '{"q":2}')], id="numbers as text"),
    ],
)
async def test_interleaved_calls_are_told_apart(deltas: list[dict[str, Any]]) -> None:
    seen = await answered(*(chunk(delta) for delta in deltas), CALLS)
    assert seen.calls == [("f", '{"q":1}'), ("f", '{"q":2}')]
    assert len({item["call_id"] for item in seen.output or []}) == 2


async def test_equal_calls_in_two_places_are_two() -> None:
    seen = await answered(chunk(call(0, None, "f", QUERY)), chunk(call(1, None, "f", QUERY)), CALLS)
    assert seen.calls == [("f", QUERY), ("f", QUERY)]


async def test_a_call_is_shown_once_its_name_is_whole_and_with_what_came_before() -> None:
    seen = await answered(chunk(call(0, "a", "f")), chunk(call(1, "b", "g", QUERY)), CALLS)
    assert seen.kinds()[:3] == ["call", "arguments", "function_call done"]
    assert [told[3] for told in seen.told if told[0] == "call"] == ["f", "g"]
    assert seen.calls == [("f", "{}"), ("g", QUERY)]


async def test_a_call_without_a_name_is_none() -> None:
    for nameless in (call(0, "a", None, QUERY), call(0, "a", {"x": 1}, QUERY), call(0, "a", "  ", QUERY)):
        failure, _ = await refused(chunk({"content": "Hm."}), chunk(nameless), CALLS)
        assert failure.code == "upstream_protocol"
