"""What a strict provider refuses, shape by shape, on both wires."""

from typing import Any

import pytest

from tests.strict_provider import chat_problems, problems, responses_problems

JsonObject = dict[str, Any]
USER = {"role": "user", "content": "hello"}


def asked(*ids: str, arguments: str = "{}", name: str = "lookup") -> JsonObject:
    calls = [{"id": i, "type": "function", "function": {"name": name, "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def told(call_id: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def call(call_id: str, arguments: str = "{}") -> JsonObject:
    return {"type": "function_call", "call_id": call_id, "name": "lookup", "arguments": arguments}


def output(call_id: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": "x"}


REASONING: JsonObject = {"type": "reasoning", "id": "rs_1", "summary": []}
SAID: JsonObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([USER], id="a question"),
        pytest.param([USER, asked("a", "b"), told("b"), told("a"), USER], id="two calls answered in any order"),
        pytest.param([USER, asked("a"), told("a"), asked("a"), told("a")], id="an id that comes back later"),
        pytest.param([USER, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}], id="parts"),
    ],
)
def test_a_sound_chat_history_is_accepted(messages: list[JsonObject]) -> None:
    assert chat_problems(messages) == []


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([USER, asked("a")], id="a call without output at the end"),
        pytest.param([USER, asked("a"), USER, told("a")], id="an output that comes too late"),
        pytest.param([USER, told("a")], id="an output without a call"),
        pytest.param([USER, asked("a"), told("a"), told("a")], id="a call answered twice"),
        pytest.param([USER, asked("a", "a"), told("a"), told("a")], id="one id for two calls"),
        pytest.param([USER, asked("a", arguments=""), told("a")], id="empty arguments"),
        pytest.param([USER, asked("a", arguments="[1]"), told("a")], id="arguments that are a list"),
        pytest.param([USER, {"role": "assistant", "content": ""}], id="an empty message"),
        pytest.param([USER, {"role": "assistant", "content": None, "refusal": "no"}], id="a refusal alone"),
        pytest.param([USER, asked("a", name="look up"), told("a")], id="a name with a blank"),
        pytest.param(
            [USER, {"role": "assistant", "content": [{"type": "text", "text": ""}]}], id="empty parts"
        ),
    ],
)
def test_a_broken_chat_history_is_refused(messages: list[JsonObject]) -> None:
    assert len(chat_problems(messages)) >= 1


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([USER], id="a question"),
        pytest.param([USER, REASONING, call("a"), output("a"), SAID], id="reasoning before a call"),
        pytest.param([USER, REASONING, SAID], id="reasoning before a message"),
        pytest.param([USER, call("a"), call("b"), output("b"), output("a")], id="two calls"),
    ],
)
def test_a_sound_responses_history_is_accepted(items: list[JsonObject]) -> None:
    assert responses_problems(items) == []


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([USER, call("a")], id="a call without output"),
        pytest.param([USER, output("a")], id="an output without a call"),
        pytest.param([USER, output("a"), call("a")], id="an output before its call"),
        pytest.param([USER, call("a"), output("a"), output("a")], id="a call answered twice"),
        pytest.param([USER, call("a"), output("a"), call("a"), output("a")], id="an id that comes back"),
        pytest.param([USER, REASONING], id="reasoning at the end"),
        pytest.param([USER, REASONING, USER], id="reasoning before a question"),
        pytest.param([USER, REASONING, output("a")], id="reasoning before an output"),
        pytest.param([USER, call("a", "nonsense"), output("a")], id="arguments that are no JSON"),
        pytest.param([USER, SAID | {"content": []}], id="a message without content"),
        pytest.param([USER, SAID | {"id": "m" * 65}], id="an id that is too long"),
        pytest.param([SAID | {"id": "m"}, SAID | {"id": "m"}], id="one id for two items"),
    ],
)
def test_a_broken_responses_history_is_refused(items: list[JsonObject]) -> None:
    assert len(responses_problems(items)) >= 1


def test_a_request_is_checked_on_the_wire_it_is_for() -> None:
    assert problems({"messages": [USER, asked("a")]}) != []
    assert problems({"input": [USER, call("a")]}) != []
    assert problems({"input": "hello"}) == []
