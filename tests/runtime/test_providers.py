"""Which model answers, and over which wire."""

import asyncio
from urllib.parse import urlsplit

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner
from agents.models import get_default_model

from app.runtime.credentials.environment import OPENAI_URL, fixed
from app.runtime.failures import UpstreamFailure
from app.runtime.models.model import UpstreamModel
from app.runtime.models.transport import PLACEHOLDER_KEY, Upstream, UpstreamLimits, Wire
from app.runtime.providers import Api, EmbeddedModel, Providers, ServedModel, upstream_at
from tests.runtime.models.loopback import Answer, Loopback, completed_event, frames, text_answer

pytestmark = pytest.mark.anyio


async def never() -> tuple[str, str]:
    raise AssertionError("nobody asked for it")


EMBEDDED = EmbeddedModel("tiny", never)


def environment(base_url: str | None = None, key: str | None = None, wire: Api = "auto") -> Upstream:
    return upstream_at(fixed(base_url or OPENAI_URL, key), wire)


def model_of(providers: Providers, name: str | None = None) -> UpstreamModel:
    model = providers.get_model(name)
    assert isinstance(model, UpstreamModel)
    return model


@pytest.mark.parametrize(
    ("base_url", "wire"),
    [
        (None, "responses"),
        ("https://api.openai.com/v1", "responses"),
        ("http://127.0.0.1:8080/v1", "chat_completions"),
        ("https://api.openai.com.evil.example/v1", "chat_completions"),
    ],
)
def test_the_wire_follows_from_the_host(base_url: str | None, wire: Wire) -> None:
    assert model_of(Providers(environment(base_url, "k"))).upstream.wire == wire


@pytest.mark.parametrize("wire", ["responses", "chat_completions"])
def test_a_wire_that_was_chosen_holds(wire: Wire) -> None:
    for url in (None, "http://127.0.0.1:8080/v1"):
        assert model_of(Providers(environment(url, "k", wire))).upstream.wire == wire


async def test_a_url_without_a_key_sends_a_placeholder() -> None:
    async with Loopback(text_answer()) as server:
        providers = Providers(environment(server.url))
        result = await Runner.run(
            Agent("a"), "Go.", run_config=RunConfig(model_provider=providers, tracing_disabled=True)
        )
        await providers.aclose()
    assert result.final_output == "All good."
    assert server.requests[0].headers["authorization"] == f"bearer {PLACEHOLDER_KEY}"


async def test_names_reach_the_upstream_as_they_are() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    async with Loopback(Answer(frames(completed_event([message])))) as server:
        providers = Providers(environment(server.url, wire="responses"), default_model="house/model")
        config = RunConfig(model_provider=providers, tracing_disabled=True)
        for agent in (Agent("a"), Agent("b", model="openai/other")):
            await Runner.run(agent, "Go.", run_config=config)
        await providers.aclose()
    assert [r.body["model"] for r in server.requests] == ["house/model", "openai/other"]


def test_the_default_is_what_was_named_else_the_sdk_s() -> None:
    assert Providers(environment(), default_model="mine").default_model == "mine"
    assert Providers(environment()).default_model == get_default_model()
    assert Providers(embedded=EMBEDDED).default_model == "tiny"


def test_alone_the_embedded_model_answers_to_its_own_name_only() -> None:
    providers = Providers(embedded=EMBEDDED)
    assert providers.serves("tiny")
    assert not providers.serves("gpt-5-mini")
    assert model_of(providers).model == "tiny"
    with pytest.raises(UpstreamFailure, match="gpt-5-mini"):
        providers.get_model("gpt-5-mini")


def test_an_upstream_is_taken_to_serve_any_name() -> None:
    providers = Providers(environment("http://127.0.0.1:8080/v1"), embedded=EMBEDDED)
    assert providers.serves("anything")
    assert model_of(providers, "anything").upstream is not model_of(providers, "tiny").upstream


async def test_the_embedded_model_is_started_by_its_first_request() -> None:
    starts = 0
    async with Loopback(text_answer()) as server:

        async def ensure() -> tuple[str, str]:
            nonlocal starts
            starts += 1
            return server.url, "its-key"

        providers = Providers(embedded=EmbeddedModel("tiny", ensure))
        config = RunConfig(model_provider=providers, tracing_disabled=True)
        assert starts == 0
        await Runner.run(Agent("a"), "Go.", run_config=config)
        await providers.aclose()
    assert starts == 1
    assert server.requests[0].headers["authorization"] == "bearer its-key"
    assert server.requests[0].body["model"] == "tiny"
    assert server.requests[0].body["max_tokens"] > 0


