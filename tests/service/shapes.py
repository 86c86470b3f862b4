"""Items as the tests write them down: the kind, and what it says, without ids and defaults."""

from typing import Any

JsonObject = dict[str, Any]
Shape = tuple[str, ...]


def shape(item: JsonObject) -> Shape:
    """`("user", "hello")`, `("assistant", "hi")`, `("call", "lookup", "{…}")`, `("output", "found")`,
    `("reasoning", "hm")`."""
    match item.get("type", "message"):
        case "message":
            return (item["role"], text_of(item["content"] or item.get("refusal")))
        case "function_call":
            return ("call", item["name"], item["arguments"])
        case "function_call_output":
            return ("output", text_of(item["output"]))
        case "reasoning":
            return ("reasoning", text_of(item.get("summary") or item.get("content") or []))
        case kind:
            return (str(kind),)


def shapes(items: list[JsonObject]) -> list[Shape]:
    return [shape(item) for item in items]


def sent(history: list[JsonObject]) -> list[Shape]:
    """The same for what an upstream was sent, on either wire, instructions left out."""
    found: list[Shape] = []
    for entry in history:
        if entry.get("role") in ("system", "developer"):
            continue
        if entry.get("role") == "tool":
            found.append(("output", text_of(entry["content"])))
        elif entry.get("tool_calls"):
            if entry.get("content"):
                found.append(("assistant", text_of(entry["content"])))
            functions = [call["function"] for call in entry["tool_calls"]]
            found += [("call", f["name"], f["arguments"]) for f in functions]
        else:
            found.append(shape(entry))
    return found


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in content)
