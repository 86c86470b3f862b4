"""A tool call's arguments as every parser behind us can read them.

The SDK parses them too, and a run must not end by what it cannot read: an escaped half of a surrogate pair
cannot be encoded again, and nesting that is deep enough exhausts its stack.
"""

import json

from app.runtime.models.json_frames import mended

MAX_DEPTH = 400
CUT = 200


def readable(arguments: str) -> str:
    """The same text, but halves of pairs are replaced, and what is nested too deep is cut: it is JSON no more,
    and the model is told so."""
    if arguments.count("[") + arguments.count("{") > MAX_DEPTH and _is_too_deep(arguments):
        return arguments[:CUT]
    if "\\ud" in arguments or "\\uD" in arguments:
        return _without_halves(arguments)
    return arguments


def _is_too_deep(arguments: str) -> bool:
    """The parser of those who come after us has as much stack as is left here, less what they stand on."""
    try:
        json.loads("[" * MAX_DEPTH + arguments + "]" * MAX_DEPTH)
    except RecursionError:
        return True
    except ValueError:
        return False
    return False


def _without_halves(arguments: str) -> str:
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    whole = mended(parsed)
    return arguments if whole == parsed else json.dumps(whole, ensure_ascii=False)
