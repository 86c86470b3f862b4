"""Spans of the SDK as OpenTelemetry's: what is told of contents."""

import json
from typing import Any

import pytest
from agents.tracing.span_data import CustomSpanData, FunctionSpanData, GenerationSpanData

from app.runtime.otlp import MAX_CONTENT_CHARS, MAX_TEXT_CHARS, _told


def model_span(messages: list[dict[str, Any]]) -> GenerationSpanData:
    return GenerationSpanData(input=messages, output=[{"text": "Fine."}], model="m")


def test_the_newest_messages_are_told_as_far_as_there_is_room() -> None:
    messages = [{"number": number, "text": "x" * 1000} for number in range(1000)]
    _, _, told = _told(model_span(messages), contents=True)
    text = str(told["gen_ai.input.messages"])
    kept = [message["number"] for message in json.loads(text)]
    assert len(text) <= MAX_CONTENT_CHARS + 100
    assert kept == list(range(kept[0], 1000))
    assert len(kept) > 50


def test_one_long_text_is_cut_and_the_others_stay() -> None:
    messages = [{"text": "x" * 10_000_000}, {"text": "the question"}]
    _, _, told = _told(model_span(messages), contents=True)
    first, second = json.loads(str(told["gen_ai.input.messages"]))
    assert (len(first["text"]), second["text"]) == (MAX_TEXT_CHARS, "the question")


@pytest.mark.parametrize("output", [{"a": {1: object()}}, ["\ud800"], b"\xff", 1 << 80, "text", "\ud800"])
def test_whatever_a_tool_returned_can_be_told(output: Any) -> None:
    _, _, told = _told(FunctionSpanData("t", "{}", output), contents=True)
    assert str(told["gen_ai.tool.call.result"]).encode()


def test_without_contents_nothing_of_them_is_told() -> None:
    secret = "the kelp is a secret"
    spans = (
        model_span([{"text": secret}]),
        FunctionSpanData("t", secret, secret),
        CustomSpanData("own", {"text": secret}),
    )
    for span in spans:
        assert secret not in str(_told(span, contents=False))
