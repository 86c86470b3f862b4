"""A collector of traces on loopback: it keeps what is posted to it, and reads OpenTelemetry's format."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bounds import BOUND_S


@dataclass(frozen=True)
class Post:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class CollectedSpan:
    """Ids as hexadecimal digits; `parent_id` is empty where there is none."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    failed: bool
    nanoseconds: int
    attributes: dict[str, Any]
    service: str


@dataclass
class Collector:
    """`silent`: it takes what comes and never answers."""

    silent: bool = False
    posts: list[Post] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    released: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def take(self, post: Post) -> None:
        with self.changed:
            self.posts.append(post)
            self.changed.notify_all()

    def wait(self, *names: str, turn_id: str | None = None) -> list[CollectedSpan]:
        """All spans, or those of a turn, once there is one of each of these names."""
        with self.changed:
            came = self.changed.wait_for(lambda: set(names) <= {s.name for s in self.spans(turn_id)}, BOUND_S)
            assert came, f"{set(names) - {s.name for s in self.spans(turn_id)}} did not come"
        return self.spans(turn_id)

    def wait_posts(self) -> list[Post]:
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.posts), BOUND_S), "nothing was posted"
        return list(self.posts)

    def spans(self, turn_id: str | None = None) -> list[CollectedSpan]:
        spans = [span for post in self.posts for span in _spans(post.body)]
        return [s for s in spans if turn_id in (None, s.attributes.get("turnwire.turn.id"))]

    def exported(self, kind: str) -> list[dict[str, Any]]:
        """What was posted as JSON in OpenAI's form, of one kind of object."""
        entries = [entry for post in self.posts for entry in post.json()["data"]]
        return [entry for entry in entries if entry["object"] == kind]


@contextmanager
def collecting(*, silent: bool = False) -> Iterator[Collector]:
    collector = Collector(silent)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            collector.take(Post(self.path, {n.lower(): v for n, v in self.headers.items()}, body))
            if collector.silent:
                collector.released.wait(3 * BOUND_S)
                return
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(body: bytes) -> Iterator[CollectedSpan]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    for resource in request.resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield CollectedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.status.code == span.status.STATUS_CODE_ERROR,
                    span.end_time_unix_nano - span.start_time_unix_nano,
                    _attributes(span.attributes),
                    service,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
