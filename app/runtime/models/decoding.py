"""From frames to a decoder, and nothing but an UpstreamFailure out of whatever the frames hold."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from app.runtime.models.json_frames import NotJson, loads
from app.runtime.models.reply import Decoder, Reply, protocol_failure
from app.runtime.models.sse import Frame

_DONE = b"[DONE]"


def feed_frames(frames: Iterable[Frame], decoder: Decoder) -> None:
    """Feed what the socket gave, until the decoder has all that matters."""
    with _nonsense_is_told():
        for name, data in frames:
            if decoder.done:
                return
            if data.strip() == _DONE:
                decoder.end()
                continue
            try:
                frame = loads(data)
            except NotJson as error:
                raise protocol_failure("a frame that is no JSON") from error
            decoder.feed(name, frame)


def feed_document(body: object, decoder: Decoder) -> bool:
    """Feed a JSON document that came instead of a stream. False if it is no answer."""
    with _nonsense_is_told():
        return decoder.feed_whole(body)


def finish(decoder: Decoder) -> Reply:
    with _nonsense_is_told():
        return decoder.finish()


@contextmanager
def _nonsense_is_told() -> Iterator[None]:
    """Decoders look for what they know and do not check what everything else is: a number where a text should
    be, a list for an object. What they trip over is the upstream's doing, and no defect of the service."""
    try:
        yield
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, RecursionError) as error:
        raise protocol_failure("a frame that makes no sense") from error
