"""What one request brought: the items of the answer, in order, and what is shown of them while they come."""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from app.domain.json_types import Item, JsonObject
from app.domain.usage import TokenCounts
from app.runtime.failures import UpstreamFailure, reported_failure
from app.runtime.models.json_frames import TextJoiner
from app.runtime.models.long_ids import without_long_ids
from app.runtime.models.provider_errors import told_error, turn_code
from app.runtime.observer import ModelCallObserver

SILENT_TYPES: Final = frozenset({"reasoning", "compaction", "mcp_list_tools"})
"""Items that are no answer by themselves."""
MAX_ITEMS: Final = 1000
"""Of one answer. Each is compared with those before it: no bound, and a server could hold the loop by them."""


@dataclass(slots=True)
class Reply:
    """A whole answer. `counts` is None if the provider reported none."""

    output: list[Item]
    counts: TokenCounts | None
    response_id: str | None = None
    model: str | None = None
    request_id: str | None = None

    @property
    def is_empty(self) -> bool:
        """True if there is neither text nor a refusal, a tool's call nor any other item that says something."""
        return all(i.get("type") in SILENT_TYPES or _is_blank(i) for i in self.output)


def _is_blank(item: Item) -> bool:
    if item.get("type") != "message":
        return False
    return not any(part.get("text") or part.get("refusal") for part in item.get("content") or ())


class Decoder(Protocol):
    """Makes a reply of one attempt's frames and reports it to the observer as it comes."""

    @property
    def shown(self) -> bool:
        """True once anything of this attempt was reported: it must not be sent again."""
        ...

    whole: bool
    """True once the answer is whole, though more may come (usage): silence or a cut are no failure now."""
    done: bool
    """True once nothing that may still come matters."""

    @property
    def counts(self) -> TokenCounts | None: ...

    def feed(self, name: bytes, frame: JsonObject) -> None:
        """Take one frame (`name` is the SSE event's). Raises UpstreamFailure if it says that the call failed
        or cannot be understood."""
        ...

    def feed_whole(self, body: Any) -> bool:
        """Take a JSON body that came instead of a stream. False if it is no answer."""
        ...

    def end(self) -> None:
        """The frame `[DONE]` came."""
        ...

    def finish(self) -> Reply:
        """The stream has ended. Raises UpstreamFailure if what came is no whole answer."""
        ...

    def accept(self) -> None:
        """The reply counts: report what was held back until it was clear that it is not an empty one."""
        ...


@dataclass(slots=True)
class Output:
    """The items of one attempt as they become whole.

    Reasoning that nothing has followed yet is held back: if the attempt stays empty it is closed as partial,
    not as complete.
    """

    observer: ModelCallObserver
    max_item_size: int
    shown: bool = False
    items: list[Item] = field(default_factory=list)
    _held: list[Item] = field(default_factory=list)

    def done(self, item: Item) -> None:
        item = without_long_ids(item)
        self.items.append(item)
        if item["type"] in SILENT_TYPES:
            self._held.append(item)
        else:
            self.release()
            self.shown = True
            self.observer.item_done(item["id"], item)

    def show(self) -> None:
        """Something is shown now, behind what was held back."""
        self.shown = True
        if self._held:
            self.release()

    def release(self) -> None:
        """Something follows: what was held back is complete."""
        for item in self._held:
            self.observer.item_done(item["id"], item)
        self._held.clear()

    def check_count(self, count: int) -> None:
        """Raises UpstreamFailure for more items than an answer may have."""
        if count > MAX_ITEMS:
            raise protocol_failure(f"an answer of more than {MAX_ITEMS} items")

    def too_large(self) -> UpstreamFailure:
        return protocol_failure(f"one item of the answer has more than {self.max_item_size} characters")


@dataclass(slots=True)
class Text:
    """A text that grows by pieces, bounded, its surrogate pairs joined. Blanks alone are no text: those at its
    start wait for what follows them."""

    output: Output
    blank: str = ""
    parts: list[str] = field(default_factory=list)
    size: int = 0
    joiner: TextJoiner = field(default_factory=TextJoiner)

    def add(self, piece: str) -> str:
        """Keep a piece; returns what of it can be shown now."""
        if not self.parts:
            piece = self.blank + piece
            is_blank = not piece.strip()
            self.blank = piece if is_blank else ""
            if is_blank:
                if len(piece) > self.output.max_item_size:
                    raise self.output.too_large()
                return ""
        if self.joiner.held or not piece.isascii():
            piece = self.joiner.feed(piece)
        if piece:
            self.parts.append(piece)
            self.size += len(piece)
            if self.size > self.output.max_item_size:
                raise self.output.too_large()
        return piece

    def finish(self) -> str:
        """What is still owed of it at its end, often nothing."""
        owed = self.joiner.finish()
        if owed:
            self.parts.append(owed)
        return owed

    @property
    def value(self) -> str:
        return "".join(self.parts)


class CutShort(UpstreamFailure):
    """The stream ended well, only too early: without a finish, without a final event."""


def cut_short(what: str) -> CutShort:
    return CutShort("upstream_protocol", f"The upstream's answer cannot be used: {what}")


def protocol_failure(what: str) -> UpstreamFailure:
    """What came was no whole valid stream."""
    return UpstreamFailure("upstream_protocol", f"The upstream's answer cannot be used: {what}")


def check_document(body: Any) -> None:
    """Raises UpstreamFailure for a document, where an answer should be, that tells of an error by a code or a
    status; of one that tells neither nothing is known but that it is no answer."""
    for entry in body if isinstance(body, list) else [body]:
        error = told_error(entry) if isinstance(entry, dict) else None
        if error is not None and (error.status or turn_code(error) != "upstream_error"):
            raise reported_failure(error)