async def test_what_hinders_the_embedded_model_is_told() -> None:
    async def ensure() -> tuple[str, str]:
        raise OSError("no such engine")

    providers = Providers(embedded=EmbeddedModel("tiny", ensure), limits=UpstreamLimits(retries=0))
    with pytest.raises(UpstreamFailure, match="no such engine") as caught:
        await Runner.run(
            Agent("a"), "Go.", run_config=RunConfig(model_provider=providers, tracing_disabled=True)
        )
    assert caught.value.code == "upstream_unreachable"
    await providers.aclose()


async def test_a_closed_provider_asks_nobody() -> None:
    async with Loopback(text_answer()) as server:
        providers = Providers(environment(server.url))
        await providers.aclose()
        with pytest.raises(UpstreamFailure) as caught:
            await Runner.run(
                Agent("a"), "Go.", run_config=RunConfig(model_provider=providers, tracing_disabled=True)
            )
    assert caught.value.code == "shutting_down"
    assert server.requests == []


def test_warming_up_sends_nothing() -> None:
    Providers(environment("http://127.0.0.1:1/v1"), embedded=EMBEDDED).warm_up()
    Providers(environment("http://127.0.0.1:1/v1", wire="responses")).warm_up()


HOUSE = ServedModel(
    upstream_at(fixed("http://127.0.0.1:9/v1", "k"), "responses"), sent_as="house-2", context_window=8
)


def test_a_listed_name_is_served_by_its_own_upstream_and_the_others_by_the_environments() -> None:
    providers = Providers(
        environment("http://127.0.0.1:1/v1"), listed={"house": HOUSE, "known": ServedModel(None)}
    )
    assert model_of(providers, "house").upstream is HOUSE.upstream
    assert model_of(providers, "known").upstream is model_of(providers, "any").upstream
    assert (providers.wire_of("house"), providers.wire_of("any")) == ("responses", "chat_completions")
    assert (providers.context_window("house"), providers.context_window("any")) == (8, None)


def test_a_list_alone_serves_what_it_lists_and_its_first_is_the_default() -> None:
    providers = Providers(listed={"house": HOUSE, "shed": HOUSE})
    assert providers.default_model == "house"
    assert [providers.serves(name) for name in ("house", "shed", "nobody")] == [True, True, False]
    assert providers.upstreams == [HOUSE.upstream]


def test_ambient_credentials_serve_only_names_of_databricks() -> None:
    ambient = environment("http://127.0.0.1:2/serving-endpoints")
    providers = Providers(environment("http://127.0.0.1:1/v1"), ambient=ambient)
    assert model_of(providers, "databricks-dbrx").upstream is ambient
    assert model_of(providers, "dbrx-databricks-").upstream is not ambient


async def test_a_listed_model_is_asked_by_its_own_name_and_counted_by_ours() -> None:
    async with Loopback(text_answer()) as server:
        served = ServedModel(
            environment(server.url), sent_as="house-2", defaults=ModelSettings(temperature=0.5, max_tokens=9)
        )
        providers = Providers(listed={"house": served})
        config = RunConfig(model_provider=providers, tracing_disabled=True)
        agent = Agent("a", model_settings=ModelSettings(temperature=0.1))
        await Runner.run(agent, "Go.", run_config=config)
        await providers.aclose()
    body = server.requests[0].body
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("house-2", 0.1, 9)
    assert model_of(providers, "house").model == "house"


async def test_upstreams_say_how_they_are_once_for_all_who_ask_and_start_nothing() -> None:
    async with Loopback(Answer(b"{}", 404, "application/json", {})) as server:
        providers = Providers(environment(server.url), embedded=EMBEDDED)
        first, second = await asyncio.gather(providers.states(), providers.states())
        await providers.aclose()
        place = urlsplit(server.url).netloc
    assert (
        first
        == second
        == [
            {"name": place, "api": "chat_completions", "status": "reachable"},
            {"name": "embedded", "api": "chat_completions", "status": "embedded"},
        ]
    )
    assert len(server.requests) == 1
