"""`postcards`: asks a person before it sends a postcard. It shows approvals; nothing is really sent."""

from typing import Any

from agents import Agent, function_tool

INSTRUCTIONS = "Write the postcard that you are asked for, send it, and say in one sentence what became of it."


@function_tool(needs_approval=True)
def send_postcard(to: str, text: str) -> str:
    """Send a postcard to somebody. A person is asked first."""
    return f"The postcard to {to} is on its way."


def postcards() -> Agent[Any]:
    agent = Agent[Any](
        name="postcards",
        handoff_description="Sends postcards, and asks first. A show of approvals: nothing is really sent.",
        instructions=INSTRUCTIONS,
        tools=[send_postcard],
    )
    agent.examples = ["Send Ada a postcard from Rome."]
    return agent
