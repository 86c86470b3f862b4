"""What a conversation remembers: its items, edits, forks, seeds."""

from typing import Any

import pytest

from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import sent, shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
LOOKUP = {"name": "lookup", "arguments": {"q": "kelp"}}


async def three_turns(client: TurnwireClient, scenario: Scenario) -> list[JsonObject]:
    """One conversation: one/1, two/2, three/3."""
    await scenario.script(*[{"text": answer} for answer in "123"])
    conversation = scenario.gate("chat")
    return [await client.run(said, conversation=conversation) for said in ("one", "two", "three")]


async def create(client: TurnwireClient, **body: Any) -> JsonObject:
    response = await client.http.post("/v1/conversations", json=body)
    assert response.status_code == 201, response.text
    conversation: JsonObject = response.json()
    return conversation


async def test_the_model_gets_what_was_said_before(either_client: TurnwireClient, scenario: Scenario) -> None:
    await three_turns(either_client, scenario)
    last = await scenario.last_request()
    assert last.problems == []
    assert sent(last.history) == [
        ("user", "one"),
        ("assistant", "1"),
        ("user", "two"),
        ("assistant", "2"),
        ("user", "three"),
    ]


async def test_calls_and_outputs_are_remembered_in_order(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(
        {"reasoning": "Think.", "text": "Let me look.", "tool_calls": [LOOKUP]}, {"text": "Green."}
    )
    turn = await either_client.run("kelp?", agent="worker")
    stored = shapes(await either_client.items(turn["conversation_id"]))
    assert [shape for shape in stored if shape[0] != "reasoning"] == [
        ("user", "kelp?"),
        ("assistant", "Let me look."),
        ("call", "lookup", '{"q":"kelp"}'),
        ("output", "kelp: found"),
        ("assistant", "Green."),
    ]
    await either_client.run("and moss?", conversation=turn["conversation_id"])
    last = await scenario.last_request()
    assert last.problems == []
    assert [s for s in sent(last.history) if s[0] != "reasoning"] == [
        *[shape for shape in stored if shape[0] != "reasoning"],
        ("user", "and moss?"),
    ]


async def test_a_stored_item_says_whose_it_is(client: TurnwireClient, scenario: Scenario) -> None:
    turns = await three_turns(client, scenario)
    stored = await client.items(turns[0]["conversation_id"], all_of_them=True)
    assert [entry["turn_id"] for entry in stored] == [t["id"] for t in turns for _ in range(2)]
    assert len({entry["id"] for entry in stored}) == 6
    assert {entry["superseded"] for entry in stored} == {False}
    assert set(stored[0]) == {"id", "turn_id", "created_at", "superseded", "item"}


async def test_an_edit_goes_on_from_an_earlier_turn(client: TurnwireClient, scenario: Scenario) -> None:
    first, second, _ = await three_turns(client, scenario)
    conversation = first["conversation_id"]
    await client.run("other", conversation=conversation, after_turn=first["id"])
    assert sent((await scenario.last_request()).history) == [
        ("user", "one"),
        ("assistant", "1"),
        ("user", "other"),
    ]
    everything = await client.items(conversation, all_of_them=True)
    assert [entry["superseded"] for entry in everything] == [False] * 2 + [True] * 4 + [False] * 2
    back = await client.run("back", conversation=conversation, after_turn=second["id"])
    assert back["status"] == "completed"
    assert sent((await scenario.last_request()).history)[-2:] == [("assistant", "2"), ("user", "back")]


async def test_an_edit_from_the_start_forgets_all(client: TurnwireClient, scenario: Scenario) -> None:
    first, *_ = await three_turns(client, scenario)
    await client.run("anew", conversation=first["conversation_id"], after_turn=None)
    assert sent((await scenario.last_request()).history) == [("user", "anew")]


async def test_an_edit_that_is_rolled_back_gives_the_old_history_back(
    client: TurnwireClient, scenario: Scenario
) -> None:
    first, *_ = await three_turns(client, scenario)
    conversation = first["conversation_id"]
    before = await client.items(conversation)
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    edit = await client.start("other", conversation=conversation, after_turn=first["id"])
    await scenario.held("headers")
    await client.cancel(edit["id"], "rollback")
    assert await client.items(conversation) == before


async def test_a_turn_of_elsewhere_is_no_place_to_go_on_from(
    client: TurnwireClient, scenario: Scenario
) -> None:
    first, *_ = await three_turns(client, scenario)
    elsewhere = await client.run("hello")
    for after in (elsewhere["id"], "turn_unknown"):
        response = await client.post("x", conversation=first["conversation_id"], after_turn=after)
        assert response.status_code == 422
        assert "after_turn" in str(response.json()["errors"])


async def test_a_fork_is_a_copy_that_goes_its_own_way(client: TurnwireClient, scenario: Scenario) -> None:
    first, *_ = await three_turns(client, scenario)
    conversation = first["conversation_id"]
    path = f"/v1/conversations/{conversation}/fork"
    whole = await client.http.post(path, json={})
    early = await client.http.post(path, json={"after_turn": first["id"]})
    assert (whole.status_code, early.status_code) == (201, 201)
    assert await client.items(whole.json()["id"]) == await client.items(conversation)
    await client.run("other", conversation=early.json()["id"])
    assert sent((await scenario.last_request()).history) == [
        ("user", "one"),
        ("assistant", "1"),
        ("user", "other"),
    ]
    assert len(await client.items(conversation)) == 6


async def test_a_conversation_can_begin_with_a_history(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    items = [
        {"role": "user", "content": "kelp?"},
        {"type": "function_call", "call_id": "call_a", "name": "lookup", "arguments": '{"q":"kelp"}'},
        {"type": "function_call_output", "call_id": "call_a", "output": "found"},
        {"role": "assistant", "content": "Green."},
    ]
    conversation = await create(either_client, id=scenario.gate("chat"), items=items)
    turn = await either_client.run("and moss?", conversation=conversation["id"])
    last = await scenario.last_request()
    assert turn["status"] == "completed"
    assert last.problems == []
    assert sent(last.history) == [
        ("user", "kelp?"),
        ("call", "lookup", '{"q":"kelp"}'),
        ("output", "found"),
        ("assistant", "Green."),
        ("user", "and moss?"),
    ]


async def test_what_is_transient_reaches_the_model_once(client: TurnwireClient, scenario: Scenario) -> None:
    said = [
        {"role": "developer", "content": "Be brief.", "transient": True},
        {"role": "user", "content": "hello"},
    ]
    turn = await client.run(said)
    assert "Be brief." in str((await scenario.last_request()).history)
    assert shapes(await client.items(turn["conversation_id"])) == [
        ("user", "hello"),
        ("assistant", "All good."),
    ]
    await client.run("again", conversation=turn["conversation_id"])
    assert "Be brief." not in str((await scenario.last_request()).history)


async def test_an_id_is_given_once(client: TurnwireClient, scenario: Scenario) -> None:
    conversation = await create(client, id=scenario.gate("chat"), agent="worker", metadata={"a": "1"})
    again = await client.http.post("/v1/conversations", json={"id": conversation["id"]})
    assert (again.status_code, again.json()["code"]) == (409, "conversation_exists")
    assert (conversation["agent"], conversation["metadata"]) == ("worker", {"a": "1"})
    assert (await client.run("hello", conversation=conversation["id"]))["agent"] == "worker"


async def test_a_conversation_can_be_changed_and_deleted(client: TurnwireClient) -> None:
    conversation = await create(client)
    path = f"/v1/conversations/{conversation['id']}"
    changed = await client.http.patch(path, json={"agent": "worker", "metadata": {"title": "Kelp"}})
    assert (changed.json()["agent"], changed.json()["metadata"]) == ("worker", {"title": "Kelp"})
    assert (await client.http.get(path)).json() == changed.json()
    assert (await client.http.patch(path, json={"agent": "nobody"})).status_code == 404
    assert (await client.http.delete(path)).status_code == 204
    assert (await client.http.get(path)).status_code == 404
    assert (await client.http.delete(path)).status_code == 404


async def test_lists_come_in_pages(client: TurnwireClient, scenario: Scenario) -> None:
    turns = await three_turns(client, scenario)
    path = f"/v1/conversations/{turns[0]['conversation_id']}/turns"
    first = (await client.http.get(path, params={"limit": 2})).json()
    rest = (await client.http.get(path, params={"limit": 2, "cursor": first["next"]})).json()
    newest = (await client.http.get(path, params={"order": "desc"})).json()
    ids = [turn["id"] for turn in turns]
    assert [turn["id"] for turn in first["data"] + rest["data"]] == ids
    assert (first["has_more"], rest["has_more"], rest["next"]) == (True, False, None)
    assert [turn["id"] for turn in newest["data"]] == ids[::-1]
    assert all("input" not in turn for turn in newest["data"])


async def test_a_cursor_of_ones_own_making_is_refused(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    for path in ("/v1/turns", f"/v1/conversations/{turn['conversation_id']}/items"):
        for query in ({"cursor": "nonsense"}, {"limit": "0"}, {"limit": "101"}):
            response = await client.http.get(path, params=query)
            assert 400 <= response.status_code < 500, query
    sideways = await client.http.get(f"/v1/conversations/{turn['conversation_id']}/turns?order=sideways")
    assert sideways.status_code == 422


async def test_what_runs_is_listed(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    turn = await client.start("hello")
    await scenario.held("headers")
    running = (await client.http.get("/v1/turns", params={"status": "running", "agent": "plain"})).json()
    assert turn["id"] in [entry["id"] for entry in running["data"]]
    await scenario.release("headers")
    await client.ended(turn["id"])
    running = (await client.http.get("/v1/turns", params={"status": "running"})).json()
    assert turn["id"] not in [entry["id"] for entry in running["data"]]


async def test_conversations_are_listed_newest_activity_first(
    client: TurnwireClient, scenario: Scenario
) -> None:
    old, new = [(await client.run("hello"))["conversation_id"] for _ in range(2)]
    await client.run("again", conversation=old)
    listed = (await client.http.get("/v1/conversations", params={"limit": 2})).json()
    assert [entry["id"] for entry in listed["data"]] == [old, new]
