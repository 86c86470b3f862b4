"""Turns that pause: how each gets there, how it is answered, and what is left when it has ended."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.service.answers import decisions, outputs, resume
from tests.service.shapes import Shape

JsonObject = dict[str, Any]
USER: Shape = ("user", "What is kelp?")
DONE: Shape = ("assistant", "All done.")
LAST = {"text": "All done."}
REJECTED = "Tool execution was not approved."


def call(name: str, **arguments: Any) -> JsonObject:
    return {"name": name, "arguments": arguments}


def calls(*made: JsonObject) -> JsonObject:
    return {"tool_calls": list(made)}


def called(name: str, arguments: str) -> Shape:
    return ("call", name, arguments)


GUARDED = calls(call("guarded", q="kelp"))
CALLED = called("guarded", '{"q":"kelp"}')
FOUND: Shape = ("output", "kelp: found behind the guard")
OPEN = called("open_lookup", '{"q":"moss"}')
FOUND_OPEN: Shape = ("output", "moss: found in the open")
CLIENTS = {"tools": [{"name": "ask_page"}, {"name": "read_page", "description": "Reads"}]}


@dataclass(frozen=True)
class Pausing:
    """`replies` are all that the model says; `answers` are given one after the other, to each pause its own.

    `kept` is the history at the end; `ran` are the tools of the server that did run, in any order.
    """

    name: str
    replies: list[JsonObject]
    answers: list[Callable[[JsonObject], JsonObject]]
    kept: list[Shape]
    agent: str = "guard"
    fields: JsonObject = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=lambda: ["approval"])


def approve(**more: Any) -> Callable[[JsonObject], JsonObject]:
    return lambda turn: decisions(turn, "approve", **more)


def reject(**more: Any) -> Callable[[JsonObject], JsonObject]:
    return lambda turn: decisions(turn, "reject", **more)


def give(*given: Any) -> Callable[[JsonObject], JsonObject]:
    return lambda turn: outputs(turn, *given)


def one(index: int, decision: str = "approve") -> Callable[[JsonObject], JsonObject]:
    """An answer to one of several approvals."""
    return lambda turn: {"decisions": [decisions(turn, decision)["decisions"][index]]}


_TWO = calls(call("guarded", q="kelp"), call("guarded", q="moss"))
_MOSS = called("guarded", '{"q":"moss"}')
_FOUND_MOSS: Shape = ("output", "moss: found behind the guard")
_MIXED = calls(call("open_lookup", q="moss"), call("guarded", q="kelp"), call("ask_page", q="fern"))
_ASKED_PAGE = called("ask_page", '{"q":"fern"}')
_TO_GUARD = calls(call("transfer_to_guard"))
_TRANSFER = called("transfer_to_guard", "{}")
_ASK_CLERK = calls(call("ask_clerk", input="kelp?"))
_ASKED_CLERK = called("ask_clerk", '{"input":"kelp?"}')
_CLERK_SAYS = {"text": "The clerk has it."}
_CLERKS: Shape = ("output", "The clerk has it.")

PAUSING = [
    Pausing("approved", [GUARDED, LAST], [approve()], [USER, CALLED, FOUND, DONE], ran=["guarded"]),
    Pausing(
        "approved where a person is asked about these arguments",
        [calls(call("sometimes", q="open"), call("sometimes", q="secret")), LAST],
        [approve()],
        [
            USER,
            called("sometimes", '{"q":"open"}'),
            called("sometimes", '{"q":"secret"}'),
            ("output", "open: found at last"),
            ("output", "secret: found at last"),
            DONE,
        ],
        ran=["sometimes", "sometimes"],
    ),
    Pausing(
        "rejected with a reason",
        [GUARDED, LAST],
        [reject(reason="Kelp is none of your business.")],
        [USER, CALLED, ("output", "Kelp is none of your business."), DONE],
    ),
    Pausing("rejected without one", [GUARDED, LAST], [reject()], [USER, CALLED, ("output", REJECTED), DONE]),
    Pausing(
        "approved with edited arguments",
        [GUARDED, LAST],
        [approve(arguments={"q": "moss"})],
        [USER, CALLED, _FOUND_MOSS, DONE],
        ran=["guarded"],
    ),
    Pausing(
        "approved for the rest of the turn",
        [GUARDED, calls(call("guarded", q="moss")), LAST],
        [approve(always=True)],
        [USER, CALLED, FOUND, _MOSS, _FOUND_MOSS, DONE],
        ran=["guarded", "guarded"],
    ),
    Pausing(
        "rejected for the rest of the turn",
        [GUARDED, calls(call("guarded", q="moss")), LAST],
        [reject(always=True, reason="No.")],
        [USER, CALLED, ("output", "No."), _MOSS, ("output", "No."), DONE],
    ),
    Pausing(
        "several at once, one of them rejected",
        [_TWO, LAST],
        [lambda turn: {"decisions": one(0)(turn)["decisions"] + one(1, "reject")(turn)["decisions"]}],
        [USER, CALLED, _MOSS, FOUND, ("output", REJECTED), DONE],
        ran=["guarded"],
    ),
    Pausing(
        "several, one after the other",
        [_TWO, LAST],
        [one(1), one(0)],
        [USER, CALLED, _MOSS, FOUND, _FOUND_MOSS, DONE],
        ran=["guarded", "guarded"],
        reasons=["approval", "approval"],
    ),
    Pausing(
        "a second pause after the first",
        [GUARDED, calls(call("guarded", q="moss")), LAST],
        [approve(), approve()],
        [USER, CALLED, FOUND, _MOSS, _FOUND_MOSS, DONE],
        ran=["guarded", "guarded"],
        reasons=["approval", "approval"],
    ),
    Pausing(
        "after a handoff",
        [_TO_GUARD, GUARDED, LAST],
        [approve()],
        [USER, _TRANSFER, ("output", '{"assistant": "guard"}'), CALLED, FOUND, DONE],
        agent="porter",
        ran=["guarded"],
    ),
    Pausing(
        "after a handoff to an agent that can hand back, with tools of the caller's",
        [calls(call("transfer_to_guard_with_way_back")), GUARDED, LAST],
        [approve()],
        [
            USER,
            called("transfer_to_guard_with_way_back", "{}"),
            ("output", '{"assistant": "guard_with_way_back"}'),
            CALLED,
            FOUND,
            DONE,
        ],
        agent="revolving",
        fields=CLIENTS,
        ran=["guarded"],
    ),
    Pausing(
        "in a nested agent",
        [_ASK_CLERK, GUARDED, _CLERK_SAYS, LAST],
        [approve()],
        [USER, _ASKED_CLERK, _CLERKS, DONE],
        agent="chief",
        ran=["guarded"],
    ),
    Pausing(
        "rejected in a nested agent",
        [_ASK_CLERK, GUARDED | {"when": "I am the clerk"}, _CLERK_SAYS, LAST],
        [reject(reason="Not the clerk's to know.")],
        [USER, _ASKED_CLERK, _CLERKS, DONE],
        agent="chief",
    ),
    Pausing(
        "with edited arguments in a nested agent, for the rest of the turn",
        [_ASK_CLERK, GUARDED, calls(call("guarded", q="fern")), _CLERK_SAYS, LAST],
        [approve(arguments={"q": "moss"}, always=True)],
        [USER, _ASKED_CLERK, _CLERKS, DONE],
        agent="chief",
        ran=["guarded", "guarded"],
    ),
    Pausing(
        "in a nested agent and beside it",
        [
            calls(call("ask_clerk", input="kelp?"), call("guarded", q="moss"), call("open_lookup", q="moss")),
            GUARDED,
            _CLERK_SAYS,
            LAST,
        ],
        [one(0), one(0)],
        [USER, _ASKED_CLERK, _MOSS, OPEN, _CLERKS, _FOUND_MOSS, FOUND_OPEN, DONE],
        agent="chief",
        ran=["guarded", "guarded", "open_lookup"],
        reasons=["approval", "approval"],
    ),
    Pausing(
        "twice in a nested agent",
        [_ASK_CLERK, GUARDED, calls(call("guarded", q="moss")), _CLERK_SAYS, LAST],
        [approve(), approve()],
        [USER, _ASKED_CLERK, _CLERKS, DONE],
        agent="chief",
        ran=["guarded", "guarded"],
        reasons=["approval", "approval"],
    ),
    Pausing(
        "in two nested agents at once",
        [
            calls(call("ask_clerk", input="kelp?"), call("ask_clerk", input="kelp?")),
            GUARDED,
            GUARDED,
            _CLERK_SAYS,
            _CLERK_SAYS,
            LAST,
        ],
        [one(1), one(0)],
        [USER, _ASKED_CLERK, _ASKED_CLERK, _CLERKS, _CLERKS, DONE],
        agent="chief",
        ran=["guarded", "guarded"],
        reasons=["approval", "approval"],
    ),
    Pausing(
        "two levels down, in an agent that streams",
        [calls(call("ask_chief", input="?")), _ASK_CLERK, GUARDED, _CLERK_SAYS, {"text": "It has it."}, LAST],
        [approve()],
        [USER, called("ask_chief", '{"input":"?"}'), ("output", "It has it."), DONE],
        agent="head",
        ran=["guarded"],
    ),
    Pausing(
        "a tool of the caller's",
        [calls(call("ask_page", q="fern")), LAST],
        [give("Fern is green.")],
        [USER, _ASKED_PAGE, ("output", "Fern is green."), DONE],
        fields=CLIENTS,
        reasons=["tool_output"],
    ),
    Pausing(
        "two tools of the caller's, one of which fails",
        [calls(call("ask_page", q="fern"), call("read_page")), LAST],
        [give({"b": [1, None], "a": True}, ValueError("the page is gone"))],
        [
            USER,
            _ASKED_PAGE,
            called("read_page", "{}"),
            ("output", '{"a": true, "b": [1, null]}'),
            ("output", "An error occurred while running the tool: the page is gone"),
            DONE,
        ],
        fields=CLIENTS,
        reasons=["tool_output"],
    ),
    Pausing(
        "tools of the caller's and the server's and an approval in one step",
        [_MIXED, LAST],
        [give("Fern is green."), approve()],
        [
            USER,
            OPEN,
            CALLED,
            _ASKED_PAGE,
            FOUND_OPEN,
            FOUND,
            ("output", "Fern is green."),
            DONE,
        ],
        fields=CLIENTS,
        ran=["open_lookup", "guarded"],
        reasons=["approval", "approval"],
    ),
    Pausing(
        "the same, the approval first",
        [_MIXED, LAST],
        [approve(), give("Fern is green.")],
        [USER, OPEN, CALLED, _ASKED_PAGE, FOUND_OPEN, FOUND, ("output", "Fern is green."), DONE],
        fields=CLIENTS,
        ran=["open_lookup", "guarded"],
        reasons=["approval", "tool_output"],
    ),
    Pausing(
        "the same, approved automatically",
        [_MIXED, LAST],
        [give("Fern is green.")],
        [USER, OPEN, CALLED, _ASKED_PAGE, FOUND_OPEN, FOUND, ("output", "Fern is green."), DONE],
        fields=CLIENTS | {"approvals": "auto"},
        ran=["open_lookup", "guarded"],
        reasons=["tool_output"],
    ),
    Pausing(
        "step by step",
        [calls(call("open_lookup", q="moss")), calls(call("open_lookup", q="moss")), LAST],
        [resume, resume],
        [USER, OPEN, FOUND_OPEN, OPEN, FOUND_OPEN, DONE],
        fields={"stepwise": True},
        ran=["open_lookup", "open_lookup"],
        reasons=["step", "step"],
    ),
    Pausing(
        "step by step, with an approval and a tool of the caller's",
        [_MIXED, LAST],
        [approve(), give("Fern is green."), resume],
        [USER, OPEN, CALLED, _ASKED_PAGE, FOUND_OPEN, FOUND, ("output", "Fern is green."), DONE],
        fields=CLIENTS | {"stepwise": True},
        ran=["open_lookup", "guarded"],
        reasons=["approval", "tool_output", "step"],
    ),
    Pausing(
        "step by step over a handoff, which is no tool",
        [_TO_GUARD, calls(call("open_lookup", q="moss")), LAST],
        [resume],
        [USER, _TRANSFER, ("output", '{"assistant": "guard"}'), OPEN, FOUND_OPEN, DONE],
        agent="porter",
        fields={"stepwise": True},
        ran=["open_lookup"],
        reasons=["step"],
    ),
]
