"""How a test in another process commands the upstream, over HTTP.

POST /_control/script        a script, see `Script`; or {"model", "case", "folder"?}: a case of a case folder
POST /_control/reset         forget scripts, requests and gates
GET  /_control/requests      ?model=          every request with what became of it
GET  /_control/connections                    how many are open, and how many requests are under way
GET  /_control/wait          ?event=request:N|closed:N|ended:N|held:GATE|gone:GATE & model= & timeout=
GET  /_control/gate/NAME                      wait at a gate (tools do); answers once it is released
POST /_control/release/NAME                   open a gate, for good
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tests.bounds import BOUND_S
from tests.upstream.http import Request, json_answer
from tests.upstream.records import Records, exchange_json
from tests.upstream.replay import BODIES, case
from tests.upstream.script import ANY_MODEL, Script, Scripts


class Control:
    def __init__(self, scripts: Scripts, records: Records) -> None:
        self._scripts = scripts
        self._records = records

    async def answer(self, request: Request) -> bytes:
        route, _, name = request.path.removeprefix("/_control/").partition("/")
        match request.method, route:
            case "POST", "script":
                return self._script(request.json())
            case "POST", "reset":
                self._scripts.reset()
                await self._records.reset()
            case "POST", "release":
                await self._records.release(name)
            case "GET", "gate":
                await self._records.pass_gate(name)
            case "GET", "requests":
                return json_answer([exchange_json(e) for e in self._records.of(request.query.get("model"))])
            case "GET", "connections":
                return json_answer(self._connections())
            case "GET", "wait":
                return await self._wait(request.query)
            case _:
                return json_answer({"error": f"no such control: {request.method} {request.path}"}, 404)
        return json_answer({"at": time.monotonic()})

    def _script(self, body: dict[str, Any]) -> bytes:
        try:
            self._scripts.add(_case_script(body) if "case" in body else Script.model_validate(body))
        except (ValidationError, KeyError, OSError) as error:
            return json_answer({"error": f"no such script: {error}"}, 422)
        return json_answer({"at": time.monotonic()})

    def _connections(self) -> dict[str, object]:
        models = [e.model for e in self._records.exchanges if e.under_way]
        opened = sum(self._records.connections.values())
        return {"open": opened, "under_way": len(models), "models": models}

    async def _wait(self, query: dict[str, str]) -> bytes:
        event, _, what = query.get("event", "").partition(":")
        true = self._condition(event, what, query.get("model"))
        if true is None:
            return json_answer({"error": f"no such event: {event!r}"}, 404)
        timeout_s = min(float(query.get("timeout", 5)), BOUND_S)
        happened = await self._records.until(true, timeout_s)
        return json_answer({"happened": happened, "at": time.monotonic()}, 200 if happened else 408)

    def _condition(self, event: str, what: str, model: str | None) -> Callable[[], bool] | None:
        records = self._records
        match event:
            case "request":
                return lambda: len(records.of(model)) >= int(what)
            case "closed":
                return lambda: sum(e.closed_at is not None for e in records.of(model)) >= int(what)
            case "ended":
                return lambda: sum(e.ended_at is not None for e in records.of(model)) >= int(what)
            case "held":
                return lambda: records.gate(what).arrivals > 0
            case "gone":
                return lambda: records.gate(what).gone > 0
            case _:
                return None


def _case_script(body: dict[str, Any]) -> Script:
    folder = Path(body["folder"]) if body.get("folder") else BODIES
    return Script(model=body.get("model", ANY_MODEL), replies=case(body["case"], folder))
