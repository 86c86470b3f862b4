"""`assistant`: talks, without tools. What a service without any agent of its own offers."""

from typing import Any

from agents import Agent

# Short and without conditions: the embedded model is small, and loses its way in long instructions.
INSTRUCTIONS = "You are a helpful assistant. Answer in plain words, briefly and truthfully."


def assistant() -> Agent[Any]:
    agent = Agent[Any](
        name="assistant",
        handoff_description="Talks about anything; has no tools.",
        instructions=INSTRUCTIONS,
    )
    agent.examples = ["Say hello.", "Explain in two sentences why the sky is blue."]
    return agent
