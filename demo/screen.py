"""A turn's events as lines for a terminal."""

import json
from typing import Any

JsonObject = dict[str, Any]
WIDTH = 110


def lines(event: JsonObject) -> list[str]:
    """What to print for an event; nothing for most of them."""
    indent = "    " if event.get("parent_call_id") else "  "
    match event["type"]:
        case "turn.started":
            return [f"turn of {event['agent']} in {event['conversation_id']}"]
        case "workflow.event":
            return [f"  * {event['name']} {_told(event['name'], event['data'])}".rstrip()]
        case "agent.started":
            return [f"{indent}[{event['agent']}]"]
        case "tool_call.requested":
            return [indent + _cut(f"> {event['tool']} {_compact(event['arguments'])}")]
        case "tool_call.completed":
            return [indent + _cut(f"< {event['status']}: {_compact(event['output'] or event['error'])}")]
        case "approval.requested":
            return [f"  ? {event['tool']} waits for a person: {_compact(event['arguments'])}"]
        case "approval.decided":
            return [f"  ! {event['decision']}"]
        case "artifact.created":
            return [f"  + {event['name']} ({event['size']} bytes): {event['url']}"]
        case "warning":
            return [f"  ~ {event['code']}: {event['message']}"]
        case "turn.completed" | "turn.failed" | "turn.cancelled":
            return _ending(event["turn"])
        case _:
            return []


def _ending(turn: JsonObject) -> list[str]:
    if turn["error"]:
        return [f"{turn['status']}: {turn['error']['code']}: {turn['error']['message']}"]
    resolution = (turn["output"] or {}).get("resolution") or {}
    told = ["intent", "patient", "next_step", "handoff_id", "patient_response"]
    return [turn["status"], *(f"  {name}: {resolution[name]}" for name in told if resolution.get(name))]


def _told(name: str, data: Any) -> str:
    """The long ones are told by what follows them."""
    if name in ("scenario_loaded", "workflow_complete", "artifacts_ready"):
        return str(data.get("scenario_id") or "")
    return _compact(data)


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
