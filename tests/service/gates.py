"""Gates that a tool or a guardrail waits at until the test releases it: they stand in the upstream."""

import os
from urllib.parse import quote

import httpx

from tests.bounds import BOUND_S

LIMIT_S = 3 * BOUND_S


async def pass_gate(name: str) -> None:
    """Wait at the gate. Cancelled while it waits: the connection closes, and the test sees that."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=LIMIT_S) as client:
        await client.get(_url(name))


def pass_gate_blocking(name: str) -> None:
    """The same from a sync tool: nothing but its release (or the limit) makes it return."""
    httpx.get(_url(name), trust_env=False, verify=False, timeout=LIMIT_S)


def _url(name: str) -> str:
    return f"{os.environ['TEST_CONTROL_URL']}/_control/gate/{quote(name, safe='')}"
