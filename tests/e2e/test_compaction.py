"""A conversation that has grown too far is compacted before a turn, and nothing of it is lost."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import sent, shapes
from tests.service.sse import Frame
from tests.upstream.client import Received, Scenario

pytestmark = pytest.mark.anyio
COMPACTING = {"TURNWIRE_COMPACT_AT": 0.8, "TURNWIRE_CONTEXT_WINDOW": 1000, "TURNWIRE_UPSTREAM_RETRIES": 0}
FULL = {"input_tokens": 790, "output_tokens": 10}
BROKEN = {"status": 500, "body": {"error": {"message": "no"}}}
NO_ROUTE = {"status": 404, "body": {"error": {"message": "no such route"}}}
SUMMARY = ("user", "Summary of the conversation so far:\n\nOne, then two.")


@pytest.fixture(scope="module")
def chat_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("compacting"), upstream_origin, **COMPACTING) as service:
        yield service
        service.check_log()


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("compacting-responses")
    with ServiceProcess(folder, upstream_origin, TURNWIRE_MODEL_API="responses", **COMPACTING) as service:
        yield service
        service.check_log()


@pytest.fixture
async def client(chat_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(chat_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


@pytest.fixture
async def responses_client(own_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


async def grown(client: TurnwireClient, scenario: Scenario, *, usage: JsonObject = FULL) -> str:
    """A conversation of three turns, one/1, two/2, three/3, the last of which fills the window."""
    await scenario.script({"text": "1"}, {"text": "2"}, {"text": "3", "usage": usage})
    conversation = scenario.gate("chat")
    for said in ("one", "two", "three"):
        await client.run(said, conversation=conversation)
    return conversation


async def ended(client: TurnwireClient, turn: JsonObject) -> tuple[JsonObject, list[Frame]]:
    """The turn as it is now, and its log, checked."""
    frames = await client.log(turn["id"])
    turn = await client.turn(turn["id"])
    check_log(frames, turn)
    return turn, frames


def events(frames: list[Frame], kind: str) -> list[JsonObject]:
    return [frame.data for frame in frames if frame.type == kind]


async def errors(client: TurnwireClient, code: str) -> float:
    """How many requests have failed so, as `/metrics` says."""
    return (await client.figures()).get(f'turnwire_upstream_errors_total{{code="{code}"}}', 0)


def compaction(*items: JsonObject) -> JsonObject:
    usage = {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55}
    return {"body": {"id": "resp_c", "object": "response.compaction", "output": list(items), "usage": usage}}


def user(text: str) -> JsonObject:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "id": f"msg_{text}", "role": "user", "status": "completed", "content": content}


OPAQUE = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gibberish", "created_by": "them"}


async def test_older_exchanges_become_a_summary(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await grown(client, scenario)
    await scenario.script({"text": "One, then two."}, {"text": "4"})
    turn, frames = await ended(client, await client.run("four", conversation=conversation))
    asked, last = (await scenario.requests())[-2:]
    assert sent(last.history) == [SUMMARY, ("user", "three"), ("assistant", "3"), ("user", "four")]
    assert last.problems == []
    assert "User: one\n\nAssistant: 1\n\nUser: two\n\nAssistant: 2" in str(
        asked.body["messages"][-1]["content"]
    )
    (done,) = events(frames, "history.compacted")
    types = [frame.type for frame in frames]
    assert types.index("history.compacting") < types.index("history.compacted") < types.index("agent.started")
    assert (done["items_before"], done["items_after"], done["context_tokens"]) == (6, 3, 800)
    assert (done["model"], done["usage"]["total_tokens"]) == (scenario.model, 18)
    assert (turn["usage"]["requests"], turn["usage"]["total_tokens"]) == (2, 36)
    assert turn["usage"]["context_tokens"] == 18
    assert turn["output_text"] == "4"


async def test_the_full_history_stays_readable(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await grown(client, scenario)
    await scenario.script({"text": "One, then two."}, {"text": "4"})
    turn = await client.run("four", conversation=conversation)
    stored = await client.items(conversation, all_of_them=True)
    superseded = [entry["item"] for entry in stored if entry["superseded"]]
    assert shapes(superseded) == [("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2")]
    assert len(stored) == 9
    (done,) = events(await client.log(turn["id"]), "history.compacted")
    assert done["summary_item_id"] in [entry["id"] for entry in stored if not entry["superseded"]]


async def test_a_compacted_conversation_goes_on_and_is_compacted_again(
    client: TurnwireClient, scenario: Scenario
) -> None:
    conversation = await grown(client, scenario)
    await scenario.script({"text": "One, then two."}, {"text": "4"}, {"text": "5", "usage": FULL})
    await client.run("four", conversation=conversation)
    await client.run("five", conversation=conversation)
    assert sent((await scenario.last_request()).history)[0] == SUMMARY
    await scenario.script({"text": "One to four."}, {"text": "6"})
    await client.run("six", conversation=conversation)
    last = await scenario.last_request()
    assert sent(last.history) == [
        ("user", "Summary of the conversation so far:\n\nOne to four."),
        ("user", "five"),
        ("assistant", "5"),
        ("user", "six"),
    ]
    assert "One, then two." in str((await scenario.requests())[-2].history)


async def test_below_the_share_nothing_is_compacted(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await grown(client, scenario, usage={"input_tokens": 780, "output_tokens": 10})
    turn, frames = await ended(client, await client.run("four", conversation=conversation))
    assert events(frames, "history.compacting") == []
    assert turn["usage"]["requests"] == 1


@pytest.mark.parametrize(
    ("reply", "requests", "code"),
    [
        pytest.param(BROKEN, 2, "upstream_error", id="an error"),
        pytest.param(
            {"text": "", "usage": {"input_tokens": 5, "output_tokens": 0}},
            3,
            "empty_completion",
            id="nothing said",
        ),
    ],
)
async def test_a_failure_is_a_warning_and_the_turn_goes_on_with_everything(
    client: TurnwireClient, scenario: Scenario, reply: JsonObject, requests: int, code: str
) -> None:
    conversation = await grown(client, scenario)
    before = await errors(client, code)
    await scenario.script(*[reply] * (requests - 1), {"text": "4"})
    turn, frames = await ended(client, await client.run("four", conversation=conversation))
    assert turn["output_text"] == "4"
    assert "compaction_failed" in [w["code"] for w in events(frames, "warning")]
    assert await errors(client, code) - before == requests - 1
    assert events(frames, "history.compacted") == []
    assert len(sent((await scenario.last_request()).history)) == 7
    assert turn["usage"]["requests"] == requests


@pytest.mark.parametrize(("mode", "kept"), [("keep", 7), ("rollback", 6), ("after_step", 7)])
async def test_a_cancel_while_a_summary_is_made_works_as_at_any_other_time(
    client: TurnwireClient, scenario: Scenario, mode: str, kept: int
) -> None:
    conversation = await grown(client, scenario)
    await scenario.script({"text": "late", "hold": scenario.gate("summary")})
    turn = await client.start("four", conversation=conversation)
    await scenario.held("summary")
    assert (await client.cancel(turn["id"], mode)).json()["status"] == "cancelled"
    await scenario.gone("summary")
    cancelled, frames = await ended(client, turn)
    assert events(frames, "history.compacted") == []
    assert cancelled["usage"]["unreported_requests"] == 1
    assert len(await client.items(conversation)) == kept


async def test_the_rollback_of_a_turn_undoes_its_compaction(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await grown(client, scenario)
    before = await client.items(conversation)
    await scenario.script({"text": "One, then two."}, {"text": "late", "hold": scenario.gate("answer")})
    turn = await client.start("four", conversation=conversation)
    await scenario.held("answer")
    await client.cancel(turn["id"], "rollback")
    assert await client.items(conversation) == before
    assert len(await client.items(conversation, all_of_them=True)) == 6


async def test_an_edit_before_the_compaction_sees_the_full_history(
    client: TurnwireClient, scenario: Scenario
) -> None:
    conversation = await grown(client, scenario, usage={"input_tokens": 5, "output_tokens": 5})
    second = (await client.http.get(f"/v1/conversations/{conversation}/turns")).json()["data"][1]
    await scenario.script({"text": "4", "usage": FULL}, {"text": "One to three."}, {"text": "5"})
    fourth = await client.run("four", conversation=conversation)
    await client.run("five", conversation=conversation)
    await client.run("other", conversation=conversation, after_turn=second["id"])
    assert sent((await scenario.last_request()).history) == [
        ("user", "one"),
        ("assistant", "1"),
        ("user", "two"),
        ("assistant", "2"),
        ("user", "other"),
    ]
    await scenario.script({"text": "One to three."}, {"text": "again"})
    await client.run("again", conversation=conversation, after_turn=fourth["id"])
    assert sent((await scenario.last_request()).history)[1:] == [
        ("user", "four"),
        ("assistant", "4"),
        ("user", "again"),
    ]


async def test_a_crash_while_a_summary_is_made_leaves_history_whole(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str, scenario: Scenario
) -> None:
    folder = tmp_path_factory.mktemp("compacting-crash")
    with ServiceProcess(folder, upstream_origin, **COMPACTING) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        conversation = await grown(client, scenario)
        before = await client.items(conversation)
        await scenario.script({"text": "late", "hold": scenario.gate("summary")})
        turn = await client.start("four", conversation=conversation)
        await scenario.held("summary")
        await client.aclose()
        service.restart()
        client = TurnwireClient(service.base_url, model=scenario.model)
        ended_turn = await client.ended(turn["id"])
        assert (ended_turn["status"], ended_turn["error"]["code"]) == ("failed", "interrupted")
        assert await client.items(conversation) == before
        await scenario.script({"text": "One, then two."}, {"text": "late", "hold": scenario.gate("answer")})
        turn = await client.start("four", conversation=conversation)
        await scenario.held("answer")
        await client.aclose()
        service.restart()
        client = TurnwireClient(service.base_url, model=scenario.model)
        await client.ended(turn["id"])
        assert await client.items(conversation) == before
        await client.aclose()


async def test_a_pause_keeps_the_summary(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await grown(client, scenario)
    await scenario.script({"text": "One, then two."}, {"tool_calls": [{"name": "pick"}]}, {"text": "4"})
    paused = await client.run("four", conversation=conversation, tools=[{"name": "pick"}])
    outputs = [{"call_id": call["call_id"], "output": "picked"} for call in paused["pause"]["tool_calls"]]
    route = f"/v1/turns/{paused['id']}/tool_outputs"
    answer = await client.http.post(route, json={"outputs": outputs}, headers={"accept": "application/json"})
    assert answer.json()["output_text"] == "4"
    last = await scenario.last_request()
    assert sent(last.history)[:2] == [SUMMARY, ("user", "three")]
    assert sent(last.history)[-1] == ("output", "picked")


async def test_a_fork_goes_on_from_the_summary(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await grown(client, scenario)
    await scenario.script({"text": "One, then two."}, {"text": "4"})
    await client.run("four", conversation=conversation)
    fork = (await client.http.post(f"/v1/conversations/{conversation}/fork", json={})).json()["id"]
    await client.run("five", conversation=fork)
    assert sent((await scenario.last_request()).history)[:3] == [SUMMARY, ("user", "three"), ("assistant", "3")]


# --- a Responses upstream -----------------------------------------------------------------------


def route(request: Received) -> str:
    return request.path.removeprefix("/v1/")


async def test_a_responses_upstream_compacts_in_its_own_way(
    responses_client: TurnwireClient, scenario: Scenario
) -> None:
    client = responses_client
    conversation = await grown(client, scenario)
    await scenario.script(compaction(user("one"), user("two"), OPAQUE), {"text": "4"})
    turn, frames = await ended(client, await client.run("four", conversation=conversation))
    asked, last = (await scenario.requests())[-2:]
    assert route(asked) == "responses/compact"
    assert set(asked.body) == {"model", "input"}
    assert sent(asked.history) == [("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2")]
    assert sent(last.history) == [
        ("user", "one"),
        ("user", "two"),
        ("compaction",),
        ("user", "three"),
        ("assistant", "3"),
        ("user", "four"),
    ]
    assert last.history[2] == {"type": "compaction", "id": "cmp_1", "encrypted_content": "gibberish"}
    (done,) = events(frames, "history.compacted")
    assert (done["summary_item_id"], done["usage"]["total_tokens"]) == ("cmp_1", 55)
    assert turn["usage"]["total_tokens"] == 55 + 18


async def test_where_a_responses_upstream_has_no_compaction_the_model_is_asked(
    responses_client: TurnwireClient, scenario: Scenario
) -> None:
    """This upstream is asked once: whoever has no such route will have none later."""
    client = responses_client
    conversation = await grown(client, scenario)
    await scenario.script(NO_ROUTE, {"text": "One, then two."}, {"text": "4"})
    turn, frames = await ended(client, await client.run("four", conversation=conversation))
    assert [route(r) for r in (await scenario.requests())[-3:]] == [
        "responses/compact",
        "responses",
        "responses",
    ]
    assert sent((await scenario.last_request()).history)[0] == SUMMARY
    assert events(frames, "warning") == []
    assert turn["usage"]["requests"] == 2


@pytest.mark.parametrize(
    ("broken", "code"), [(BROKEN, "upstream_error"), ({"body": {"output": []}}, "upstream_protocol")]
)
async def test_a_compaction_that_fails_at_the_provider_is_a_warning(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str, scenario: Scenario, broken: Any, code: str
) -> None:
    folder = tmp_path_factory.mktemp("compacting-broken")
    with ServiceProcess(folder, upstream_origin, TURNWIRE_MODEL_API="responses", **COMPACTING) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        conversation = await grown(client, scenario)
        await scenario.script(broken, {"text": "4"})
        turn, frames = await ended(client, await client.run("four", conversation=conversation))
        assert turn["output_text"] == "4"
        assert [w["code"] for w in events(frames, "warning")] == ["compaction_failed"]
        assert await errors(client, code) == 1
        assert turn["usage"]["unreported_requests"] == 1
        await client.aclose()


async def test_what_one_provider_compacted_another_gets_in_full(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str, scenario: Scenario
) -> None:
    """And may compact again: then the opaque item, and what it stood for, give way to a summary."""
    folder = tmp_path_factory.mktemp("compacting-changing")
    with ServiceProcess(folder, upstream_origin, TURNWIRE_MODEL_API="responses", **COMPACTING) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        conversation = await grown(client, scenario)
        await scenario.script(compaction(user("one"), user("two"), OPAQUE), {"text": "4"})
        await client.run("four", conversation=conversation)
        await client.aclose()
    with ServiceProcess(folder, upstream_origin, **COMPACTING) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        await scenario.script({"text": "5", "usage": FULL})
        await client.run("five", conversation=conversation)
        said = [("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2"), ("user", "three")]
        last = await scenario.last_request()
        assert sent(last.history)[:5] == said
        assert len(last.history) == len(sent(last.history)) + 1
        await scenario.script({"text": "One to four."}, {"text": "6"})
        await client.run("six", conversation=conversation)
        assert sent((await scenario.last_request()).history) == [
            ("user", "Summary of the conversation so far:\n\nOne to four."),
            ("user", "five"),
            ("assistant", "5"),
            ("user", "six"),
        ]
        visible = [
            entry for entry in await client.items(conversation, all_of_them=True) if not entry["superseded"]
        ]
        assert len(visible) == 5
        await client.aclose()
