"""What a tool returns: as the model gets it, as events show it, and whether it went well.

The SDK sends a returned value on as `str(value)`, which for a dict is a Python repr. Here everything that is
neither text nor one of the SDK's structured outputs becomes JSON with sorted keys, so that a model and a
client read the same thing each time.

How values are written: enums as their value; dataclasses and pydantic models as objects; dates and times in
ISO 8601, durations in seconds; UUIDs, decimals and paths as strings; sets as sorted lists; bytes as base64;
NaN and the infinities as the strings "NaN", "Infinity", "-Infinity"; integers beyond 64 bits as strings; None
as null. What is nothing of this is its `str()`, unless that is the default one with a memory address: then
`<TypeName>`. A cycle is "<cycle>", what is nested over 64 deep "<too deep>". NUL and lone surrogates become
U+FFFD: some providers and databases refuse them.

All functions are pure and may take milliseconds on megabytes: the caller keeps such values off the loop.
"""

import base64
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import orjson
from agents import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool import ValidToolOutputPydanticModelsTypeAdapter
from pydantic import BaseModel, ValidationError

from app.domain.events import ToolStatus
from app.domain.json_types import JsonObject

StructuredOutput = ToolOutputText | ToolOutputImage | ToolOutputFileContent

MAX_DEPTH = 64
MAX_VERDICT_DEPTH = 8
MAX_VERDICT_NODES = 1_000
MAX_VERDICT_TEXT = 1 << 20
"""Text over this many characters is taken as a success without being read as JSON."""
MAX_ERROR_CHARS = 2_000

_INT64 = 1 << 63
_UNSAFE = re.compile("[\x00\ud800-\udfff]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_JSON_START = re.compile(r'\s*[{\["]')
_VERDICT_KEYS = ("content", "result", "output", "text")
_REASON_KEYS = ("reason", "message", "detail")
_ERROR_TEXT_KEYS = ("message", "detail", "reason", "error", "description", "type", "code")


# --- what the model gets ------------------------------------------------------------------------


