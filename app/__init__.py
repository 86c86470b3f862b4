"""Turnwire: agent turns of the OpenAI Agents SDK over HTTP, streamed, resumable and cancellable."""
