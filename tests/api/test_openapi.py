"""The API's document is exact, and its committed copies are the ones that the code makes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import orjson
import pytest

from app.api.openapi import ANSWERS, answer_schemas
from app.api.routes import ROUTERS
from app.api.snapshot import rendered, snapshots
from app.domain.events import EVENT_CLASSES
from app.domain.ids import ApprovalId, CallId, PauseId, TurnId
from app.domain.pause import Approval, Pause, PendingCall
from app.domain.turn import Cancel, TurnError
from app.domain.usage import TokenCounts, Usage
from tests.api.fake_turns import AT, FakeTurns

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENTS = snapshots()
OPENAPI = DOCUMENTS["openapi.json"]
Json = dict[str, Any]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_committed_copies_are_current(name: str) -> None:
    """If this fails and the change is meant: `python -m app.api.snapshot`."""
    assert (DOCS / name).read_text(encoding="utf-8") == rendered(DOCUMENTS[name])


def refs(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(refs, value.values()))
    return set().union(*map(refs, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(
    ("name", "prefix"), [("openapi.json", "#/components/schemas/"), ("events.schema.json", "#/$defs/")]
)
def test_every_schema_that_is_named_is_there(name: str, prefix: str) -> None:
    document = DOCUMENTS[name]
    known = document["$defs"] if "$defs" in document else document["components"]["schemas"]
    assert {ref.removeprefix(prefix) for ref in refs(document)} <= known.keys()


def operations() -> list[tuple[str, Json]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in OPENAPI["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_documented_with_its_answers() -> None:
    routes = {f"{m} {route.path}" for router in ROUTERS for route in router.routes for m in route.methods}  # type: ignore[attr-defined]
    assert {name for name, _ in operations()} == routes
    for name, operation in operations():
        assert any(status.startswith("2") for status in operation["responses"]), name
        for status, answer in operation["responses"].items():
            assert "X-Request-Id" in answer["headers"], name
            kinds = set(answer.get("content", {}))
            assert kinds == {"application/problem+json"} if status >= "400" else kinds or status == "204", name


def test_every_post_and_patch_may_answer_that_its_body_is_no_json_or_too_large() -> None:
    for name, operation in operations():
        if name.startswith(("POST", "PATCH")):
            assert {"400", "413", "415", "422"} <= operation["responses"].keys(), name
            assert operation["requestBody"]["content"].keys() == {"application/json"}, name


def test_examples_are_what_their_schemas_say() -> None:
    for _, operation in operations():
        for answer in operation["responses"].values():
            for kind, media in answer.get("content", {}).items():
                if kind == "application/json" and "example" in media:
                    check(media["example"], media["schema"]["$ref"].split("/")[-1])
        for media in operation.get("requestBody", {}).get("content", {}).values():
            for example in media.get("examples", {}).values():
                schema = {"$ref": media["schema"]["$ref"], "components": OPENAPI["components"]}
                jsonschema.validate(example["value"], schema)


def check(value: object, name: str) -> None:
    jsonschema.validate(value, {"$ref": f"#/components/schemas/{name}", "components": OPENAPI["components"]})


async def test_turns_are_what_the_document_says(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    await http.post("/v1/turns", json={"input": [{"role": "user", "content": "hi"}], "background": True})
    fake = turns.all["turn_1"]
    counts = TokenCounts(1, 0, 2, 1, 1, 0, 3, 0, 5)
    approval = Approval(ApprovalId("a"), CallId("c"), "t", "assistant", {"q": 1})
    fake.turn = replace(
        fake.turn,
        usage=Usage.of_call("gpt-test", counts),
        error=TurnError("timeout", "Late.", True, 1.5),
        pause=Pause(PauseId("p"), "approval", AT, (approval,), (PendingCall(CallId("d"), "t", None),)),
        cancel=Cancel("keep", "caller", AT),
        output={"any": ["thing"]},
        started_at=AT,
        ended_at=AT,
    )
    check((await http.get("/v1/turns/turn_1")).json(), "Turn")
    check((await http.get("/v1/turns")).json(), "TurnPage")


async def test_the_other_answers_are_what_the_document_says(http: httpx.AsyncClient, turns: FakeTurns) -> None:
    check((await http.post("/v1/conversations", json={"metadata": {"a": "b"}})).json(), "Conversation")
    check((await http.get("/v1/conversations")).json(), "ConversationPage")
    check((await http.get("/v1/conversations/conv_1/items")).json(), "ItemPage")
    check((await http.get("/v1/agents")).json(), "ObjectPage")
    check((await http.get("/v1/turns/none")).json(), "Problem")
    check((await http.post("/v1/turns", json={"inputs": 1})).json(), "Problem")
    check((await http.get("/readyz")).json(), "Readiness")
    check((await http.get("/healthz")).json(), "Health")


def test_every_answers_schema_has_its_public_name() -> None:
    assert answer_schemas("#/").keys() == ANSWERS.keys()


def test_every_event_is_described_with_all_its_fields() -> None:
    document = DOCUMENTS["events.schema.json"]
    assert len(document["oneOf"]) == len(EVENT_CLASSES)
    delta = {"type": "message.delta", "seq": 3, "turn_id": TurnId("turn_1"), "item_id": "item_1", "delta": "x"}
    jsonschema.validate(delta, document)
    jsonschema.validate(delta | {"agent": "inner", "parent_call_id": "call_1", "field_of_v1_1": 1}, document)
    handoff = {"type": "agent.handed_off", "seq": 1, "turn_id": "turn_1", "from": "a", "to": "b"}
    jsonschema.validate(handoff, document)
    for wrong in (delta | {"delta": 1}, delta | {"seq": 0}, {"type": "message.delta"}, handoff | {"type": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, document)


async def test_the_frames_of_a_turn_are_what_the_document_says(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    await http.post("/v1/turns", json={"input": "hi", "background": True})
    turns.end("turn_1")
    for entry in turns.all["turn_1"].entries:
        jsonschema.validate(orjson.loads(entry.data), DOCUMENTS["events.schema.json"])


async def test_the_document_is_served(http: httpx.AsyncClient) -> None:
    answer = await http.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == OPENAPI
