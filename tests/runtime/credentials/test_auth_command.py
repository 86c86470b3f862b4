"""A command that prints a token: when it runs, for how long its token is kept, what a failure says."""

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.runtime.credentials.auth_command import AuthCommand, CommandEndpoint, CommandFailed, usable_s
from app.runtime.failures import UpstreamFailure

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0


def jwt(expires: object) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{claims}.sig"


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[tuple[AuthCommand, Path]]:
    """A command that prints `token-N`, N being how often it ran, and the file that counts."""
    runs = tmp_path / "runs"
    command = AuthCommand(f"echo run >> {runs}; echo token-$(wc -l < {runs})", keep_s=60)
    yield command, runs
    await command.aclose()


async def test_a_token_is_kept(counted: tuple[AuthCommand, Path]) -> None:
    command, _ = counted
    assert [await command.token() for _ in range(3)] == ["token-1"] * 3


async def test_many_who_ask_at_once_run_it_once(counted: tuple[AuthCommand, Path]) -> None:
    command, runs = counted
    assert await asyncio.gather(*(command.token() for _ in range(20))) == ["token-1"] * 20
    assert runs.read_text().count("run") == 1


async def test_a_refused_token_is_fetched_anew_and_only_once(counted: tuple[AuthCommand, Path]) -> None:
    command, _ = counted
    refused = await command.token()
    command.forget(refused)
    assert await command.token() == "token-2"
    command.forget(refused)
    assert await command.token() == "token-2"


async def test_a_token_without_a_life_is_fetched_each_time(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = AuthCommand(f"echo run >> {runs}; echo token-$(wc -l < {runs})", keep_s=0)
    assert [await command.token(), await command.token()] == ["token-1", "token-2"]


@pytest.mark.parametrize(
    ("token", "usable"),
    [
        ("opaque", 300),
        (jwt(NOW + 3600), 3540),
        (jwt(NOW + 10), 8),
        (jwt(NOW - 5), 0),
        (jwt("soon"), 300),
        (jwt(10**400), 300),
        (jwt([[]]), 300),
        ("a.b.c", 300),
        ("not.a-jwt", 300),
    ],
)
def test_a_jwt_is_kept_until_shortly_before_it_expires(token: str, usable: float) -> None:
    assert usable_s(token, 300, NOW) == usable


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo secret-half; echo secret-err >&2; exit 3", "failed with exit status 3"),
        ("true", "printed nothing"),
        ("echo two; echo lines", "printed something else than one token"),
        ("yes | head -c 100000", "printed too much to be a token"),
        ("kill -9 $$", "failed with exit status -9"),
    ],
)
async def test_a_failure_says_how_it_ended_and_never_what_it_printed(command: str, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        await AuthCommand(command).token()
    assert str(caught.value) == said


async def test_a_command_that_takes_too_long_is_killed_with_all_it_started(tmp_path: Path) -> None:
    late = tmp_path / "late"
    began = time.monotonic()
    with pytest.raises(CommandFailed, match=r"did not end within 0\.3 s"):
        await AuthCommand(f"(sleep 30; touch {late}) | cat", timeout_s=0.3).token()
    assert time.monotonic() - began < 5


async def test_who_is_cancelled_leaves_the_command_to_the_others(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = AuthCommand(f"while [ ! -e {gate} ]; do sleep 0.02; done; echo token")
    impatient, patient = (asyncio.create_task(command.token()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    gate.touch()
    async with asyncio.timeout(5):
        assert await patient == "token"


async def test_closing_ends_a_command_that_runs(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    command = AuthCommand(f"echo now > {begun}; sleep 30; echo token")
    asked = asyncio.create_task(command.token())
    os.mkfifo(begun)
    async with asyncio.timeout(5):
        await asyncio.to_thread(begun.read_text)
        await command.aclose()
        with pytest.raises(CommandFailed):
            await asked
    with pytest.raises(CommandFailed, match="shutting down"):
        await command.token()


async def test_the_event_loop_goes_on_while_it_runs() -> None:
    asked = asyncio.create_task(AuthCommand("sleep 0.3; echo token").token())
    longest, last = 0.0, time.perf_counter()
    while not asked.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert await asked == "token"
    assert longest < 0.2


async def test_an_endpoint_sends_the_token_and_tells_a_failure_as_one_of_access() -> None:
    access = await CommandEndpoint("http://127.0.0.1:1/v1", AuthCommand("echo Bearer abc.def")).access()
    assert (access.headers, access.secrets) == ({"authorization": "Bearer abc.def"}, ("abc.def",))
    with pytest.raises(UpstreamFailure, match="exit status 7") as caught:
        await CommandEndpoint("http://127.0.0.1:1/v1", AuthCommand("echo secret-half; exit 7")).access()
    assert caught.value.code == "upstream_auth"
    assert "secret-half" not in str(caught.value)
