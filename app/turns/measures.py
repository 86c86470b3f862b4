"""What operators learn of turns: one log line for each that ended, and the figures of `/metrics`."""

import logging
from typing import Protocol

from app.domain.turn import Turn
from app.turns.live import LiveTurn

logger = logging.getLogger(__name__)


class TurnMetrics(Protocol):
    """The part of the metrics that turns feed; `observability.metrics.Metrics` is one."""

    def turn_started(self, agent: str) -> None: ...

    def turn_ended(self, agent: str, status: str, code: str | None, seconds: float) -> None: ...

    def first_text(self, agent: str, seconds: float) -> None: ...

    def turn_cancelled(self, seconds: float) -> None: ...

    def tokens(self, model: str, kind: str, count: int) -> None: ...


class TurnMeasures:
    def __init__(self, metrics: TurnMetrics) -> None:
        self._metrics = metrics

    def turn_admitted(self, live: LiveTurn) -> None:
        self._metrics.turn_started(live.turn.agent)

    def turn_ended(self, live: LiveTurn, turn: Turn) -> None:
        """A turn has ended or paused."""
        if not turn.ended:
            return
        seconds = ((turn.ended_at or turn.created_at) - turn.created_at).total_seconds()
        code = turn.error.code if turn.error else None
        self._metrics.turn_ended(turn.agent, turn.status, code, seconds)
        if live.first_text_after_s is not None:
            self._metrics.first_text(turn.agent, live.first_text_after_s)
        for model, counts in turn.usage.by_model.items():
            self._metrics.tokens(model, "input", counts.input_tokens)
            self._metrics.tokens(model, "cached_input", counts.cached_input_tokens)
            self._metrics.tokens(model, "output", counts.output_tokens)
            self._metrics.tokens(model, "reasoning", counts.reasoning_tokens)
        logger.info(
            "turn.ended",
            extra={
                "event": "turn.ended",
                "turn_id": turn.id,
                "conversation_id": turn.conversation_id,
                "caller": turn.caller.name,
                "user": turn.caller.user,
                "agent": turn.agent,
                "model": turn.model,
                "status": turn.status,
                "code": code,
                "duration_s": round(seconds, 3),
                "time_to_first_token_s": live.first_text_after_s and round(live.first_text_after_s, 3),
                "usage": turn.usage.as_json(),
            },
        )

    def cancelled(self, seconds: float) -> None:
        self._metrics.turn_cancelled(seconds)
