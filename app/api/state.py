"""What the routes are given: built once by the lifespan, found in each request's state."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.api.body import BodyReader
from app.api.streaming import StreamLimits
from app.domain.json_types import JsonObject
from app.observability.metrics import Metrics
from app.turns.service import TurnService


async def no_upstreams() -> list[JsonObject]:
    return []


@dataclass(frozen=True, slots=True)
class Api:
    """`forbidden_overrides` are the fields of a turn's body that a caller may not send."""

    turns: TurnService
    metrics: Metrics
    bodies: BodyReader
    limits: StreamLimits
    forbidden_overrides: frozenset[str] = frozenset()
    may_auto_approve: bool = False
    """Whether a turn may be sent with `"approvals": "auto"`."""
    upstreams: Callable[[], Awaitable[list[JsonObject]]] = no_upstreams
    """The state of each upstream, for `GET /readyz?deep=1`; bounded in time."""
