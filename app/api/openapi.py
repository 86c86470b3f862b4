"""The OpenAPI document: FastAPI's own for routes and bodies, and our schemas for what they answer."""

from collections.abc import Sequence

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRouter
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api import event_schema, schemas
from app.api.auth import OPEN_PATHS
from app.api.documented import CONVERSATION_EXAMPLE, TURN_EXAMPLE
from app.domain.json_types import JsonObject

TITLE = "Turnwire"
DESCRIPTION = (
    "Agent turns of the OpenAI Agents SDK over HTTP: streamed by SSE, resumable and cancellable.\n\n"
    "Error answers are RFC 9457 problems with a stable `code`. Absent values are null, never missing; clients "
    "ignore fields and event types that they do not know."
)
ANSWERS: dict[str, type[BaseModel]] = {
    "Turn": schemas.TurnShape,
    "TurnSummary": schemas.TurnSummaryShape,
    "Usage": schemas.UsageShape,
    "ModelUsage": schemas.ModelUsageShape,
    "TurnError": schemas.TurnErrorShape,
    "Pause": schemas.PauseShape,
    "Approval": schemas.ApprovalShape,
    "AskedApproval": schemas.AskedApprovalShape,
    "PendingCall": schemas.PendingCallShape,
    "Cancel": schemas.CancelShape,
    "Conversation": schemas.ConversationShape,
    "StoredItem": schemas.StoredItemShape,
    "TurnPage": schemas.TurnPage,
    "ConversationPage": schemas.ConversationPage,
    "ItemPage": schemas.ItemPage,
    "ApprovalPage": schemas.ApprovalPage,
    "ObjectPage": schemas.ObjectPage,
    "EventPage": schemas.EventPage,
    "Health": schemas.Health,
    "Readiness": schemas.Readiness,
    "Problem": schemas.Problem,
    "ProblemError": schemas.ProblemError,
}
_REF = "#/components/schemas/"
EXAMPLES = {_REF + "Turn": TURN_EXAMPLE, _REF + "Conversation": CONVERSATION_EXAMPLE}
"""Whole: FastAPI drops what is null in an example."""


def openapi_document(routers: Sequence[APIRouter], version: str) -> JsonObject:
    made = get_openapi(
        title=TITLE,
        version=version,
        description=DESCRIPTION,
        routes=[route for router in routers for route in router.routes],
    )
    for path, operations in made["paths"].items():
        for operation in operations.values():
            _correct(operation, open_=path in OPEN_PATHS)
    components = made.setdefault("components", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.get("schemas", {}).pop(name, None)
    components["schemas"] = dict(
        sorted(
            {
                **components.get("schemas", {}),
                **answer_schemas(_REF),
                **event_schema.event_schemas(_REF),
            }.items()
        )
    )
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "Not asked for if the service has no keys."}
    }
    return made


def events_document() -> JsonObject:
    return event_schema.document(answer_schemas("#/$defs/"))


def answer_schemas(ref: str) -> dict[str, JsonObject]:
    """The schemas of `ANSWERS` under their public names."""
    _, made = models_json_schema(
        [(model, "serialization") for model in ANSWERS.values()], ref_template="{model}"
    )
    public = {model.__name__: name for name, model in ANSWERS.items()}
    return {
        public[name]: _renamed(schema, public, ref) for name, schema in made["$defs"].items() if name in public
    }


def _renamed(value: object, public: dict[str, str], ref: str) -> JsonObject:
    renamed = _rename(value, public, ref)
    assert isinstance(renamed, dict)  # noqa: S101 - a schema is an object
    return renamed


def _rename(value: object, public: dict[str, str], ref: str) -> object:
    if isinstance(value, dict):
        return {
            key: ref + public[inner] if key == "$ref" else _rename(inner, public, ref)
            for key, inner in value.items()
        }
    return [_rename(inner, public, ref) for inner in value] if isinstance(value, list) else value


def _correct(operation: JsonObject, *, open_: bool) -> None:
    """What FastAPI adds by itself goes (answers without our headers); what it drops comes back."""
    operation["security"] = [] if open_ else [{"key": []}, {}]
    if (body := operation.get("requestBody")) is not None:
        body["required"] = True
    for parameter in operation.get("parameters", []):
        parameter["schema"] = _without_null(parameter["schema"])
    operation["responses"] = {
        status: answer
        for status, answer in operation["responses"].items()
        if "headers" in answer and not (open_ and status == "401")
    }
    for answer in operation["responses"].values():
        content = answer.get("content", {})
        if content.get("application/json") == {"schema": {}}:
            del content["application/json"]
        for media in content.values():
            if "example" in media:
                media["example"] = EXAMPLES.get(media.get("schema", {}).get("$ref"), media["example"])


def _without_null(schema: JsonObject) -> JsonObject:
    """A parameter is absent, it is never null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **options[0]}
