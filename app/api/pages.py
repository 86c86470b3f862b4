"""What a browser is shown: a page that says what this is, and the API's documentation.

They hold nothing foreign: the policy names each page's own style and script by its digest and lets nothing
else run, so that the documentation works where there is no network.
"""

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256

from anyio import to_thread
from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from app.api.answers import dumps
from app.domain.json_types import JsonObject

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { background: #f3f4f6; padding: .75rem; overflow: auto; border-radius: 4px; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { display: inline-block; width: 5rem; }
table { border-collapse: collapse; }
td { border-top: 1px solid #d5d9de; padding: .2rem .8rem .2rem 0; vertical-align: top; }
"""
SCRIPT = """
const main = document.querySelector("main");
function add(parent, tag, text) {
  const element = parent.appendChild(document.createElement(tag));
  if (text !== undefined) element.textContent = text;
  return element;
}
function rows(parent, pairs) {
  const table = add(parent, "table");
  for (const cells of pairs) {
    const row = add(table, "tr");
    for (const cell of cells) add(row, "td", cell);
  }
}
function named(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(named).join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  return schema.const ?? (schema.type === "array" ? "list of " + named(schema.items) : schema.type ?? "any");
}
function operation(parent, path, method, op) {
  const details = add(parent, "details");
  const summary = add(details, "summary");
  add(summary, "b", method.toUpperCase());
  add(summary, "code", path);
  add(summary, "span", " " + (op.description ?? op.summary));
  rows(details, (op.parameters ?? []).map((p) => [p.name, p.in, named(p.schema), p.description ?? ""]));
  for (const media of Object.values(op.requestBody?.content ?? {}))
    add(details, "p", "Body: " + named(media.schema));
  rows(details, Object.entries(op.responses).map(([status, answer]) => [
    status, answer.description,
    Object.entries(answer.content ?? {})
      .map(([type, media]) => type + ": " + named(media["x-event-schema"] ?? media.schema)).join("; "),
  ]));
}
function schema(parent, name, value) {
  const details = add(parent, "details");
  add(add(details, "summary"), "code", name);
  if (value.description) add(details, "p", value.description);
  const required = value.required ?? [];
  rows(details, Object.entries(value.properties ?? {}).map(([field, s]) => [
    field, named(s), required.includes(field) ? "required" : "", s.description ?? "",
  ]));
  if (value.oneOf) add(details, "p", value.oneOf.map(named).join(", "));
}
fetch("openapi.json").then((answer) => answer.json()).then((api) => {
  add(main, "p", api.info.description);
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, op] of Object.entries(methods)) operation(main, path, method, op);
  add(main, "h2", "Schemas");
  for (const [name, value] of Object.entries(api.components.schemas)) schema(main, name, value);
}).catch((error) => add(main, "p", "The document could not be read: " + error));
"""
DOCS = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Turnwire: the API</title><style>{STYLE}</style>
<h1>Turnwire: the API</h1>
<p>Made from <a href="openapi.json">openapi.json</a>.</p>
<main></main><script>{SCRIPT}</script></html>
"""
HOME = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Turnwire</title><style>{STYLE}</style>
<h1>Turnwire</h1>
<p>Agent turns of the OpenAI Agents SDK over HTTP: streamed by SSE, resumable and cancellable.</p>
<pre>curl -N http://…/v1/turns -H 'content-type: application/json' \\
  -H 'accept: text/plain' -d '{{"input": "Say hello."}}'</pre>
<p><a href="docs">The API</a> · <a href="openapi.json">openapi.json</a> · <a href="readyz">ready?</a></p></html>
"""


def pages(document: Callable[[], JsonObject]) -> APIRouter:
    """The pages, and the OpenAPI document, which is made when it is first asked for."""
    router = APIRouter(include_in_schema=False)
    home, docs = _page(HOME), _page(DOCS)
    openapi = cache(lambda: dumps(document()))

    @router.get("/")
    async def show_home() -> Response:
        return home

    @router.get("/docs")
    async def show_docs() -> Response:
        return docs

    @router.get("/openapi.json")
    async def show_openapi() -> Response:
        return Response(await to_thread.run_sync(openapi), media_type="application/json")

    return router


def _page(html: str) -> HTMLResponse:
    policy = (
        f"default-src 'none'; script-src {_digest(SCRIPT)}; style-src {_digest(STYLE)}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
