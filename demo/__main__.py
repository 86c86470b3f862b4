"""`make demo`: the healthcare support desk at work in a terminal, without a provider of models.

A scripted upstream plays the model; everything else is real: the service, its agents, tools and sandboxes.
`ARGS="--case referral_status_check"` picks the cases; `--yes` and `--no` answer where a person is asked.
`ARGS=--serve` only serves, for curl or a browser.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from demo.screen import lines
from tests.service.process import ServiceProcess
from tests.upstream.process import upstream_process

AGENT = "healthcare_support"
CASES = ["eligibility_verification_basic", "messy_ambiguous_knee_case"]
LIMIT_S = 60
FOR_EVER_S = 1e8

JsonObject = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo", description="The healthcare support desk at work.")
    parser.add_argument("--case", action="append", help="a scenario's id, or a case in your own words")
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument(
        "--yes", action="store_const", const="approve", dest="decision", help="approve handoffs"
    )
    answer.add_argument("--no", action="store_const", const="reject", dest="decision", help="reject handoffs")
    parser.add_argument("--serve", action="store_true", help="serve until it is stopped, and show nothing")
    parser.add_argument("--port", type=int, default=8000, help="where --serve listens; 0: any free port")
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="turnwire-demo-") as folder,
        upstream_process(["--brain", "*=demo.brain:brain"]) as origin,
        _service(Path(folder), origin, options.port if options.serve else 0) as service,
        httpx.Client(base_url=service.base_url, timeout=LIMIT_S, trust_env=False) as http,
    ):
        if options.serve:
            _serve(service)
        else:
            _show(options.case or CASES, Demo(http, options.decision))


def _show(cases: list[str], demo: "Demo") -> None:
    for case in cases:
        demo.show(case)


def _service(folder: Path, origin: str, port: int) -> ServiceProcess:
    nothing_of_the_tests = dict.fromkeys(("TURNWIRE_AGENTS", "TURNWIRE_CONTEXT", "TEST_CONTROL_URL"))
    return ServiceProcess(folder, origin, TURNWIRE_PORT=port, **nothing_of_the_tests)


def _serve(service: ServiceProcess) -> None:
    """Until the service or this process is stopped (Ctrl-C reaches both)."""
    _print(f"Turnwire listens on {service.base_url}, with a scripted model. Stop it with Ctrl-C.")
    with suppress(KeyboardInterrupt):
        service.wait(FOR_EVER_S)


class Demo:
    """One conversation at the desk: each case remembers those before it."""

    def __init__(self, http: httpx.Client, decision: str | None) -> None:
        self._http = http
        self._decision = decision
        self._path = "/v1/turns"

    def show(self, case: str) -> None:
        _print(f"\n=== {case}")
        turn = self._run(self._path, {"agent": AGENT, "input": case})
        while turn["status"] == "paused":
            decisions = [
                {"approval_id": approval["approval_id"], **self._decide()}
                for approval in turn["pause"]["approvals"]
            ]
            turn = self._run(f"/v1/turns/{turn['id']}/decisions", {"decisions": decisions})
        self._path = f"/v1/conversations/{turn['conversation_id']}/turns"
        for artifact in self._http.get(f"/v1/turns/{turn['id']}/artifacts").json()["data"]:
            _print(f"\n--- {artifact['name']}\n{self._http.get(artifact['url']).text}")

    def _run(self, path: str, body: JsonObject) -> JsonObject:
        """Post, print the events as they come, and return the turn as its last event holds it."""
        turn: JsonObject = {}
        with self._http.stream("POST", path, json=body, headers={"accept": "text/event-stream"}) as response:
            if response.is_error:
                sys.exit(response.read().decode())
            for event in _events(response):
                for line in lines(event):
                    _print(line)
                turn = event.get("turn") or turn
        return turn

    def _decide(self) -> JsonObject:
        decision = self._decision
        if decision is None:
            approved = not sys.stdin.isatty() or input("    approve? [y/N] ").strip().lower() in ("y", "yes")
            decision = "approve" if approved else "reject"
        return {"decision": decision, "reason": None if decision == "approve" else "Nobody is on duty."}


def _events(response: httpx.Response) -> Iterator[JsonObject]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
