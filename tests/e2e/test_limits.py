"""Every limit that is a setting, hit over HTTP.

Those that have a test with what they limit: the body's size (`test_starting`), the queue's length
(`test_conflicts`), steps (`test_endings`), the listener's stall (`test_connections`).
"""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.store.data_folder import DataFolder
from tests.bounds import BOUND_S
from tests.service.answers import answer, answered, decisions
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.sse import Frame
from tests.upstream.client import Scenario, UpstreamControl

pytestmark = pytest.mark.anyio

KEYS = {"ann": "ann-key-1234567890123456", "bob": "bob-key-1234567890123456"}
NESTING = 20
TURNS_TO_SWEEP = 800
SLOW_S = 5
"""For a turn that takes 20 ms alone: far more than any work of the sweep in one piece."""
LIMITS = {
    "TURNWIRE_API_KEYS": ",".join(f"{name}:{key}" for name, key in KEYS.items()),
    "TURNWIRE_OVERRIDES": "agent,model",
    "TURNWIRE_MAX_TURNS_PER_CALLER": 2,
    "TURNWIRE_MAX_TURNS": 3,
    "TURNWIRE_MAX_LISTENERS": 2,
    "TURNWIRE_TURN_TIMEOUT_S": 4,
    "TURNWIRE_TOOL_TIMEOUT_S": 0.4,
    "TURNWIRE_TOOL_THREADS": 2,
    "TURNWIRE_MAX_TOOL_OUTPUT_BYTES": 1000,
    "TURNWIRE_UPSTREAM_FIRST_BYTE_S": 2,
    "TURNWIRE_UPSTREAM_IDLE_S": 0.5,
    "TURNWIRE_UPSTREAM_RETRIES": 0,
    "TURNWIRE_MAX_FRAME_BYTES": 4000,
    "TURNWIRE_MAX_MESSAGE_BYTES": 9000,
    "TURNWIRE_DISCONNECT_GRACE_S": 0.2,
    "TURNWIRE_MAX_NESTING": NESTING,
}


@pytest.fixture(scope="module")
def limited_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("limited-service")
    with ServiceProcess(folder, upstream_origin, **LIMITS) as service:
        yield service
        service.check_log()


