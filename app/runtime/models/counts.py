"""Token counts as providers report them, on either wire."""

from math import isfinite
from typing import Any, Final

from app.domain.json_types import JsonObject
from app.domain.usage import TokenCounts
from app.runtime.models.json_frames import MAX_DIGITS

MAX_COUNT: Final = 10**MAX_DIGITS
"""Beyond it a number counts no tokens, and what stores it might not hold it."""


def token_counts(usage: Any) -> TokenCounts | None:
    """One call's counts from a `usage` object of either wire; None if there is none or it counts nothing."""
    if not isinstance(usage, dict):
        return None
    given = _first(usage, "input_tokens", "prompt_tokens")
    made = _first(usage, "output_tokens", "completion_tokens")
    total = _first(usage, "total_tokens")
    if not given and not made and not total:
        return None
    details = _details(usage, "input_tokens_details", "prompt_tokens_details")
    cached = _first(details, "cached_tokens") or _first(
        usage, "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"
    )
    written = _first(details, "cache_write_tokens", "cache_creation_tokens") or _first(
        usage, "cache_creation_input_tokens"
    )
    reasoning = _first(
        _details(usage, "output_tokens_details", "completion_tokens_details"), "reasoning_tokens"
    ) or _first(usage, "reasoning_tokens")
    input_tokens = given if given is not None else max(0, (total or 0) - (made or 0))
    output_tokens = made if made is not None else max(0, (total or 0) - input_tokens)
    return TokenCounts(
        requests=1,
        input_tokens=input_tokens,
        cached_input_tokens=cached or 0,
        uncached_input_tokens=max(0, input_tokens - (cached or 0)),
        cache_write_tokens=written or 0,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning or 0,
        # A total of more is kept: some count reasoning there alone. One of less was told before the end.
        total_tokens=max(total or 0, input_tokens + output_tokens),
    )


def merged_usage(before: JsonObject, told: Any) -> JsonObject:
    """What two reports of one call say together. Counts grow: a later null or zero wipes nothing."""
    if not isinstance(told, dict):
        return before
    return before | {name: value for name, value in told.items() if value or name not in before}


def usage_object(counts: TokenCounts | None) -> JsonObject:
    """The Responses API's `usage` with every field that the SDK reads; zeros where nothing was reported."""
    counts = counts or TokenCounts()
    return {
        "input_tokens": counts.input_tokens,
        "input_tokens_details": {
            "cached_tokens": counts.cached_input_tokens,
            "cache_write_tokens": counts.cache_write_tokens,
        },
        "output_tokens": counts.output_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        "total_tokens": counts.total_tokens,
    }


def _first(source: JsonObject, *names: str) -> int | None:
    return next((count for name in names if (count := _count(source.get(name))) is not None), None)


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return max(0, int(value)) if value <= MAX_COUNT else None


def _details(usage: JsonObject, *names: str) -> JsonObject:
    for name in names:
        if isinstance(details := usage.get(name), dict):
            return details
    return {}
