"""What is told of runs, by what is configured."""

import subprocess
import sys
from dataclasses import replace

import pytest
from agents import RunConfig

from app.domain.ids import TurnId
from app.runtime.tracing import NO_TRACING, Tracing, TracingUnavailable, open_tracing, trace_id
from tests.bounds import PROCESS_S
from tests.sample_turn import sample_turn
from tests.service.process import REPOSITORY

TURN = sample_turn()


def test_a_turns_trace_is_always_the_same_and_another_turns_another() -> None:
    assert trace_id(TURN) == trace_id(replace(TURN, runs=7))
    assert trace_id(TURN) != trace_id(replace(TURN, id=TurnId("turn_2")))


def test_a_turn_is_in_its_callers_trace() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    assert trace_id(replace(TURN, trace_parent=parent)) == f"trace_{'a' * 32}"


def test_a_run_can_tell_less_than_the_service_allows_and_never_more() -> None:
    wide = RunConfig(tracing_disabled=False, trace_include_sensitive_data=True)
    shy = RunConfig(tracing_disabled=True, trace_include_sensitive_data=False)
    told = [
        (config.tracing_disabled, config.trace_include_sensitive_data)
        for tracing in (NO_TRACING, Tracing("otlp"), Tracing("otlp", contents=True))
        for config in (tracing.applied(wide), tracing.applied(shy))
    ]
    assert told == [(True, False), (True, False), (False, False), (True, False), (False, True), (True, False)]


def test_only_openai_has_a_page_for_a_trace() -> None:
    assert Tracing("otlp").url("trace_1") is None
    assert NO_TRACING.url("trace_1") is None
    assert Tracing("openai").url("trace_1") == "https://platform.openai.com/traces/trace?trace_id=trace_1"


@pytest.mark.anyio
async def test_openais_exporter_needs_openais_key() -> None:
    with pytest.raises(TracingUnavailable, match="OPENAI_API_KEY"):
        async with open_tracing(Tracing("openai"), url=None, openai_url=None, openai_key=None):
            pass


def test_without_opentelemetry_the_start_says_what_to_install() -> None:
    code = (
        "import asyncio, sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from app.runtime.tracing import Tracing, open_tracing\n"
        "opened = open_tracing(Tracing('otlp'), url=None, openai_url=None, openai_key=None)\n"
        "asyncio.run(opened.__aenter__())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert "TracingUnavailable" in done.stderr
    assert "install turnwire[otlp]" in done.stderr
