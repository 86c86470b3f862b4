"""A shell command that prints a bearer token, `TURNWIRE_AUTH_COMMAND`, and an endpoint that uses it."""

import asyncio
import base64
import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Final

from app.runtime.failures import UpstreamFailure
from app.runtime.models.transport import Access, bearer_access

MAX_TOKEN_BYTES: Final = 64 * 1024
BEFORE_EXPIRY_S: Final = 60.0
"""A token is fetched anew so long before it expires; in the last fifth of its life if that is shorter."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class CommandFailed(Exception):
    """The command gave no token. The message never holds what it printed: that may be half a secret."""


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    use_until: float


class AuthCommand:
    """Runs the command in a thread, for at most `timeout_s`, and keeps its token.

    A JWT is kept until shortly before its `exp`, any other token for `keep_s`. However many ask, the command
    runs once; who is cancelled leaves it to the others.
    """

    def __init__(self, command: str, *, timeout_s: float = 10.0, keep_s: float = 300.0) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._keep_s = keep_s
        self._token: _Token | None = None
        self._fetching: asyncio.Future[_Token] | None = None
        self._process = _Process()

    async def token(self) -> str:
        """A token that can be used now. Raises CommandFailed."""
        if self._token is None or time.monotonic() >= self._token.use_until:
            self._token = await self._fetched()
        return self._token.value

    def forget(self, token: str) -> None:
        """The upstream has refused this token: the next one is fetched anew."""
        if self._token is not None and self._token.value == token:
            self._token = None

    async def aclose(self) -> None:
        """End the command if it runs."""
        self._process.end()
        if self._fetching is not None:
            await asyncio.wait([self._fetching])

    async def _fetched(self) -> _Token:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_future()
            threading.Thread(
                target=self._fetch, args=(self._fetching,), name="auth command", daemon=True
            ).start()
        return await asyncio.shield(self._fetching)

    def _fetch(self, future: asyncio.Future[_Token]) -> None:
        """In a thread of its own: tools may hold all others, and a fork takes its time."""
        try:
            printed = self._process.output(self._command, self._timeout_s)
            result: _Token | CommandFailed = self._as_token(printed)
        except CommandFailed as failure:
            result = failure
        except Exception as error:  # noqa: BLE001 - whatever it is, someone waits for the end of it
            result = CommandFailed(f"cannot be run ({type(error).__name__})")
        future.get_loop().call_soon_threadsafe(_settle, future, result)

    def _as_token(self, printed: bytes) -> _Token:
        text = printed.decode("utf-8", "replace").strip()
        text = text[7:].strip() if text[:7].lower() == "bearer " else text
        if not _TOKEN.fullmatch(text):
            raise CommandFailed("printed nothing" if not text else "printed something else than one token")
        return _Token(text, time.monotonic() + usable_s(text, self._keep_s, time.time()))


def _settle(future: asyncio.Future[_Token], result: _Token | CommandFailed) -> None:
    if future.done():
        return
    if isinstance(result, CommandFailed):
        future.set_exception(result)
        future.exception()  # who waited may be gone: nobody needs to be told then
    else:
        future.set_result(result)


def usable_s(token: str, keep_s: float, now: float) -> float:
    """How long a token may be kept; `keep_s` if it is no JWT with an `exp` (`now`: seconds of the epoch)."""
    expires = _expiry(token)
    if expires is None:
        return keep_s
    life = expires - now
    return max(0.0, life - min(BEFORE_EXPIRY_S, life / 5))


def _expiry(token: str) -> float | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


class _Process:
    """The command's process group: it is killed as a whole, shell, pipes and all."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def output(self, command: str, timeout_s: float) -> bytes:
        """What it printed, once it has ended well. Raises CommandFailed."""
        if self._ended:
            raise CommandFailed("was not run: the service is shutting down")
        # The operator's own, and a shell command by contract.
        self._process = process = subprocess.Popen(  # noqa: S602
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._ended:
            self._kill(process)  # it began while `end` looked for it
        try:
            return _read(process, time.monotonic() + timeout_s)
        except TimeoutError:
            raise CommandFailed(f"did not end within {timeout_s:g} s") from None
        finally:
            self._kill(process)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def end(self) -> None:
        """It runs no more; whoever waits for its output is told."""
        self._ended = True
        if self._process is not None:
            self._kill(self._process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        """Once it is reaped its number may be another's."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _read(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
    printed = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(process.stdout.fileno(), MAX_TOKEN_BYTES)
            if not piece:
                return _ended_well(process, deadline, printed)
            printed += piece
            if len(printed) > MAX_TOKEN_BYTES:
                raise CommandFailed("printed too much to be a token")
    raise TimeoutError


def _ended_well(process: subprocess.Popen[bytes], deadline: float, printed: bytes) -> bytes:
    try:
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if status:
        raise CommandFailed(f"failed with exit status {status}")
    return printed


class CommandEndpoint:
    """A URL whose bearer token comes from a command. `aclose` ends the command if it runs."""

    def __init__(self, base_url: str, command: AuthCommand) -> None:
        self._base_url = base_url
        self._command = command

    async def access(self) -> Access:
        try:
            return bearer_access(self._base_url, await self._command.token())
        except CommandFailed as failure:
            message = f"The command that fetches the upstream's credentials {failure}"
            raise UpstreamFailure("upstream_auth", message) from None

    async def renew(self, refused: Access) -> bool:
        for token in refused.secrets:
            self._command.forget(token)
        return True

    async def aclose(self) -> None:
        await self._command.aclose()
