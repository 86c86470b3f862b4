"""Why a model's answer ended, in the words that providers have for it."""

import re
from typing import Any, Final

from app.runtime.failures import UpstreamFailure

CUT: Final = frozenset(
    {
        "length",
        "max_length",
        "max_tokens",
        "max_output_tokens",
        "max_completion_tokens",
        "max_new_tokens",
        "model_length",
        "model_context_window_exceeded",
        "token_limit",
        "incomplete",
    }
)
FILTERED: Final = frozenset(
    {
        "content_filter",
        "content_filtered",
        "content_policy",
        "content_policy_violation",
        "guardrail_intervened",
        "moderation",
        "refusal",
        "sensitive",
        "safety",
        "image_safety",
        "recitation",
        "prohibited_content",
        "blocklist",
        "spii",
    }
)
BROKEN: Final = frozenset(
    {
        "error",
        "server_error",
        "internal_error",
        "failed",
        "failure",
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "timeout",
        "network_error",
        "insufficient_system_resource",
        "malformed_function_call",
        "unexpected_tool_call",
    }
)
CALLING: Final = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
"""The model has called tools."""
_NONE_YET: Final = frozenset({"", "null", "none", "finish_reason_unspecified"})
_MAX_SHOWN: Final = 60


def finish_reason(value: Any) -> str | None:
    """The reason in small letters; None if there is none yet: some servers write `null` as a text."""
    if not isinstance(value, str):
        return None
    reason = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value[:_MAX_SHOWN].strip()).lower().replace("-", "_")
    return None if reason in _NONE_YET else reason


def finish_failure(reason: str) -> UpstreamFailure | None:
    """What an answer that ended for this reason (of `finish_reason`) has failed by; None if it ended well.

    Some gateways put a second reason behind the first: `content_filter: SAFETY`.
    """
    words = {reason, *re.findall(r"\w+", reason)}
    if words & FILTERED:
        return UpstreamFailure("content_filtered", "The provider's content filter stopped the answer")
    if words & CUT:
        return cut_failure()
    if words & BROKEN:
        return UpstreamFailure("upstream_error", f"The model's provider ended the answer with {reason!r}")
    return None


def cut_failure() -> UpstreamFailure:
    return UpstreamFailure("incomplete", "The model's answer was cut by the token limit")
