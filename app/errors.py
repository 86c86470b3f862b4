"""What can go wrong, as a caller sees it (contract, section 10).

    TurnwireError
    ├── InvalidRequest            422 invalid_request        (with `errors`: where and what)
    │   ├── UnsupportedInput      422 unsupported_input
    │   ├── ModelNotFound         422 model_not_found
    │   └── IdempotencyKeyReused  422 idempotency_key_reused
    ├── BadRequest                400 bad_request
    │   └── InvalidEventId        400 invalid_event_id
    ├── Unauthenticated           401 unauthenticated
    ├── Forbidden                 403 forbidden
    │   ├── OverrideForbidden     403 override_forbidden
    │   └── OriginForbidden       403 origin_forbidden
    ├── NotFound                  404 not_found
    │   ├── AgentNotFound         404 agent_not_found
    │   └── NoActiveTurn          404 no_active_turn
    ├── NotAcceptable             406 not_acceptable
    ├── TurnInProgress            409 turn_in_progress       (with `turn_id`)
    ├── TurnNotPaused             409 turn_not_paused
    ├── AlreadyDecided            409 already_decided
    ├── ConversationExists        409 conversation_exists
    ├── EventsExpired             410 events_expired
    ├── BodyTooLarge              413 body_too_large
    ├── UnsupportedMediaType      415 unsupported_media_type
    ├── UnknownHost               421 unknown_host
    ├── TooManyTurns              429 too_many_turns
    ├── QueueFull                 429 queue_full
    ├── ShuttingDown              503 shutting_down
    ├── StoreUnavailable          503 store_unavailable
    ├── SandboxUnavailable        503 sandbox_unavailable
    └── Overloaded                503 overloaded

`detail` is for a person: who, what, and what next. It never holds a secret or a path of the server.
"""

from typing import Any, ClassVar


class TurnwireError(Exception):
    """The root: every subclass has its HTTP status, its stable `code` and a title."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"

    def __init__(
        self,
        detail: str,
        *,
        errors: list[dict[str, Any]] | None = None,
        retry_after_s: float | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors
        self.retry_after_s = retry_after_s
        self.extra = extra


class InvalidRequest(TurnwireError):
    """The body was read and does not say something we can do; `errors` is a list of `{loc, message}`."""

    status, code, title = 422, "invalid_request", "Invalid request"


class UnsupportedInput(InvalidRequest):
    code, title = "unsupported_input", "Unsupported input"


class ModelNotFound(InvalidRequest):
    code, title = "model_not_found", "Model not found"


class IdempotencyKeyReused(InvalidRequest):
    code, title = "idempotency_key_reused", "Idempotency key reused"


class BadRequest(TurnwireError):
    status, code, title = 400, "bad_request", "Bad request"


class InvalidEventId(BadRequest):
    code, title = "invalid_event_id", "Invalid event id"


class Unauthenticated(TurnwireError):
    status, code, title = 401, "unauthenticated", "Unauthenticated"


class Forbidden(TurnwireError):
    status, code, title = 403, "forbidden", "Forbidden"


class OverrideForbidden(Forbidden):
    code, title = "override_forbidden", "Override forbidden"


class OriginForbidden(Forbidden):
    code, title = "origin_forbidden", "Origin forbidden"


class NotFound(TurnwireError):
    status, code, title = 404, "not_found", "Not found"


class AgentNotFound(NotFound):
    code, title = "agent_not_found", "Agent not found"


class NoActiveTurn(NotFound):
    code, title = "no_active_turn", "No active turn"


class NotAcceptable(TurnwireError):
    status, code, title = 406, "not_acceptable", "Not acceptable"


class TurnInProgress(TurnwireError):
    status, code, title = 409, "turn_in_progress", "Turn in progress"


class TurnNotPaused(TurnwireError):
    status, code, title = 409, "turn_not_paused", "Turn not paused"


class AlreadyDecided(TurnwireError):
    status, code, title = 409, "already_decided", "Already decided"


class ConversationExists(TurnwireError):
    status, code, title = 409, "conversation_exists", "Conversation exists"


class EventsExpired(TurnwireError):
    status, code, title = 410, "events_expired", "Events expired"


class BodyTooLarge(TurnwireError):
    status, code, title = 413, "body_too_large", "Body too large"


class UnsupportedMediaType(TurnwireError):
    status, code, title = 415, "unsupported_media_type", "Unsupported media type"


class UnknownHost(TurnwireError):
    status, code, title = 421, "unknown_host", "Unknown host"


class TooManyTurns(TurnwireError):
    status, code, title = 429, "too_many_turns", "Too many turns"


class QueueFull(TurnwireError):
    status, code, title = 429, "queue_full", "Queue full"


class ShuttingDown(TurnwireError):
    status, code, title = 503, "shutting_down", "Shutting down"


class StoreUnavailable(TurnwireError):
    status, code, title = 503, "store_unavailable", "Store unavailable"


class SandboxUnavailable(TurnwireError):
    """An agent works in a sandbox, and there is none here."""

    status, code, title = 503, "sandbox_unavailable", "Sandbox unavailable"


class Overloaded(TurnwireError):
    status, code, title = 503, "overloaded", "Overloaded"
