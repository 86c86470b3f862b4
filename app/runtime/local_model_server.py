"""The child process that serves the embedded model: run as a script, it imports nothing of the service.

It reads its orders as one line of JSON from stdin and answers with one line on stdout: `url` or `error`.
It ends when stdin does: it goes with its parent, however that went. The engine's own output goes to stderr.
"""

import hashlib
import importlib
import json
import os
import sys
import threading
from typing import Any, NoReturn

TEMPLATE = """\
{%- if messages[0].role != 'system' -%}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{{- '<|im_start|>user\\nThe result is: ' + m.content + '\\nTell me this result.<|im_end|>\\n' -}}
{%- elif m.tool_calls -%}
{{- '<|im_start|>assistant\\n' + (m.content or '') -}}
{%- for c in m.tool_calls -%}
{{- 'Calling ' + c.function.name + ' ' -}}
{{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""The model file's own template knows no tool results: with it they are not used in the answer."""

BATCH = 128
"""Prompt tokens between two looks at the connection: the more, the longer a cancel takes in a long prompt."""
MAX_TOKENS = 1024
"""The cap of every request: nothing else stops a model that never says it has finished."""

TEMPERATURE, TOP_P = 0.2, 0.9
"""What its makers advise. A request may say otherwise."""
REPEAT_PENALTY = 1.1
"""Without it a model of this size falls into saying one sentence for ever."""


def main() -> NoReturn:
    orders = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine may print
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if orders["sha256"] is not None:
            _verify(orders["model"], orders["sha256"])
        server = _serve(orders)
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent is told and this process ends
        print(json.dumps({"error": str(error) or type(error).__name__}), file=answers, flush=True)
        os._exit(1)
    print(json.dumps({"url": server.listening_address}), file=answers, flush=True)
    while True:
        threading.Event().wait()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # an orderly end would wait for running generations


def _verify(path: str, expected: str) -> None:
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected:
            raise ValueError("the model file is not the one this release was tested with: install it again")


def _serve(orders: dict[str, Any]) -> Any:
    """Load the model and start the server; it runs in the engine's threads as long as the object lives."""
    engine = importlib.import_module("xllamacpp")  # here, so that a failure to load is an answer too
    params = engine.CommonParams()
    params.model.path = orders["model"]
    params.model_alias = {orders["name"]}
    params.api_keys = [orders["api_key"]]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cors_origins = ""
    params.n_parallel = orders["slots"]
    params.n_ctx = orders["slots"] * orders["context_per_slot"]
    params.n_batch = params.n_ubatch = BATCH
    params.n_predict = MAX_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = orders["threads"]
    params.chat_template, params.use_jinja = TEMPLATE, True
    params.sampling.temp, params.sampling.top_p = TEMPERATURE, TOP_P
    params.sampling.penalty_repeat = REPEAT_PENALTY
    params.endpoint_slots = orders["show_slots"]
    params.cache_ram_mib, params.ui, params.verbosity = 0, False, 0
    return engine.Server(params)


if __name__ == "__main__":
    main()
