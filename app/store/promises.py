"""Results that a thread owes: to tasks of the event loop, all of one commit at once, or to another thread."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from typing import Any

Promise = asyncio.Future[Any] | ThreadFuture[Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a promise: a result, or an error."""

    promise: Promise
    result: Any = None
    error: Exception | None = None


def deliver(loop: asyncio.AbstractEventLoop, outcomes: Iterable[Outcome]) -> None:
    """Keep the promises, from any thread; the loop is woken once."""
    for_loop: list[Outcome] = []
    for outcome in outcomes:
        if isinstance(outcome.promise, asyncio.Future):
            for_loop.append(outcome)
        else:
            _settle(outcome)
    if for_loop and not loop.is_closed():
        loop.call_soon_threadsafe(_settle_all, for_loop)


def _settle_all(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        _settle(outcome)


def _settle(outcome: Outcome) -> None:
    if outcome.promise.done():  # whoever waited has left
        return
    if outcome.error is not None:
        outcome.promise.set_exception(outcome.error)
    else:
        outcome.promise.set_result(outcome.result)
