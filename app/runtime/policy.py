"""What may happen: an operator's policy is asked before each model call and each tool call.

`TURNWIRE_POLICY` is a function, `module:attribute`, or a URL that gets a POST. Both get one JSON object, the
question, and answer `allow`, `deny`, or an object with that as its `decision` and, for a denial, a `reason`. A
policy that raises, takes too long or says anything else has failed: what that means is a setting, and a warning
tells of it.
"""

import asyncio
import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import httpx2
from agents import (
    FunctionTool,
    Tool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)

from app.domain.json_types import Item, JsonObject
from app.domain.turn import Turn
from app.runtime.containment import AgentCodeExited, contained, exited
from app.runtime.failures import redacted
from app.runtime.observer import current_scope

Decision = Literal["allow", "deny"]
Warn = Callable[[str, str], None]

NO_REASON: Final = "no reason given"
MAX_INSTRUCTIONS: Final = 200
MAX_USER_TEXT: Final = 500
MAX_REASON: Final = 500
MAX_ANSWER_BYTES: Final = 64 * 1024


class PolicyLoadError(Exception):
    """`TURNWIRE_POLICY` names nothing that can be asked."""


class PolicyError(Exception):
    """The policy gave no usable answer; the message says why and holds nothing secret."""


class Policy(Protocol):
    """Who is asked. Anything that it raises is its failure."""

    async def answer(self, question: JsonObject) -> Any: ...


class FunctionPolicy:
    """A function of the operator's; a sync one runs in a thread."""

    def __init__(self, function: Callable[[JsonObject], Any]) -> None:
        self._function = function
        called = getattr(function, "__call__", None)  # noqa: B004 - an object may be called by an async method
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)

    @classmethod
    def load(cls, name: str) -> "FunctionPolicy":
        """From `module:attribute`. Raises PolicyLoadError that says what is wrong."""
        module, _, attribute = name.partition(":")
        try:
            function = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise PolicyLoadError(f"TURNWIRE_POLICY={name}: {error}") from error
        if not callable(function):
            raise PolicyLoadError(f"TURNWIRE_POLICY={name}: {type(function).__name__} is no function")
        return cls(function)

    async def answer(self, question: JsonObject) -> Any:
        if self._is_async:
            return await self._function(question)
        answer = await asyncio.to_thread(self._function, question)
        return await answer if inspect.isawaitable(answer) else answer


