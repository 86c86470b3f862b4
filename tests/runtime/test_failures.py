"""From any exception to a code and a message that is safe to show."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from agents import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    UserError,
)
from agents.exceptions import ModelTimeoutError, ToolTimeoutError
from agents.guardrail import InputGuardrailResult
from agents.sandbox.errors import WorkspaceStartError

from app.errors import SandboxUnavailable, ShuttingDown, StoreUnavailable
from app.runtime.failures import MAX_MESSAGE, UpstreamFailure, redacted, shown, turn_error
from app.runtime.models.provider_errors import read_error, turn_code

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/responses")


def status_error(status: int, body: Any, **headers: str) -> openai.APIStatusError:
    response = httpx2.Response(
        status, request=REQUEST, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    return openai.APIStatusError("refused", response=response, body=body)


def tripped() -> InputGuardrailTripwireTriggered:
    def no(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    guardrail: InputGuardrail[Any] = InputGuardrail(guardrail_function=no, name="manners")
    return InputGuardrailTripwireTriggered(InputGuardrailResult(guardrail, no()))


TERMINAL = "Responses stream ended with terminal event"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UpstreamFailure("rate_limited", "slow"), "rate_limited"),
        (MaxTurnsExceeded("10"), "max_steps_exceeded"),
        (tripped(), "guardrail_tripped"),
        (ModelRefusalError("no"), "content_filtered"),
        (ModelTimeoutError(3), "upstream_timeout"),
        (ToolTimeoutError("slow", 3), "tool_failed"),
        (UserError("Error running tool lookup: boom"), "tool_failed"),
        (UserError("Something about the agent"), "internal"),
        (SandboxUnavailable("There is none here."), "tool_failed"),
        (WorkspaceStartError(path=Path("/workspace")), "tool_failed"),
        (ModelBehaviorError("Tool x not found in agent y"), "output_invalid"),
        (ModelBehaviorError("Invalid JSON when parsing"), "output_invalid"),
        (ModelBehaviorError("Model did not produce a final response!"), "upstream_protocol"),
        (
            ModelBehaviorError(f"{TERMINAL} `response.incomplete`. incomplete_details=max_output_tokens"),
            "incomplete",
        ),
        (ModelBehaviorError(f"{TERMINAL} `response.incomplete`. reason='content_filter'"), "content_filtered"),
        (
            ModelBehaviorError(
                f"{TERMINAL} `response.failed`. error=ResponseError(code='rate_limit_exceeded')"
            ),
            "rate_limited",
        ),
        (ModelBehaviorError(f"{TERMINAL} `error`. code=context_length_exceeded."), "context_length_exceeded"),
        (status_error(401, {"message": "bad key"}), "upstream_auth"),
        (status_error(400, {"message": "m", "code": "string_above_max_length"}), "context_length_exceeded"),
        (status_error(429, {"message": "m"}), "rate_limited"),
        (status_error(503, None), "upstream_error"),
        (openai.APIConnectionError(request=REQUEST), "upstream_unreachable"),
        (openai.APITimeoutError(request=REQUEST), "upstream_timeout"),
        (openai.APIError("upstream overloaded", REQUEST, body={"code": "overloaded_error"}), "upstream_error"),
        (httpx2.ReadTimeout("slow", request=REQUEST), "upstream_timeout"),
        (httpx2.ConnectError("gone", request=REQUEST), "upstream_unreachable"),
        (TimeoutError(), "timeout"),
        (StoreUnavailable("the disk is full"), "store_unavailable"),
        (ShuttingDown("bye"), "shutting_down"),
        (KeyError("x"), "internal"),
        (asyncio.CancelledError(), "internal"),
        (
            ExceptionGroup("some", [KeyError("x"), UpstreamFailure("empty_completion", "nothing")]),
            "empty_completion",
        ),
    ],
)
def test_every_exception_has_its_code_and_a_message(error: BaseException, code: str) -> None:
    told = turn_error(error)
    assert told.code == code
    assert told.message
    retryable = (
        "rate_limited",
        "upstream_timeout",
        "upstream_unreachable",
        "upstream_error",
        "upstream_protocol",
        "empty_completion",
        "timeout",
        "store_unavailable",
        "shutting_down",
    )
    assert told.retryable is (code in retryable)


def raised(cause: BaseException, *, hides: bool = False) -> BaseException:
    """An exception that was raised while `cause` was handled."""
    try:
        try:
            raise cause
        except type(cause) as handled:
            raise RuntimeError("wrapped") from (None if hides else handled)
    except RuntimeError as error:
        return error


def test_the_cause_tells_what_its_wrapper_does_not() -> None:
    told = turn_error(raised(UpstreamFailure("rate_limited", "slow", retry_after_s=7)))
    assert (told.code, told.retry_after_s) == ("rate_limited", 7)


def test_causes_in_a_circle_come_to_an_end() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__context__ = second, first
    second.__cause__ = first
    assert turn_error(first).code == "internal"


def test_a_suppressed_context_tells_nothing() -> None:
    assert turn_error(raised(TimeoutError(), hides=True)).code == "internal"


def test_retry_after_of_a_foreign_client_is_kept() -> None:
    assert turn_error(status_error(429, {}, retry_after="3")).retry_after_s == 3


def test_an_internal_error_shows_nothing_of_itself() -> None:
    assert "secret" not in turn_error(ValueError("the secret /srv/x")).message


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: key-EXAMPLE-0000. You can find",
        "sk-proj-abcDEF123 is wrong",
        "sk-ab***yz is wrong",
        "Authorization: Bearer abc.def.ghi",
        'api_key="0000EXAMPLE"',
        "token eyJhbGciOiJIUzI1NiJ9.EXAMPLE.sig",
        "at https://user:EXAMPLE@host.example/v1",
        "dapi0123456789abcdefEXAMPLE",
        "hex 0123456789abcdef0123456789abcdefEXAMPLE",
        "no such file: /home/EXAMPLE/.config/key.json",
    ],
)
def test_keys_tokens_and_paths_are_masked(text: str) -> None:
    masked = redacted(text)
    assert not {"EXAMPLE", "abcDEF", "yz", "abc.def"} & {
        w for w in ("EXAMPLE", "abcDEF", "yz", "abc.def") if w in masked
    }
    assert "***" in masked


def test_ordinary_words_stay() -> None:
    text = (
        "No tool call found for function call output with call_id call_a1B2c3D4e5F6g7H8i9J0k1L2 in gpt-5-mini."
    )
    assert redacted(text) == text
    assert redacted("my words are my words", ["my words"]) == "*** are ***"


def test_what_is_shown_is_one_bounded_line_and_never_markup() -> None:
    assert shown("<html><body>502</body></html>") == ""
    assert shown("a\n  b\tc") == "a b c"
    assert len(shown("word " * 1000)) == MAX_MESSAGE


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "This model's maximum context length is 8192 tokens. However, your messages need 9000.",
        ),
        (400, "the request exceeds the available context size, try increasing it"),
        (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "Input is too long for requested model."),
        (400, "Please reduce the length of the messages or completion."),
        (400, "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."),
        (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
        (413, "too many tokens in the request"),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."),
        (500, "context window exceeded"),
    ],
)
def test_the_known_ways_to_say_too_long_are_understood(status: int, message: str) -> None:
    for body in ({"error": {"message": message}}, {"error_code": "BAD_REQUEST", "message": message}, message):
        assert turn_code(read_error(body, status)) == "context_length_exceeded"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (
            {"error": {"type": "exceed_context_size_error", "code": 400, "message": "x"}},
            400,
            "context_length_exceeded",
        ),
        ({"error": {"code": "max_tokens_exceeded"}}, 400, "context_length_exceeded"),
        (
            {"error": {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            400,
            "content_filtered",
        ),
        (
            {"error": {"message": "Filtered: the prompt triggers the content management policy"}},
            400,
            "content_filtered",
        ),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            None,
            "upstream_error",
        ),
        ({"error": {"message": "Rate limit: too many tokens per minute"}}, 429, "rate_limited"),
        ({"error": {"code": "context_length_exceeded"}}, 429, "context_length_exceeded"),
        ([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota"}}], None, "rate_limited"),
        ({"error_code": "PERMISSION_DENIED", "message": "no"}, None, "upstream_auth"),
        ({"error": {"code": "model_not_found"}}, 404, "upstream_rejected"),
        ({"error": {"metadata": 1, "code": 502}}, None, "upstream_error"),
        (
            {"error": {"error": {"error": {"error": {"error": {"error": {"error": "deep"}}}}}}},
            400,
            "upstream_rejected",
        ),
        (None, None, "upstream_error"),
        ({"error": {"code": "timeout"}}, None, "upstream_timeout"),
    ],
)
def test_provider_codes_are_understood_in_every_dialect(body: Any, status: int | None, code: str) -> None:
    assert turn_code(read_error(body, status)) == code


def test_a_guardrail_is_named() -> None:
    assert "manners" in turn_error(tripped()).message
