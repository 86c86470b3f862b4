"""What operators learn of turns: one log line for each that ended, and the figures of `/metrics`."""

import logging
from collections.abc import Callable

from app.domain.turn import CancelMode, Turn
from app.domain.usage import Price
from app.observability.metrics import Metrics, TokenKind
from app.turns.live import LiveTurn

logger = logging.getLogger(__name__)

_UPSTREAM_CODES = frozenset(
    {"rate_limited", "empty_completion", "incomplete", "content_filtered", "context_length_exceeded"}
)


PriceOf = Callable[[str], Price | None]


def no_price(model: str) -> Price | None:
    return None


class TurnMeasures:
    """Told by the manager; tells the metrics and the log. `price_of` knows what a model's tokens cost."""

    def __init__(self, metrics: Metrics, price_of: PriceOf = no_price) -> None:
        self._metrics = metrics
        self._price_of = price_of

    def turn_admitted(self, live: LiveTurn) -> None:
        self._metrics.turn_started(live.turn.agent)

    def cancelled(self, mode: CancelMode, seconds: float) -> None:
        self._metrics.cancelled(mode, seconds)

    def turn_ended(self, live: LiveTurn, turn: Turn) -> None:
        """A turn has ended or paused."""
        if not turn.ended:
            return
        seconds = None
        if turn.started_at is not None and turn.ended_at is not None:
            seconds = (turn.ended_at - turn.started_at).total_seconds()
        self._metrics.turn_ended(turn.agent, turn.status, seconds)
        if live.first_text_after_s is not None:
            self._metrics.first_token(turn.agent, live.first_text_after_s)
        self._count_tokens(turn)
        if turn.error is not None and turn.error.code not in live.upstream_failures:
            # The SDK, too, finds answers that cannot be used, and calls that take too long.
            self.upstream_failed(turn.error.code)
        logger.info("turn.ended", extra=_line(live, turn, seconds, self._cost(turn)))

    def upstream_failed(self, code: str) -> None:
        """Count a failure by this turn error code, if it is one of an upstream's."""
        if code.startswith("upstream_") or code in _UPSTREAM_CODES:
            self._metrics.upstream_error(code)

    def _cost(self, turn: Turn) -> float | None:
        """What the turn's calls of models with a price have cost together; None if none has one."""
        priced = [(self._price_of(model), counts) for model, counts in turn.usage.by_model.items()]
        costs = [price.of(counts) for price, counts in priced if price is not None]
        return round(sum(costs), 6) if costs else None

    def _count_tokens(self, turn: Turn) -> None:
        for model, counts in turn.usage.by_model.items():
            kinds: dict[TokenKind, int] = {
                "input": counts.input_tokens,
                "cached_input": counts.cached_input_tokens,
                "cache_write": counts.cache_write_tokens,
                "output": counts.output_tokens,
                "reasoning": counts.reasoning_tokens,
            }
            for kind, count in kinds.items():
                self._metrics.tokens(model, kind, count)


def _line(live: LiveTurn, turn: Turn, seconds: float | None, cost: float | None) -> dict[str, object]:
    first = live.first_text_after_s
    return {
        "event": "turn.ended",
        "turn_id": turn.id,
        "conversation_id": turn.conversation_id,
        "caller": turn.caller.name,
        "user": turn.caller.user,
        "agent": turn.agent,
        "model": turn.model,
        "status": turn.status,
        "code": turn.error.code if turn.error else None,
        "duration_s": None if seconds is None else round(seconds, 3),
        "time_to_first_token_s": None if first is None else round(first, 3),
        "usage": turn.usage.as_json(),
        "cost": cost,
    }
