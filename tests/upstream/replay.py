"""Bodies of a case folder, byte for byte: `manifest.json` lists, for each case, the responses in their order.

A response is `{file, status, headers, end, cut_at?, pause?}`. A file whose body says that `stream_options` is
unknown is sent only to requests that hold it.
"""

import base64
import json
from pathlib import Path
from typing import Any

from tests.upstream.reply import Reply

BODIES = Path(__file__).parent / "bodies"
_OPTION = "stream_options"


def cases(folder: Path = BODIES) -> list[str]:
    return list(_manifest(folder))


def case(number: str, folder: Path = BODIES) -> list[Reply]:
    """The replies of one case. Raises KeyError for a case that the manifest does not have."""
    return [_reply(folder, response) for response in _manifest(folder)[number]["responses"]]


def is_responses_case(number: str, folder: Path = BODIES) -> bool:
    return any("responses-" in r["file"] for r in _manifest(folder)[number]["responses"])


def _reply(folder: Path, response: dict[str, Any]) -> Reply:
    body = (folder / response["file"]).read_bytes()
    refuses_option = response["status"] >= 400 and _OPTION.encode() in body
    return Reply(
        raw=base64.b64encode(body).decode(),
        status=response["status"],
        headers=response.get("headers", {}),
        end=response.get("end", "close"),
        cut_at=response.get("cut_at", []),
        pause=response.get("pause", 0),
        when=f'"{_OPTION}"' if refuses_option else None,
    )


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest
