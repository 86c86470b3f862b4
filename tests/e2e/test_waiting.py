"""While a turn waits: new turns, cancels, expiry, crashes, deploys, and the nothing that it holds."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.e2e.pauses import CALLED, CLIENTS, DONE, FOUND, GUARDED, LAST, USER, call, calls
from tests.e2e.test_cancelling import until_cancel_is_asked_for
from tests.service.answers import answer, answered, decisions, following, outputs, resume
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
GONE = ("output", "cancelled")
WAITING = [USER, CALLED, GONE]
STEP = calls(call("open_lookup", q="moss"))


async def paused(client: TurnwireClient, scenario: Scenario, *replies: JsonObject, **fields: Any) -> JsonObject:
    await scenario.script(*(replies or (GUARDED, LAST)))
    turn = await client.run(USER[1], **{"agent": "guard"} | fields)
    assert turn["status"] == "paused", turn
    return turn


async def continuing(client: TurnwireClient, scenario: Scenario) -> JsonObject:
    """A turn whose approved tool is at work: it waits at the gate `tool`."""
    turn = await paused(client, scenario, calls(call("guarded_slow", q=scenario.gate("tool"))), LAST)
    response = await answer(client, turn["id"], decisions(turn) | {"background": True})
    assert response.status_code == 202, response.text
    await scenario.held("tool")
    return turn


# a new turn meanwhile


async def test_a_new_turn_is_refused_and_the_paused_one_can_still_be_answered(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario)
    response = await client.post("never mind", conversation=turn["conversation_id"])
    assert (response.status_code, response.json()["code"]) == (409, "turn_in_progress")
    assert response.json()["turn_id"] == turn["id"]
    ended = await answered(client, turn["id"], decisions(turn))
    assert ended["status"] == "completed"
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], [USER, CALLED, FOUND, DONE])


async def test_a_new_turn_waits_behind_a_paused_one(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, GUARDED, LAST, {"text": "Fine."})
    queued = await client.start(
        "And?", conversation=turn["conversation_id"], on_conflict="enqueue", agent="plain"
    )
    assert queued["status"] == "queued"
    assert (await answered(client, turn["id"], decisions(turn)))["status"] == "completed"
    assert (await client.ended(queued["id"]))["output_text"] == "Fine."
    kept = shapes(await client.items(turn["conversation_id"]))
    assert kept == [USER, CALLED, FOUND, DONE, ("user", "And?"), ("assistant", "Fine.")]
    assert (await scenario.last_request()).problems == []


@pytest.mark.parametrize("policy", ["cancel", "rollback"])
async def test_a_new_turn_can_take_the_place_of_a_paused_one(
    either_client: TurnwireClient, scenario: Scenario, policy: str
) -> None:
    client = either_client
    turn = await paused(client, scenario, GUARDED, {"text": "Fine."})
    new = await client.run("And?", conversation=turn["conversation_id"], on_conflict=policy, agent="plain")
    assert new["status"] == "completed"
    old = await client.turn(turn["id"])
    assert (old["status"], old["cancel"]["by"], old["pause"]) == ("cancelled", "conflict", None)
    check_log(await client.log(turn["id"]), old)
    said = [("user", "And?"), ("assistant", "Fine.")]
    kept = shapes(await client.items(turn["conversation_id"]))
    assert kept == ([*WAITING, *said] if policy == "cancel" else said)
    assert (await scenario.last_request()).problems == []
    late = await answer(client, turn["id"], decisions(turn))
    assert (late.status_code, late.json()["code"]) == (409, "turn_not_paused")
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


async def test_a_new_turn_after_a_step_keeps_what_was_done(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, STEP, {"text": "Fine."}, stepwise=True)
    await client.run("And?", conversation=turn["conversation_id"], on_conflict="cancel", agent="plain")
    kept = [USER, ("call", "open_lookup", '{"q":"moss"}'), ("output", "moss: found in the open")]
    said = [("user", "And?"), ("assistant", "Fine.")]
    assert shapes(await client.items(turn["conversation_id"])) == [*kept, *said]
    late = await answer(client, turn["id"], resume(turn))
    assert (late.status_code, late.json()["code"]) == (409, "turn_not_paused")


# DELETE


@pytest.mark.parametrize("mode", ["keep", "rollback", "after_step"])
async def test_a_paused_turn_ends_at_once_in_every_mode(
    either_client: TurnwireClient, scenario: Scenario, mode: str
) -> None:
    client = either_client
    turn = await paused(client, scenario)
    response = await client.cancel(turn["id"], mode)
    ended = response.json()
    assert (response.status_code, ended["status"], ended["cancel"]["mode"]) == (200, "cancelled", mode)
    assert ended["usage"] == turn["usage"]
    frames = await client.log(turn["id"])
    check_log(frames, ended)
    (completed,) = [f.data for f in frames if f.type == "tool_call.completed"]
    assert completed["status"] == "cancelled"
    late = await answer(client, turn["id"], decisions(turn))
    assert (late.status_code, late.json()["code"]) == (409, "turn_not_paused")
    kept = [] if mode == "rollback" else WAITING
    assert shapes(await client.items(turn["conversation_id"])) == kept
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


@pytest.mark.parametrize("mode", ["keep", "rollback", "after_step"])
async def test_a_turn_that_goes_on_can_be_cancelled(
    client: TurnwireClient, scenario: Scenario, mode: str
) -> None:
    turn = await continuing(client, scenario)
    asked = asyncio.create_task(client.cancel(turn["id"], mode))
    if mode == "after_step":
        await until_cancel_is_asked_for(client, turn["id"])
        await scenario.release("tool")
    else:
        await scenario.gone("tool")
    ended = (await asked).json()
    assert (ended["status"], ended["runs"]) == ("cancelled", 2)
    assert (ended["usage"]["requests"], ended["usage"]["total_tokens"]) == (1, 18)
    check_log(await client.log(turn["id"]), ended)
    slow = ("call", "guarded_slow", f'{{"q":"{scenario.gate("tool")}"}}')
    found = ("output", f"{scenario.gate('tool')}: found slowly")
    kept = {"keep": [USER, slow, GONE], "rollback": [], "after_step": [USER, slow, found]}[mode]
    assert shapes(await client.items(turn["conversation_id"])) == kept
    again = await answered(client, turn["id"], decisions(turn))
    assert again == ended
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


async def test_an_answer_and_a_cancel_at_the_same_moment_leave_one_end(
    client: TurnwireClient, scenario: Scenario
) -> None:
    for _ in range(5):
        turn = await paused(client, scenario, GUARDED)
        answering = answer(client, turn["id"], decisions(turn))
        cancelling = client.cancel(turn["id"])
        answering_response, cancelled = await asyncio.gather(answering, cancelling)
        assert answering_response.status_code in (200, 409)
        assert cancelled.status_code == 200
        ended = await client.ended(turn["id"])
        assert ended["status"] in ("cancelled", "completed")
        assert cancelled.json() == ended
        check_log(await client.log(turn["id"]), ended)


async def test_a_conversation_with_a_paused_turn_can_be_deleted(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario)
    assert (await client.http.delete(f"/v1/conversations/{turn['conversation_id']}")).status_code == 204
    assert (await answer(client, turn["id"], decisions(turn))).status_code == 404
    listed = (await client.http.get("/v1/approvals?limit=100")).json()["data"]
    assert turn["id"] not in {one["turn_id"] for one in listed}


async def test_a_turn_that_nobody_listens_to_any_more_is_cancelled_also_after_its_pause(
    client: TurnwireClient, scenario: Scenario
) -> None:
    slow = calls(call("guarded_slow", q=scenario.gate("tool")))
    turn = await paused(client, scenario, slow, LAST, on_disconnect="cancel")
    async with following(client, turn["id"], decisions(turn)) as stream:
        await stream.until("turn.resumed")
        await scenario.held("tool")
    await scenario.gone("tool")
    ended = await client.ended(turn["id"])
    assert (ended["status"], ended["cancel"]["by"]) == ("cancelled", "disconnect")


# crashes, expiry and deploys, on a service of their own


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("waiting"), upstream_origin) as service:
        yield service


class Own:
    """A service that a test may kill; `client` is one of the service as it runs now."""

    def __init__(self, service: ServiceProcess, scenario: Scenario, stack: AsyncExitStack) -> None:
        self.service = service
        self._scenario = scenario
        self._stack = stack
        self._usual = dict(service.environment)
        self.client = self.client_for(scenario)

    def client_for(self, scenario: Scenario) -> TurnwireClient:
        client = TurnwireClient(self.service.base_url, model=scenario.model)
        self._stack.push_async_callback(client.aclose)
        return client

    def restart(self, **settings: str) -> TurnwireClient:
        """Kill the service and start it on the usual settings and these."""
        self.service.kill()
        self.service.environment = self._usual | settings
        self.service.start()
        self.service.wait_ready()
        self.client = self.client_for(self._scenario)
        return self.client

    def close(self) -> None:
        if self.service.environment != self._usual:
            self.restart()


@pytest.fixture
async def own(own_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[Own]:
    async with AsyncExitStack() as stack:
        own = Own(own_service, scenario, stack)
        yield own
        own.close()


async def test_a_crash_after_the_answer_ends_the_call_and_does_not_run_the_tool_again(
    own: Own, scenario: Scenario
) -> None:
    turn = await continuing(own.client, scenario)
    nested = scenario.control.scenario()
    replies = [calls(call("ask_clerk", input="kelp?")), calls(call("guarded_slow", q=nested.gate("tool")))]
    in_nested = await paused(own.client_for(nested), nested, *replies, agent="chief")
    await answer(own.client_for(nested), in_nested["id"], decisions(in_nested) | {"background": True})
    await nested.held("tool")
    client = own.restart()
    for one, requests in ((turn, 1), (in_nested, 2)):
        ended = await client.turn(one["id"])
        assert (ended["status"], ended["error"]["code"]) == ("failed", "interrupted")
        frames = await client.log(one["id"])
        check_log(frames, ended)
        assert sum(f.type == "workflow.event" for f in frames) == 1
        completed = [f.data for f in frames if f.type == "tool_call.completed"]
        assert {(c["status"], c["error"]) for c in completed} == {("cancelled", ended["error"]["message"])}
        assert ended["usage"]["requests"] == requests
        assert ended["usage"]["total_tokens"] == 18 * requests
        again = await answered(client, one["id"], decisions(one))
        assert again == ended
        (conflict,) = {(await answer(client, one["id"], decisions(one, "reject"))).status_code}
        assert conflict == 409
    slow = ("call", "guarded_slow", f'{{"q":"{scenario.gate("tool")}"}}')
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], [USER, slow, GONE])


async def test_a_queued_turn_waits_behind_a_paused_one_over_a_crash(own: Own, scenario: Scenario) -> None:
    client = own.client
    turn = await paused(client, scenario, GUARDED, LAST, {"text": "Fine."})
    queued = await client.start(
        "And?", conversation=turn["conversation_id"], on_conflict="enqueue", agent="plain"
    )
    client = own.restart()
    assert [(await client.turn(t["id"]))["status"] for t in (turn, queued)] == ["paused", "queued"]
    assert (await answered(client, turn["id"], decisions(turn)))["status"] == "completed"
    assert (await client.ended(queued["id"]))["output_text"] == "Fine."
    assert (await client.ended(turn["id"]))["status"] == "completed"


async def test_an_answer_is_the_same_after_a_crash(own: Own, scenario: Scenario) -> None:
    client = own.client
    two = calls(call("guarded", q="kelp"), call("guarded", q="moss"))
    turn = await paused(client, scenario, two, LAST)
    first, second = decisions(turn)["decisions"]
    key = {"idempotency-key": scenario.gate("key")}
    partly = (await answer(client, turn["id"], {"decisions": [first]}, **key)).json()
    client = own.restart()
    assert (await answer(client, turn["id"], {"decisions": [first]}, **key)).json() == partly
    assert await answered(client, turn["id"], {"decisions": [first]}) == partly
    ended = await answered(client, turn["id"], {"decisions": [second]})
    assert ended["status"] == "completed"
    client = own.restart()
    assert await answered(client, turn["id"], {"decisions": [second, first]}) == ended
    frames = await client.log(turn["id"])
    assert sum(f.type == "workflow.event" for f in frames) == 2


async def test_a_pause_that_nobody_answers_expires(own: Own, scenario: Scenario) -> None:
    client = own.restart(TURNWIRE_PAUSE_EXPIRY_S="0.6")
    two = calls(call("guarded", q="kelp"), call("guarded", q="moss"))
    turn = await paused(client, scenario, two, LAST)
    first, second = decisions(turn)["decisions"]
    async with client.follow(turn["conversation_id"]) as stream:
        await answered(client, turn["id"], {"decisions": [first]})
        await stream.until("turn.cancelled")
    ended = await client.turn(turn["id"])
    assert (ended["status"], ended["cancel"]["by"], ended["usage"]) == ("cancelled", "expiry", turn["usage"])
    frames = await client.log(turn["id"])
    check_log(frames, ended)
    reasons = {f.data["error"] for f in frames if f.type == "tool_call.completed"}
    assert reasons == {"nobody answered in time"}
    assert await answered(client, turn["id"], {"decisions": [first]}) == ended
    late = await answer(client, turn["id"], {"decisions": [second]})
    assert (late.status_code, late.json()["code"]) == (409, "turn_not_paused")
    client = own.restart()
    kept = shapes(await client.items(turn["conversation_id"]))
    assert kept[-2:] == [GONE, GONE]
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


@pytest.mark.parametrize("agents", ["RENAMED", "WITHOUT_TOOLS", "TIRED_CLERK"])
async def test_agents_that_have_changed_end_the_turn_with_a_clear_error(
    own: Own, scenario: Scenario, agents: str
) -> None:
    """The agent is gone, the target of a handoff, the agent that has a nested one; or the tool is."""
    client = own.client
    turns = []
    if agents != "TIRED_CLERK":
        turns.append(await paused(client, scenario, GUARDED))
    if agents == "RENAMED":
        handoff = calls(call("transfer_to_guard"))
        turns.append(await paused(client, scenario, handoff, GUARDED, agent="porter"))
    if agents != "WITHOUT_TOOLS":
        ask = calls(call("ask_clerk", input="?"))
        turns.append(await paused(client, scenario, ask, GUARDED, agent="chief"))
    before = len(await scenario.requests())
    client = own.restart(TURNWIRE_AGENTS=f"tests.service.pausing:{agents}")
    for turn in turns:
        ended = await answered(client, turn["id"], decisions(turn))
        assert (ended["status"], ended["error"]["code"]) == ("failed", "interrupted"), ended["error"]
        assert "no longer fits" in ended["error"]["message"]
        frames = await client.log(turn["id"])
        check_log(frames, ended)
        assert not [f for f in frames if f.type == "workflow.event"]
        assert ended["usage"] == turn["usage"]
    assert len(await scenario.requests()) == before
    client = own.restart()
    for turn in turns:
        kept = shapes(await client.items(turn["conversation_id"]))
        assert (kept[0], kept[-1]) == (USER, GONE)
        await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


async def test_a_pause_goes_on_when_the_history_that_models_get_is_limited_meanwhile(
    own: Own, scenario: Scenario
) -> None:
    client = own.client
    await scenario.script({"text": "Hi."}, GUARDED, LAST)
    first = await client.run("hello", agent="plain")
    turn = await client.run(USER[1], agent="guard", conversation=first["conversation_id"])
    client = own.restart(TURNWIRE_HISTORY_ITEMS="1")
    ended = await answered(client, turn["id"], decisions(turn))
    assert ended["status"] == "completed"
    assert len((await scenario.last_request()).history) == 6


async def test_the_run_context_survives_the_pause_and_a_crash(own: Own, scenario: Scenario) -> None:
    remembering = {"TURNWIRE_CONTEXT": "tests.service.contexts:remembering"}
    client = own.restart(**remembering)
    visits = calls(call("visits"))
    turn = await paused(client, scenario, visits, visits, LAST, agent="guest")
    turn = await answered(client, turn["id"], decisions(turn))
    assert turn["status"] == "paused"
    client = own.restart(**remembering)
    ended = await answered(client, turn["id"], decisions(turn))
    assert ended["status"] == "completed"
    said = [s for s in shapes(await client.items(turn["conversation_id"])) if s[0] == "output"]
    assert said == [("output", "visit 1"), ("output", "visit 2")]


async def test_paused_turns_hold_nothing(own: Own, scenario: Scenario) -> None:
    client = own.client
    await paused(client, scenario, GUARDED)
    files, threads = own.service.open_files(), own.service.threads()
    turns = [await paused(client, scenario, GUARDED) for _ in range(20)]
    assert own.service.open_files() <= files + 2
    assert own.service.threads() <= threads + 2
    assert scenario.model not in (await scenario.control.connections())["models"]
    metrics = (await client.http.get("/metrics")).text
    running = [line for line in metrics.splitlines() if "running" in line and not line.startswith("#")]
    assert all(float(line.rsplit(" ", 1)[1]) == 0 for line in running), running
    for turn in turns:
        await client.cancel(turn["id"])


async def test_a_service_that_stops_keeps_what_has_paused(own: Own, scenario: Scenario) -> None:
    client = own.client
    turn = await paused(client, scenario, calls(call("ask_page")), LAST, **CLIENTS)
    own.service.signal()
    await asyncio.to_thread(own.service.wait)
    client = own.restart()
    ended = await answered(client, turn["id"], outputs(turn, "A page."))
    assert ended["status"] == "completed"
