"""A case as it comes in: a scenario by its id, JSON, or somebody's own words."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

FREE_FORM = "free_form"


class Case(BaseModel):
    """What the orchestrator gets, as JSON. `patient_metadata` holds whatever is known of the caller."""

    model_config = ConfigDict(frozen=True)

    scenario_id: str = FREE_FORM
    description: str = ""
    transcript: str = ""
    patient_metadata: dict[str, Any] = {}
    followup_answers: dict[str, Any] = {}

    def as_case(self) -> "Case":
        """The five fields that models may see, whatever a subclass adds."""
        return Case.model_validate({name: getattr(self, name) for name in Case.model_fields})

    def as_text(self) -> str:
        """Raises ValueError if it is nested too deeply."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=2)


def read_case(text: str, scenarios: Mapping[str, Case]) -> Case:
    """The case that a turn's input stands for.

    A scenario's id alone, or JSON whose `scenario_id` names one (its other fields win over the scenario's), is
    that scenario; other JSON with at least one of a case's fields is a case of the caller's own; all else is
    the transcript of a free-form case. So is JSON that no file can hold: lone surrogates, lists without end.
    """
    text = text.strip()
    if text in scenarios:
        return scenarios[text].as_case()
    given = _json_fields(text)
    if given is None:
        return Case(description="A request in the caller's own words.", transcript=text)
    known = scenarios.get(str(given.get("scenario_id")))
    before = known.as_case().model_dump() if known is not None else {}
    try:
        case = Case.model_validate({**before, **given})
        case.as_text().encode()
        return case
    except ValueError:
        return Case(description="A request that is no well-formed case.", transcript=text)


def _json_fields(text: str) -> dict[str, Any] | None:
    """The fields of a case in a JSON object that have a value; None if it is no such object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    given = {name: value[name] for name in Case.model_fields if value.get(name) is not None}
    return given or None
