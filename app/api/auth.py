"""Who asks (contract, section 11): API keys, and the users of a caller.

A key is turned into its SHA-256 as soon as it is read and never kept: what is compared, in constant time and
over all keys, are digests.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.domain.caller import ANONYMOUS, Caller
from app.errors import BadRequest, Unauthenticated

CALLER = "turnwire.caller"
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz"})
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
USER = re.compile(r"[\x20-\x7e]{1,128}")


@dataclass(frozen=True, slots=True)
class _Key:
    name: str
    digest: bytes


class ApiKeys:
    """The keys that are known, by the name that stands before each."""

    def __init__(self, keys: Iterable[_Key]) -> None:
        self._keys = tuple(keys)

    @classmethod
    def parse(cls, text: str) -> "ApiKeys":
        """Read `name:key` pairs, separated by commas or lines; a name may have several keys.

        Raises ValueError that names the pair by its number: the text itself is secret.
        """
        keys = [_key(number, name, key) for number, (name, key) in enumerate(pairs(text), start=1)]
        if not keys:
            raise ValueError("there is no key")
        return cls(keys)

    def name_of(self, key: str) -> str | None:
        """Whose key this is. Takes the same time whichever it is."""
        digest = sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known in self._keys:
            if compare_digest(known.digest, digest):
                found = known.name
        return found

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(sorted({key.name for key in self._keys}))})"


def pairs(text: str) -> list[tuple[str, str]]:
    """The names and keys as they are written, unchecked."""
    parted = (pair.partition(":") for pair in re.split(r"[,\n]", text) if pair.strip())
    return [(name.strip(), key.strip()) for name, _, key in parted]


def _key(number: int, name: str, key: str) -> _Key:
    if not key or not _NAME.fullmatch(name):
        raise ValueError(f"pair {number} is not name:key, with a name of 1 to 64 of A-Z a-z 0-9 _ . @ -")
    return _Key(name, sha256(key.encode()).digest())


def single(headers: Headers, name: str) -> str | None:
    """A header that may stand once: of two, a proxy before us may have meant the other. Raises BadRequest."""
    given = headers.getlist(name)
    if len(given) > 1:
        raise BadRequest(f"A request has one {name}.")
    return given[0] if given else None


class Authentication:
    """Puts the caller into the scope. Without keys everybody is `anonymous`."""

    def __init__(self, app: ASGIApp, keys: ApiKeys | None) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            scope[CALLER] = self._caller(Headers(scope=scope))
        await self._app(scope, receive, send)

    def _caller(self, headers: Headers) -> Caller:
        name = ANONYMOUS.name if self._keys is None else self._authenticated(headers, self._keys)
        user = single(headers, "Turnwire-User")
        if user is not None and not USER.fullmatch(user):
            raise BadRequest("Turnwire-User must be 1 to 128 printable ASCII characters.")
        return Caller(name, user)

    def _authenticated(self, headers: Headers, keys: ApiKeys) -> str:
        scheme, _, key = (single(headers, "Authorization") or "").partition(" ")
        name = keys.name_of(key.strip()) if scheme.lower() == "bearer" else None
        if name is None:
            raise Unauthenticated("Send a known API key: `Authorization: Bearer KEY`.")
        return name
