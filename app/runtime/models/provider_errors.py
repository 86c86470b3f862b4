"""What providers say when they refuse or fail, and which of the contract's codes that is.

There is no common language: OpenAI's `error` object, vLLM's `object: error`, Databricks' `error_code`,
FastAPI's `detail`, Gemini's list, plain text. The code is decided by what is most specific: the provider's own
code or type, then the words of the message, then the HTTP status.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

CONTEXT_CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "contextwindowexceedederror",
        "model_context_window_exceeded",
        "exceed_context_size_error",
        "max_tokens_exceeded",
        "string_above_max_length",
        "input_too_long",
        "prompt_too_long",
        "request_too_large",
        "tokens_limit_reached",
    }
)
FILTER_CODES: Final = frozenset(
    {
        "content_filter",
        "content_filtered",
        "content_policy_violation",
        "responsibleaipolicyviolation",
        "moderation_blocked",
        "data_inspection_failed",
        "sensitive_words_detected",
        "image_content_policy_violation",
        "safety",
    }
)
AUTH_CODES: Final = frozenset(
    {
        "invalid_api_key",
        "invalid_authentication",
        "invalid_authentication_error",
        "incorrect_api_key",
        "authentication_error",
        "permission_error",
        "permission_denied",
        "permission_denied_error",
        "unauthorized",
        "unauthenticated",
        "forbidden",
        "access_denied",
        "account_deactivated",
    }
)
RATE_CODES: Final = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limited",
        "request_limit_exceeded",
        "too_many_requests",
        "resource_exhausted",
        "insufficient_quota",
        "quota_exceeded",
        "throttling",
        "throttlingexception",
    }
)
TIMEOUT_CODES: Final = frozenset(
    {"timeout", "timeout_error", "request_timeout", "gateway_timeout", "deadline_exceeded"}
)
SERVER_CODES: Final = frozenset(
    {
        "server_error",
        "internal_error",
        "internal_server_error",
        "internalservererror",
        "internal",
        "api_error",
        "overloaded",
        "overloaded_error",
        "engine_overloaded",
        "service_unavailable",
        "serviceunavailable",
        "unavailable",
        "bad_gateway",
        "provider_error",
        "vector_store_timeout",
    }
)
REJECTED_CODES: Final = frozenset(
    {
        "invalid_request_error",
        "invalid_request",
        "invalid_prompt",
        "invalid_argument",
        "invalid_value",
        "invalid_parameter_error",
        "invalid_parameter_value",
        "badrequesterror",
        "bad_request",
        "bad_request_error",
        "not_found",
        "not_found_error",
        "notfounderror",
        "model_not_found",
        "unprocessable_entity",
        "unsupported_parameter",
        "unsupported_value",
        "missing_required_parameter",
        "failed_precondition",
    }
)

_TOO_LONG = re.compile(
    r"""maximum\ (context|prompt|model|input|allowed\ input)\ length
    | max(imum)?[ _]model[ _]len
    | context[ _](length|window|size)
    | (prompt|input|message|request|conversation)s?\ (is|are)\ too\ (long|large)
    | (prompt|input)\ (contains|has)\ .{0,80}too\ large\ for\ model
    | too\ many\ (input\ )?tokens(?!\ per)
    | (input|prompt)\ (token\ count|length|tokens?)\b.{0,60}\bexceed
    | exceed(s|ed)?\ (the\ )?(model'?s\ |maximum\ )?(token|number\ of\ tokens|input\ token)\ (limit|allowed)
    | exceed(s|ed)?\ the\ maximum\ number\ of\ tokens
    | reduce\ the\ length\ of\ (the\ )?(your\ )?(message|prompt|input|completion)
    | max_new_tokens`?\ must\ be\ <=
    | string\ too\ long\b
    | ContextWindowExceeded
    | must\ have\ less\ than\ \d+\ tokens
    | range\ of\ input\ length
    | prompt\ tokens?\ .{0,40}exceed
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FILTERED = re.compile(
    r"content (management policy|filter|policy)|responsible ?ai ?polic|flagged (as|for|by)"
    r"|safety (system|policy)|data may contain inappropriate content",
    re.IGNORECASE,
)
_MAX_MESSAGE: Final = 2_000
_MAX_DEPTH: Final = 6
_HOLDING: Final = (
    "error",
    "innererror",
    "inner_error",
    "last_error",
    "status_details",
    "base_resp",
    "response",
    "body",
    "errors",
)
_TELLING: Final = ("error", "errors", "error_code", "error_message", "detail")
_SAYING_NOTHING: Final = ("error", "failed")
_SAYING: Final = ("message", "Message", "msg", "status_msg")


@dataclass(frozen=True, slots=True)
class ProviderError:
    """One error as a provider told it. `names` are its codes and types, lower case, the most specific first."""

    message: str = ""
    names: tuple[str, ...] = ()
    status: int | None = None

    @property
    def says_too_long(self) -> bool:
        return bool(_TOO_LONG.search(self.message))


def told_error(frame: dict[str, Any]) -> ProviderError | None:
    """The error that a frame tells which is of neither wire's own shape; None if it tells of none."""
    outcome = frame.get("base_resp")
    if any(frame.get(key) for key in _TELLING) or "error" in (frame.get("object"), frame.get("type")):
        return read_error(frame)
    if isinstance(outcome, dict) and outcome.get("status_code"):
        return read_error(frame)
    if isinstance(frame.get("type"), str) or isinstance(frame.get("object"), str):
        return None
    says = any(isinstance(frame.get(key), str) and frame[key] for key in _SAYING)
    return read_error(frame) if says else None


def read_error(body: Any, status: int | None = None) -> ProviderError:
    """Understand an error body or frame of any known shape; plain text is its own message."""
    found = _Found(status=status)
    found.visit(body, 0)
    return ProviderError(found.message[:_MAX_MESSAGE], tuple(found.names), found.status)


class _Found:
    """Collects, outermost object last, so that the innermost (most specific) codes come first."""

    def __init__(self, status: int | None) -> None:
        self.status = status
        self.message = ""
        self.names: list[str] = []

    def visit(self, node: Any, depth: int) -> None:
        if depth > _MAX_DEPTH:
            return
        if isinstance(node, str):
            self._say(node)
        elif isinstance(node, list):
            for entry in node[:8]:
                self.visit(entry, depth + 1)
        elif isinstance(node, dict):
            self._object(node, depth)

    def _object(self, node: dict[str, Any], depth: int) -> None:
        for key in _HOLDING:
            if node.get(key):
                self.visit(node[key], depth + 1)
        for key in ("code", "error_code", "status_code", "type", "error_type", "status", "reason"):
            self._name(node.get(key))
        for key in (*_SAYING, "detail", "details", "error_message", "error_description", "title"):
            if node.get(key):
                self.visit(node[key], depth + 1)
        if isinstance(where := node.get("loc"), list):
            self._say(".".join(str(part) for part in where[:6]))

    def _name(self, value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value or len(value) > 80 or value in _SAYING_NOTHING:
            return
        if value.isdecimal():
            if self.status is None and 100 <= int(value) <= 599:
                self.status = int(value)
        elif value.lower() not in self.names:
            self.names.append(value.lower())

    def _say(self, text: str) -> None:
        text = text.strip()
        if text and text not in self.message and len(self.message) < _MAX_MESSAGE:
            self.message = f"{self.message}: {text}" if self.message else text


_BY_NAME: Final = (
    (CONTEXT_CODES, "context_length_exceeded"),
    (FILTER_CODES, "content_filtered"),
    (AUTH_CODES, "upstream_auth"),
    (RATE_CODES, "rate_limited"),
    (TIMEOUT_CODES, "upstream_timeout"),
    (SERVER_CODES, "upstream_error"),
    (REJECTED_CODES, "upstream_rejected"),
)


def turn_code(error: ProviderError) -> str:
    """The contract's code for what a provider said; `upstream_error` if it said nothing that tells."""
    named = next((code for name in error.names for names, code in _BY_NAME if name in names), None)
    if named in (None, "upstream_rejected", "upstream_error") and error.status not in (401, 403, 429):
        if error.says_too_long:
            return "context_length_exceeded"
        if _FILTERED.search(error.message):
            return "content_filtered"
    by_status = None if error.status is None else _by_status(error.status)
    if named == "upstream_rejected" or named is None:
        return by_status or named or "upstream_error"
    return named


def _by_status(status: int) -> str | None:
    """The code of an HTTP status; None where the status tells of no error."""
    if status < 300:
        return None
    match status:
        case 401 | 403:
            return "upstream_auth"
        case 408:
            return "upstream_timeout"
        case 429:
            return "rate_limited"
        case _:
            return "upstream_error" if status >= 500 else "upstream_rejected"
