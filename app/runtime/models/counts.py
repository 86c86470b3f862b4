"""Token counts as providers report them, on either wire."""

from typing import Any

from app.domain.json_types import JsonObject
from app.domain.usage import TokenCounts


def token_counts(usage: Any) -> TokenCounts | None:
    """One call's counts from a `usage` object of either wire; None if there is none or it counts nothing."""
    if not isinstance(usage, dict):
        return None
    given = _first(usage, "input_tokens", "prompt_tokens")
    made = _first(usage, "output_tokens", "completion_tokens")
    total = _first(usage, "total_tokens")
    if given is None and made is None and total is None:
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
        total_tokens=total or input_tokens + output_tokens,
    )


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
    for name in names:
        value = source.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return max(0, int(value))
    return None


def _details(usage: JsonObject, *names: str) -> JsonObject:
    for name in names:
        if isinstance(details := usage.get(name), dict):
            return details
    return {}
