"""What servers of both wires send, each in its own way: the turn says it once, or says by which code it failed,
and the conversation goes on with a history that a strict provider takes.

The bodies are those of `tests/upstream/bodies/chat` and `tests/upstream/bodies/responses`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import API_KEY, ServiceProcess
from tests.service.sse import Frame
from tests.upstream.client import Scenario
from tests.upstream.replay import BODIES, cases

pytestmark = pytest.mark.anyio

TIDE = "the tide is out"


@dataclass(frozen=True)
class Outcome:
    """What the turn says: the texts of its messages in order, its calls, the code it fails by, what its error
    holds, and the tokens of the model calls that were reported (18 each)."""

    texts: tuple[str, ...] = ("Hello",)
    calls: tuple[tuple[str, Any], ...] = ()
    code: str | None = None
    message: str = ""
    tokens: int = 18


def calling(*calls: tuple[str, Any], tokens: int = 36) -> Outcome:
    """The calls, and then the upstream's next answer."""
    return Outcome(("All good.",), calls, tokens=tokens)


def failing(code: str, *texts: str, message: str = "", tokens: int = 18) -> Outcome:
    return Outcome(texts, (), code, message, tokens)


ALPHA, BETA = ("lookup", {"q": "alpha"}), ("lookup", {"q": "beta"})

CHAT = {
    "blocks-in-odd-shapes": Outcome(),
    "message-said-again": Outcome(),
    "choices-from-one": Outcome(),
    "lists-of-chunks": Outcome(),
    "blanks-first": Outcome(("\nHello",)),
    "whole-document": Outcome(),
    "gzip": Outcome(),
    "bytes-apart": Outcome(("é\u2028\U0001f600\x85z",)),
    "name-in-pieces": calling(ALPHA),
    "new-id-each-chunk": calling(ALPHA),
    "call-said-twice": calling(ALPHA),
    "arguments-that-grow": calling(ALPHA),
    "arguments-in-a-text": calling(ALPHA),
    "arguments-under-another-name": calling(ALPHA),
    "one-id-two-calls": calling(ALPHA, BETA),
    "no-ids-no-numbers": calling(ALPHA, BETA),
    "half-a-name": calling(("look up\ufffd", {"q": "alpha"})),
    "empty-list-for-arguments": calling(("get_time", {})),
    "signed-thought": calling(ALPHA),
    "null-as-a-reason": failing("upstream_protocol", "Hello", tokens=0),
    "calls-that-never-come": failing("upstream_protocol", "Let me look."),
    "filter-with-a-reason": failing("content_filtered", "Hel"),
    "limit-in-capitals": failing("incomplete", "Hel"),
    "malformed-call": failing("upstream_error", "Hel"),
    "refusal": failing("content_filtered", "", message="I cannot."),
    "detail": failing("upstream_error", "Hel", message=TIDE, tokens=0),
    "error-code": failing("rate_limited", message=TIDE, tokens=0),
    "error-event-of-a-text": failing("upstream_error", "Hel", message=TIDE, tokens=0),
    "error-document": failing("context_length_exceeded", message=TIDE, tokens=0),
    "page-after-text": failing("upstream_protocol", "Hel", tokens=0),
    "usage-in-two-parts": Outcome(),
    "usage-beyond-numbers": Outcome(tokens=7),
}
RESPONSES = {
    "only-the-whole-text": Outcome(),
    "only-in-the-end": Outcome(),
    "late-deltas": Outcome(),
    "numbers-for-ids": Outcome(),
    "names-without-types": Outcome(),
    "one-id-two-messages": Outcome(("Hello", "You")),
    "flat-end": Outcome(),
    "unknown-item": Outcome(),
    "answer-to-its-own-call": calling(ALPHA),
    "hosted-call-of-no-name": Outcome(calls=(("mcp", {}),)),
    "one-item-id-two-calls": calling(ALPHA, BETA),
    "ids-that-change": calling(ALPHA),
    "no-ids": calling(ALPHA, BETA),
    "arguments-only-at-their-end": calling(ALPHA),
    "half-a-name": calling(("look up\ufffd", {"q": "alpha"})),
    "begins-again": failing("upstream_protocol", "Hel", tokens=0),
    "incomplete-by-a-filter": failing("content_filtered", "Hello"),
    "failed-with-details": failing("rate_limited", "Hello", message=TIDE, tokens=0),
    "failed-at-once": failing("upstream_error", message=TIDE, tokens=0),
    "detail": failing("upstream_error", "Hello", message=TIDE, tokens=0),
    "still-under-way": failing("upstream_protocol", tokens=0),
    "usage-before-the-end": Outcome(),
    "refusal-at-its-end": failing("content_filtered", "", message="I cannot."),
}
EXPECTED = {"chat": CHAT, "responses": RESPONSES}


