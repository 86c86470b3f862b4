"""An upstream: where it is, what it demands, and how one request is sent and its answer read.

One HTTP client each. Time-outs are ours: connecting, the first byte, silence between reads. Nothing is retried
and no redirect is followed here.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from math import isfinite
from typing import Any, Final, Literal, Protocol

import httpx2

from app.runtime.failures import UpstreamFailure, redacted, shown
from app.runtime.models.chat_messages import ReplayReasoning
from app.runtime.models.json_frames import NotJson, loads
from app.runtime.models.provider_errors import read_error, turn_code
from app.runtime.models.reply import Decoder, protocol_failure
from app.runtime.models.sse import FrameReader, FrameTooLarge

Wire = Literal["responses", "chat_completions"]

PLACEHOLDER_KEY: Final = "turnwire-placeholder"
"""What a server gets that was given no key: some refuse a request without one, none looks at it."""
DRAIN_S: Final = 0.05
"""How long a whole answer may take to end its connection cleanly, so that it can be used again."""
AFTERMATH_S: Final = 3.0
"""How long usage may come after a finish."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_RETRY_AFTER_S: Final = 86_400.0
MAX_KEPT_CONNECTIONS: Final = 100
KEPT_FOR_S: Final = 30.0
MIB: Final = 1024 * 1024
_DONE: Final = b"[DONE]"
_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "text/event-stream, application/json;q=0.5",
    "accept-encoding": "identity",
    "user-agent": "turnwire",
}


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Seconds and bytes; `retries` beyond the first request."""

    connect_s: float = 5.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0
    retries: int = 3
    max_frame_bytes: int = 8 * MIB
    max_message_bytes: int = 16 * MIB


@dataclass(frozen=True, slots=True)
class Access:
    """Where to send a request and what to send with it. `secrets` never show in a message."""

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def bearer_access(base_url: str, api_key: str) -> Access:
    return Access(base_url, {"authorization": f"Bearer {api_key}"}, (api_key,))


class Endpoint(Protocol):
    """Knows the way to a server; asked before each request."""

    async def access(self) -> Access:
        """May start the server or fetch credentials. Raises UpstreamFailure."""
        ...

    async def renew(self) -> bool:
        """The server has answered 401: fetch credentials anew. False if there are no others."""
        ...


class FixedEndpoint:
    """A URL and a key that never change."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        self._access = bearer_access(base_url, api_key or PLACEHOLDER_KEY)

    async def access(self) -> Access:
        return self._access

    async def renew(self) -> bool:
        return False


class RefusedRequest(UpstreamFailure):
    """The server answered with an error status. `said` is its body in raw text, never to be shown."""

    said: str = ""


@dataclass(slots=True)
class Outgoing:
    """One request. `extra_headers` win over ours."""

    path: str
    body: bytes
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    extra_query: Mapping[str, Any] = field(default_factory=dict)


