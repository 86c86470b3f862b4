"""What is sent again, what is not, and what the observer is told of it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from agents import ModelSettings

from app.runtime.failures import UpstreamFailure
from app.runtime.models.backoff import delay_s
from app.runtime.models.model import UpstreamModel
from app.runtime.models.transport import Access, UpstreamLimits, bearer_access
from tests.runtime.models.harness import QUICK, ask, exchange, recording, upstream_of
from tests.runtime.models.loopback import (
    USAGE,
    Answer,
    Loopback,
    chunk,
    completed_event,
    frames,
    text_answer,
)

pytestmark = pytest.mark.anyio

RETRYING = replace(QUICK, retries=2)
SOON = {"retry-after": "0"}


def refusal(status: int, **headers: str) -> Answer:
    return Answer(b'{"error": {"message": "later"}}', status, "application/json", headers or SOON)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_refusal_that_may_pass_is_retried_and_told(status: int) -> None:
    server, scope, failure = await exchange(refusal(status), text_answer(), limits=RETRYING)
    assert failure is None
    assert len(server.requests) == 2
    assert server.requests[0].body == server.requests[1].body
    assert scope.last.text == "All good."
    assert scope.last.warnings == ["upstream_retry"]
    assert str(status) in str(scope.last.told[0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_that_will_not_pass_is_final(status: int) -> None:
    server, scope, failure = await exchange(refusal(status), text_answer(), limits=RETRYING)
    assert isinstance(failure, UpstreamFailure)
    assert len(server.requests) == 1
    assert scope.last.warnings == []


@pytest.mark.parametrize(
    "first", [Answer(b"", end="reset"), Answer(hold_headers=True), Answer(b"", end="hang")]
)
async def test_what_breaks_before_any_output_is_retried(first: Answer) -> None:
    limits = replace(RETRYING, first_byte_s=0.1, idle_s=0.1)
    server, scope, failure = await exchange(first, text_answer(), limits=limits)
    assert failure is None
    assert len(server.requests) == 2
    assert scope.last.warnings == ["upstream_retry"]


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "Part"},
        {"reasoning_content": "Hm"},
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]},
    ],
)
async def test_nothing_is_retried_once_output_was_shown(delta: dict[str, Any]) -> None:
    cut = Answer(frames(chunk(delta)), end="reset")
    server, scope, failure = await exchange(cut, text_answer(), limits=RETRYING)
    assert isinstance(failure, UpstreamFailure)
    assert len(server.requests) == 1
    assert scope.last.attempts == []


async def test_retries_end_and_the_failure_says_when_to_come_again() -> None:
    answers = [refusal(429), refusal(429), refusal(429, **{"retry-after": "0.01"}), text_answer()]
    server, scope, failure = await exchange(*answers, limits=RETRYING)
    assert isinstance(failure, UpstreamFailure)
    assert (failure.code, failure.retry_after_s) == ("rate_limited", 0.01)
    assert len(server.requests) == 3
    assert scope.last.warnings == ["upstream_retry"] * 2
    assert scope.last.failed_requests == ["rate_limited"] * 3


async def test_no_retry_waits_beyond_the_turn_s_time() -> None:
    deadline = asyncio.get_running_loop().time() + 5
    server, scope, failure = await exchange(
        refusal(429, **{"retry-after": "30"}), text_answer(), limits=RETRYING, deadline=deadline
    )
    assert isinstance(failure, UpstreamFailure)
    assert failure.retry_after_s == 30
    assert len(server.requests) == 1
    assert scope.last.warnings == []


async def test_a_cancel_ends_the_wait_for_a_retry() -> None:
    async with (
        Loopback(refusal(429, **{"retry-after": "30"})) as server,
        upstream_of(server, limits=RETRYING) as up,
    ):
        async with recording() as scope:
            task = asyncio.create_task(ask(UpstreamModel(up, "m")))
            await asyncio.wait_for(server.answering.wait(), 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 1)
        assert scope.last.failures == [None]
        assert len(server.requests) == 1


def test_waits_grow_and_spread_and_a_server_s_wish_is_kept() -> None:
    assert [delay_s(n, None, 0.5) for n in (1, 2, 3, 4, 5, 6)] == [0.5, 1, 2, 4, 8, 8]
    assert delay_s(1, None, 0.0) == 0.375
    assert delay_s(1, None, 1.0) == 0.625
    assert 7 <= delay_s(1, 7.0, 1.0) < 7.2


# empty answers

EMPTY = Answer(frames(chunk({"content": ""}), chunk(finish="stop", usage=USAGE | {"completion_tokens": 0})))
BILLED = Answer(frames(chunk({"reasoning_content": "Hm."}), chunk(finish="stop", usage=USAGE)))


async def test_an_empty_answer_is_asked_for_once_more_from_the_same_state() -> None:
    server, scope, failure = await exchange(BILLED, text_answer())
    assert failure is None
    assert server.requests[0].body == server.requests[1].body
    assert scope.last.text == "All good."
    assert scope.last.warnings == ["empty_attempt"]
    assert scope.last.attempts[0] is not None
    assert scope.last.attempts[0].total_tokens == 18


async def test_reasoning_of_an_empty_attempt_is_not_told_as_complete() -> None:
    _, scope, _ = await exchange(BILLED, text_answer())
    assert "reasoning done" not in scope.last.kinds()
    assert [i["type"] for i in scope.last.output or []] == ["message"]


async def test_empty_again_and_free_is_a_failure() -> None:
    server, scope, failure = await exchange(EMPTY)
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "empty_completion"
    assert len(server.requests) == 2
    assert scope.last.failures[0] is not None


async def test_empty_again_but_billed_is_an_answer() -> None:
    _, scope, failure = await exchange(BILLED)
    assert failure is None
    assert scope.last.output is not None
    assert [i["type"] for i in scope.last.output] == ["reasoning"]
    assert scope.last.kinds()[-2:] == ["reasoning done", "completed"]


async def test_emptiness_is_seen_on_both_wires() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    nothing = Answer(frames(completed_event([reasoning], usage={"input_tokens": 1, "output_tokens": 0})))
    server, _, failure = await exchange(nothing, wire="responses")
    assert isinstance(failure, UpstreamFailure)
    assert failure.code == "empty_completion"
    assert len(server.requests) == 2


# what a server cannot take

NO_OPTIONS = Answer(
    b'{"detail": [{"loc": ["body", "stream_options"], "msg": "extra"}]}', 422, "application/json"
)


async def test_a_server_that_refuses_stream_options_is_asked_without_and_remembered() -> None:
    async with (
        Loopback(NO_OPTIONS, text_answer()) as server,
        upstream_of(server) as upstream,
        recording() as scope,
    ):
        for _ in range(2):
            await ask(UpstreamModel(upstream, "m"))
    assert ["stream_options" in r.body for r in server.requests] == [True, False, False]
    assert scope.calls[0].warnings == []
    assert [call.failed_requests for call in scope.calls] == [["upstream_rejected"], []]


async def test_a_refusal_that_does_not_go_away_names_the_parameter() -> None:
    server, _, failure = await exchange(NO_OPTIONS)
    assert isinstance(failure, UpstreamFailure)
    assert "stream_options" in failure.message
    assert len(server.requests) == 2


async def test_usage_is_not_asked_for_where_the_agent_says_so() -> None:
    async with Loopback(text_answer()) as server, upstream_of(server) as upstream:
        await ask(UpstreamModel(upstream, "m"), settings=ModelSettings(include_usage=False))
    assert "stream_options" not in server.requests[0].body


class Renewing:
    """Credentials that are good from the second on."""

    def __init__(self, url: str, keys: list[str]) -> None:
        self.url, self.keys = url, keys

    async def access(self) -> Access:
        return bearer_access(self.url, self.keys[0])

    async def renew(self, refused: Access) -> bool:
        self.keys = self.keys[1:]
        return True

    async def aclose(self) -> None:
        """Nothing was opened."""


async def test_credentials_are_renewed_once_after_a_401() -> None:
    for answers, asked in ([refusal(401), text_answer()], 2), ([refusal(401)], 2):
        async with Loopback(*answers) as server:
            endpoint = Renewing(server.url, ["old", "new", "newer"])
            async with upstream_of(server, limits=UpstreamLimits(), endpoint=endpoint) as upstream:
                if len(answers) == 1:
                    with pytest.raises(UpstreamFailure, match="401"):
                        await ask(UpstreamModel(upstream, "m"))
                else:
                    await ask(UpstreamModel(upstream, "m"))
            assert [r.headers["authorization"] for r in server.requests] == ["bearer old", "bearer new"]
            assert len(server.requests) == asked