@pytest.fixture(scope="module")
def chat_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    yield from serving(tmp_path_factory, upstream_origin, TURNWIRE_MODEL_API="chat_completions")


@pytest.fixture(scope="module")
def responses_service(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    yield from serving(tmp_path_factory, upstream_origin, TURNWIRE_MODEL_API="responses")


def serving(folders: pytest.TempPathFactory, origin: str, **settings: str) -> Iterator[ServiceProcess]:
    """A service that asks no failing upstream again, and whose log must stay free of tracebacks and keys."""
    with ServiceProcess(folders.mktemp("dialects"), origin, TURNWIRE_UPSTREAM_RETRIES=0, **settings) as service:
        yield service
        service.check_log()


@pytest.mark.parametrize("wire", EXPECTED)
def test_each_body_has_an_outcome(wire: str) -> None:
    assert set(cases(BODIES / wire)) == set(EXPECTED[wire])


@pytest.mark.parametrize(("wire", "case"), [(wire, case) for wire in EXPECTED for case in EXPECTED[wire]])
async def test_a_dialect_is_understood_and_the_conversation_goes_on(
    request: pytest.FixtureRequest, scenario: Scenario, wire: str, case: str
) -> None:
    service: ServiceProcess = request.getfixturevalue(f"{wire}_service")
    client = TurnwireClient(service.base_url, model=scenario.model)
    await scenario.replay(case, str(BODIES / wire))
    async with client.stream("hello", agent="worker", timeout_s=15) as stream:
        frames = await stream.rest()
    turn = await client.turn(stream.turn_id)
    items = await client.items(stream.conversation_id)
    following = await client.run("and now?", conversation=stream.conversation_id, agent="plain")
    requests = await scenario.requests()
    await client.aclose()
    check_log(frames, turn)
    check_outcome(frames, turn, EXPECTED[wire][case])
    check_items(frames, items)
    assert following["status"] == "completed", following["error"]
    assert [problem for received in requests for problem in received.problems] == []
    assert API_KEY not in stream.raw.decode()


def check_outcome(frames: list[Frame], turn: JsonObject, expected: Outcome) -> None:
    error = turn["error"] or {"code": None, "message": ""}
    assert error["code"] == expected.code, error
    assert expected.message in error["message"]
    assert turn["status"] == ("failed" if expected.code else "completed")
    assert texts(frames) == list(expected.texts)
    assert calls(frames) == list(expected.calls)
    assert turn["usage"]["total_tokens"] == expected.tokens


def texts(frames: list[Frame]) -> list[str]:
    """What the messages say; their deltas say the same."""
    found = {f.data["item_id"]: f.data["text"] for f in frames if f.type == "message.completed"}
    for item_id, text in found.items():
        deltas = [f.data["delta"] for f in frames if f.type == "message.delta" and f.data["item_id"] == item_id]
        assert "".join(deltas) == text
    return list(found.values())


def calls(frames: list[Frame]) -> list[tuple[str, Any]]:
    return [(f.data["tool"], f.data["arguments"]) for f in frames if f.type == "tool_call.requested"]


def check_items(frames: list[Frame], items: list[JsonObject]) -> None:
    """History holds the messages that were shown and the calls that were made, each with its output."""
    said = [i["content"][0].get("text", "") for i in items if i.get("role") == "assistant"]
    assert said == texts(frames)
    made = {i["call_id"] for i in items if i.get("type") == "function_call"}
    answered = {i["call_id"] for i in items if i.get("type") == "function_call_output"}
    run_here = [f for f in frames if f.type == "tool_call.requested" and f.data["executor"] == "server"]
    assert made == answered == {f.data["call_id"] for f in run_here}
    started = [f.data["item_id"] for f in frames if f.type.endswith(".started") and "item_id" in f.data]
    assert len(set(started)) == len(started)