class Upstream:
    """A server that answers model calls, by one of the two wires.

    `replay_reasoning`: which reasoning that a Chat Completions server sent goes back to it, in the field in
    which it came, with the tool calls that followed it. `turn`: that of the turn under way, which thinking
    models demand; `always`: also that of earlier turns; `never`. `body_defaults` are fields of each request
    that nobody set.
    """

    def __init__(
        self,
        name: str,
        wire: Wire,
        endpoint: Endpoint,
        *,
        limits: UpstreamLimits | None = None,
        is_openai: bool = False,
        trust_env: bool = True,
        replay_reasoning: ReplayReasoning = "turn",
        body_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.wire = wire
        self.is_openai = is_openai
        self.limits = limits or UpstreamLimits()
        self.replay_reasoning = replay_reasoning
        self.body_defaults = dict(body_defaults or {})
        self.refuses_stream_options = False
        """Learnt: the server refused a request because of `stream_options`."""
        self._endpoint = endpoint
        self._client = httpx2.AsyncClient(
            trust_env=trust_env,
            follow_redirects=False,
            timeout=httpx2.Timeout(None, connect=self.limits.connect_s),
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=MAX_KEPT_CONNECTIONS,
                keepalive_expiry=KEPT_FOR_S,
            ),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def renew(self) -> bool:
        return await self._endpoint.renew()

    async def exchange(self, outgoing: Outgoing, decoder: Decoder) -> str | None:
        """Send a request and feed its answer to `decoder` until it ends; returns the server's request id.

        Raises UpstreamFailure. The connection is closed on every way out but a clean end.
        """
        access = await self._endpoint.access()
        request = self._request(access, outgoing)
        began = False
        try:
            async with asyncio.timeout(self.limits.first_byte_s) as patience:
                response = await self._client.send(request, stream=True)
                began = True
                try:
                    await self._read(response, decoder, patience, access)
                finally:
                    await response.aclose()
                return response.headers.get("x-request-id")
        except UpstreamFailure as failure:
            failure.message = redacted(failure.message, access.secrets)
            failure.args = (failure.message,)
            raise
        except TimeoutError as error:
            if decoder.whole:
                return None
            raise _silence(self.limits, began) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            if decoder.whole:
                return None
            raise _broken(error, began) from error

    def _request(self, access: Access, outgoing: Outgoing) -> httpx2.Request:
        url = httpx2.URL(access.base_url)
        headers = {**_HEADERS, **access.headers, **{k.lower(): v for k, v in outgoing.extra_headers.items()}}
        return self._client.build_request(
            "POST",
            url.copy_with(path=url.path.rstrip("/") + outgoing.path),
            content=outgoing.body,
            headers=headers,
            params=dict(outgoing.extra_query) or None,
        )

    async def _read(
        self, response: httpx2.Response, decoder: Decoder, patience: asyncio.Timeout, access: Access
    ) -> None:
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        chunks = response.aiter_bytes() if encoded else response.aiter_raw()
        async with aclosing(chunks):
            if not response.is_success:
                raise await self._refusal(response, chunks, patience, access)
            await self._stream(chunks, decoder, patience)

    async def _stream(self, chunks: AsyncIterator[bytes], decoder: Decoder, patience: asyncio.Timeout) -> None:
        clock = asyncio.get_running_loop().time
        idle_s = self.limits.idle_s
        reader = FrameReader(self.limits.max_frame_bytes)
        try:
            start = await _first_bytes(chunks)
            if start[:1] in (b"{", b"[", b"<"):
                await self._document(start, chunks, decoder, patience)
                return
            _decode(reader.feed(start), decoder)
            while not decoder.done:
                patience.reschedule(clock() + (min(idle_s, AFTERMATH_S) if decoder.whole else idle_s))
                chunk = await anext(chunks, None)
                if chunk is None:
                    _decode(reader.finish(), decoder)
                    return
                _decode(reader.feed(chunk), decoder)
        except FrameTooLarge as error:
            raise protocol_failure(str(error)) from error
        patience.reschedule(clock() + DRAIN_S)
        async for _ in chunks:
            pass

    async def _document(
        self, start: bytes, chunks: AsyncIterator[bytes], decoder: Decoder, patience: asyncio.Timeout
    ) -> None:
        """No stream but a document: a whole answer is taken, an error or a page is not."""
        patience.reschedule(asyncio.get_running_loop().time() + self.limits.idle_s)
        body = await _gather(start, chunks, self.limits.max_message_bytes)
        if body is None:
            raise protocol_failure(f"a document of more than {self.limits.max_message_bytes} bytes")
        if body.startswith(b"<"):
            raise protocol_failure("a page instead of a stream")
        try:
            parsed = loads(body)
        except NotJson as error:
            raise protocol_failure("a document instead of a stream") from error
        if not decoder.feed_whole(parsed):
            told = shown(read_error(parsed).message)
            raise protocol_failure(f"JSON instead of a stream{': ' + told if told else ''}")

    async def _refusal(
        self, response: httpx2.Response, chunks: AsyncIterator[bytes], patience: asyncio.Timeout, access: Access
    ) -> RefusedRequest:
        """The failure that an answer with another status than 200 is."""
        patience.reschedule(asyncio.get_running_loop().time() + self.limits.idle_s)
        body = await _gather(b"", chunks, MAX_ERROR_BYTES) or b""
        text = body.decode("utf-8", "replace")
        try:
            told = read_error(loads(body), response.status_code)
        except NotJson:
            told = read_error(text, response.status_code)
        status = response.status_code
        said = shown(told.message, access.secrets)
        failure = RefusedRequest(
            turn_code(told),
            f"The upstream answered {status}{': ' + said if said else ''}",
            status=status,
            retry_after_s=retry_after(response.headers, datetime.now(UTC)),
            transient=status in (408, 409, 429) or status >= 500,
        )
        failure.said = text
        return failure


def _decode(frames: list[tuple[bytes, bytes]], decoder: Decoder) -> None:
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


async def _first_bytes(chunks: AsyncIterator[bytes]) -> bytes:
    """The body up to and with its first byte that is not blank; blanks alone may be keepalives."""
    async for chunk in chunks:
        if not chunk.isspace():
            return chunk.lstrip(b" \t\r\n") if chunk[:1].isspace() else chunk
    return b""


async def _gather(start: bytes, chunks: AsyncIterator[bytes], limit: int) -> bytes | None:
    """The whole body, None if it is larger than `limit`."""
    parts, size = [start], len(start)
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            return None
        parts.append(chunk)
    return b"".join(parts).strip()


def _silence(limits: UpstreamLimits, began: bool) -> UpstreamFailure:
    what = (
        f"was silent for {limits.idle_s:g} s" if began else f"did not answer within {limits.first_byte_s:g} s"
    )
    return UpstreamFailure("upstream_timeout", f"The upstream {what}", transient=True)


def _broken(error: Exception, began: bool) -> UpstreamFailure:
    match error:
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return UpstreamFailure("upstream_unreachable", "The upstream's URL cannot be used")
        case httpx2.ConnectTimeout():
            return UpstreamFailure(
                "upstream_unreachable", "The upstream cannot be reached in time", transient=True
            )
        case _ if not began:
            return UpstreamFailure("upstream_unreachable", "The upstream cannot be reached", transient=True)
        case httpx2.TransportError():
            failure = protocol_failure("the connection was cut before its end")
            failure.transient = True
            return failure
        case _:
            return protocol_failure("it cannot be decoded")


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """`Retry-After` (seconds or a date) or `Retry-After-Ms` in seconds from `now`, None if there is none."""
    try:
        if "retry-after-ms" in headers:
            return _bounded(float(headers["retry-after-ms"]) / 1000)
        value = headers["retry-after"].strip()
    except (KeyError, ValueError):
        return None
    try:
        return _bounded(float(value))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return _bounded((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())


def _bounded(seconds: float) -> float | None:
    """None for what is no number; at most a day."""
    return min(max(0.0, seconds), MAX_RETRY_AFTER_S) if isfinite(seconds) else None


def is_loopback(base_url: str) -> bool:
    """True if `base_url` leads to this machine: no proxy stands between."""
    try:
        host = httpx2.URL(base_url).host
        return host == "localhost" or ip_address(host).is_loopback
    except (httpx2.InvalidURL, ValueError):
        return False
