import httpx
import pytest

from app.domain.ids import ApprovalId, CallId
from app.domain.pause import Decision, ToolOutput
from tests.api.fake_turns import FakeTurns
from tests.wire.sse_parser import parse

pytestmark = pytest.mark.anyio


@pytest.fixture
async def paused(http: httpx.AsyncClient, turns: FakeTurns) -> httpx.AsyncClient:
    await http.post("/v1/turns", json={"input": "hi", "background": True})
    turns.pause("turn_1")
    return http


async def test_a_decision_is_answered_by_what_follows_it(paused: httpx.AsyncClient, turns: FakeTurns) -> None:
    body = {"decisions": [{"approval_id": "a", "decision": "approve", "arguments": {"q": 1}, "always": True}]}
    answer = await paused.post("/v1/turns/turn_1/decisions", json=body)
    assert [m.event for m in parse(answer.content)] == ["turn.resumed", "turn.completed"]
    decision = Decision(ApprovalId("a"), "approve", None, {"q": 1}, always=True)
    assert turns.calls[-1] == ("decide", (decision,), "turn_1")


async def test_outputs_are_given_in_every_form(paused: httpx.AsyncClient, turns: FakeTurns) -> None:
    body = {
        "outputs": [{"call_id": "c", "output": [{"a": None}]}, {"call_id": "d", "output": "", "error": "no"}]
    }
    answer = await paused.post(
        "/v1/turns/turn_1/tool_outputs", json=body, headers={"Accept": "application/json"}
    )
    assert answer.json()["status"] == "completed"
    outputs = (ToolOutput(CallId("c"), [{"a": None}]), ToolOutput(CallId("d"), "", "no"))
    assert turns.calls[-1] == ("give_outputs", outputs, "turn_1")


async def test_a_step_is_resumed_by_the_id_of_its_pause(paused: httpx.AsyncClient, turns: FakeTurns) -> None:
    answer = await paused.post("/v1/turns/turn_1/resume", json={"pause_id": "pause_1"})
    assert answer.headers["x-turn-id"] == "turn_1"
    assert turns.calls[-1] == ("resume", "pause_1", "turn_1")


@pytest.mark.parametrize(
    ("route", "body", "loc"),
    [
        ("decisions", {"decisions": []}, ["body", "decisions"]),
        (
            "decisions",
            {"decisions": [{"approval_id": "a", "decision": "maybe"}]},
            ["body", "decisions", 0, "decision"],
        ),
        ("decisions", {"decisions": [{"decision": "approve"}]}, ["body", "decisions", 0, "approval_id"]),
        ("tool_outputs", {"outputs": [{"call_id": "c"}]}, ["body", "outputs", 0, "output"]),
        ("tool_outputs", {"outputs": [{"call_id": 1, "output": 1}]}, ["body", "outputs", 0, "call_id"]),
        ("resume", {}, ["body", "pause_id"]),
        ("resume", {"pause_id": "p", "more": 1}, ["body", "more"]),
    ],
)
async def test_an_answer_that_says_nothing_is_refused(
    paused: httpx.AsyncClient, turns: FakeTurns, route: str, body: object, loc: list[str | int]
) -> None:
    answer = await paused.post(f"/v1/turns/turn_1/{route}", json=body)
    assert answer.status_code == 422
    assert [e["loc"] for e in answer.json()["errors"]] == [loc]
    assert len(turns.calls) == 1


async def test_what_waits_for_a_person_is_listed(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/approvals?status=pending")
    assert answer.json() == {"data": [], "has_more": False, "next": None}
