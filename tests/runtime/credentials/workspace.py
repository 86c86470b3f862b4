"""A Databricks workspace on loopback: its OAuth endpoint, whose tokens are numbered, and its models, which are
those of another upstream."""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.bounds import BOUND_S


class Workspace:
    """`with Workspace(expires_in=1) as workspace`: `workspace.host`, `workspace.issued` tokens so far."""

    def __init__(self, *, expires_in: float = 3600, describes_itself: bool = True, serves: str = "") -> None:
        """`serves`: the origin of the upstream that answers in its name."""
        self.issued = 0
        self.expires_in = expires_in
        self.describes_itself = describes_itself
        self.serves = serves
        workspace = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                base = f"{workspace.host}/oidc/v1"
                if "well-known/databricks-config" in self.path and workspace.describes_itself:
                    self._answer(200, {"oidc_endpoint": f"{workspace.host}/oidc"})
                elif "well-known/oauth-authorization-server" in self.path:
                    self._answer(200, {"authorization_endpoint": base, "token_endpoint": f"{base}/token"})
                else:
                    self._answer(404, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if "/oidc/" in self.path:
                    self._issue()
                else:
                    self._pass_on(body)

            def _pass_on(self, body: bytes) -> None:
                path = self.path.replace("/serving-endpoints", "/v1")
                headers = {name: self.headers[name] for name in ("authorization", "content-type")}
                request = urllib.request.Request(f"{workspace.serves}{path}", body, headers)
                with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
                    data = answer.read()
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _issue(self) -> None:
                workspace.issued += 1
                token = f"workspace-token-{workspace.issued}"
                self._answer(
                    200,
                    {"access_token": token, "token_type": "Bearer", "expires_in": workspace.expires_in},
                )

            def _answer(self, status: int, body: dict[str, object]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(BOUND_S)
