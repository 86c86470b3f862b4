"""Traces: none unless asked for; OpenTelemetry's and OpenAI's where they are."""

import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pauses import GUARDED, LAST, call
from tests.service.answers import answered, decisions
from tests.service.client import TurnwireClient
from tests.service.collector import CollectedSpan, Collector, collecting
from tests.service.process import API_KEY, ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
SECRET = "the kelp is a secret"
DELEGATED = (
    {"tool_calls": [call("ask_helper", input=SECRET)]},
    {"tool_calls": [call("lookup", q="kelp")]},
    {"text": f"Sea weed: {SECRET}."},
    {"text": "It is sea weed."},
)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def shared() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str, shared: Collector
) -> Iterator[ServiceProcess]:
    """A service that exports to the shared collector."""
    with ServiceProcess(tmp_path_factory.mktemp("traced"), upstream_origin, **otlp(shared)) as service:
        yield service
        service.check_log()


@asynccontextmanager
async def client_of(service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(service.base_url, model=scenario.model)
    try:
        yield client
    finally:
        await client.aclose()


def otlp(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"TURNWIRE_TRACING": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, **more}


async def delegated(service: ServiceProcess, scenario: Scenario, **headers: str) -> str:
    """A turn with a nested agent and a tool; its id."""
    await scenario.script(*DELEGATED)
    async with client_of(service, scenario) as client:
        async with client.stream(SECRET, agent="boss", headers=headers) as stream:
            frames = await stream.rest()
        assert frames[-1].type == "turn.completed"
        return stream.turn_id


def one(spans: list[CollectedSpan], name: str) -> CollectedSpan:
    (span,) = [span for span in spans if span.name == name]
    return span


def above(span: CollectedSpan, spans: list[CollectedSpan]) -> list[str]:
    """The names of all spans that it stands under, from the nearest."""
    by_id = {each.span_id: each for each in spans}
    names = []
    while parent := by_id.get(span.parent_id):
        names.append(parent.name)
        span = parent
    return names


async def test_agents_models_and_tools_are_spans_under_the_requests_traceparent(
    traced: ServiceProcess, shared: Collector, scenario: Scenario
) -> None:
    turn_id = await delegated(traced, scenario, **PARENT)
    spans = shared.wait("turn boss", turn_id=turn_id)
    assert {span.trace_id for span in spans} == {TRACE}
    assert one(spans, "turn boss").parent_id == CALLER
    assert above(one(spans, "invoke_agent boss"), spans)[-1] == "turn boss"
    nested = above(one(spans, "execute_tool lookup"), spans)
    assert nested[-1] == "turn boss"
    ours = [n for n in nested if n.split()[0] in ("invoke_agent", "execute_tool")]
    assert ours == ["invoke_agent helper", "execute_tool ask_helper", "invoke_agent boss"]
    chats = [span for span in spans if span.name == f"chat {scenario.model}"]
    assert [span.attributes["gen_ai.usage.output_tokens"] > 0 for span in chats] == [True] * 4
    assert {span.service for span in spans} == {"turnwire"}
    assert all(span.nanoseconds > 0 for span in spans)
    assert {post.path for post in shared.posts} == {"/v1/traces"}
    assert SECRET.encode() not in b"".join(post.body for post in shared.posts)


async def test_contents_are_exported_only_if_they_are_asked_for(
    tmp_path: Path, upstream_origin: str, scenario: Scenario, collector: Collector
) -> None:
    settings = otlp(collector, TURNWIRE_TRACE_CONTENTS="true", OTEL_SERVICE_NAME="desk")
    with ServiceProcess(tmp_path, upstream_origin, **settings) as service:
        await delegated(service, scenario)
        spans = collector.wait("turn boss")
    told = one(spans, "execute_tool ask_helper").attributes
    assert SECRET in told["gen_ai.tool.call.arguments"]
    assert SECRET in told["gen_ai.tool.call.result"]
    chats = [span for span in spans if span.name == f"chat {scenario.model}"]
    assert SECRET in chats[0].attributes["gen_ai.input.messages"]
    assert {span.service for span in spans} == {"desk"}


async def test_a_turn_without_a_valid_traceparent_has_a_trace_of_its_own(
    traced: ServiceProcess, shared: Collector, scenario: Scenario
) -> None:
    traces = set()
    for header in ({"traceparent": f"00-{'0' * 32}-{CALLER}-01"}, {"traceparent": "kelp"}, {}):
        turn_id = await delegated(traced, scenario, **header)
        turn = one(shared.wait("turn boss", turn_id=turn_id), "turn boss")
        assert turn.parent_id == ""
        traces.add(turn.trace_id)
    assert len(traces - {"0" * 32}) == 3


async def test_a_turn_whose_caller_does_not_sample_is_not_exported(
    traced: ServiceProcess, shared: Collector, scenario: Scenario
) -> None:
    unsampled = await delegated(traced, scenario, traceparent=f"00-{TRACE}-{CALLER}-00")
    following = await delegated(traced, scenario)
    shared.wait("turn boss", turn_id=following)
    assert shared.spans(unsampled) == []


async def test_a_model_call_that_failed_is_a_failed_span(
    traced: ServiceProcess, shared: Collector, scenario: Scenario
) -> None:
    await scenario.script({"status": 400, "body": {"error": {"message": SECRET}}})
    async with client_of(traced, scenario) as client:
        turn = await client.run("What is kelp?", agent="plain")
    assert SECRET in turn["error"]["message"]
    spans = shared.wait("turn plain", turn_id=turn["id"])
    assert one(spans, f"chat {scenario.model}").failed
    assert SECRET.encode() not in b"".join(post.body for post in shared.posts)


async def test_a_paused_turn_stays_in_its_trace_after_a_crash(
    tmp_path: Path, upstream_origin: str, scenario: Scenario, collector: Collector
) -> None:
    with ServiceProcess(tmp_path, upstream_origin, **otlp(collector)) as service:
        await scenario.script(GUARDED, LAST)
        async with client_of(service, scenario) as client:
            async with client.stream("What is kelp?", agent="guard", headers=PARENT) as stream:
                await stream.rest()
            turn = await client.turn(stream.turn_id)
        assert turn["status"] == "paused"
        collector.wait("turn guard")
        service.restart()
        async with client_of(service, scenario) as client:
            turn = await answered(client, turn["id"], decisions(turn))
        assert turn["status"] == "completed"
        spans = collector.wait("execute_tool guarded")
        assert service.terminate() == 0
    spans = collector.spans()
    assert {span.trace_id for span in spans} == {TRACE}
    turns = {span.attributes["turnwire.run"]: span.parent_id for span in spans if span.name == "turn guard"}
    assert turns == {1: CALLER, 2: CALLER}


async def test_what_is_left_is_exported_when_the_service_stops(
    tmp_path: Path, upstream_origin: str, scenario: Scenario, collector: Collector
) -> None:
    with ServiceProcess(tmp_path, upstream_origin, **otlp(collector)) as service:
        await delegated(service, scenario)
        assert service.terminate() == 0
    assert "turn boss" in {span.name for span in collector.spans()}


async def test_a_collector_that_never_answers_holds_neither_turns_nor_the_end(
    tmp_path: Path, upstream_origin: str, scenario: Scenario
) -> None:
    with (
        collecting(silent=True) as collector,
        ServiceProcess(tmp_path, upstream_origin, **otlp(collector)) as service,
    ):
        await delegated(service, scenario)
        collector.wait_posts()
        await delegated(service, scenario)
        asked_at = time.monotonic()
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        assert time.monotonic() - asked_at < 12


async def test_nothing_is_exported_unless_it_is_asked_for(
    tmp_path: Path, upstream_origin: str, scenario: Scenario, collector: Collector
) -> None:
    settings = otlp(collector, TURNWIRE_TRACING=None, TURNWIRE_TRACING_URL=collector.address)
    with ServiceProcess(tmp_path, upstream_origin, **settings) as service:
        await delegated(service, scenario, **PARENT)
        assert service.terminate() == 0
    assert collector.posts == []


async def test_openais_exporter_sends_with_the_configured_key_to_the_configured_place(
    tmp_path: Path, upstream_origin: str, scenario: Scenario, collector: Collector
) -> None:
    settings = {"TURNWIRE_TRACING": "openai", "TURNWIRE_TRACING_URL": f"{collector.address}/traces/ingest"}
    with ServiceProcess(tmp_path, upstream_origin, **settings) as service:
        turn_id = await delegated(service, scenario)
        assert service.terminate() == 0
        service.check_log()
    assert {post.path for post in collector.posts} == {"/traces/ingest"}
    assert {post.headers["authorization"] for post in collector.posts} == {f"Bearer {API_KEY}"}
    (trace,) = collector.exported("trace")
    assert trace["workflow_name"] == "boss"
    assert trace["metadata"]["turn_id"] == turn_id
    spans = collector.exported("trace.span")
    assert {span["trace_id"] for span in spans} == {trace["id"]}
    assert {"agent", "generation", "function"} <= {span["span_data"]["type"] for span in spans}
    assert SECRET.encode() not in b"".join(post.body for post in collector.posts)
