"""The committed copies of the OpenAPI document and of the events' schema: `python -m app.api.snapshot`."""

import json
from importlib.metadata import version
from pathlib import Path

from app.api.openapi import events_document, openapi_document
from app.api.routes import ROUTERS
from app.domain.json_types import JsonObject

FOLDER = Path("docs")


def snapshots() -> dict[str, JsonObject]:
    """The documents by file name."""
    return {
        "openapi.json": openapi_document(ROUTERS, version("turnwire")),
        "events.schema.json": events_document(),
    }


def rendered(document: JsonObject) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    for name, document in snapshots().items():
        (folder / name).write_text(rendered(document), encoding="utf-8")


if __name__ == "__main__":
    main()
