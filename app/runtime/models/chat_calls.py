"""Tool calls of a Chat Completions stream, put together from deltas that servers number as they like.

The rules, each from a server that needs it: calls without index or all numbered 0 are told apart by a new id
or a new name; continuations repeat id and name, or send them as null; ids come late or never; arguments come
as an object, as null, or as nothing at all.
"""

import json
from dataclasses import dataclass
from typing import Any

from app.domain.json_types import Item
from app.runtime.models.call_arguments import readable
from app.runtime.models.json_frames import is_object, mended
from app.runtime.models.reply import Output, Text, protocol_failure


@dataclass(slots=True)
class _Call:
    arguments: Text
    index: Any = None
    upstream_id: str | None = None
    name: str | None = None
    item_id: str = ""
    call_id: str = ""
    extra: Any = None

    @property
    def has_whole_arguments(self) -> bool:
        return self.arguments.size > 1 and is_object(self.arguments.value)


class CallAssembler:
    """Feed it every `tool_calls` entry; `finish` hands over the calls in the order in which they began."""

    def __init__(self, output: Output, upstream: str) -> None:
        self._output = output
        self._upstream = upstream
        self._calls: list[_Call] = []
        self._by_index: dict[Any, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, entry: Any) -> None:
        if not isinstance(entry, dict):
            return
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        name = function.get("name")
        name = name if isinstance(name, str) and name else None
        upstream_id = entry.get("id")
        upstream_id = str(upstream_id) if upstream_id not in (None, "") else None
        arguments = _as_text(function.get("arguments"))
        call = self._find(entry.get("index"), upstream_id, name, arguments)
        call.upstream_id = call.upstream_id or upstream_id
        if upstream_id is not None:
            self._by_id[upstream_id] = call
        call.extra = entry.get("extra_content") or call.extra
        call.name = call.name or name
        self._advance(call, arguments)

    def finish(self) -> list[Item]:
        """The whole calls as items; their arguments are `{}` if nothing came, else whatever came."""
        return [self._item(call) for call in self._calls if call.name or self._is_broken(call)]

    def _find(self, index: Any, upstream_id: str | None, name: str | None, arguments: str) -> _Call:
        index = index if isinstance(index, int | str) else None
        known = self._known(index, upstream_id)
        if known is None or self._begins_another(known, index, upstream_id, name, arguments):
            known = _Call(Text(self._output), index)
            self._calls.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    def _known(self, index: Any, upstream_id: str | None) -> _Call | None:
        """The call that an entry most likely goes on with."""
        if upstream_id is not None and upstream_id in self._by_id:
            return self._by_id[upstream_id]
        if index is not None and index in self._by_index:
            return self._by_index[index]
        if index is not None and upstream_id is not None:
            return None
        return self._calls[-1] if self._calls else None

    @staticmethod
    def _begins_another(
        known: _Call, index: Any, upstream_id: str | None, name: str | None, arguments: str
    ) -> bool:
        if upstream_id is not None and known.upstream_id not in (None, upstream_id):
            return True
        if name is None:
            return False
        if known.name is not None and name != known.name:
            return True
        if known.name is None:
            return False
        if index is not None and known.index is not None and index != known.index:
            return True
        return bool(arguments.strip()) and known.has_whole_arguments

    def _advance(self, call: _Call, arguments: str) -> None:
        observer = self._output.observer
        piece = call.arguments.add(arguments) if arguments else ""
        if call.name is None:
            return
        if not call.call_id:
            self._output.release()
            self._output.shown = True
            call.item_id = observer.claim_item_id(None)
            call.call_id = observer.claim_call_id(call.upstream_id)
            observer.call_started(call.item_id, call.call_id, call.name)
            piece = call.arguments.value
        if piece:
            observer.arguments_delta(call.call_id, piece)

    @staticmethod
    def _is_broken(call: _Call) -> bool:
        """A call without a name and without anything else is noise; with arguments it is half a call."""
        if call.arguments.value.strip():
            raise protocol_failure("a tool call without a name")
        return False

    def _item(self, call: _Call) -> Item:
        if owed := call.arguments.finish():
            self._output.observer.arguments_delta(call.call_id, owed)
        arguments = call.arguments.value
        item: Item = {
            "type": "function_call",
            "id": call.item_id,
            "call_id": call.call_id,
            "name": call.name,
            "arguments": readable(arguments) if arguments.strip() not in ("", "null") else "{}",
            "status": "completed",
        }
        if call.extra:
            # Thought signatures and the like: some providers refuse the next request without them.
            item["provider_data"] = {"upstream": self._upstream, "extra_content": call.extra}
        return item


def _as_text(arguments: Any) -> str:
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(mended(arguments), ensure_ascii=False)