def model_output(value: Any) -> Any:
    """What the SDK may send to the model: text, the SDK's structured outputs as they are, else JSON text.

    In a list that mixes structured outputs with other values those become text parts of their own.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return _safe(value)
    if _is_structured(value):
        return _safe_structured(value)
    if isinstance(value, list | tuple) and value:
        if all(_is_structured(part) for part in value):
            return [_safe_structured(part) for part in value]
        if any(isinstance(part, StructuredOutput) for part in value):
            return [_as_part(part) for part in value]
    plain = plain_json(value)
    return plain if isinstance(plain, str) else _dumped(plain)


def json_text(value: Any) -> str:
    """Any value as JSON text on one line with sorted keys."""
    return _dumped(plain_json(value))


def _dumped(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(", ", ": "))


def _as_part(value: Any) -> Any:
    return _safe_structured(value) if _is_structured(value) else ToolOutputText(text=str(model_output(value)))


def _is_structured(value: Any) -> bool:
    if isinstance(value, StructuredOutput):
        return True
    if not isinstance(value, dict) or value.get("type") not in ("text", "image", "file"):
        return False
    try:
        ValidToolOutputPydanticModelsTypeAdapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _safe_structured(value: Any) -> Any:
    if isinstance(value, ToolOutputText):
        return value if _is_safe(value.text) else value.model_copy(update={"text": _safe(value.text)})
    if isinstance(value, dict) and isinstance(text := value.get("text"), str) and not _is_safe(text):
        return value | {"text": _safe(text)}
    return value


def _is_safe(text: str) -> bool:
    return _UNSAFE.search(text) is None


def _safe(text: str) -> str:
    return text if _is_safe(text) else _UNSAFE.sub("\ufffd", text)


# --- any value as plain JSON --------------------------------------------------------------------


def plain_json(value: Any) -> Any:
    """Any value as dicts with sorted string keys, lists, strings, numbers, booleans and None. Never raises."""
    return _plain(value, ())


def _plain(value: Any, parents: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, parents)
    if isinstance(value, str):
        return _safe(str.__str__(value))
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else _described(value)
    if isinstance(value, float):
        return _plain_float(float(value))
    if (simple := _plain_scalar(value)) is not None:
        return simple
    if id(value) in parents:
        return "<cycle>"
    if len(parents) >= MAX_DEPTH:
        return "<too deep>"
    try:
        return _plain_container(value, (*parents, id(value)))
    except Exception:  # noqa: BLE001  a user's own iterator, property or serializer may raise anything
        return _described(value)


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain_scalar(value: Any) -> str | float | None:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case UUID() | Decimal() | PurePath():
            return _safe(str(value))
        case _:
            return None


def _plain_container(value: Any, parents: tuple[int, ...]) -> Any:
    if isinstance(value, BaseModel):
        return _plain_model(value, parents)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _plain_mapping(fields, parents)
    if isinstance(value, Mapping):
        return _plain_mapping(value, parents)
    if isinstance(value, AbstractSet):
        return sorted((_plain(item, parents) for item in value), key=_dumped)
    if isinstance(value, Sequence):
        return [_plain(item, parents) for item in value]
    return _described(value)


def _plain_model(value: BaseModel, parents: tuple[int, ...]) -> Any:
    try:
        return _plain(value.model_dump(mode="json", warnings=False), parents)
    except Exception:  # noqa: BLE001  a cycle, a field that pydantic cannot write, a user's own serializer
        return _plain_mapping(dict(value), parents)


def _plain_mapping(value: Mapping[Any, Any], parents: tuple[int, ...]) -> JsonObject:
    pairs = {_key(key): _plain(item, parents) for key, item in value.items()}
    return dict(sorted(pairs.items()))


def _key(key: Any) -> str:
    plain = _plain(key, ())
    return plain if isinstance(plain, str) else _dumped(plain)


def _described(value: Any) -> str:
    """`str(value)`, but never one with a memory address in it: that would differ from call to call."""
    kind = type(value)
    if callable(value):
        return f"<{getattr(value, '__name__', kind.__name__)}>"
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  a user's own `__str__` may raise anything
        text = ""
    return _safe(text) if text and not _ADDRESS.search(text) else f"<{kind.__name__}>"


# --- how it went --------------------------------------------------------------------------------


def classify(output: Any) -> tuple[ToolStatus, str | None]:
    """How a call went by what it returned, and the text of the error or the reason.

    JSON with a truthy `cancelled`, `error` or `blocked`, in this order of precedence, wherever it stands: at
    the top, within `content`, `result`, `output` or `text`, in lists, and in JSON within a string. Looks 8
    levels deep and at 1,000 values at most; else it is a success.
    """
    objects = _objects_within(output)
    for found in objects:
        if found.get("cancelled"):
            return "cancelled", _bounded(_reason(found, found["cancelled"]))
    for found in objects:
        if found.get("error"):
            return "error", _bounded(_error_text(found) or "error")
    for found in objects:
        if found.get("blocked"):
            return "blocked", _bounded(_reason(found, found["blocked"]) or "blocked")
    return "success", None


def _objects_within(output: Any) -> list[Mapping[str, Any]]:
    """The objects that may hold a verdict, outermost first."""
    found: list[Mapping[str, Any]] = []
    level = [output]
    seen = 0
    for _ in range(MAX_VERDICT_DEPTH):
        below: list[Any] = []
        for value in level[: MAX_VERDICT_NODES - seen]:
            seen += 1
            opened = _opened(value)
            if isinstance(opened, Mapping):
                found.append(opened)
                below += [opened[key] for key in _VERDICT_KEYS if key in opened]
            elif isinstance(opened, list | tuple):
                below += opened[:MAX_VERDICT_NODES]
            elif isinstance(opened, str):
                below.append(opened)
        level = below
    return found


def _opened(value: Any) -> Any:
    """A string that holds JSON as what it holds, a structured output as a mapping."""
    if isinstance(value, str):
        return _parsed(value)
    if isinstance(value, ToolOutputText):
        return {"text": value.text}
    if isinstance(value, BaseModel) and not isinstance(value, StructuredOutput):
        return plain_json(value)
    return value


def _parsed(text: str) -> Any:
    if len(text) > MAX_VERDICT_TEXT or not _JSON_START.match(text):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _reason(found: Mapping[str, Any], value: Any) -> str | None:
    for key in _REASON_KEYS:
        if isinstance(text := found.get(key), str) and text.strip():
            return text
    return value if isinstance(value, str) else None


def _error_text(found: Mapping[str, Any]) -> str | None:
    error = found["error"]
    if isinstance(error, str):
        return error
    if isinstance(error, Mapping):
        texts = (error.get(key) for key in _ERROR_TEXT_KEYS)
        return next((t for t in texts if isinstance(t, str) and t.strip()), None) or json_text(error)
    if error is True:
        return _reason(found, None)
    return json_text(error)


def _bounded(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_ERROR_CHARS:
        return text and _safe(text)
    return _safe(text[:MAX_ERROR_CHARS]) + "…"


# --- what events show ---------------------------------------------------------------------------


def shown_output(output: Any, limit_bytes: int) -> tuple[Any, bool]:
    """What events show of `output`, and whether it was cut: what the model sees.

    Text stays text; structured outputs are their JSON. Over `limit_bytes` of UTF-8 the text, or the JSON
    text of a structured output, is cut at the limit on a character boundary.
    """
    sent = model_output(output)
    if isinstance(sent, str):
        return _cut(sent, limit_bytes)
    shown = _without_nulls(plain_json(sent))
    text, truncated = _cut(_dumped(shown), limit_bytes)
    return (text, True) if truncated else (shown, False)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _cut(text: str, limit_bytes: int) -> tuple[str, bool]:
    if len(text) * 4 <= limit_bytes:
        return text, False
    encoded = text.encode("utf-8")
    if len(encoded) <= limit_bytes:
        return text, False
    return encoded[:limit_bytes].decode("utf-8", errors="ignore"), True