@pytest.fixture
async def ann(limited_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(limited_service.base_url, model=scenario.model, key=KEYS["ann"])
    yield client
    await client.aclose()


@pytest.fixture
async def bob(limited_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(limited_service.base_url, model=scenario.model, key=KEYS["bob"])
    yield client
    await client.aclose()


def refusal(response: httpx.Response, *says: str) -> tuple[int, str]:
    """Status and code of a problem that says when to come again, and how much is allowed."""
    assert int(response.headers["retry-after"]) >= 1
    problem = response.json()
    assert [words for words in says if words not in problem["detail"]] == []
    return response.status_code, problem["code"]


async def held_turns(client: TurnwireClient, scenario: Scenario, count: int) -> list[JsonObject]:
    """Turns that wait for their first byte, for as long as the limit lets them."""
    await scenario.script(*[{"text": "one two", "hold": {"headers": scenario.gate("held")}}] * count)
    return [await client.start("hello") for _ in range(count)]


# --- turns ---------------------------------------------------------------------------------------


async def test_a_caller_with_too_many_turns_is_refused_and_others_are_not(
    ann: TurnwireClient, bob: TurnwireClient, scenario: Scenario
) -> None:
    turns = await held_turns(ann, scenario, 2)
    assert refusal(await ann.post("one more"), "2 turns", "one caller") == (429, "too_many_turns")
    other = await bob.post("hello", background=True)
    assert other.status_code == 202
    assert refusal(await bob.post("the fourth of all"), "3 turns", "the service") == (429, "too_many_turns")
    for turn in turns:
        await ann.cancel(turn["id"])
    await bob.cancel(other.json()["id"])
    assert (await ann.run("again"))["status"] == "completed"


async def paused_turn(client: TurnwireClient, scenario: Scenario) -> JsonObject:
    await scenario.script({"tool_calls": [{"name": "guarded", "arguments": {"q": "kelp"}}]}, {"text": "Done."})
    turn = await client.run("look it up", agent="guard")
    assert turn["status"] == "paused"
    return turn


async def test_an_answer_to_a_pause_is_refused_while_too_many_turns_run_and_is_taken_after(
    ann: TurnwireClient, scenario: Scenario, upstream: UpstreamControl
) -> None:
    waiting = await paused_turn(ann, scenario)
    others = upstream.scenario()
    ann.model = others.model
    turns = await held_turns(ann, others, 2)
    sent = decisions(waiting)
    assert refusal(await answer(ann, waiting["id"], sent)) == (429, "too_many_turns")
    assert (await ann.turn(waiting["id"])) == waiting
    await ann.cancel(turns[0]["id"])
    assert (await answered(ann, waiting["id"], sent))["status"] == "completed"
    await ann.cancel(turns[1]["id"])


async def test_turns_that_wait_behind_a_pause_do_not_keep_it_from_its_answer(
    ann: TurnwireClient, scenario: Scenario
) -> None:
    waiting = await paused_turn(ann, scenario)
    behind = {"conversation": waiting["conversation_id"], "on_conflict": "enqueue"}
    queued = [await ann.start("and then", **behind) for _ in range(2)]
    assert refusal(await ann.post("one more", **behind)) == (429, "too_many_turns")
    await scenario.script(*[{"text": "Then."}] * 3)
    assert (await answered(ann, waiting["id"], decisions(waiting)))["status"] == "completed"
    assert [(await ann.ended(turn["id"]))["status"] for turn in queued] == ["completed"] * 2


async def test_a_turn_that_runs_too_long_fails(ann: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one " * 100, "delay_s": 0.1})
    turn = await ann.run("hello")
    assert (turn["status"], turn["error"]["code"], turn["error"]["retryable"]) == ("failed", "timeout", True)
    assert "4 seconds" in turn["error"]["message"]
    await scenario.closed()


# --- the upstream --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "says"), [("headers", "did not answer within 2 s"), ("text:1", "was silent for 0.5 s")]
)
async def test_a_silent_upstream_is_given_up(
    ann: TurnwireClient, scenario: Scenario, place: str, says: str
) -> None:
    await scenario.script({"text": "one two three", "hold": {place: scenario.gate("silence")}})
    turn = await ann.run("hello")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_timeout")
    assert says in turn["error"]["message"]
    await scenario.closed()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ({"text": "x" * 5000, "chunks": 1}, "a frame of more than 4000 bytes"),
        ({"text": "x" * 10_000, "chunks": 100}, "more than 9000 characters"),
    ],
    ids=["frame", "message"],
)
async def test_an_upstream_that_sends_too_much_at_once_or_in_all_is_cut_off(
    ann: TurnwireClient, scenario: Scenario, text: JsonObject, says: str
) -> None:
    await scenario.script(text)
    turn = await ann.run("hello")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_protocol")
    assert len(turn["output_text"]) <= 9000
    assert says in turn["error"]["message"]


@contextmanager
def listens_and_never_accepts() -> Iterator[str]:
    """The address of a server whose queue is full: whoever connects waits."""
    with (
        closing(socket.socket()) as listening,
        closing(socket.socket()) as first,
        closing(socket.socket()) as second,
    ):
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


async def test_an_upstream_that_does_not_accept_is_given_up(tmp_path: Path, upstream_origin: str) -> None:
    patience = {"TURNWIRE_UPSTREAM_CONNECT_S": 0.5, "TURNWIRE_UPSTREAM_RETRIES": 0}
    with (
        listens_and_never_accepts() as url,
        ServiceProcess(tmp_path, upstream_origin, OPENAI_BASE_URL=url, **patience) as service,
    ):
        client = TurnwireClient(service.base_url)
        async with asyncio.timeout(10):
            turn = await client.run("hello")
        await client.aclose()
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_unreachable")
    assert "within 0.5 s" in turn["error"]["message"]


# --- tools ---------------------------------------------------------------------------------------


