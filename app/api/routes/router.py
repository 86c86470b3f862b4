"""How the routers of the API are made."""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from app.api.body import JsonRoute


def _operation_id(route: APIRoute) -> str:
    return route.name


def api_router(prefix: str, tag: str) -> APIRouter:
    """A router whose bodies are read by our rules, and whose operations are called like their functions."""
    return APIRouter(
        prefix=prefix, tags=[tag], route_class=JsonRoute, generate_unique_id_function=_operation_id
    )
