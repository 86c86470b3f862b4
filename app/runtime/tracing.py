"""Whether runs are traced, where to, and how much of them is told.

The SDK traces by default, and sends what was said to OpenAI. Here nothing is exported unless it is asked for.
A turn has one trace over all its runs, also over those after a restart.
"""

import hashlib
import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from agents import RunConfig, custom_span, set_trace_processors, set_tracing_disabled, trace
from agents.tracing.processor_interface import TracingExporter
from agents.tracing.processors import BackendSpanExporter, BatchTraceProcessor
from anyio import to_thread

from app.domain.turn import Turn

Mode = Literal["off", "openai", "otlp"]

OPENAI_INGEST: Final = "https://api.openai.com/v1/traces/ingest"
OPENAI_PAGE: Final = "https://platform.openai.com/traces/trace?trace_id="
FLUSH_S: Final = 5.0
"""How long the end of the service waits until what is left is exported."""
EXPORT_EVERY_S: Final = 1.0
MAX_WAITING: Final = 8192
"""Spans that wait for their export; more are dropped, and the log says so."""


class TracingUnavailable(Exception):
    """What is configured cannot be exported from here; the message says why."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """`contents`: what was said, called and answered is exported too, not only that it was."""

    mode: Mode = "off"
    contents: bool = False

    @property
    def disabled(self) -> bool:
        return self.mode == "off"

    def applied(self, config: RunConfig) -> RunConfig:
        """A run's own configuration can tell less than the service allows, never more."""
        return replace(
            config,
            tracing_disabled=config.tracing_disabled or self.disabled,
            trace_include_sensitive_data=config.trace_include_sensitive_data and self.contents,
        )

    def url(self, of_trace: str) -> str | None:
        """Where a person can look at a trace, if that is known."""
        return OPENAI_PAGE + of_trace if self.mode == "openai" else None

    @contextmanager
    def of_run(self, turn: Turn, config: RunConfig) -> Iterator[None]:
        """All that the SDK runs in the block is told as one run of the turn."""
        if self.disabled or config.tracing_disabled:
            yield
            return
        about = {"turn_id": turn.id, "conversation_id": turn.conversation_id}
        if turn.trace_parent is not None:
            about["traceparent"] = turn.trace_parent
        with (
            trace(
                config.workflow_name,
                trace_id=trace_id(turn),
                group_id=config.group_id,
                metadata={**(config.trace_metadata or {}), **about, "group_id": config.group_id},
                tracing=config.tracing,
            ),
            custom_span("turn", {"turn_id": turn.id, "run": turn.runs, "agent": turn.agent}),
        ):
            yield


NO_TRACING: Final = Tracing()


def trace_id(turn: Turn) -> str:
    """One for all runs of a turn, also after a restart, in the SDK's form: its caller's, else its own."""
    digits = turn.trace_parent and turn.trace_parent.split("-")[1]
    return "trace_" + (digits or hashlib.sha256(turn.id.encode()).hexdigest()[:32])


@asynccontextmanager
async def open_tracing(
    tracing: Tracing, *, url: str | None, openai_url: str | None, openai_key: str | None
) -> AsyncIterator[None]:
    """The process traces as configured until the block ends; what is left then is exported under a bound.

    `url` is where to, instead of OpenAI's or of what OpenTelemetry's own variables say. Raises
    TracingUnavailable.
    """
    set_tracing_disabled(True)
    if tracing.disabled:
        yield
        return
    if tracing.mode == "openai":
        exporter, close = _openai(url, openai_url, openai_key)
    else:
        exporter, close = _otlp(url, tracing)
    processor = BatchTraceProcessor(exporter, max_queue_size=MAX_WAITING, schedule_delay=EXPORT_EVERY_S)
    # In place of the SDK's own, which sends everything to OpenAI.
    set_trace_processors([processor])
    set_tracing_disabled(False)
    try:
        yield
    finally:
        set_tracing_disabled(True)
        await to_thread.run_sync(processor.shutdown, FLUSH_S)
        close()


_Export = tuple[TracingExporter, Callable[[], None]]


def _openai(url: str | None, openai_url: str | None, key: str | None) -> _Export:
    """To OpenAI, or where its stand-in takes traces: a key goes to nobody but whom it was given for."""
    if key is None:
        raise TracingUnavailable("TURNWIRE_TRACING=openai needs OPENAI_API_KEY")
    own = openai_url.rstrip("/") + "/traces/ingest" if openai_url is not None else OPENAI_INGEST
    exporter = BackendSpanExporter(api_key=key, endpoint=url or own)
    return exporter, exporter.close


def _otlp(url: str | None, tracing: Tracing) -> _Export:
    try:
        otlp = importlib.import_module("app.runtime.otlp")
    except ImportError as error:
        raise TracingUnavailable(
            f"TURNWIRE_TRACING=otlp needs OpenTelemetry ({error}): install turnwire[otlp]"
        ) from error
    exporter = otlp.OtlpExporter(url, contents=tracing.contents)
    return exporter, exporter.close
