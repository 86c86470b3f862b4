"""What becomes of a response that does not end well."""

from typing import Final

from app.domain.json_types import JsonObject
from app.runtime.failures import UpstreamFailure, reported_failure
from app.runtime.models.finish_reasons import cut_failure, finish_failure, finish_reason
from app.runtime.models.provider_errors import read_error

_REASONS: Final = ("error", "last_error", "status_details")
"""Where a response says why it failed."""


def without_type(event: JsonObject) -> JsonObject:
    return {key: value for key, value in event.items() if key != "type"}


def failed(response: JsonObject, event: JsonObject) -> UpstreamFailure:
    """The failure of a response that failed, as it says itself, or else as its event says."""
    told = response if any(response.get(key) for key in _REASONS) else event
    failure = reported_failure(read_error({k: told[k] for k in (*_REASONS, "code", "message") if k in told}))
    # The request was taken and this is what became of it, whatever its error is called.
    failure.transient = False
    return failure


def incomplete(response: JsonObject) -> UpstreamFailure:
    details = response.get("incomplete_details")
    reason = finish_reason(details.get("reason") if isinstance(details, dict) else details)
    return finish_failure(reason or "") or cut_failure()
