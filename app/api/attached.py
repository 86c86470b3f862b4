"""How a turn is answered: as events, as JSON once it has paused or ended, as text, or accepted at once."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Response

from app.api.answers import dumps, turn_answer, turn_headers
from app.api.negotiation import Form, choose
from app.api.sse import EventStream
from app.api.state import Api
from app.api.streaming import Frames, Outlet, Streamed, StreamedAnswer
from app.domain.events import LogEntry
from app.domain.ids import TurnId
from app.turns.service import Attached
from app.wire.base import Encoder
from app.wire.native import ConversationEncoder, NativeEncoder
from app.wire.plain_text import PlainTextEncoder

FORMS: tuple[Form, ...] = ("text/event-stream", "application/json", "text/plain")
SPACE = b" "
"""What JSON may begin with: clients with read time-outs live on it while they wait."""


def form(accept: str | None) -> Form:
    """Raises NotAcceptable, before anything is started."""
    return choose(accept, FORMS)


def answer(api: Api, attached: Attached, form: Form, *, background: bool = False) -> Response:
    """The answer of every POST that starts or moves a turn."""
    if background:
        return turn_answer(attached.turn, 202)
    match form:
        case "text/event-stream":
            return event_stream(api, attached)
        case "application/json":
            return _answer_in_time(api, _turn_json(api, attached), attached, form, SPACE)
        case "text/plain":
            return _answer_in_time(api, _text(api, attached), attached, form, None)


def event_stream(api: Api, attached: Attached) -> Response:
    headers = turn_headers(attached.turn)
    if attached.nothing_left:
        return Response(status_code=204, headers=headers)
    encoder, outlet = NativeEncoder(), Outlet()
    entries = api.turns.tail(attached, lambda batch: outlet.put(_joined(batch, encoder)))
    return EventStream(Streamed(_encoded(entries, encoder), api.limits, api.metrics, outlet), headers)


def conversation_stream(api: Api, turns: AsyncGenerator[tuple[TurnId, list[LogEntry]], None]) -> Response:
    return EventStream(_streamed(api, _conversation_frames(turns)), {})


def _answer_in_time(
    api: Api, frames: Frames, attached: Attached, media_type: str, filler: bytes | None
) -> Response:
    return StreamedAnswer(_streamed(api, frames), media_type, turn_headers(attached.turn), filler)


def _streamed(api: Api, frames: Frames) -> Streamed:
    return Streamed(frames, api.limits, api.metrics)


async def _encoded(batches: AsyncGenerator[list[LogEntry], None], encoder: Encoder) -> Frames:
    """What waits is joined into one write."""
    async with aclosing(batches) as entries:
        async for batch in entries:
            yield _joined(batch, encoder)


async def _conversation_frames(
    batches: AsyncGenerator[tuple[TurnId, list[LogEntry]], None],
) -> Frames:
    async with aclosing(batches) as entries:
        async for turn_id, batch in entries:
            yield _joined(batch, ConversationEncoder(turn_id))


async def _text(api: Api, attached: Attached) -> Frames:
    encoder = PlainTextEncoder()
    async with aclosing(api.turns.tail(attached)) as entries:
        async for batch in entries:
            yield _joined(batch, encoder)
    yield b"".join(encoder.closing())


async def _turn_json(api: Api, attached: Attached) -> Frames:
    turn = await api.turns.outcome(attached)
    yield dumps(turn.as_json(with_input=True))


def _joined(batch: list[LogEntry], encoder: Encoder) -> bytes:
    if len(batch) == 1:
        return b"".join(encoder.encode(batch[0]))
    return b"".join(frame for entry in batch for frame in encoder.encode(entry))
