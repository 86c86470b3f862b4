"""An observer that writes down what it is told, and a run's scope that hands it out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agents import Tool

from app.domain.events import Executor
from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts
from app.runtime.models.null_observer import NullObserver


@dataclass
class Recorder:
    """Ids are handed out by `NullObserver`; every report becomes a tuple in `told`."""

    taken: set[str] = field(default_factory=set)
    told: list[tuple[object, ...]] = field(default_factory=list)
    output: list[Item] | None = None
    counts: TokenCounts | None = None
    failures: list[TokenCounts | None] = field(default_factory=list)
    attempts: list[TokenCounts | None] = field(default_factory=list)
    failed_requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ids = NullObserver(self.taken)

    # what tests ask

    def texts(self, kind: str) -> list[str]:
        """The deltas of one kind: `text`, `refusal`, `summary`, `thought`, `arguments`."""
        return [str(entry[-1]) for entry in self.told if entry[0] == kind]

    def kinds(self) -> list[str]:
        """The kinds of what was told, in order, repetitions left out."""
        kinds = [str(entry[0]) for entry in self.told]
        return [k for i, k in enumerate(kinds) if i == 0 or k != kinds[i - 1]]

    @property
    def warnings(self) -> list[str]:
        return [str(entry[1]) for entry in self.told if entry[0] == "warning"]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and arguments of the function calls of the reply."""
        calls = [i for i in self.output or [] if i["type"] == "function_call"]
        return [(i["name"], i["arguments"]) for i in calls]

    @property
    def text(self) -> str:
        """The text of the reply's messages."""
        messages = [i for i in self.output or [] if i["type"] == "message"]
        return "|".join(part.get("text", "") for m in messages for part in m["content"])

    # what models tell

    def claim_item_id(self, upstream_id: str | None) -> str:
        return self._ids.claim_item_id(upstream_id)

    def claim_call_id(self, upstream_id: str | None) -> str:
        return self._ids.claim_call_id(upstream_id)

    def text_delta(self, item_id: str, delta: str) -> None:
        self.told.append(("text", item_id, delta))

    def refusal_delta(self, item_id: str, delta: str) -> None:
        self.told.append(("refusal", item_id, delta))

    def annotation(self, item_id: str, annotation: JsonObject) -> None:
        self.told.append(("annotation", item_id, annotation))

    def reasoning_delta(self, item_id: str, kind: Literal["summary", "text"], delta: str) -> None:
        self.told.append(("summary" if kind == "summary" else "thought", item_id, delta))

    def call_started(self, item_id: str, call_id: str, name: str) -> None:
        self.told.append(("call", item_id, call_id, name))

    def arguments_delta(self, call_id: str, delta: str) -> None:
        self.told.append(("arguments", call_id, delta))

    def item_done(self, item_id: str, item: Item) -> None:
        self.told.append((f"{item['type']} done", item_id, item))

    def hosted_call_started(self, item_id: str, call_id: str, tool: str, executor: Executor) -> None:
        self.told.append(("hosted", item_id, tool, executor))

    def warn(self, code: str, message: str) -> None:
        self.told.append(("warning", code, message))

    def request_failed(self, code: str) -> None:
        self.failed_requests.append(code)

    def attempt_failed(self, counts: TokenCounts | None) -> None:
        self.told.append(("attempt failed", counts))
        self.attempts.append(counts)

    async def completed(self, output: list[Item], counts: TokenCounts | None) -> None:
        await asyncio.sleep(0)  # what a disk does to whoever does not wait for it
        self.told.append(("completed",))
        self.output, self.counts = output, counts

    def failed(self, counts: TokenCounts | None) -> None:
        self.told.append(("failed",))
        self.failures.append(counts)


@dataclass
class RecordingScope:
    """One recorder for each model call of a run."""

    deadline: float = float("inf")
    calls: list[Recorder] = field(default_factory=list)
    asked: list[tuple[str, str, frozenset[str]]] = field(default_factory=list)

    async def permit(
        self, model: str, instructions: str | None, items: Sequence[Item], tools: Sequence[Tool]
    ) -> None:
        pass

    async def tool_denied(self, tool: str, call_id: str, arguments: str) -> str | None:
        return None

    def native(self, items: Sequence[Item], upstream: str) -> Sequence[Item]:
        return items

    def model_call(self, model: str, upstream: str, handoffs: frozenset[str] = frozenset()) -> Recorder:
        taken = set().union(*(c._ids._taken for c in self.calls))
        self.asked.append((model, upstream, handoffs))
        self.calls.append(Recorder(taken))
        return self.calls[-1]

    @property
    def last(self) -> Recorder:
        return self.calls[-1]
