# Two commands on a fresh machine with Python 3.11+ (with venv) and make: `make run` and `make test`.

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCKED := $(PIP) install --no-deps --require-hashes
ARGS ?=
FOREIGN := tests/foreign_servers

.PHONY: run test check bench soak demo install lock clean

run: $(VENV)/.installed  ## set everything up and serve on 127.0.0.1:8000
	@exec $(BIN)/python -m app $(ARGS)

test: $(VENV)/.installed-dev $(FOREIGN)/node_modules/.installed  ## set everything up and run the tests; ARGS="-k cancel" for some of them
	@$(BIN)/python -m pytest --numprocesses=auto --dist=loadfile $(ARGS)

check: $(VENV)/.installed-dev  ## what a change must pass beside the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev  ## the measurements of docs/performance.md
	@$(BIN)/python -m bench $(ARGS)

soak: $(VENV)/.installed-dev  ## an hour of everything at once; ARGS="--minutes 5" for less
	@$(BIN)/python -m bench.soak $(ARGS)

demo: $(VENV)/.installed-dev  ## agents at work without a provider of models, in a terminal
	@$(BIN)/python -m demo $(ARGS)

install: $(VENV)/.installed-dev  ## everything, and nothing started

# pip takes the locked files only. The project's own build needs nothing but what is locked either.
$(VENV)/.installed: requirements.lock requirements-build.lock pyproject.toml | $(BIN)/python
	@echo "setting up $(VENV): the first time takes a minute or two"
	@$(LOCKED) -r requirements.lock
	@$(LOCKED) -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@$(LOCKED) -r requirements-dev.lock
	@touch $@

# A server of models that is written in JavaScript. Without npm the tests that need it say so and fail.
$(FOREIGN)/node_modules/.installed: $(FOREIGN)/package-lock.json
	@if command -v npm >/dev/null; then cd $(FOREIGN) && npm ci --silent && touch node_modules/.installed; \
		else echo "npm is missing: the tests of foreign servers need Node.js 20 and npm"; fi

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Turnwire needs Python 3.11 or newer: no python3 on the PATH is"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# Locks again after a change of pyproject.toml; ARGS=--upgrade takes newer releases. Hashes of every platform's files.
COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links $(ARGS)
lock:
	@$(PYTHON) -m venv build/lock && build/lock/bin/python -m pip install --quiet uv
	$(COMPILE) pyproject.toml --extra local --extra otlp --group model --output-file requirements.lock
	$(COMPILE) --group build --constraints requirements.lock --output-file requirements-build.lock
	$(COMPILE) --group dev --constraints requirements.lock --constraints requirements-build.lock \
		--output-file requirements-dev.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
