"""A model's name picks its upstream, with the credentials that were configured for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.credentials.workspace import Workspace
from tests.service.client import TurnwireClient
from tests.service.process import API_KEY, ServiceProcess
from tests.upstream.client import Scenario, UpstreamControl

pytestmark = pytest.mark.anyio
NOTHING: dict[str, Any] = {"OPENAI_BASE_URL": None, "OPENAI_API_KEY": None, "TURNWIRE_MODEL": None}


def service_of(folder: Path, upstream: UpstreamControl, **settings: Any) -> ServiceProcess:
    return ServiceProcess(folder, upstream.origin, **settings)


async def said_to(upstream: UpstreamControl, model: str) -> list[str]:
    return [request.headers["authorization"] for request in await upstream.requests(model)]


async def test_each_listed_model_is_asked_at_its_own_place_and_the_environment_serves_the_rest(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    models = {
        "house": {
            "url": upstream.base_url,
            "api": "responses",
            "model": f"{scenario.model}-large",
            "api_key_env": "HOUSE_KEY",
            "defaults": {"temperature": 0.25, "max_output_tokens": 99},
            "price": {"input": 1_000_000, "output": 0},
        }
    }
    file = tmp_path / "models.json"
    file.write_text(json.dumps(models))
    settings = {"TURNWIRE_MODELS": file, "HOUSE_KEY": "house-key-0123456789"}
    with service_of(tmp_path / "data", upstream, **settings) as service:
        client = TurnwireClient(service.base_url)
        listed = await client.run("hello", model="house")
        other = await client.run("hello", model=scenario.model, temperature=1)
        await client.aclose()
        (line, _) = service.wait_logged("turn.ended", 2)
        service.check_log()
    assert (listed["status"], listed["model"], other["status"]) == ("completed", "house", "completed")
    assert [entry["model"] for entry in listed["usage"]["by_model"]] == ["house"]
    assert line["cost"] == listed["usage"]["input_tokens"]
    (sent,) = await upstream.requests(f"{scenario.model}-large")
    assert (sent.path, sent.headers["authorization"]) == ("/v1/responses", "Bearer house-key-0123456789")
    assert (sent.body["temperature"], sent.body["max_output_tokens"]) == (0.25, 99)
    (sent,) = await upstream.requests(scenario.model)
    assert (sent.path, sent.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {API_KEY}")


async def test_a_name_that_nobody_serves_is_an_error_and_never_the_embedded_model(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    models = json.dumps({scenario.model: {"url": upstream.base_url}})
    with service_of(tmp_path, upstream, **NOTHING | {"TURNWIRE_MODELS": models}) as service:
        client = TurnwireClient(service.base_url)
        assert (await client.run("hello"))["model"] == scenario.model
        refused = await client.post("hello", model="nobody")
        await client.aclose()
    assert (refused.status_code, refused.json()["code"]) == (422, "model_not_found")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"TURNWIRE_MODEL": "nobody"}, "TURNWIRE_MODEL=nobody: no configured upstream serves it"),
        (
            {"TURNWIRE_MODEL": "nobody", "TURNWIRE_MODELS": '{"a": {"url": "http://127.0.0.1:9"}}'},
            "TURNWIRE_MODEL=nobody: no configured upstream serves it",
        ),
        ({"TURNWIRE_MODELS": '{"a": {}}'}, "TURNWIRE_MODELS: a: it has no url"),
        ({"TURNWIRE_MODELS": '{"a": {"url": 7}}'}, "TURNWIRE_MODELS: a.url: Input should be a valid string"),
        ({"TURNWIRE_AUTH_COMMAND": "echo t"}, "TURNWIRE_AUTH_COMMAND: set TURNWIRE_UPSTREAM_URL"),
        ({"TURNWIRE_UPSTREAM_URL": "http://127.0.0.1:9"}, "TURNWIRE_UPSTREAM_URL: set"),
        ({"TURNWIRE_UPSTREAM_URL": "127.0.0.1:9"}, "TURNWIRE_UPSTREAM_URL: no http:// or https:// URL"),
        ({"TURNWIRE_DATABRICKS_PROFILE": "gone"}, "the Databricks profile 'gone' cannot be used"),
    ],
)
def test_what_cannot_be_served_stops_the_start(
    tmp_path: Path, upstream_origin: str, settings: dict[str, Any], told: str
) -> None:
    service = ServiceProcess(tmp_path, upstream_origin, **NOTHING | {"HOME": tmp_path} | settings)
    with pytest.raises(AssertionError, match="ended before it said where it listens"):
        service.start()
    assert service.wait() != 0
    assert any(told in line for line in service.log), service.log
    service.check_log()


async def test_a_command_is_asked_for_its_token_again_after_a_401(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    runs = tmp_path / "runs"
    settings = {
        "TURNWIRE_AUTH_COMMAND": f"echo run >> {runs}; echo printed-token-$(wc -l < {runs})",
        "TURNWIRE_UPSTREAM_URL": upstream.base_url,
    }
    refusal = {"status": 401, "body": {"error": {"message": "expired"}}}
    await scenario.script({"text": "One."}, refusal, {"text": "Two."}, refusal, refusal)
    with service_of(tmp_path / "data", upstream, **settings) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        turns = [await client.run("hello") for _ in range(3)]
        await client.aclose()
        assert not [line for line in service.log if "printed-token" in line]
    assert [turn["status"] for turn in turns] == ["completed", "completed", "failed"]
    assert turns[2]["error"]["code"] == "upstream_auth"
    tokens = [said.removeprefix("Bearer printed-token-") for said in await said_to(upstream, scenario.model)]
    assert tokens == ["1", "1", "2", "2", "3"]


async def test_a_command_that_fails_is_told_by_its_status_and_a_cancel_does_not_wait_for_it(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    broken, gate = tmp_path / "broken", tmp_path / "gate"
    broken.touch()
    command = f"[ -e {broken} ] && {{ echo half-a-secret; exit 3; }}; touch {gate}; sleep 30"
    settings = {"TURNWIRE_AUTH_COMMAND": command, "TURNWIRE_UPSTREAM_URL": upstream.base_url}
    with service_of(tmp_path / "data", upstream, **settings) as service:
        client = TurnwireClient(service.base_url, model=scenario.model)
        failed = await client.run("hello")
        broken.unlink()
        async with client.stream("hello") as stream:
            await stream.until("step.started")
            cancelled = await client.cancel(stream.turn_id)
        await client.aclose()
        assert service.terminate() == 0
        assert not [line for line in service.log if "half-a-secret" in line]
    assert (failed["error"]["code"], "exit status 3" in failed["error"]["message"]) == ("upstream_auth", True)
    assert "half-a-secret" not in str(failed)
    assert cancelled.json()["status"] == "cancelled"
    assert await upstream.requests(scenario.model) == []


async def test_tokens_of_a_second_are_fetched_for_each_turn(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    with Workspace(expires_in=1, serves=upstream.origin) as workspace:
        settings = NOTHING | {
            "TURNWIRE_DATABRICKS_HOST": workspace.host,
            "TURNWIRE_MODEL": scenario.model,
            "DATABRICKS_CLIENT_ID": "id",
            "DATABRICKS_CLIENT_SECRET": "secret",
        }
        with service_of(tmp_path, upstream, **settings) as service:
            client = TurnwireClient(service.base_url)
            turns = [await client.run("hello") for _ in range(3)]
            await client.aclose()
    assert [turn["output_text"] for turn in turns] == ["All good."] * 3
    tokens = await said_to(upstream, scenario.model)
    assert tokens == [f"Bearer workspace-token-{n}" for n in (1, 2, 3)]


async def test_databricks_names_use_what_is_ambient_beside_openai(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    with Workspace(serves=upstream.origin) as workspace:
        settings = {"DATABRICKS_HOST": workspace.host, "DATABRICKS_TOKEN": "dapi-0123456789"}
        with service_of(tmp_path, upstream, **settings) as service:
            client = TurnwireClient(service.base_url)
            for model in (scenario.model, f"databricks-{scenario.model}"):
                assert (await client.run("hello", model=model))["status"] == "completed"
            await client.aclose()
    assert await said_to(upstream, scenario.model) == [f"Bearer {API_KEY}"]
    assert await said_to(upstream, f"databricks-{scenario.model}") == ["Bearer dapi-0123456789"]


async def test_a_deep_look_tells_how_each_upstream_is(
    tmp_path: Path, upstream: UpstreamControl, scenario: Scenario
) -> None:
    models = {
        "gone": {"url": "http://127.0.0.1:9/v1"},
        "locked": {"url": upstream.base_url, "api": "responses", "auth_command": "exit 1"},
    }
    with service_of(tmp_path, upstream, TURNWIRE_MODELS=json.dumps(models)) as service:
        client = TurnwireClient(service.base_url)
        shallow = (await client.http.get("/readyz")).json()
        deep = (await client.http.get("/readyz?deep=1")).json()
        await client.aclose()
    here = upstream.origin.removeprefix("http://")
    assert shallow == {"status": "ready"}
    assert deep["status"] == "ready"
    assert deep["upstreams"] == [
        {"name": here, "api": "chat_completions", "status": "reachable"},
        {"name": "127.0.0.1:9", "api": "chat_completions", "status": "unreachable"},
        {"name": here, "api": "responses", "status": "unauthorized"},
    ]
