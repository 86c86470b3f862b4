"""`python -m tests.upstream [--port N] [--brain NAME=module:function]`: the upstream as a process of its own.

Prints `{"port": …, "base_url": …}` on one line of stdout, and ends when its stdin is closed, so that it never
outlives whoever started it.
"""

import argparse
import asyncio
import importlib
import json
import sys
from typing import cast

from tests.upstream.script import Brain
from tests.upstream.server import Upstream


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description="A scripted upstream")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--brain", action="append", default=[], metavar="NAME=module:function")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, dict(_brain(text) for text in options.brain)))


async def _serve(port: int, brains: dict[str, Brain]) -> None:
    async with Upstream(port=port, brains=brains) as upstream:
        sys.stdout.write(json.dumps({"port": upstream.port, "base_url": upstream.base_url}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


def _brain(text: str) -> tuple[str, Brain]:
    name, _, path = text.partition("=")
    module, _, attribute = path.partition(":")
    return name, cast("Brain", getattr(importlib.import_module(module), attribute))


if __name__ == "__main__":
    main()
