"""History items as Chat Completions messages."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from agents.models.chatcmpl_converter import Converter

from app.domain.json_types import Item, JsonObject
from app.runtime.models.json_frames import dumps

ReplayReasoning = Literal["turn", "always", "never"]
OMITTED: Final = "[output omitted]"
"""What stands for a tool's output that has no text: this wire has no place for files there."""
SHOWN_BELOW: Final = "[shown below]"
"""The same for images: a tool's message cannot hold them, so a user's does that follows the step's outputs."""


def messages_of(
    items: Sequence[Item], *, upstream: str, replay_reasoning: ReplayReasoning, developer_role: str
) -> list[JsonObject]:
    """Messages in order; all that the assistant said between two others is one, with its text, its calls and,
    if wanted, the reasoning that led to them: many templates refuse two assistant messages in a row.

    Items that this wire cannot carry (hosted tools' calls, compaction) are left out. `items` are valid in the
    sense of `domain.history.repaired`. Raises UserError for unknown content.
    """
    writer = _Writer(upstream, developer_role)
    replay_from = _replay_from(items, replay_reasoning)
    for index, item in enumerate(items):
        writer.add(item, may_replay=index >= replay_from)
    writer.flush()
    return writer.messages


def _replay_from(items: Sequence[Item], replay: ReplayReasoning) -> int:
    if replay == "always":
        return 0
    if replay == "never":
        return len(items)
    return next((i for i in range(len(items) - 1, -1, -1) if items[i].get("role") == "user"), 0)


class _Writer:
    def __init__(self, upstream: str, developer_role: str) -> None:
        self.messages: list[JsonObject] = []
        self._upstream = upstream
        self._developer_role = developer_role
        self._step: JsonObject | None = None
        self._thought: JsonObject = {}
        self._images: list[JsonObject] = []

    def add(self, item: Item, *, may_replay: bool) -> None:
        match item.get("type", "message"):
            case "message":
                self._message(item)
            case "function_call":
                self._call(item, item.get("arguments") or "{}")
            case "custom_tool_call":
                self._call(item, dumps({"input": item.get("input") or ""}).decode())
            case "function_call_output" | "custom_tool_call_output":
                self._flush_step()
                self._images += _images(item.get("output"))
                self.messages.append(
                    {"role": "tool", "tool_call_id": item["call_id"], "content": _output(item.get("output"))}
                )
            case "reasoning" if may_replay:
                self._remember(item)
            case _:
                pass

    def flush(self) -> None:
        """What was said so far is whole: the assistant's message, or the images that tools gave."""
        self._flush_step()
        self._flush_images()

    def _flush_images(self) -> None:
        images, self._images = self._images, []
        if images:
            self.messages.append({"role": "user", "content": Converter.extract_all_content(images)})

    def _flush_step(self) -> None:
        """The assistant message under way is whole. Reasoning goes back only with calls."""
        step, self._step = self._step, None
        if step is not None:
            if step.get("tool_calls"):
                step |= self._thought
            self.messages.append(step)
        self._thought = {}

    def _message(self, item: Item) -> None:
        role = item.get("role")
        if role == "assistant":
            self._say(item.get("content"))
            return
        self.flush()
        content = item.get("content")
        if role in ("system", "developer"):
            name = "system" if role == "system" else self._developer_role
            self.messages.append({"role": name, "content": _plain(content)})
        else:
            self.messages.append({"role": "user", "content": _parts(content)})

    def _say(self, content: Any) -> None:
        parts = [{"text": content}] if isinstance(content, str) else content or []
        # A refusal is what was said: many servers do not know the field, and refuse a message without content.
        text = "".join(p.get("text") or p.get("refusal") or "" for p in parts)
        step = self._step or self._begin()
        if text:
            step["content"] = f"{step['content']}\n{text}" if step["content"] else text

    def _call(self, item: Item, arguments: str) -> None:
        step = self._step or self._begin()
        call: JsonObject = {
            "id": item["call_id"],
            "type": "function",
            "function": {"name": item["name"], "arguments": arguments},
        }
        mark = item.get("provider_data")
        if isinstance(mark, dict) and mark.get("upstream") == self._upstream and mark.get("extra_content"):
            call["extra_content"] = mark["extra_content"]
        step.setdefault("tool_calls", []).append(call)

    def _begin(self) -> JsonObject:
        self._flush_images()
        self._step = {"role": "assistant", "content": None}
        return self._step

    def _remember(self, item: Item) -> None:
        mark = item.get("provider_data")
        if not isinstance(mark, dict) or mark.get("upstream") != self._upstream:
            return
        if field := mark.get("field"):
            text = "".join(p.get("text") or "" for p in item.get("content") or item.get("summary") or ())
            self._thought[field] = self._thought.get(field, "") + text
        for field, details in (mark.get("details") or {}).items():
            self._thought[field] = [*self._thought.get(field, ()), *details]


def _plain(content: Any) -> str:
    """Text alone: servers' templates cannot take parts in every role."""
    if isinstance(content, str):
        return content
    return "\n".join(p.get("text") or "" for p in content or () if isinstance(p, dict) and p.get("text"))


def _parts(content: Any) -> Any:
    """A string where text is all there is; many servers take nothing else."""
    if isinstance(content, str):
        return content
    parts = [_as_input(p) for p in content or ()]
    if all(p.get("type") == "input_text" for p in parts):
        return "\n".join(p["text"] for p in parts)
    return Converter.extract_all_content(parts)


def _as_input(part: JsonObject) -> JsonObject:
    if part.get("type") in ("text", "output_text", "input_text"):
        return {"type": "input_text", "text": part.get("text") or ""}
    return part


def _images(output: Any) -> list[JsonObject]:
    if isinstance(output, str | dict) or not isinstance(output, Iterable):
        return []
    images = [
        p for p in output if isinstance(p, dict) and p.get("type") == "input_image" and p.get("image_url")
    ]
    return [{"detail": "auto"} | image for image in images]


def _output(output: Any) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, Iterable) and not isinstance(output, dict):
        text = _plain([p for p in output if isinstance(p, dict)])
        return text or (SHOWN_BELOW if _images(output) else OMITTED)
    return OMITTED if output is None else dumps(output).decode()
