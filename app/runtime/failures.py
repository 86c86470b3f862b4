"""Why a turn failed: from any exception to one of the contract's codes and a message that is safe to show.

`UpstreamFailure` is what our models raise. `turn_error` maps everything, also what the SDK, its clients and
tools raise, by looking along the chain of causes for the first exception that tells more than "internal".
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import httpx2
import openai
from agents.exceptions import (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    MCPToolCancellationError,
    ModelBehaviorError,
    ModelRefusalError,
    ModelTimeoutError,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ToolTimeoutError,
    UserError,
)
from agents.sandbox.errors import SandboxError

from app.domain.turn import TurnError
from app.domain.usage import TokenCounts
from app.errors import SandboxUnavailable, ShuttingDown, StoreUnavailable
from app.runtime.models.provider_errors import ProviderError, read_error, turn_code

RETRYABLE: Final = frozenset(
    {
        "rate_limited",
        "upstream_timeout",
        "upstream_unreachable",
        "upstream_error",
        "upstream_protocol",
        "empty_completion",
        "timeout",
        "interrupted",
        "shutting_down",
        "store_unavailable",
    }
)
"""The codes after which the same request may succeed (contract, section 10)."""
MAX_MESSAGE: Final = 500
_MAX_CHAIN: Final = 50
_MASK: Final = "***"

_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(bearer|basic)\s+[\w.~+/=*-]{4,}",
        r"\b(sk|pk|rk|key|gsk|xai|ghp|gho|hf|xox[a-z]|nvapi|dapi|glpat|csk|pplx|aiza)[-_][\w*.-]{3,}",
        r"\b(dapi[0-9a-f]{8}|aiza[\w-]{20})[\w-]*",
        r"\beyJ[\w-]{8,}(\.[\w-]*){0,2}",
        r"(?<=://)[^/\s:@]+:[^/\s@]+@",
        r"\b(x-)?(api[-_ ]?key|(access|auth)[-_ ]?token|client[-_ ]?secret|password|secret|authorization)"
        r"(\s+(provided|is))?[\"']?\s*[:=]\s*[\"']?[^\s\"',;)}]+",
        r"\b(?=[\w+/-]*\d)(?=[\w+/-]*[a-z])[a-z0-9+/_-]{32,}={0,2}",
        r"(?<![\w/])/(home|root|usr|var|opt|tmp|etc|work|app|srv|mnt|data|private|users)(/[\w.@+-]+)+",
        r"\b[a-z]:\\[^\s\"']+",
    )
)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` with all of `secrets`, and whatever looks like a key, a token or a local path, masked."""
    for secret in sorted((s for s in secrets if s), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    for pattern in _PATTERNS:
        text = pattern.sub(_MASK, text)
    return text


def shown(text: str, secrets: Iterable[str] = ()) -> str:
    """A foreign text for a person: one line, bounded, masked; empty if it is markup."""
    text = text.strip()
    if text.startswith("<") or "<html" in text[:1000].lower():
        return ""
    text = " ".join(redacted(text[: MAX_MESSAGE * 4], secrets).split())
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


class UpstreamFailure(Exception):
    """A model call that ended without a usable response.

    `code` is one of section 10's, the message is safe to show. `counts` is what the provider reported even so.
    `transient`: the same request may be sent again at once, if nothing of the answer was shown.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        counts: TokenCounts | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.counts = counts
        self.transient = transient


class PolicyDenied(Exception):
    """The operator's policy forbids a model call; the message is its reason."""


def reported_failure(error: ProviderError, *, secrets: Iterable[str] = ()) -> UpstreamFailure:
    """The failure that stands for an error which a provider told within a stream.

    One that names an HTTP status is what that status would have been before the stream.
    """
    told = (*error.names[:2], *([str(error.status)] if error.status else []))
    kind = f" ({', '.join(told)})" if told else ""
    said = shown(error.message, secrets) or "it gave no reason"
    message = f"The model's provider reports an error{kind}: {said}"
    return UpstreamFailure(
        turn_code(error), message, status=error.status, transient=may_pass(error.status or 0)
    )


def may_pass(status: int) -> bool:
    """True if the same request may succeed after an answer with this HTTP status."""
    return status in (408, 409, 429) or status >= 500


def turn_error(error: BaseException) -> TurnError:
    """The contract's error for any exception; never raises, never shows a secret, never lacks a message."""
    for candidate in _chain(error):
        code, message, retry_after_s = _told(candidate)
        if code is not None:
            return _turn_error(code, message, retry_after_s)
    return _turn_error("internal", f"The turn failed inside the service ({type(error).__name__})", None)


def _turn_error(code: str, message: str, retry_after_s: float | None) -> TurnError:
    text = shown(message) or code.replace("_", " ").capitalize()
    return TurnError(code, text, code in RETRYABLE, retry_after_s)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, those in its group, its causes and contexts: each once, however they are knotted."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < _MAX_CHAIN:
        current = waiting.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        waiting.append(current.__cause__)
        if not current.__suppress_context__:
            waiting.append(current.__context__)


_Told = tuple[str | None, str, float | None]
_UNTOLD: Final[_Told] = (None, "", None)


def _told(error: BaseException) -> _Told:
    match error:
        case UpstreamFailure():
            return error.code, error.message, error.retry_after_s
        case PolicyDenied():
            return "policy_denied", f"The policy forbids this model call: {error}", None
        case StoreUnavailable() | ShuttingDown():
            return error.code, error.detail, error.retry_after_s
        case SandboxUnavailable():
            return "tool_failed", error.detail, None
        case SandboxError():
            return "tool_failed", f"The agent's sandbox failed: {error}", None
        case openai.OpenAIError():
            return _told_by_client(error)
        case httpx2.HTTPError():
            return _told_by_transport(error)
        case TimeoutError():
            return "timeout", "The turn took longer than it may", None
        case _:
            return _told_by_sdk(error)


def _told_by_sdk(error: BaseException) -> _Told:
    match error:
        case MaxTurnsExceeded():
            return "max_steps_exceeded", _told_of_steps(error.message), None
        case InputGuardrailTripwireTriggered() | OutputGuardrailTripwireTriggered():
            side = "input" if isinstance(error, InputGuardrailTripwireTriggered) else "output"
            name = _name(error.guardrail_result.guardrail)
            return "guardrail_tripped", f"The {side} guardrail {name} was triggered", None
        case ToolInputGuardrailTripwireTriggered() | ToolOutputGuardrailTripwireTriggered():
            return "guardrail_tripped", f"The tool guardrail {_name(error.guardrail)} was triggered", None
        case ModelRefusalError():
            return "content_filtered", f"The model refused: {error.refusal}", None
        case ModelTimeoutError():
            return "upstream_timeout", f"The model call took longer than {error.timeout_seconds:g} s", None
        case ToolTimeoutError():
            return "tool_failed", f"The tool {error.tool_name!r} took longer than it may", None
        case MCPToolCancellationError():
            return "tool_failed", "An MCP tool was cancelled by its server", None
        case ModelBehaviorError():
            return _told_by_behaviour(error.message)
        case UserError() if error.message.startswith("Error running tool"):
            return "tool_failed", error.message, None
        case _:
            return _UNTOLD


def _name(guardrail: Any) -> str:
    try:
        return repr(guardrail.get_name())
    except Exception:  # noqa: BLE001 - a guardrail's code is the user's, and an error needs its message
        return "without a name"


def _told_of_steps(message: str) -> str:
    """The SDK says how many they were: "Max turns (3) exceeded"."""
    found = re.search(r"[0-9]+", message)
    steps = "steps" if found is None else "1 step" if found[0] == "1" else f"{found[0]} steps"
    return f"The agent did not finish within the {steps} that it may take"


_PROVIDER_CODE = re.compile(r"code=['\"]?([\w.-]+)")


def _told_by_behaviour(message: str) -> _Told:
    """What the SDK calls a model's behaviour: a stream that failed, or output that does not fit."""
    if "terminal event" in message:
        if "response.incomplete" in message:
            code = "content_filtered" if "content_filter" in message else "incomplete"
            return code, "The model's answer was cut off before its end", None
        if found := _PROVIDER_CODE.search(message):
            error = ProviderError(message, (found[1].lower(),))
            return turn_code(error), f"The model's provider reports an error: {message}", None
        return "upstream_error", "The model's provider reports an error without a reason", None
    if "finish_reason='length'" in message:
        return "incomplete", "The model's answer was cut by the token limit", None
    if "final response" in message or "finish reason" in message:
        return "upstream_protocol", "The model's answer ended before it was whole", None
    return "output_invalid", f"The model's output cannot be used: {message}", None


def _told_by_client(error: openai.OpenAIError) -> _Told:
    """Models that are not ours bring the client of OpenAI, or one that raises its exceptions."""
    match error:
        case openai.APITimeoutError():
            return "upstream_timeout", "The model's provider did not answer in time", None
        case openai.APIConnectionError():
            return "upstream_unreachable", "The model's provider cannot be reached", None
        case openai.LengthFinishReasonError():
            return "incomplete", "The model's answer was cut by the token limit", None
        case openai.ContentFilterFinishReasonError():
            return "content_filtered", "The provider's content filter stopped the answer", None
        case openai.APIError():
            status = getattr(error, "status_code", None)
            body = error.body if isinstance(error.body, dict | list) else {"message": error.message}
            told = read_error([{"code": error.code, "type": error.type}, body], status)
            headers = getattr(getattr(error, "response", None), "headers", {})
            said = shown(told.message) or type(error).__name__
            return turn_code(told), f"The model's provider reports an error: {said}", _seconds(headers)
        case _:
            return _UNTOLD


def _seconds(headers: Any) -> float | None:
    """`Retry-After` in seconds, where it is a number."""
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, TypeError, ValueError):
        return None


def _told_by_transport(error: httpx2.HTTPError) -> _Told:
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return "upstream_unreachable", "A server that the turn needs cannot be reached in time", None
        case httpx2.TimeoutException():
            return "upstream_timeout", "A server that the turn needs did not answer in time", None
        case httpx2.TransportError():
            return "upstream_unreachable", "A server that the turn needs cannot be reached", None
        case _:
            return _UNTOLD
