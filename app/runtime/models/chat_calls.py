"""Tool calls of a Chat Completions stream, put together from deltas that servers number as they like.

The rules, each from a server that needs it: calls without index or all numbered 0 are told apart by a new id
or a new name; continuations repeat id and name, or send them as null, or come under a new id each; ids come
late or never; names come in pieces; arguments come as an object, as null, or not at all; a call comes twice.
"""

import json
from dataclasses import dataclass
from typing import Any

from app.domain.json_types import Item, JsonObject
from app.runtime.models.call_arguments import settled
from app.runtime.models.json_frames import as_index, is_object, mended
from app.runtime.models.reply import Output, Text, protocol_failure


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of `tool_calls`, as far as it says anything."""

    index: int | str | None
    id: str | None
    name: str | None
    arguments: str
    extra: Any

    @classmethod
    def of(cls, entry: JsonObject) -> "_Entry":
        function = entry.get("function")
        function = function if isinstance(function, dict) else entry
        index, upstream_id, name = entry.get("index"), entry.get("id"), function.get("name")
        number = as_index(index)
        return cls(
            index if number is None and isinstance(index, str) else number,
            mended(str(upstream_id)) if upstream_id not in (None, "") else None,
            (mended(name).strip() or None) if isinstance(name, str) else None,
            _as_text(next((function[k] for k in _ARGUMENTS if function.get(k) is not None), None)),
            mended(entry.get("extra_content")),
        )


_ARGUMENTS = ("arguments", "parameters", "input")


@dataclass(slots=True)
class _Call:
    arguments: Text
    index: int | str | None = None
    upstream_id: str | None = None
    name: str | None = None
    item_id: str = ""
    call_id: str = ""
    extra: Any = None

    @property
    def has_whole_arguments(self) -> bool:
        return self.arguments.size > 1 and is_object(self.arguments.value)


class CallAssembler:
    """Feed it every `tool_calls` entry; `finish` hands over the calls in the order in which they began.

    A call is shown once its name is whole: with its first arguments, when another begins, or at the end.
    """

    def __init__(self, output: Output, upstream: str) -> None:
        self._output = output
        self._upstream = upstream
        self._calls: list[_Call] = []
        self._by_index: dict[int | str, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, entry: Any) -> None:
        if not isinstance(entry, dict):
            return
        told = _Entry.of(entry)
        call = self._known(told)
        if call is not None and self._is_said_again(call, told):
            return
        if call is None or self._begins_another(call, told):
            call = self._begin(told)
        if told.index is not None:
            self._by_index[told.index] = call
        if told.id is not None:
            self._by_id[told.id] = call
        call.upstream_id = call.upstream_id or told.id
        call.extra = told.extra or call.extra
        if not call.call_id:
            call.name = _joined(call.name, told.name)
        self._advance(call, told.arguments)

    def finish(self) -> list[Item]:
        """The whole calls as items; their arguments are `{}` if nothing came, else whatever came."""
        return [self._item(call) for call in self._calls if call.name or self._is_broken(call)]

    def _begin(self, told: _Entry) -> _Call:
        for call in self._calls:
            self._announce(call)
        call = _Call(Text(self._output), told.index)
        self._calls.append(call)
        self._output.check_count(len(self._calls))
        return call

    def _known(self, told: _Entry) -> _Call | None:
        """The call that an entry most likely goes on with."""
        placed = None if told.index is None else self._by_index.get(told.index)
        if told.id is not None and told.id in self._by_id:
            return placed if placed and placed.upstream_id == told.id else self._by_id[told.id]
        if placed is not None:
            return placed
        if told.index is not None and told.id is not None:
            return None
        return self._calls[-1] if self._calls else None

    @staticmethod
    def _is_said_again(known: _Call, told: _Entry) -> bool:
        """True for a whole call that comes twice: some servers end by saying all again."""
        is_same = told.id == known.upstream_id if told.id is not None else told.index is not None
        return (
            is_same
            and told.index == known.index
            and told.name == known.name
            and known.has_whole_arguments
            and told.arguments == known.arguments.value
        )

    @staticmethod
    def _begins_another(known: _Call, told: _Entry) -> bool:
        if told.id is not None and known.upstream_id not in (None, told.id):
            return not _goes_on_under_a_new_id(known, told)
        if told.name is None or known.name is None:
            return False
        if told.index is not None and known.index is not None and told.index != known.index:
            return True
        if told.name != known.name:
            named = told.id is not None or told.index is not None
            return bool(known.arguments.size) or not named
        return bool(told.arguments.strip()) and known.has_whole_arguments

    def _advance(self, call: _Call, arguments: str) -> None:
        piece = call.arguments.add(arguments) if arguments else ""
        if call.call_id:
            if piece:
                self._output.observer.arguments_delta(call.call_id, piece)
        elif piece:
            self._announce(call)

    def _announce(self, call: _Call) -> None:
        """Report that a call has begun, once, and the arguments that came before its name."""
        if call.call_id or call.name is None:
            return
        observer = self._output.observer
        self._output.release()
        self._output.shown = True
        call.item_id = observer.claim_item_id(None)
        call.call_id = observer.claim_call_id(call.upstream_id)
        observer.call_started(call.item_id, call.call_id, call.name)
        if piece := call.arguments.value:
            observer.arguments_delta(call.call_id, piece)

    @staticmethod
    def _is_broken(call: _Call) -> bool:
        """A call without a name and without anything else is noise; with arguments it is half a call."""
        if call.arguments.value.strip():
            raise protocol_failure("a tool call without a name")
        return False

    def _item(self, call: _Call) -> Item:
        self._announce(call)
        if owed := call.arguments.finish():
            self._output.observer.arguments_delta(call.call_id, owed)
        item: Item = {
            "type": "function_call",
            "id": call.item_id,
            "call_id": call.call_id,
            "name": call.name,
            "arguments": settled(call.arguments.parts),
            "status": "completed",
        }
        if call.extra:
            # Thought signatures and the like: some providers refuse the next request without them.
            item["provider_data"] = {"upstream": self._upstream, "extra_content": call.extra}
        return item


def _goes_on_under_a_new_id(known: _Call, told: _Entry) -> bool:
    """True if an entry with another id brings more of the arguments that are under way: some relays make up an
    id for each chunk."""
    if known.name is None or told.index != known.index or known.has_whole_arguments:
        return False
    return told.name is None or (told.name == known.name and bool(known.arguments.size))


def _joined(known: str | None, piece: str | None) -> str | None:
    """A name that comes in pieces, or again, or as far as it is known each time."""
    if known is None or piece is None:
        return known or piece
    return piece if piece.startswith(known) else known + piece


def _as_text(arguments: Any) -> str:
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(mended(arguments), ensure_ascii=False)
