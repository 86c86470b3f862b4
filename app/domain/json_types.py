"""What JSON can be, where it truly can be anything."""

from typing import Any

JsonObject = dict[str, Any]
Item = dict[str, Any]
"""One Responses-style history item as the model sees it: a message, a call, an output, reasoning."""
