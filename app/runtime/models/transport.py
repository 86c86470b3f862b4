"""An upstream: where it is, what it demands, and how one request is sent and its answer read.

One HTTP client each, of aiohttp: a read costs 20 µs with it, 67 with httpx2, and paced streams are all reads.
Time-outs are ours: the first byte, silence between reads. Nothing is retried and no redirect is followed here.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from math import isfinite
from time import monotonic
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import aiohttp

from app.domain.json_types import JsonObject
from app.runtime.failures import UpstreamFailure, may_pass, redacted, shown
from app.runtime.models.arrivals import Arrivals, Connector, Take
from app.runtime.models.chat_messages import ReplayReasoning
from app.runtime.models.decoding import feed_document, feed_frames
from app.runtime.models.json_frames import NotJson, loads
from app.runtime.models.patience import Patience
from app.runtime.models.provider_errors import read_error, turn_code
from app.runtime.models.reply import Decoder, protocol_failure
from app.runtime.models.sse import BOM, FrameReader, FrameTooLarge

Wire = Literal["responses", "chat_completions"]

PLACEHOLDER_KEY: Final = "turnwire-placeholder"
"""What a server gets that was given no key: some refuse a request without one, none looks at it."""
DRAIN_S: Final = 0.05
"""How long a whole answer may take to end its connection cleanly, so that it can be used again."""
AFTERMATH_S: Final = 3.0
"""How long usage may come after a finish."""
STATE_S: Final = 2.0
"""How long an upstream may take to say how it is."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_RETRY_AFTER_S: Final = 86_400.0
KEPT_FOR_S: Final = 30.0
MIB: Final = 1024 * 1024
PORTION_BYTES: Final = 8 * 1024
HELD_S: Final = 0.001
"""How long a large piece may hold the loop, but for its last portion."""
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
    key = api_key.strip()
    return Access(base_url, {"authorization": f"Bearer {key}"}, (key,))


class Endpoint(Protocol):
    """Knows the way to a server; asked before each request."""

    async def access(self) -> Access:
        """May start the server or fetch credentials. Raises UpstreamFailure."""
        ...

    async def renew(self, refused: Access) -> bool:
        """The server has answered 401 to these: fetch credentials anew. False if there are no others."""
        ...

    async def aclose(self) -> None: ...


