"""From frames to a decoder, and nothing but an UpstreamFailure out of whatever the frames hold."""

from collections.abc import Iterable

from app.runtime.failures import UpstreamFailure, reported_failure
from app.runtime.models.json_frames import NotJson, loads
from app.runtime.models.provider_errors import read_error
from app.runtime.models.reply import Decoder, Reply, protocol_failure
from app.runtime.models.sse import Frame

_DONE = b"[DONE]"
HEARTBEATS = frozenset({b"ping", b"heartbeat", b"keepalive", b"keep-alive"})
"""Names of events that say nothing, whatever they hold."""
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
                continue
            try:
                frame = loads(data)
            except NotJson as error:
                _feed_text(name, data, decoder, error)
            else:
                if isinstance(frame, dict):
                    decoder.feed(name, frame)
                else:
                    _feed(name, frame, decoder)
    except NONSENSE as error:
        raise _nonsense() from error


def _feed(name: bytes, frame: object, decoder: Decoder) -> None:
    """Take a frame of whatever shape: some servers send several in a list."""
    if isinstance(frame, dict):
        decoder.feed(name, frame)
    elif isinstance(frame, list):
        for entry in frame:
            _feed(name, entry, decoder)
    elif name == b"error":
        raise reported_failure(read_error(frame))
    elif frame == "[DONE]":
        decoder.end()
    elif frame is not None:
        raise protocol_failure("a frame that is no object")


def _feed_text(name: bytes, data: bytes, decoder: Decoder, error: NotJson) -> None:
    """Take a frame that is no JSON: an error in plain words, a heartbeat, an end that is written otherwise."""
    if name == b"error":
        raise reported_failure(read_error(data.decode("utf-8", "replace"))) from error
    if decoder.whole:
        if data.strip(b" []").upper() == b"DONE":
            decoder.end()
    elif name not in HEARTBEATS:
        raise protocol_failure("a frame that is no JSON") from error


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
