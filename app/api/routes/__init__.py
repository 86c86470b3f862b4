"""The routes: each takes, calls, answers. `ROUTERS` is all of the API, in the order of its document."""

from app.api.routes import agents, artifacts, conversations, health, pauses, turns

ROUTERS = (
    turns.router,
    pauses.router,
    artifacts.router,
    conversations.router,
    agents.router,
    health.router,
)
