"""Server-sent frames with a word for what each carries, so that a script can hold between them."""

import json
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["start", "text", "reasoning", "refusal", "arguments", "other", "finish"]


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    data: bytes


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates, which UTF-8 cannot hold, stay escapes as models send them."""
    try:
        return compact(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
