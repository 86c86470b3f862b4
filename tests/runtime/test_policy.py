"""What a policy is asked, what counts as its answer, and what happens when it has none."""

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest

from app.domain.caller import Caller
from app.domain.ids import ConversationId
from app.runtime.policy import (
    FunctionPolicy,
    Policy,
    PolicyError,
    PolicyLoadError,
    PolicyRules,
    RemotePolicy,
    TurnPolicy,
    about_model_call,
    about_tool_call,
    denial,
)
from tests.bounds import BOUND_S
from tests.runtime.models.loopback import Answer, Loopback
from tests.sample_turn import sample_turn

pytestmark = pytest.mark.anyio
TURN = sample_turn(conversation_id=ConversationId("chat"), caller=Caller("alice", "u_1"), agent="plain")


class Recording:
    """A policy's warnings, and its verdict on one call of either kind."""

    def __init__(self, policy: Policy, rules: PolicyRules | None = None) -> None:
        self.warnings: list[str] = []
        self._asked = TurnPolicy(policy, rules or PolicyRules(timeout_s=2), TURN)

    async def model_call(self) -> str | None:
        return await self._asked.model_call({"model": "m"}, lambda code, message: self.warnings.append(message))

    async def tool_call(self) -> str | None:
        return await self._asked.tool_call({"tool": "t"}, lambda code, message: self.warnings.append(message))


def json_answer(body: bytes, status: int = 200) -> Answer:
    return Answer(body, status=status, content_type="application/json")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("allow", None),
        ({"decision": "allow"}, None),
        ({"decision": "allow", "reason": "fine", "more": 1}, None),
        ("deny", "no reason given"),
        ({"decision": "deny"}, "no reason given"),
        ({"decision": "deny", "reason": " "}, "no reason given"),
        ({"decision": "deny", "reason": "not today"}, "not today"),
    ],
)
def test_a_policy_allows_or_denies_with_a_reason(answer: Any, reason: str | None) -> None:
    assert denial(answer) == reason


@pytest.mark.parametrize(
    "answer", [None, True, 1, "yes", [], {}, {"decision": "no"}, {"decision": "deny", "reason": 7}]
)
def test_any_other_answer_is_a_failure_of_the_policy(answer: Any) -> None:
    with pytest.raises(PolicyError):
        denial(answer)


async def test_a_sync_policy_runs_in_a_thread_of_its_own() -> None:
    threads: list[threading.Thread] = []

    def policy(question: dict[str, Any]) -> str:
        threads.append(threading.current_thread())
        return "deny"

    assert await Recording(FunctionPolicy(policy)).tool_call() == "no reason given"
    assert threads[0] is not threading.main_thread()


async def test_an_object_with_an_async_call_is_a_policy() -> None:
    class Judge:
        async def __call__(self, question: dict[str, Any]) -> Any:
            return {"decision": "deny", "reason": f"{question['type']} of {question['user']}"}

    assert await Recording(FunctionPolicy(Judge())).model_call() == "model_request of u_1"


async def test_what_a_failure_means_is_a_setting() -> None:
    def broken(question: dict[str, Any]) -> str:
        raise RuntimeError("sk-secret-key-1234567890")

    usual = Recording(FunctionPolicy(broken))
    assert await usual.model_call() is None
    assert "RuntimeError" in str(await usual.tool_call())
    assert [w.rsplit(" ", 1)[1] for w in usual.warnings] == ["allowed.", "denied."]
    assert "secret" not in "".join(usual.warnings)
    reverse = Recording(FunctionPolicy(broken), PolicyRules(2, "deny", "allow"))
    assert "RuntimeError" in str(await reverse.model_call())
    assert await reverse.tool_call() is None


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_a_policy_that_raises_what_ends_a_process_has_failed(error: type[BaseException]) -> None:
    async def leaves(question: dict[str, Any]) -> str:
        raise error

    asked = Recording(FunctionPolicy(leaves))
    assert await asked.model_call() is None
    assert "the policy failed" in str(await asked.tool_call())


async def test_a_policy_that_takes_no_cancellation_is_left_behind() -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def clings(question: dict[str, Any]) -> str:
        begun.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        raise RuntimeError

    asked = Recording(FunctionPolicy(clings), PolicyRules(timeout_s=0.05))
    with anyio.fail_after(BOUND_S):
        assert "did not answer within 0.05 s" in str(await asked.tool_call())
    assert begun.is_set()
    let_go.set()


def test_a_reason_of_megabytes_is_cut_before_it_is_looked_through() -> None:
    began = time.monotonic()
    assert denial({"decision": "deny", "reason": "x " * 5_000_000}) == ("x " * 250)
    assert time.monotonic() - began < 1


async def test_a_url_is_asked_by_a_post() -> None:
    async with Loopback(json_answer(b'{"decision": "deny", "reason": "closed"}')) as server:
        policy = RemotePolicy(server.url, trust_env=False)
        assert await Recording(policy).tool_call() == "closed"
        await policy.aclose()
    assert server.requests[0].body == {
        "type": "tool_call",
        "caller": "alice",
        "user": "u_1",
        "conversation_id": "chat",
        "turn_id": "turn_1",
        "tool": "t",
    }


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (json_answer(b'"allow"', 500), "answered 500"),
        (json_answer(b'"allow"', 302), "answered 302"),
        (json_answer(b"allowed"), "no JSON"),
        (json_answer(b'"' + b"x" * 70_000 + b'"'), "more than"),
        (Answer(b'"al', end="reset"), "cannot be reached"),
        (Answer(hold_headers=True), "did not answer within"),
    ],
)
async def test_a_url_that_gives_no_answer_has_failed(answer: Answer, problem: str) -> None:
    async with Loopback(answer) as server:
        policy = RemotePolicy(server.url, trust_env=False)
        asked = Recording(policy, PolicyRules(timeout_s=0.5))
        assert problem in str(await asked.tool_call())
        assert problem in asked.warnings[0]
        await policy.aclose()


@pytest.mark.parametrize("name", ["nowhere:x", "json:nothing", "json", "sys:path"])
def test_a_name_that_leads_to_no_function_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(PolicyLoadError, match=f"TURNWIRE_POLICY={name}"):
        FunctionPolicy.load(name)


def test_of_a_conversation_a_policy_sees_counts_and_beginnings() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": [{"type": "input_text", "text": "u" * 600}, {"type": "input_image"}]},
        {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
    ]
    told = about_model_call("m", "plain", "i" * 300, items, 3)
    assert told == {
        "model": "m",
        "agent": "plain",
        "message_count": 4,
        "tool_count": 3,
        "instructions": "i" * 200,
        "last_user_text": "u" * 500,
    }
    assert about_model_call("m", "plain", None, [], 0)["last_user_text"] == ""


@pytest.mark.parametrize(("text", "arguments"), [('{"q": 1}', {"q": 1}), ("", {}), ("[1]", None), ("{", None)])
def test_a_policy_sees_arguments_as_the_object_that_they_are(text: str, arguments: Any) -> None:
    assert about_tool_call("t", "plain", "call_1", text)["arguments"] == arguments
