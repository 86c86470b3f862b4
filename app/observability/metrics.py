"""What the service counts, for Prometheus: one typed method for each fact, on a registry of its own."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
TokenKind = Literal["input", "cached_input", "cache_write", "output", "reasoning"]
GaugeName = Literal[
    "turns_running",
    "turns_queued",
    "tasks",
    "tool_threads_running",
    "tool_threads_abandoned",
    "log_lines_dropped",
]

MAX_LABELS = 200
"""Names that callers choose (models) are counted one by one up to this many; the rest are `other`."""
_LATENCY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_DURATION = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_CANCEL = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters and histograms are told; gauges are asked for their value when somebody looks (`watch`)."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._labels: dict[str, set[str]] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"turnwire_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"turnwire_{name}_seconds", text, labels, registry=registry, buckets=buckets)

        self._started = counter("turns_started", "Turns that began to run", "agent")
        self._ended = counter("turns_ended", "Turns that ended", "agent", "status")
        self._first_token = histogram(
            "time_to_first_token", "From the start of a turn to its first text", _LATENCY, "agent"
        )
        self._duration = histogram("turn_duration", "From the start of a turn to its end", _DURATION, "status")
        self._cancel = histogram("cancel", "From a cancel to the end of its turn", _CANCEL, "mode")
        self._resumes = counter("listener_resumes", "Listeners that came back with a last event id")
        self._listeners = Gauge("turnwire_listeners", "Streams that are open", registry=registry)
        self._stalls = counter("listener_stalls", "Listeners cut because they took nothing")
        self._upstream_errors = counter("upstream_errors", "Requests to models' servers that failed", "code")
        self._tokens = counter("tokens", "Tokens that upstreams reported", "model", "kind")
        self._gauges: dict[GaugeName, Gauge] = {
            name: Gauge(f"turnwire_{name}", text, registry=registry) for name, text in _GAUGES.items()
        }

    def watch(self, name: GaugeName, value: Callable[[], float]) -> None:
        """`value` is asked whenever the metrics are rendered, on the thread that renders."""
        self._gauges[name].set_function(value)

    def turn_started(self, agent: str) -> None:
        self._started.labels(self._label("agent", agent)).inc()

    def turn_ended(self, agent: str, status: str, duration_s: float | None) -> None:
        """`duration_s` is None for a turn that never started."""
        self._ended.labels(self._label("agent", agent), status).inc()
        if duration_s is not None:
            self._duration.labels(status).observe(duration_s)

    def first_token(self, agent: str, seconds: float) -> None:
        self._first_token.labels(self._label("agent", agent)).observe(seconds)

    def cancelled(self, mode: str, seconds: float) -> None:
        self._cancel.labels(mode).observe(seconds)

    def listening(self) -> AbstractContextManager[None]:
        """A stream is open for as long as the block runs."""
        return self._listeners.track_inprogress()

    def listener_resumed(self) -> None:
        self._resumes.inc()

    def listener_stalled(self) -> None:
        self._stalls.inc()

    def upstream_error(self, code: str) -> None:
        """`code` is the turn's error code."""
        self._upstream_errors.labels(code).inc()

    def tokens(self, model: str, kind: TokenKind, count: int) -> None:
        if count > 0:
            self._tokens.labels(self._label("model", model), kind).inc(count)

    def render(self) -> bytes:
        """The text format; `CONTENT_TYPE` is its media type."""
        return generate_latest(self._registry)

    def _label(self, label: str, value: str) -> str:
        known = self._labels.setdefault(label, set())
        if value in known or len(known) < MAX_LABELS:
            known.add(value)
            return value
        return "other"


_GAUGES: dict[GaugeName, str] = {
    "turns_running": "Turns under way",
    "turns_queued": "Turns that wait for an earlier one of their conversation",
    "tasks": "Tasks of the event loop",
    "tool_threads_running": "Sync tools that are on a thread",
    "tool_threads_abandoned": "Sync tools that were cancelled and have not returned",
    "log_lines_dropped": "Log lines lost because stderr was too slow",
}
