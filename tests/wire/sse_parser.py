"""A parser of event streams to the letter of the WHATWG text, independent of every client's."""

import re
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class Message:
    id: str
    event: str
    data: str


def parse(stream: bytes) -> list[Message]:
    """The messages that are dispatched; one that the stream's end cuts off is dropped."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _unfinished = _LINE_END.split(text)
    messages: list[Message] = []
    data: list[str] = []
    event = last_id = ""
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                messages.append(Message(last_id, event or "message", "\n".join(data)))
            data, event = [], ""
        elif not name and colon:
            continue
        elif name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return messages
