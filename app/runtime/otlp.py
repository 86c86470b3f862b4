"""The SDK's spans as OpenTelemetry's, sent by OpenTelemetry's own exporter. Needs the extra `otlp`.

It runs in the thread of the SDK's `BatchTraceProcessor`: nothing here costs the event loop any time. Attributes
are named as OpenTelemetry's conventions for generative AI have it, ours begin with `turnwire.`.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from agents.tracing import Span, Trace
from agents.tracing.processor_interface import TracingExporter
from agents.tracing.span_data import (
    AgentSpanData,
    CustomSpanData,
    FunctionSpanData,
    GenerationSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    MCPListToolsSpanData,
    ResponseSpanData,
    SpanData,
    TaskSpanData,
    TurnSpanData,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from app.runtime.failures import shown

MAX_CONTENT_CHARS: Final = 65536
"""Of one attribute that holds contents."""
MAX_TEXT_CHARS: Final = 16384
"""Of one text in it."""
EXPORT_TIMEOUT_S: Final = 10.0

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_HEX: Final = re.compile(r"[0-9a-f]+")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

Attributes = dict[str, str | int | bool]


class OtlpExporter(TracingExporter):
    """`url` None: where OpenTelemetry's own variables say (`OTEL_EXPORTER_OTLP_ENDPOINT` and the others)."""

    def __init__(self, url: str | None, *, contents: bool) -> None:
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT_S)
        # What `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say wins.
        self._resource = Resource({"service.name": "turnwire"}).merge(OTELResourceDetector().detect())
        self._contents = contents

    def export(self, items: list[Trace | Span[Any]]) -> None:
        converted = (self._converted(item) for item in items if isinstance(item, Span))
        spans = [span for span in converted if span is not None]
        if spans:
            self._exporter.export(spans)

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _converted(self, span: Span[Any]) -> ReadableSpan | None:
        """None if the caller's own trace is not sampled."""
        about = span.trace_metadata or {}
        remote = _remote(about.get("traceparent"))
        if remote is not None and not remote.trace_flags.sampled:
            return None
        trace_id = remote.trace_id if remote is not None else _number(span.trace_id, 32)
        name, kind, attributes = _told(span.span_data, contents=self._contents)
        # Made by hand, and not by a tracer: the SDK has made span and ids already.
        return ReadableSpan(
            name=name,
            context=SpanContext(trace_id, _number(span.span_id, 16), is_remote=False, trace_flags=_SAMPLED),
            parent=_parent(span, trace_id, remote),
            resource=self._resource,
            attributes=_about(about) | attributes,
            kind=kind,
            status=_status(span, contents=self._contents),
            start_time=_nanoseconds(span.started_at),
            end_time=_nanoseconds(span.ended_at),
            instrumentation_scope=InstrumentationScope("turnwire"),
        )


def _remote(traceparent: str | None) -> SpanContext | None:
    """The caller's span. The header was checked when it came in."""
    if traceparent is None:
        return None
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )


def _parent(span: Span[Any], trace_id: int, remote: SpanContext | None) -> SpanContext | None:
    if span.parent_id is None:
        return remote
    return SpanContext(trace_id, _number(span.parent_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _number(sdk_id: str, digits: int) -> int:
    """The SDK's `trace_` and `span_` with hexadecimal digits behind, as OpenTelemetry's number."""
    found = _HEX.fullmatch(sdk_id.rpartition("_")[2])
    text = found[0] if found else sdk_id.encode().hex()
    return int(text[:digits], 16) or 1


def _nanoseconds(at: str | None) -> int | None:
    return None if at is None else (datetime.fromisoformat(at) - _EPOCH) // _MICROSECOND * 1000


def _status(span: Span[Any], *, contents: bool) -> Status:
    error = span.error
    if error is None:
        return Status(StatusCode.UNSET)
    data = error.get("data")
    text = f"{error['message']}: {_json(data)}" if contents and data else error["message"]
    return Status(StatusCode.ERROR, shown(text))


def _about(trace: dict[str, Any]) -> Attributes:
    names = {
        "turn_id": "turnwire.turn.id",
        "conversation_id": "gen_ai.conversation.id",
        "group_id": "turnwire.group.id",
    }
    return {name: str(trace[key]) for key, name in names.items() if trace.get(key) is not None}


def _told(data: SpanData, *, contents: bool) -> tuple[str, SpanKind, Attributes]:
    """A span's name, its kind, and what it says."""
    match data:
        case AgentSpanData():
            told: Attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": data.name}
            return f"invoke_agent {data.name}", SpanKind.INTERNAL, told
        case GenerationSpanData():
            return f"chat {data.model}", SpanKind.CLIENT, _of_model(data, contents=contents)
        case ResponseSpanData():
            told = {"gen_ai.operation.name": "chat", **_of_usage(data.usage)}
            return "chat", SpanKind.CLIENT, told
        case FunctionSpanData():
            return f"execute_tool {data.name}", SpanKind.INTERNAL, _of_tool(data, contents=contents)
        case HandoffSpanData():
            told = {"turnwire.handoff.from": str(data.from_agent), "turnwire.handoff.to": str(data.to_agent)}
            return "handoff", SpanKind.INTERNAL, told
        case GuardrailSpanData():
            return f"guardrail {data.name}", SpanKind.INTERNAL, {"turnwire.guardrail.triggered": data.triggered}
        case TaskSpanData():
            return f"run {data.name}", SpanKind.INTERNAL, {"gen_ai.workflow.name": data.name}
        case TurnSpanData():
            told = {"turnwire.step": data.turn, "gen_ai.agent.name": data.agent_name}
            return f"step {data.turn}", SpanKind.INTERNAL, told
        case MCPListToolsSpanData():
            return "tools/list", SpanKind.CLIENT, {"turnwire.mcp.server": str(data.server)}
        case CustomSpanData():
            return _of_custom(data, contents=contents)
        case _:
            return data.type, SpanKind.INTERNAL, {}


def _of_model(data: GenerationSpanData, *, contents: bool) -> Attributes:
    told: Attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": str(data.model)}
    told |= _of_usage(data.usage)
    if contents:
        told |= _content("gen_ai.input.messages", data.input) | _content("gen_ai.output.messages", data.output)
    return told


def _of_usage(usage: dict[str, Any] | None) -> Attributes:
    counted = usage or {}
    names = ("input_tokens", "output_tokens")
    return {f"gen_ai.usage.{name}": counted[name] for name in names if isinstance(counted.get(name), int)}


def _of_tool(data: FunctionSpanData, *, contents: bool) -> Attributes:
    told: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": data.name}
    if contents:
        told |= _content("gen_ai.tool.call.arguments", data.input)
        told |= _content("gen_ai.tool.call.result", data.output)
    return told


def _of_custom(data: CustomSpanData, *, contents: bool) -> tuple[str, SpanKind, Attributes]:
    """Ours holds no contents; what stands in a user's own is for the user's code to know."""
    if data.name == "turn" and set(data.data) == {"turn_id", "run", "agent"}:
        told: Attributes = {"turnwire.run": data.data["run"], "gen_ai.agent.name": data.data["agent"]}
        return f"turn {data.data['agent']}", SpanKind.SERVER, told
    return data.name, SpanKind.INTERNAL, _content("turnwire.data", data.data) if contents else {}


def _content(name: str, value: Any) -> Attributes:
    """Of a list, as many of the newest entries as there is room for: they are valid JSON."""
    if value is None:
        return {}
    if not isinstance(value, list):
        return {name: _json(_cut(value))[:MAX_CONTENT_CHARS]}
    room = MAX_CONTENT_CHARS
    kept: list[str] = []
    for entry in reversed(value):
        text = _json_value(_cut(entry))
        room -= len(text)
        if room < 0:
            break
        kept.append(text)
    return {name: f"[{','.join(reversed(kept))}]"}


def _cut(value: Any) -> Any:
    """Long texts are cut before they are encoded: that is done in one go, while nothing else runs."""
    match value:
        case str():
            return value[:MAX_TEXT_CHARS]
        case dict():
            return {key: _cut(entry) for key, entry in value.items()}
        case list():
            return [_cut(entry) for entry in value]
        case _:
            return value


def _json(value: Any) -> str:
    """Text as it is, but for lone surrogates, which protobuf refuses together with all other spans."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else _json_value(value)


def _json_value(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        return json.dumps(value, default=str)
