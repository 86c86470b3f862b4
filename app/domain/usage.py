"""Token counts of model calls, summed over a turn (contract, section 7)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from app.domain.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What the provider reported, in tokens; `input_tokens` includes the cached ones."""

    requests: int = 0
    unreported_requests: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    uncached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        return TokenCounts(*(getattr(self, name) + getattr(other, name) for name in TokenCounts.__slots__))

    def __sub__(self, other: "TokenCounts") -> "TokenCounts":
        names = TokenCounts.__slots__
        return TokenCounts(*(max(0, getattr(self, name) - getattr(other, name)) for name in names))

    def as_json(self) -> JsonObject:
        return {name: getattr(self, name) for name in TokenCounts.__slots__}

    @classmethod
    def from_json(cls, data: JsonObject) -> "TokenCounts":
        return cls(*(int(data.get(name) or 0) for name in cls.__slots__))


UNREPORTED = TokenCounts(requests=1, unreported_requests=1)
"""One model call that ended without a report."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The sums of a turn or of one model call; `context_tokens` is the top agent's last call's total."""

    total: TokenCounts = TokenCounts()
    context_tokens: int = 0
    by_model: dict[str, TokenCounts] = field(default_factory=dict)

    @classmethod
    def of_call(cls, model: str, counts: TokenCounts) -> "Usage":
        return cls(counts, counts.total_tokens, {model: counts})

    def plus(self, call: "Usage", *, top_level: bool) -> "Usage":
        """Add one model call; only a top agent's call moves `context_tokens`."""
        by_model = dict(self.by_model)
        for model, counts in call.by_model.items():
            by_model[model] = by_model.get(model, TokenCounts()) + counts
        moved = top_level and call.context_tokens > 0
        context = call.context_tokens if moved else self.context_tokens
        return replace(self, total=self.total + call.total, context_tokens=context, by_model=by_model)

    def minus(self, part: "Usage") -> "Usage":
        """What is left without a part that was counted in it; nothing falls below zero."""
        by_model = {m: c - part.by_model.get(m, TokenCounts()) for m, c in self.by_model.items()}
        left = {model: counts for model, counts in by_model.items() if counts.requests}
        return Usage(self.total - part.total, self.context_tokens if left else 0, left)

    def as_json(self) -> JsonObject | None:
        """The contract's object, or None when no call was made."""
        if not self.total.requests:
            return None
        return {
            **self.total.as_json(),
            "context_tokens": self.context_tokens,
            "by_model": [{"model": m, **c.as_json()} for m, c in self.by_model.items()],
        }

    @classmethod
    def from_json(cls, data: JsonObject | None) -> "Usage":
        if not data:
            return cls()
        models: Iterable[JsonObject] = data.get("by_model") or ()
        return cls(
            TokenCounts.from_json(data),
            int(data.get("context_tokens") or 0),
            {m["model"]: TokenCounts.from_json(m) for m in models},
        )


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens of a model cost, in whatever currency its operator counts."""

    input: float
    output: float
    cached_input: float

    def of(self, counts: TokenCounts) -> float:
        uncached = counts.input_tokens - counts.cached_input_tokens
        cost = uncached * self.input + counts.cached_input_tokens * self.cached_input
        return (cost + counts.output_tokens * self.output) / 1_000_000


NO_USAGE = Usage()