class FixedEndpoint:
    """A URL and a key that never change."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        self._access = bearer_access(base_url, api_key or PLACEHOLDER_KEY)

    async def access(self) -> Access:
        return self._access

    async def renew(self, refused: Access) -> bool:
        return False

    async def aclose(self) -> None:
        """Nothing was opened."""


class RefusedRequest(UpstreamFailure):
    """The server answered with an error status. `said` is its body in raw text, never to be shown; `access`
    is what it was asked with."""

    said: str = ""
    access: Access | None = None


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
    that nobody set. `takes_tools`: False if its model cannot call any. `trust_env`: proxies of the environment
    are used. `tls`: whom to trust, else the system's.
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
        tls: ssl.SSLContext | None = None,
        replay_reasoning: ReplayReasoning = "turn",
        body_defaults: Mapping[str, Any] | None = None,
        takes_tools: bool = True,
    ) -> None:
        self.name = name
        self.wire = wire
        self.is_openai = is_openai
        self.limits = limits or UpstreamLimits()
        self.replay_reasoning = replay_reasoning
        self.body_defaults = dict(body_defaults or {})
        self.takes_tools = takes_tools
        self.refuses_stream_options = False
        """Learnt: the server refused a request because of `stream_options`."""
        self._endpoint = endpoint
        self._trust_env = trust_env
        self._tls = tls
        self._client: aiohttp.ClientSession | None = None
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True
        if self._client is not None:
            await self._client.close()
        await self._endpoint.aclose()

    async def renew(self, refused: Access) -> bool:
        return await self._endpoint.renew(refused)

    async def state(self) -> JsonObject:
        """Whether the server can be reached and takes our credentials; asks for its list of models."""
        told: JsonObject = {"name": self.name, "api": self.wire}
        try:
            async with asyncio.timeout(STATE_S):
                access = await self._endpoint.access()
                status = await self._status_of_models(access)
        except UpstreamFailure as failure:
            return told | {"status": "unauthorized" if failure.code == "upstream_auth" else "unreachable"}
        except (aiohttp.ClientError, OSError):
            return told | {"status": "unreachable"}
        if status in (401, 403):
            return told | {"status": "unauthorized"}
        return told | {"status": "failing" if status >= 500 else "reachable"}

    async def _status_of_models(self, access: Access) -> int:
        """The status alone counts: many servers have no list of models, and answer 404."""
        headers = {**_HEADERS, **access.headers}
        address = _address(access.base_url, "/models")
        async with self._session().get(address, headers=headers, allow_redirects=False) as response:
            return response.status

    async def exchange(self, outgoing: Outgoing, decoder: Decoder) -> str | None:
        """Send a request and feed its answer to `decoder` until it ends; returns the server's request id.

        Raises UpstreamFailure. The connection is closed on every way out but a clean end.
        """
        access = await self._endpoint.access()
        began = False
        try:
            async with Patience(self.limits.first_byte_s) as patience:
                response = await self._post(access, outgoing)
                began = True
                try:
                    await self._read(response, decoder, patience, access)
                finally:
                    response.close()
                return response.headers.get("x-request-id")
        except UpstreamFailure as failure:
            failure.message = redacted(failure.message, access.secrets)
            failure.args = (failure.message,)
            raise
        except (aiohttp.ClientError, OSError) as error:
            # A time-out is an OSError too, and aiohttp's connecting time-out is one of each.
            if decoder.whole:
                return None
            raise self._broken(error, began) from error

    async def _post(self, access: Access, outgoing: Outgoing) -> aiohttp.ClientResponse:
        headers = {**_HEADERS, **access.headers, **{k.lower(): v for k, v in outgoing.extra_headers.items()}}
        return await self._session().post(
            _address(access.base_url, outgoing.path),
            params={k: _query_value(v) for k, v in outgoing.extra_query.items() if v is not None},
            data=outgoing.body,
            headers=headers,
            allow_redirects=False,
        )

    def _session(self) -> aiohttp.ClientSession:
        """Made by the first request: it belongs to the event loop that runs then."""
        if self._closed:
            raise UpstreamFailure("shutting_down", "The service is shutting down")
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=Connector(limit=0, keepalive_timeout=KEPT_FOR_S, ssl=self._tls or True),
                timeout=aiohttp.ClientTimeout(total=None, connect=self.limits.connect_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=self._trust_env,
            )
        return self._client

    async def _read(
        self, response: aiohttp.ClientResponse, decoder: Decoder, patience: Patience, access: Access
    ) -> None:
        if not 200 <= response.status < 300:
            raise await self._refusal(response, patience, access)
        try:
            start = await _first_bytes(response.content)
            if start[:1] in (b"{", b"[", b"<"):
                await self._document(start, response.content, decoder, patience)
            else:
                await self._stream(start, response, decoder, patience)
        except FrameTooLarge as error:
            raise protocol_failure(str(error)) from error

    async def _stream(
        self, start: bytes, response: aiohttp.ClientResponse, decoder: Decoder, patience: Patience
    ) -> None:
        idle_s = self.limits.idle_s
        reader = FrameReader(self.limits.max_frame_bytes)

        def take(piece: bytes) -> bool:
            feed_frames(reader.feed(piece), decoder)
            patience.wait(idle_s if not decoder.whole else min(idle_s, AFTERMATH_S))
            return not decoder.done

        arrivals = Arrivals(response)
        more = await _taken(start, take)
        while more:
            piece = await arrivals.untaken(take)
            if not piece:
                break
            more = await _taken(piece, take)
        if not decoder.done:
            feed_frames(reader.finish(), decoder)
            return
        patience.wait(DRAIN_S)
        while await response.content.readany():
            pass

    async def _document(
        self, start: bytes, content: aiohttp.StreamReader, decoder: Decoder, patience: Patience
    ) -> None:
        """No stream but a document: a whole answer is taken, an error or a page is not."""
        patience.wait(self.limits.idle_s)
        limit = self.limits.max_message_bytes
        body = await _gather(start, content, limit)
        if len(body) > limit:
            raise protocol_failure(f"a document of more than {limit} bytes")
        if body.startswith(b"<"):
            raise protocol_failure("a page instead of a stream")
        try:
            parsed = loads(body)
        except NotJson as error:
            raise protocol_failure("a document instead of a stream") from error
        if not feed_document(parsed, decoder):
            told = shown(read_error(parsed).message)
            raise protocol_failure(f"JSON instead of a stream{': ' + told if told else ''}")

    async def _refusal(
        self, response: aiohttp.ClientResponse, patience: Patience, access: Access
    ) -> RefusedRequest:
        """The failure that an answer with another status than 2xx is."""
        patience.wait(self.limits.idle_s)
        body = await _gather(b"", response.content, MAX_ERROR_BYTES)
        text = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
        try:
            told = read_error(loads(body), response.status)
        except NotJson:
            told = read_error(text, response.status)
        said = shown(told.message, access.secrets)
        failure = RefusedRequest(
            turn_code(told),
            f"The upstream answered {response.status}{': ' + said if said else ''}",
            status=response.status,
            retry_after_s=retry_after(response.headers, datetime.now(UTC)),
            transient=may_pass(response.status),
        )
        failure.said = text
        failure.access = access
        return failure

    def _broken(self, error: Exception, began: bool) -> UpstreamFailure:
        limits = self.limits
        match error:
            case aiohttp.InvalidURL():
                return _unusable_url()
            case aiohttp.ServerTimeoutError():
                what = f"The upstream cannot be reached within {limits.connect_s:g} s"
                return UpstreamFailure("upstream_unreachable", what, transient=True)
            case aiohttp.ClientResponseError():
                return protocol_failure("its head, or how it is encoded, cannot be understood")
            case TimeoutError():
                silent = f"was silent for {limits.idle_s:g} s"
                what = silent if began else f"did not answer within {limits.first_byte_s:g} s"
                return UpstreamFailure("upstream_timeout", f"The upstream {what}", transient=True)
            case _ if not began:
                return UpstreamFailure("upstream_unreachable", "The upstream cannot be reached", transient=True)
            case _:
                failure = protocol_failure("the connection was cut before its end")
                failure.transient = True
                return failure


def _address(base_url: str, path: str) -> str:
    """`path` beneath a base URL, whose query stays."""
    try:
        parts = urlsplit(base_url)
    except ValueError as error:
        raise _unusable_url() from error
    return parts._replace(path=parts.path.rstrip("/") + path).geturl()


def _unusable_url() -> UpstreamFailure:
    return UpstreamFailure("upstream_unreachable", "The upstream's URL cannot be used")


def _query_value(value: Any) -> str | list[str]:
    if isinstance(value, list | tuple):
        return [str(v) for v in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _taken(piece: bytes, take: Take) -> bool:
    """Give `take` what may be large, in portions: the loop has other turns to serve in between."""
    held_since = monotonic()
    for start in range(0, len(piece), PORTION_BYTES):
        if not take(piece[start : start + PORTION_BYTES]):
            return False
        if monotonic() - held_since > HELD_S:
            await asyncio.sleep(0)
            held_since = monotonic()
    return True


async def _first_bytes(content: aiohttp.StreamReader) -> bytes:
    """The body up to and with its first byte that is not blank; blanks alone may be keepalives."""
    while piece := await content.readany():
        if not piece.isspace():
            return piece.lstrip(b" \t\r\n").removeprefix(BOM)
    return b""


async def _gather(start: bytes, content: aiohttp.StreamReader, limit: int) -> bytes:
    """The whole body, or somewhat more than `limit` of a larger one."""
    parts, size = [start], len(start)
    while size <= limit and (piece := await content.readany()):
        size += len(piece)
        parts.append(piece)
    return b"".join(parts).strip()


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """`Retry-After` (seconds or a date) or `Retry-After-Ms` in seconds from `now`, None if there is none."""
    value = headers.get("retry-after", "").strip()
    for seconds, unit in ((headers.get("retry-after-ms", ""), 1000), (value, 1)):
        with suppress(ValueError):
            if (found := _bounded(float(seconds) / unit)) is not None:
                return found
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
        host = urlsplit(base_url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