def calls(tool: str, **arguments: Any) -> JsonObject:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def completed_call(frames: list[Frame]) -> JsonObject:
    (call,) = [frame.data for frame in frames if frame.type == "tool_call.completed"]
    return call


async def test_a_tool_that_takes_too_long_ends_as_an_error_and_the_model_is_told(
    ann: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(calls("slow_async", q=scenario.gate("tool")), {"text": "Too slow."})
    turn = await ann.run("hello", agent="worker")
    call = completed_call(await ann.log(turn["id"]))
    assert (call["status"], "0.4 seconds" in call["error"]) == ("error", True)
    assert (turn["status"], turn["output_text"]) == ("completed", "Too slow.")
    await scenario.control.gone(scenario.gate("tool"))


async def test_what_a_tool_says_is_cut_in_events_and_whole_in_history(
    ann: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(calls("big", size=3000), {"text": "Much."})
    turn = await ann.run("hello", agent="worker")
    call = completed_call(await ann.log(turn["id"]))
    assert call["output_truncated"] is True
    assert len(str(call["output"])) <= 1000
    (output,) = [i for i in await ann.items(turn["conversation_id"]) if i.get("type") == "function_call_output"]
    assert output["output"] == "x" * 3000
    assert str((await scenario.last_request()).body).count("x" * 3000) == 1


async def test_tools_that_never_return_hold_their_threads_and_nothing_else(
    ann: TurnwireClient, bob: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(*[calls("slow_sync", q=scenario.gate("tool")), {"text": "Lost."}] * 2)
    lost = [await ann.run("hello", agent="worker") for _ in range(2)]
    assert [turn["output_text"] for turn in lost] == ["Lost.", "Lost."]
    assert await figure(ann, "turnwire_tool_threads_abandoned") == 2

    await scenario.script(calls("slow_sync", q=scenario.gate("tool")), {"text": "No thread."})
    turn = await bob.run("hello", agent="worker")
    assert completed_call(await bob.log(turn["id"]))["status"] == "error"
    assert turn["output_text"] == "No thread."
    await scenario.script({"text": "Others go on."})
    assert (await bob.run("hello"))["output_text"] == "Others go on."

    await scenario.release("tool")
    async with asyncio.timeout(10):
        while await figure(ann, "turnwire_tool_threads_abandoned"):
            pass


async def figure(client: TurnwireClient, name: str) -> float:
    lines = (await client.http.get("/metrics")).text.splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


# --- listeners and requests ----------------------------------------------------------------------


async def test_a_turn_has_so_many_listeners_and_no_more(ann: TurnwireClient, scenario: Scenario) -> None:
    (turn,) = await held_turns(ann, scenario, 1)
    path = f"/v1/turns/{turn['id']}/events"
    async with ann.events(turn["id"]) as first, ann.events(turn["id"]) as second:
        await anext(first)
        await anext(second)
        assert refusal(await ann.http.get(path), "2 listeners") == (503, "overloaded")
        await ann.cancel(turn["id"])
        assert (await first.rest())[-1].type == (await second.rest())[-1].type == "turn.cancelled"


def nested(levels: int) -> JsonObject:
    """A schema of so many objects, one in the other."""
    return {"not": nested(levels - 1)} if levels > 1 else {}


async def test_a_body_nested_too_deep_is_refused_where_it_is(ann: TurnwireClient) -> None:
    body = b'{"input": "hello", "metadata": ' + b"[" * NESTING + b"]" * NESTING + b"}"
    response = await ann.http.post("/v1/turns", content=body, headers={"content-type": "application/json"})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (400, "bad_request")
    assert problem["errors"][0]["loc"][:2] == ["body", "metadata"]
    assert problem["errors"][0]["message"] == f"nested deeper than {NESTING}"
    taken = await ann.post("hello", tools=[{"name": "mine", "parameters": nested(NESTING - 3)}])
    assert taken.json()["code"] == "override_forbidden"  # the body was read, and only then refused


# --- age -----------------------------------------------------------------------------------------


async def test_what_is_too_old_is_removed_at_the_next_sweep(tmp_path: Path, upstream_origin: str) -> None:
    ages = {"TURNWIRE_EVENT_RETENTION_H": 24, "TURNWIRE_CONVERSATION_RETENTION_D": 7}
    with ServiceProcess(tmp_path, upstream_origin, **ages) as service:
        client = TurnwireClient(service.base_url)
        turns = [await client.run("hello", conversation=name) for name in ("days", "weeks")]
        service.kill()
        age(tmp_path, turns[0], days=2)
        age(tmp_path, turns[1], days=8)
        service.restart()
        client.http.base_url = service.base_url
        async with asyncio.timeout(10):
            while (await client.http.get(f"/v1/turns/{turns[1]['id']}")).status_code == 200:
                pass
            while (await client.http.get(f"/v1/turns/{turns[0]['id']}/events")).status_code == 200:
                pass
        events = await client.http.get(f"/v1/turns/{turns[0]['id']}/events")
        assert (events.status_code, events.json()["code"]) == (410, "events_expired")
        assert "no longer kept" in events.json()["detail"]
        assert (await client.turn(turns[0]["id"]))["output_text"] == "All good."
        assert len(await client.items("days")) == 2
        assert (await client.http.get("/v1/conversations/weeks")).status_code == 404
        await client.aclose()


def age(folder: Path, turn: JsonObject, *, days: int) -> None:
    """Make a turn and its conversation so many days older, in the database of a service that is stopped."""
    older = days * 24 * 3600 * 1_000_000
    with closing(sqlite3.connect(DataFolder(folder).database)) as database, database:
        database.execute("UPDATE turns SET ended_at = ended_at - ? WHERE id = ?", (older, turn["id"]))
        conversation = turn["conversation_id"]
        database.execute(
            "UPDATE conversations SET active_at = active_at - ? WHERE id = ?", (older, conversation)
        )


async def test_a_sweep_of_much_holds_nobody_up(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    """While the events of many turns are removed, turns begin and end as ever."""
    with ServiceProcess(tmp_path, upstream_origin, TURNWIRE_EVENT_RETENTION_H=24) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        old = await client.run("hello")
        service.kill()
        multiply(tmp_path, old, TURNS_TO_SWEEP)
        service.restart()
        client.http.base_url = service.base_url
        assert expired_turns(tmp_path) < TURNS_TO_SWEEP
        now, ran = asyncio.get_running_loop().time, 0
        async with asyncio.timeout(BOUND_S):
            while expired_turns(tmp_path) < TURNS_TO_SWEEP:
                began = now()
                assert (await client.run("hello"))["status"] == "completed"
                assert now() - began < SLOW_S
                ran += 1
        assert ran > 3
        await client.aclose()


def multiply(folder: Path, turn: JsonObject, count: int) -> None:
    """That many turns with the same events, all two days old, in the database of a service that is stopped."""
    age(folder, turn, days=2)
    with closing(sqlite3.connect(DataFolder(folder).database)) as database, database:
        (key,) = database.execute("SELECT key FROM turns WHERE id = ?", (turn["id"],)).fetchone()
        of_turn, of_event = (
            columns(database, "turns", "key", "id"),
            columns(database, "events", "key", "turn_key"),
        )
        for number in range(count - 1):
            copy = database.execute(
                f"INSERT INTO turns (id, {of_turn}) SELECT ?, {of_turn} FROM turns WHERE key = ?",
                (f"turn_copy_{number}", key),
            )
            database.execute(
                f"INSERT INTO events (turn_key, {of_event}) "
                f"SELECT ?, {of_event} FROM events WHERE turn_key = ?",
                (copy.lastrowid, key),
            )


def columns(database: sqlite3.Connection, table: str, *without: str) -> str:
    names = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
    return ", ".join(name for name in names if name not in without)


def expired_turns(folder: Path) -> int:
    with closing(sqlite3.connect(DataFolder(folder).database)) as database:
        (count,) = database.execute("SELECT count(*) FROM turns WHERE events_form = 'expired'").fetchone()
    return int(count)