class RemotePolicy:
    """A URL: the question is the body of a POST, the answer that of a 2xx. Must be closed: `aclose`."""

    def __init__(self, url: str, *, trust_env: bool) -> None:
        self._url = url
        self._client = httpx2.AsyncClient(timeout=None, trust_env=trust_env, follow_redirects=False)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def answer(self, question: JsonObject) -> Any:
        try:
            async with self._client.stream("POST", self._url, json=question) as response:
                if not response.is_success:
                    raise PolicyError(f"its server answered {response.status_code}")
                body = b""
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MAX_ANSWER_BYTES:
                        raise PolicyError(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise PolicyError(f"its server cannot be reached ({type(error).__name__})") from error
        try:
            return json.loads(body)
        except ValueError as error:
            raise PolicyError("its answer is no JSON") from error


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """How long a policy may take, and what holds when it has failed."""

    timeout_s: float = 5.0
    failed_model_calls: Decision = "allow"
    failed_tool_calls: Decision = "deny"


@dataclass(frozen=True, slots=True)
class TurnPolicy:
    """The policy as it is asked for one turn."""

    policy: Policy
    rules: PolicyRules
    turn: Turn

    async def model_call(self, question: JsonObject, warn: Warn) -> str | None:
        """Why a model must not be called, None if it may."""
        return await self._ask("model_request", question, warn, self.rules.failed_model_calls)

    async def tool_call(self, question: JsonObject, warn: Warn) -> str | None:
        """Why a tool must not be called, None if it may."""
        return await self._ask("tool_call", question, warn, self.rules.failed_tool_calls)

    async def _ask(self, kind: str, about: JsonObject, warn: Warn, otherwise: Decision) -> str | None:
        question = {
            "type": kind,
            "caller": self.turn.caller.name,
            "user": self.turn.caller.user,
            "conversation_id": self.turn.conversation_id,
            "turn_id": self.turn.id,
            **about,
        }
        try:
            return denial(await self._answer(question))
        except TimeoutError:
            problem = f"it did not answer within {self.rules.timeout_s:g} s"
        except PolicyError as error:
            problem = str(error)
        except AgentCodeExited as error:
            problem = f"it raised {type(error.__cause__).__name__}"
        except Exception as error:  # noqa: BLE001 - a policy is the operator's code and may raise anything
            problem = f"it raised {type(error).__name__}"
        warn("policy_failed", f"The policy failed: {problem}. The call is {_PAST[otherwise]}.")
        return None if otherwise == "allow" else f"the policy failed: {problem}"

    async def _answer(self, question: JsonObject) -> Any:
        """In a task of its own: a policy that takes no cancellation is left behind, and holds up no turn."""
        asked = asyncio.create_task(contained(self.policy.answer(question)))
        asked.add_done_callback(_heard)
        try:
            await asyncio.wait({asked}, timeout=self.rules.timeout_s)
            if not asked.done():
                raise TimeoutError
            if asked.cancelled():
                raise PolicyError("it cancelled itself")
            error = asked.exception()
            if error is not None:
                raise error if isinstance(error, Exception) else exited(error) from error
            return asked.result()
        finally:
            asked.cancel()


def _heard(asked: "asyncio.Task[Any]") -> None:
    """Nobody may be left who wants to know how it ended."""
    if not asked.cancelled():
        asked.exception()


def no_policy(turn: Turn) -> TurnPolicy | None:
    """Nobody is asked."""
    return None


_PAST: Final[Mapping[Decision, str]] = {"allow": "allowed", "deny": "denied"}


def denial(answer: Any) -> str | None:
    """The reason of a denial, None for an allowance. Raises PolicyError for what is neither."""
    said: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {"decision": answer}
    match said.get("decision"):
        case "allow":
            return None
        case "deny":
            return _reason(said.get("reason"))
        case _:
            raise PolicyError("its answer is neither allow nor deny")


def _reason(given: Any) -> str:
    if given is not None and not isinstance(given, str):
        raise PolicyError("the reason of its denial is no text")
    return redacted((given or "")[:MAX_ANSWER_BYTES]).strip()[:MAX_REASON] or NO_REASON


def about_model_call(
    model: str, agent: str, instructions: str | None, items: Sequence[Item], tool_count: int
) -> JsonObject:
    """What a policy is told of a model call: counts and beginnings, not the conversation."""
    return {
        "model": model,
        "agent": agent,
        "message_count": len(items),
        "tool_count": tool_count,
        "instructions": (instructions or "")[:MAX_INSTRUCTIONS],
        "last_user_text": _last_user_text(items)[:MAX_USER_TEXT],
    }


def about_tool_call(tool: str, agent: str, call_id: str, arguments: str) -> JsonObject:
    """What a policy is told of a tool call; `arguments` is an object, null if they are none."""
    try:
        parsed = json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        parsed = None
    told = parsed if isinstance(parsed, dict) else None
    return {"tool": tool, "agent": agent, "call_id": call_id, "arguments": told}


def blocked_output(reason: str) -> str:
    """What the model is told instead of a tool's output."""
    return f"The call was blocked by a policy: {reason}"


def ask_before(tools: Sequence[Tool]) -> None:
    """Let the policy be asked before these tools run, whoever made them.

    The SDK makes some itself for each step or run (of a sandbox, of an MCP server): nobody has adopted them.
    What it offers to the model are the objects that it runs then, and a guardrail of its own kind stops one.
    """
    for tool in tools:
        if not isinstance(tool, FunctionTool) or getattr(tool.on_invoke_tool, "asks_policy", False):
            continue
        guardrails = tool.tool_input_guardrails or []
        if _GUARDRAIL not in guardrails:
            tool.tool_input_guardrails = [*guardrails, _GUARDRAIL]


async def _guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    scope, context = current_scope.get(), data.context
    reason = None
    if scope is not None:
        reason = await scope.tool_denied(context.tool_name, context.tool_call_id, context.tool_arguments)
    if reason is None:
        return ToolGuardrailFunctionOutput.allow()
    return ToolGuardrailFunctionOutput.reject_content(blocked_output(reason))


_GUARDRAIL: Final[ToolInputGuardrail[Any]] = ToolInputGuardrail(_guard, "policy")


def _last_user_text(items: Sequence[Item]) -> str:
    for item in reversed(items):
        if item.get("role") == "user":
            content = item.get("content")
            if isinstance(content, str):
                return content
            return "".join(part.get("text") or "" for part in content or () if isinstance(part, dict))
    return ""
