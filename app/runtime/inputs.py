"""A caller's input as history items, in the one shape that both wires take (contract, section 9).

Messages of users, the system and developers hold `input_text`, `input_image` and `input_file` parts, those of
the assistant `output_text` and `refusal`; text is a part like any other. Keys that are not named here are
dropped: frontends add their own, and strict providers refuse them. So are blank text parts beside others.

Everything that is wrong with an input is told at once, each problem with its place; at most 100. An input has
at most 10,000 items, a message at most 1,000 parts. The functions are pure; with megabytes of text or data
they take milliseconds, so big inputs belong on a thread. Depth, NUL, NaN and lone surrogates are the body
reader's.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from app.domain.conversation import NewItem
from app.domain.ids import new_call_id, new_item_id
from app.domain.json_types import Item, JsonObject
from app.errors import InvalidRequest, UnsupportedInput
from app.runtime import attachments
from app.runtime.attachments import BadSource

Wire = Literal["responses", "chat_completions"]
Path = tuple[str | int, ...]

MAX_ITEMS = 10_000
MAX_PARTS = 1_000
MAX_PROBLEMS = 100

ROLES = ("user", "assistant", "system", "developer")
DETAILS = ("auto", "low", "high", "original")
SEED_TYPES = ("reasoning", "function_call", "function_call_output")

_VISIBLE = re.compile(
    "[^\\s\x00-\x1f\x7f-\xa0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f"
    "\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_USABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class NormalisedInput:
    """`transient` holds the ids of the items that go to the model in this turn and are not stored."""

    items: tuple[NewItem, ...]
    transient: frozenset[str] = frozenset()


def normalise(input: str | Sequence[Any], *, wire: Wire, seeding: bool = False) -> NormalisedInput:
    """The items of a turn's `input`, or (`seeding`) of the `items` that a conversation begins with.

    Raises InvalidRequest, or UnsupportedInput if all that is wrong is what the upstream cannot take.
    """
    reader = _Reader(wire, seeding)
    field = "items" if seeding else "input"
    read = reader.text(input) if isinstance(input, str) else reader.items(input, ("body", field))
    reader.raise_problems()
    items = tuple(NewItem(new_item_id(), item) for item, _ in read)
    transient = frozenset(new.id for new, (_, t) in zip(items, read, strict=True) if t)
    return NormalisedInput(items, transient)


def is_blank(text: str) -> bool:
    """True if nothing in the text can be seen: white space, zero-width and other invisible characters."""
    return _VISIBLE.search(text) is None


class _Reader:
    """Reads one input; gathers its problems instead of stopping at the first."""

    def __init__(self, wire: Wire, seeding: bool) -> None:
        self._wire = wire
        self._seeding = seeding
        self._problems: list[JsonObject] = []
        self._all_unsupported = True

    # problems

    def _problem(self, path: Path, message: str, *, unsupported: bool = False) -> None:
        self._problems.append({"loc": list(path), "message": message})
        self._all_unsupported = self._all_unsupported and unsupported
        if len(self._problems) >= MAX_PROBLEMS:
            self.raise_problems()

    def raise_problems(self) -> None:
        if not self._problems:
            return
        first = self._problems[0]
        where = ".".join(str(step) for step in first["loc"][1:])
        more = f" (and {len(self._problems) - 1} more)" if len(self._problems) > 1 else ""
        error = UnsupportedInput if self._all_unsupported else InvalidRequest
        raise error(f"{where}: {first['message']}{more}", errors=self._problems)

    def _checked(self, check: Callable[[str], str], value: str, path: Path) -> str | None:
        try:
            return check(value)
        except BadSource as bad:
            self._problem(path, bad.message, unsupported=bad.unsupported)
            return None

    # the whole

    def text(self, text: str) -> list[tuple[Item, bool]]:
        if is_blank(text):
            self._problem(("body", "input"), "the text is blank")
        return [(_message("user", [{"type": "input_text", "text": text}]), False)]

    def items(self, values: Sequence[Any], path: Path) -> list[tuple[Item, bool]]:
        if not values and not self._seeding:
            self._problem(path, "there are no items")
        if len(values) > MAX_ITEMS:
            self._problem(path, f"there are {len(values)} items, at most {MAX_ITEMS} are taken")
            return []
        read = [(i, self._item(value, (*path, i))) for i, value in enumerate(values)]
        kept = [(i, item) for i, item in read if item is not None]
        if self._seeding and not self._problems:
            self._check_order(kept, path)
        return [(item, values[i].get("transient") is True) for i, item in kept]

    def _item(self, value: Any, path: Path) -> Item | None:
        if not isinstance(value, dict):
            self._problem(path, "an item is an object")
            return None
        kind = value.get("type", "message" if "role" in value else None)
        if kind == "message":
            return self._message(value, path)
        if self._seeding and kind in SEED_TYPES:
            return self._seed(kind, value, path)
        self._problem((*path, "type"), self._refusal(kind))
        return None

    def _refusal(self, kind: Any) -> str:
        if kind is None:
            return "an item has a type, a message a role"
        if not isinstance(kind, str):
            return "a type is a string"
        if kind == "item_reference":
            return "references to other items are not taken: the history is the conversation's"
        if self._seeding:
            return f"{_shown(kind)} is not one of message, {', '.join(SEED_TYPES)}"
        if kind.endswith("_output") or kind == "mcp_approval_response":
            return f"{_shown(kind)} would answer a pending call: answer it on the turn that waits for it"
        if kind in SEED_TYPES:
            return f"{_shown(kind)} is only taken in the items that a conversation is created with"
        return f"{_shown(kind)} is not an item that is taken: send messages"

    # messages

    def _message(self, value: JsonObject, path: Path) -> Item | None:
        role = value.get("role")
        if role not in ROLES:
            self._problem((*path, "role"), f"{_shown(role)} is not one of {', '.join(ROLES)}")
            return None
        self._check_transient(value, path)
        parts = self._content(value.get("content"), role, (*path, "content"))
        return _message(role, parts) if parts else None

    def _check_transient(self, value: JsonObject, path: Path) -> None:
        transient = value.get("transient", False)
        if not isinstance(transient, bool):
            self._problem((*path, "transient"), "transient is true or false")
        elif transient and self._seeding:
            self._problem((*path, "transient"), "there is no turn for which a seeded item could be transient")

    def _content(self, content: Any, role: str, path: Path) -> list[Item]:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
            paths: list[Path] = [path]
        elif isinstance(content, list) and 0 < len(content) <= MAX_PARTS:
            paths = [(*path, i) for i in range(len(content))]
        else:
            self._problem(path, f"content is text or a list of 1 to {MAX_PARTS} parts")
            return []
        before = len(self._problems)
        read = [self._part(part, role, where) for part, where in zip(content, paths, strict=True)]
        parts = [part for part in read if part is not None]
        if not parts and len(self._problems) == before:
            self._problem(path, "the message is blank")
        return parts

    def _part(self, part: Any, role: str, path: Path) -> Item | None:
        if not isinstance(part, dict):
            self._problem(path, "a part is an object")
            return None
        kind = part.get("type")
        if kind == "text" or kind == ("output_text" if role == "assistant" else "input_text"):
            return self._text_part(part, role, path)
        if role == "assistant" and kind == "refusal":
            return self._refusal_part(part, path)
        if role == "user" and kind == "input_image":
            return self._image(part, path)
        if role == "user" and kind == "input_file":
            return self._file(part, path)
        known = kind in ("input_text", "output_text", "refusal", "input_image", "input_file")
        message = f"the {role} cannot send {kind}" if known else f"{_shown(kind)} is not a part that is taken"
        self._problem((*path, "type"), message)
        return None

    def _text_part(self, part: JsonObject, role: str, path: Path) -> Item | None:
        text = part.get("text")
        if not isinstance(text, str):
            self._problem((*path, "text"), "text is a string")
            return None
        if is_blank(text):
            return None
        if role == "assistant":
            return {"type": "output_text", "text": text, "annotations": []}
        return {"type": "input_text", "text": text}

    def _refusal_part(self, part: JsonObject, path: Path) -> Item | None:
        refusal = part.get("refusal")
        if not isinstance(refusal, str):
            self._problem((*path, "refusal"), "refusal is a string")
            return None
        return None if is_blank(refusal) else {"type": "refusal", "refusal": refusal}

    # images and files

    def _source(self, part: JsonObject, names: tuple[str, ...], path: Path) -> tuple[str, str] | None:
        """The one source that a part has, and its value."""
        given = [name for name in names if part.get(name) is not None]
        if len(given) != 1:
            self._problem(path, f"give exactly one of {', '.join(names)}")
            return None
        value = part[given[0]]
        if not isinstance(value, str):
            self._problem((*path, given[0]), f"{given[0]} is a string")
            return None
        return given[0], value

    def _image(self, part: JsonObject, path: Path) -> Item | None:
        detail = part.get("detail") or "auto"
        if detail not in DETAILS:
            self._problem((*path, "detail"), f"{_shown(detail)} is not one of {', '.join(DETAILS)}")
        source = self._source(part, ("image_url", "file_id"), path)
        if source is None:
            return None
        name, value = source
        if name == "file_id" and self._wire == "chat_completions":
            self._problem((*path, name), "the model's upstream takes images by URL only", unsupported=True)
            return None
        check = attachments.checked_file_id if name == "file_id" else attachments.checked_image_url
        checked = self._checked(check, value, (*path, name))
        # Some servers require `detail`, whose default is "auto".
        return {"type": "input_image", name: checked, "detail": detail} if checked else None

    def _file(self, part: JsonObject, path: Path) -> Item | None:
        filename = part.get("filename")
        if filename is not None:
            if not isinstance(filename, str):
                self._problem((*path, "filename"), "filename is a string")
                return None
            if self._checked(attachments.checked_name, filename, (*path, "filename")) is None:
                return None
        source = self._source(part, ("file_data", "file_url", "file_id"), path)
        if source is None:
            return None
        name, value = source
        try:
            return self._file_part(name, value, filename)
        except BadSource as bad:
            self._problem((*path, name), bad.message, unsupported=bad.unsupported)
            return None

    def _file_part(self, name: str, value: str, filename: str | None) -> Item:
        named = {"filename": filename} if filename else {}
        if name == "file_id":
            return {"type": "input_file", "file_id": attachments.checked_file_id(value), **named}
        if attachments.is_data_url(value):
            return self._data_part(attachments.data_of_url(value), filename)
        if name == "file_data":
            return self._data_part(attachments.data_of_base64(value, filename), filename)
        url = attachments.checked_url(value)
        if self._wire == "chat_completions":
            raise BadSource("the model's upstream takes no files by URL: send file_data", unsupported=True)
        return {"type": "input_file", "file_url": url, **named}

    def _data_part(self, data: attachments.Data, filename: str | None) -> Item:
        name = filename or attachments.default_name(data)
        if self._wire == "chat_completions":
            text = attachments.text_of(data)
            if text is not None:
                return {"type": "input_text", "text": attachments.as_text_part(name, text)}
            if data.media_type != "application/pdf":
                raise BadSource("the model's upstream takes text files and PDF only", unsupported=True)
        return {"type": "input_file", "filename": name, "file_data": data.url}

    # what only a seeded history holds

    def _seed(self, kind: str, value: JsonObject, path: Path) -> Item | None:
        self._check_transient(value, path)
        if kind == "reasoning":
            return self._reasoning(value, path)
        call_id = value.get("call_id")
        if not isinstance(call_id, str) or not 0 < len(call_id) <= 512:
            self._problem((*path, "call_id"), "call_id is a string of 1 to 512 characters")
            return None
        if kind == "function_call":
            return self._call(value, call_id, path)
        output = self._call_output(value.get("output"), (*path, "output"))
        return None if output is None else {"type": kind, "call_id": call_id, "output": output}

    def _call(self, value: JsonObject, call_id: str, path: Path) -> Item | None:
        name, arguments = value.get("name"), value.get("arguments")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            self._problem((*path, "name"), "a tool's name has 1 to 128 of A-Z a-z 0-9 _ -")
            return None
        if not isinstance(arguments, str) or not _is_json_object(arguments):
            self._problem((*path, "arguments"), "arguments is a string that holds a JSON object")
            return None
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}

    def _call_output(self, output: Any, path: Path) -> str | list[Item] | None:
        if isinstance(output, str):
            return output
        if not isinstance(output, list) or not 0 < len(output) <= MAX_PARTS:
            self._problem(path, f"output is text or a list of 1 to {MAX_PARTS} parts")
            return None
        parts = [self._part(part, "user", (*path, i)) for i, part in enumerate(output)]
        return [part for part in parts if part is not None] or ""

    def _reasoning(self, value: JsonObject, path: Path) -> Item | None:
        item: Item = {"type": "reasoning"}
        if isinstance(upstream_id := value.get("id"), str) and _USABLE_ID.fullmatch(upstream_id):
            item["id"] = upstream_id
        item["summary"] = self._texts(value.get("summary", []), "summary_text", (*path, "summary"))
        if value.get("content") is not None:
            item["content"] = self._texts(value["content"], "reasoning_text", (*path, "content"))
        encrypted = value.get("encrypted_content")
        if encrypted is not None and not isinstance(encrypted, str):
            self._problem((*path, "encrypted_content"), "encrypted_content is a string")
        elif encrypted:
            item["encrypted_content"] = encrypted
        return item

    def _texts(self, values: Any, kind: str, path: Path) -> list[Item]:
        if not isinstance(values, list) or len(values) > MAX_PARTS:
            self._problem(path, f"this is a list of at most {MAX_PARTS} parts of type {kind}")
            return []
        texts: list[Item] = []
        for i, value in enumerate(values):
            if isinstance(value, dict) and value.get("type") == kind and isinstance(value.get("text"), str):
                texts.append({"type": kind, "text": value["text"]})
            else:
                self._problem((*path, i), f"a part here has the type {kind} and a text")
        return texts

    def _check_order(self, items: list[tuple[int, Item]], path: Path) -> None:
        """Each call has one output behind it, each reasoning item what it led to; call ids become usable."""
        renamed: dict[str, str] = {}
        open_calls: dict[str, int] = {}
        followed = _followed(item for _, item in reversed(items))
        for (i, item), is_followed in zip(items, reversed(followed), strict=True):
            kind, call_id = item["type"], item.get("call_id", "")
            if kind == "function_call":
                if call_id in renamed:
                    self._problem((*path, i, "call_id"), f"{_shown(call_id)} names two calls")
                renamed[call_id] = call_id if _USABLE_ID.fullmatch(call_id) else new_call_id()
                open_calls[call_id] = i
            elif kind == "function_call_output":
                if open_calls.pop(call_id, None) is None:
                    self._problem((*path, i, "call_id"), f"no call {_shown(call_id)} waits for an output here")
            elif kind == "reasoning" and not is_followed:
                self._problem((*path, i), "no message or call of the assistant follows this reasoning")
            if call_id:
                item["call_id"] = renamed.get(call_id, call_id)
        for call_id, i in open_calls.items():
            self._problem((*path, i, "call_id"), f"the call {_shown(call_id)} has no output")


def _message(role: str, parts: list[Item]) -> Item:
    return {"type": "message", "role": role, "content": parts}


def _followed(items_backwards: Iterable[Item]) -> list[bool]:
    """For each item, from the last to the first: does the assistant go on after it, but for more reasoning?"""
    followed = False
    result: list[bool] = []
    for item in items_backwards:
        result.append(followed)
        if item["type"] != "reasoning":
            followed = item["type"] == "function_call" or item.get("role") == "assistant"
    return result


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 64 else shown[:60] + "…'"
