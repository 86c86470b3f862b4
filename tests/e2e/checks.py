"""What holds after every turn, however it ended."""

from collections.abc import Sequence

from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import Shape, sent
from tests.service.sse import TERMINAL, Frame
from tests.upstream.client import Scenario


def check_log(frames: list[Frame], turn: JsonObject) -> None:
    """One terminal frame, the last; everything that began has ended, once."""
    types = [frame.type for frame in frames]
    assert sum(kind in TERMINAL for kind in types) == 1
    assert frames[-1].type == f"turn.{turn['status']}"
    assert frames[-1].data["turn"] == {name: turn[name] for name in turn if name != "input"}
    for noun in ("message", "reasoning"):
        began = [f.data["item_id"] for f in frames if f.type == f"{noun}.started"]
        assert sorted(began) == sorted(f.data["item_id"] for f in frames if f.type == f"{noun}.completed")
    began = [f.data["call_id"] for f in frames if f.type == "tool_call.started"]
    assert sorted(began) == sorted(f.data["call_id"] for f in frames if f.type == "tool_call.completed")
    assert types.count("step.started") == types.count("step.completed")
    if turn["status"] == "cancelled":
        check_cancelled_calls(frames)


def check_cancelled_calls(frames: list[Frame]) -> None:
    completed = {f.data["call_id"]: f.data for f in frames if f.type == "tool_call.completed"}
    requested = {f.data["call_id"] for f in frames if f.type == "tool_call.requested"}
    for call_id, data in completed.items():
        assert data["status"] in ("success", "cancelled")
        assert call_id in requested or data["status"] == "cancelled"


async def the_next_turn_is_valid(
    client: TurnwireClient, scenario: Scenario, conversation: str, kept: Sequence[Shape]
) -> None:
    await scenario.script({"text": "Fine."})
    turn = await client.run("And now?", conversation=conversation, agent="plain")
    request = await scenario.last_request()
    assert turn["status"] == "completed", turn["error"]
    assert request.problems == []
    assert sent(request.history) == [*kept, ("user", "And now?")]
