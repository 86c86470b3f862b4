"""A POST that starts or moves a turn: what all of them take beside the body, and how each is answered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Response

from app.api.attached import answer, form
from app.api.dependencies import GivenAccept, GivenApi, GivenCaller, GivenIdempotency, GivenLastEventId
from app.api.negotiation import Form
from app.api.state import Api
from app.domain.caller import Caller
from app.domain.ports import IdempotencyKey
from app.errors import InvalidEventId
from app.turns.service import Attached


@dataclass(frozen=True, slots=True)
class _Posted:
    api: Api
    caller: Caller
    form: Form
    idempotency: IdempotencyKey | None
    last_event_id: int | None

    async def answer(self, move: Callable[[], Awaitable[Attached]], *, background: bool) -> Response:
        """Move, unless the request's key is known: then that turn is the answer, and nothing moves twice."""
        return answer(self.api, await self._known() or await move(), self.form, background=background)

    async def _known(self) -> Attached | None:
        """What the request's key stands for. One that wants to go on after an event must be known."""
        known = None
        if self.idempotency is not None:
            known = await self.api.turns.known(self.caller, self.idempotency, self.last_event_id)
        if known is None and self.last_event_id is not None:
            raise InvalidEventId(
                "A POST with Last-Event-ID goes on only under an Idempotency-Key that is known."
            )
        if self.last_event_id:
            self.api.metrics.listener_resumed()
        return known


async def _posted(
    api: GivenApi,
    caller: GivenCaller,
    accept: GivenAccept,
    idempotency: GivenIdempotency,
    last_event_id: GivenLastEventId,
) -> _Posted:
    return _Posted(api, caller, form(accept), idempotency, last_event_id)


Posted = Annotated[_Posted, Depends(_posted)]
