"""What the scripted upstream answers: one reply, said once, rendered on either wire."""

from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

End = Literal["close", "reset", "hang"]


class ScriptModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolCall(ScriptModel):
    """`arguments` as an object is sent as compact JSON, as text it is sent as it is, in `chunks` pieces."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str | None = None
    chunks: int | list[str] = 1


class TokenUsage(ScriptModel):
    input_tokens: int = 11
    output_tokens: int = 7
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Reply(ScriptModel):
    """One answer of the upstream.

    High level (`text`, `reasoning`, `tool_calls`, `refusal`): streamed in this order: reasoning, text, refusal,
    calls. Low level: `body` (text or JSON) with `status`, or `raw` (base64 of a body's exact bytes).

    `hold` names a gate that the reply waits at until the test releases it: before the response headers if it is
    a name alone, else a mapping from a place to a gate: `headers`, `start` (after the headers), `text:2` (after
    two pieces of text), `arguments:1`, `reasoning:1`, `refusal:1`, `end` (before what finishes the answer).
    `when`: only a request whose body contains this text gets the reply; others pass over it.
    """

    text: str | None = None
    chunks: int | list[str] | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = []
    refusal: str | None = None
    usage: TokenUsage | None = TokenUsage()
    finish: str | None = None
    delay_s: float = 0
    status: int = 200
    headers: dict[str, str] = {}
    body: Any = None
    raw: str | None = None
    end: End = "close"
    frames: int | None = Field(None, description="send only so many frames, then `end`")
    cut_at: list[int] = []
    pause: float = 0
    hold: str | dict[str, str] = {}
    when: str | None = None

    @property
    def holds(self) -> dict[str, str]:
        return {"headers": self.hold} if isinstance(self.hold, str) else self.hold


DEFAULT_REPLY = Reply(text="All good.")


def pieces(text: str, chunks: int | list[str] | None) -> list[str]:
    """`text` in so many pieces (None: word by word), or in the pieces that were given."""
    if isinstance(chunks, list):
        return chunks
    if not text:
        return []
    if chunks is None:
        words = text.split(" ")
        return [word + " " for word in words[:-1]] + [words[-1]]
    count = max(1, min(chunks, len(text)))
    cuts = [len(text) * i // count for i in range(count + 1)]
    return [text[a:b] for a, b in pairwise(cuts)]
