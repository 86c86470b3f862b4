"""`TURNWIRE_MODELS`: the models that are served beside the environment's upstream, by name.

A JSON object, or the path of a file that holds one: `{"house": {"url": "https://…/v1", "api_key_env": "KEY"}}`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from agents import ModelSettings
from openai.types.shared import Reasoning
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from app.domain.usage import Price

MAX_NAME = 256
VARIABLE = "TURNWIRE_MODELS"


class ModelListError(Exception):
    """The list cannot be used. A line for each problem, with its place; values are never repeated."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class ModelDefaults(_Strict):
    """Settings of each call that neither the turn nor the agent sets."""

    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, ge=0, le=1)
    max_output_tokens: int | None = Field(None, ge=1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    parallel_tool_calls: bool | None = None

    def settings(self) -> ModelSettings:
        return ModelSettings(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_output_tokens,
            parallel_tool_calls=self.parallel_tool_calls,
            reasoning=Reasoning(effort=self.reasoning_effort) if self.reasoning_effort else None,
        )


class ModelPrice(_Strict):
    """For a million tokens, in whatever currency; cached input costs as other input if it has no price."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(None, ge=0)

    def price(self) -> Price:
        return Price(self.input, self.output, self.input if self.cached_input is None else self.cached_input)


class ListedModel(_Strict):
    """One entry. `model` is what the upstream calls it, if that is another name.

    Without a URL and a Databricks login the environment's upstream serves it. At most one way of access:
    `api_key`, `api_key_env` (the name of a variable that holds the key), `auth_command`, a Databricks login.
    """

    url: str | None = None
    api: Literal["auto", "responses", "chat_completions"] = "auto"
    model: str | None = Field(None, min_length=1, max_length=MAX_NAME)
    api_key: SecretStr | None = None
    api_key_env: str | None = Field(None, min_length=1)
    auth_command: str | None = Field(None, min_length=1)
    databricks_profile: str | None = Field(None, min_length=1)
    databricks_host: str | None = Field(None, min_length=1)
    context_window: int | None = Field(None, ge=1)
    defaults: ModelDefaults = ModelDefaults()
    price: ModelPrice | None = None

    @field_validator("url", "databricks_host")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and not is_web_address(value):
            raise ValueError("no http:// or https:// URL")
        return value

    @field_validator("api_key")
    @classmethod
    def _holds_a_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().strip():
            raise ValueError("is blank")
        return value

    @model_validator(mode="after")
    def _one_way_in(self) -> "ListedModel":
        names = ("api_key", "api_key_env", "auth_command")
        given = [name for name in names if getattr(self, name) is not None]
        databricks = self.databricks_profile is not None or self.databricks_host is not None
        if databricks:
            given.append("databricks_profile or databricks_host")
        if len(given) > 1:
            raise ValueError(f"{', '.join(given)}: only one of them can hold")
        if databricks and self.url is not None:
            raise ValueError("url: a Databricks workspace has its own")
        if given and not databricks and self.url is None:
            raise ValueError(f"{given[0]} without url: it would be sent to the wrong host")
        if self.url is None and not databricks and self.api != "auto":
            raise ValueError("api without url: the environment's upstream has its own")
        return self


def is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


_LIST = TypeAdapter(dict[str, ListedModel])


def parse(text: str, environ: Mapping[str, str]) -> dict[str, ListedModel]:
    """The list, every `api_key_env` replaced by its key. Raises ModelListError."""
    try:
        listed = _LIST.validate_python(_loaded(text))
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        raise ModelListError("\n".join(_problem(dict(problem)) for problem in problems)) from None
    if not listed:
        raise ModelListError(f"{VARIABLE}: names no model")
    for name in listed:
        if not name.strip() or len(name) > MAX_NAME:
            raise ModelListError(f"{VARIABLE}: {name[:40]!r} is no model's name")
    return {name: _with_key(name, model, environ) for name, model in listed.items()}


def _loaded(text: str) -> Any:
    where = VARIABLE
    if not text.lstrip().startswith("{"):
        where = f"{VARIABLE}: the file {text.strip()}"
        try:
            text = Path(text.strip()).read_text("utf-8")
        except (OSError, UnicodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ModelListError(f"{where} cannot be read: {reason}") from None
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except _Doubled as error:
        raise ModelListError(f"{where}: {error} stands twice") from None
    except json.JSONDecodeError as error:
        raise ModelListError(
            f"{where}: no JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ModelListError(f"{where}: nested too deeply") from None


class _Doubled(ValueError):
    pass


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Doubled(repr(name))
        found[name] = value
    return found


def _with_key(name: str, model: ListedModel, environ: Mapping[str, str]) -> ListedModel:
    if model.api_key_env is None:
        return model
    key = environ.get(model.api_key_env, "").strip()
    if not key:
        raise ModelListError(f"{VARIABLE}: {name}.api_key_env: the variable {model.api_key_env} is not set")
    return model.model_copy(update={"api_key": SecretStr(key)})


def _problem(error: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{VARIABLE}: {place + ': ' if place else ''}{error['msg'].removeprefix('Value error, ')}"
