"""From frames to a decoder, and nothing but an UpstreamFailure out of whatever the frames hold."""

from collections.abc import Iterable

from app.runtime.failures import UpstreamFailure
from app.runtime.models.json_frames import NotJson, loads
from app.runtime.models.reply import Decoder, Reply, protocol_failure
from app.runtime.models.sse import Frame

_DONE = b"[DONE]"
NONSENSE = (TypeError, AttributeError, KeyError, IndexError, ValueError, RecursionError)
"""Decoders look for what they know and do not check what everything else is: a number where a text should be, a
list for an object. What they trip over is the upstream's doing, and no defect of the service."""


def feed_frames(frames: Iterable[Frame], decoder: Decoder) -> None:
    """Feed what the socket gave, until the decoder has all that matters."""
    try:
        for name, data in frames:
            if decoder.done:
                return
            if data.strip() == _DONE:
                decoder.end()
            else:
                decoder.feed(name, loads(data))
    except NotJson as error:
        raise protocol_failure("a frame that is no JSON") from error
    except NONSENSE as error:
        raise _nonsense() from error


def feed_document(body: object, decoder: Decoder) -> bool:
    """Feed a JSON document that came instead of a stream. False if it is no answer."""
    try:
        return decoder.feed_whole(body)
    except NONSENSE as error:
        raise _nonsense() from error


def finish(decoder: Decoder) -> Reply:
    try:
        return decoder.finish()
    except NONSENSE as error:
        raise _nonsense() from error


def _nonsense() -> UpstreamFailure:
    return protocol_failure("a frame that makes no sense")
