"""Configuration: environment variables prefixed `TURNWIRE_`, validated once, for the composition root alone.

Every name stands in `.env.example` and in `docs/settings.md`. A wrong or unknown name is an error at start that
names it; what Kubernetes injects for a service called `turnwire` is ignored.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "TURNWIRE_"
MIB = 1024 * 1024
CommaList = Annotated[tuple[str, ...], NoDecode]

OVERRIDES = (
    "agent",
    "model",
    "reasoning_effort",
    "temperature",
    "max_output_tokens",
    "parallel_tool_calls",
    "instructions",
    "output_schema",
    "tools",
)
"""What a caller may override in a turn, unless `TURNWIRE_OVERRIDES` says less or more."""
_UNTRUSTED = ("model", "instructions")
_INJECTED = re.compile(r"TURNWIRE_SERVICE_\w+|TURNWIRE_PORT_\d+_\w+")
_LOOPBACK = {"localhost", "::1"}


class SettingsError(Exception):
    """The configuration is wrong. The message names each variable and what is wrong with it."""


class Settings(BaseSettings):
    """Seconds, bytes or counts, as each name says."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True)

    # where
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    data_dir: Path = Path("data")
    database_url: SecretStr | None = Field(None, description="default: SQLite in the data folder")

    # what runs
    agents: CommaList = ()
    context: str | None = None
    model: str | None = None
    model_api: Literal["auto", "responses", "chat_completions"] = "auto"
    models: SecretStr | None = Field(None, description="JSON, or a file that holds it")
    history_items: int = Field(0, ge=0, description="0: no limit")
    reasoning_ids: Literal["preserve", "omit"] | None = None
    compact_at: float | None = Field(None, gt=0, le=1, description="share of the context window; unset: never")
    context_window: int = Field(0, ge=0, description="of models that say nothing of theirs; 0: unknown")

    # who may ask, and from where
    api_keys: SecretStr | None = None
    api_keys_file: Path | None = None
    allow_anonymous: bool = False
    cors_origins: CommaList = ()
    allowed_hosts: CommaList = ()
    overrides: CommaList | None = None
    allow_auto_approve: bool = False

    # what may happen
    policy: str | None = Field(None, description="module:attribute or an http(s) URL")
    policy_timeout_s: float = Field(5, gt=0)
    policy_failed_model_calls: Literal["allow", "deny"] = "allow"
    policy_failed_tool_calls: Literal["allow", "deny"] = "deny"

    # how turns behave
    cancel_mode: Literal["keep", "rollback", "after_step"] = "keep"
    shutdown_grace_s: float = Field(7, ge=0)
    turn_timeout_s: float = Field(600, gt=0)
    max_steps: int = Field(50, ge=1)
    tool_timeout_s: float = Field(120, gt=0)
    max_turns: int = Field(500, ge=1)
    max_turns_per_caller: int = Field(0, ge=0, description="0: no limit of its own")
    queue_limit: int = Field(10, ge=0)
    cancel_wait_s: float = Field(5, ge=0)
    disconnect_grace_s: float = Field(5, ge=0)
    pause_expiry_s: float = Field(86400, gt=0)

    # what listeners get
    heartbeat_s: float = Field(4, gt=0)
    listener_stall_s: float = Field(30, gt=0)
    max_listeners: int = Field(500, ge=1, description="of one turn")
    event_window_bytes: int = Field(4 * MIB, ge=1024, description="of a live turn, kept in memory")
    event_retention_h: float = Field(168, ge=24)
    conversation_retention_d: float = Field(0, ge=0, description="0: for ever")

    # who the upstream is asked as
    upstream_url: str | None = None
    upstream_api_key: SecretStr | None = None
    auth_command: SecretStr | None = Field(None, description="a shell command that prints a bearer token")
    auth_command_timeout_s: float = Field(10, gt=0)
    auth_command_keep_s: float = Field(300, ge=0, description="of tokens that are no JWT")
    databricks_profile: str | None = None
    databricks_host: str | None = None

    # what upstreams may do
    upstream_connect_s: float = Field(5, gt=0)
    upstream_first_byte_s: float = Field(120, gt=0)
    upstream_idle_s: float = Field(60, gt=0)
    upstream_retries: int = Field(3, ge=0)
    max_frame_bytes: int = Field(8 * MIB, ge=1024, description="one frame of an upstream")
    max_message_bytes: int = Field(16 * MIB, ge=1024, description="one message of an upstream")

    # traces
    tracing: Literal["off", "openai", "otlp"] = "off"
    trace_contents: bool = False
    tracing_url: str | None = Field(None, description="default: OpenAI's, or OpenTelemetry's own variables")

    # files and sandboxes
    sandbox: Literal["bubblewrap", "unsafe_local", "off"] | None = Field(
        None, description="default: bubblewrap where it works, else off"
    )
    max_artifact_bytes: int = Field(20 * MIB, ge=1, description="one file of a turn")
    max_artifacts: int = Field(100, ge=0, description="files of a turn")
    max_artifacts_bytes: int = Field(200 * MIB, ge=0, description="all files of a turn")

    # sizes
    max_body_bytes: int = Field(20 * MIB, ge=1)
    max_nesting: int = Field(64, ge=8, le=64, description="of a body's JSON")
    max_tool_output_bytes: int = Field(MIB, ge=1, description="in events; history keeps it whole")
    tool_threads: int = Field(64, ge=1)

    # logs
    log_format: Literal["json", "text"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # names of the SDKs, without the prefix
    openai_api_key: SecretStr | None = Field(None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str | None = Field(None, validation_alias="OPENAI_BASE_URL")
    ambient_databricks_host: str | None = Field(None, validation_alias="DATABRICKS_HOST")
    ambient_databricks_profile: str | None = Field(None, validation_alias="DATABRICKS_CONFIG_PROFILE")

    @field_validator("agents", "cors_origins", "allowed_hosts", "overrides", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("port", mode="before")
    @classmethod
    def _ignore_service_link(cls, value: object) -> object:
        """Kubernetes sets `TURNWIRE_PORT=tcp://10.0.0.1:8000` for a service called `turnwire`."""
        return 8000 if isinstance(value, str) and value.startswith("tcp://") else value

    @field_validator(
        "openai_api_key",
        "openai_base_url",
        "tracing_url",
        "ambient_databricks_host",
        "ambient_databricks_profile",
        "upstream_url",
        "upstream_api_key",
        "auth_command",
        "databricks_profile",
        "databricks_host",
        "models",
        "model",
        "context",
        "policy",
        "database_url",
        "api_keys",
        "api_keys_file",
        "reasoning_ids",
        "compact_at",
        "sandbox",
        mode="before",
    )
    @classmethod
    def _blank_is_unset(cls, value: object) -> object:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("upstream_url", "databricks_host", "openai_base_url", "tracing_url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"https?://[^/\s]", value, re.IGNORECASE):
            raise ValueError("no http:// or https:// URL")
        return value

    @field_validator("overrides")
    @classmethod
    def _known_overrides(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        unknown = sorted(set(value or ()) - set(OVERRIDES))
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: not one of {', '.join(OVERRIDES)}")
        return value

    @model_validator(mode="after")
    def _anonymous_only_at_home(self) -> "Settings":
        keyless = self.api_keys is None and self.api_keys_file is None
        if keyless and not self.on_loopback and not self.allow_anonymous:
            raise ValueError(
                f"TURNWIRE_HOST={self.host} can be reached from elsewhere and there are no TURNWIRE_API_KEYS: "
                "set keys, or TURNWIRE_ALLOW_ANONYMOUS=true to serve everybody"
            )
        return self

    @property
    def on_loopback(self) -> bool:
        return self.host in _LOOPBACK or self.host.startswith("127.")

    @property
    def allowed_overrides(self) -> frozenset[str]:
        """All on loopback without keys; else all but the model and the instructions."""
        if self.overrides is not None:
            return frozenset(self.overrides)
        if self.on_loopback and self.api_keys is None and self.api_keys_file is None:
            return frozenset(OVERRIDES)
        return frozenset(OVERRIDES) - set(_UNTRUSTED)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings)


def variable(field: str) -> str:
    """The environment variable that sets a field."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else PREFIX + field.upper()


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment. Raises SettingsError with a line for each variable that is wrong or unknown."""
    names = set(environ if environ is not None else os.environ)
    known = {variable(field) for field in Settings.model_fields}
    unknown = {n for n in names if n.startswith(PREFIX)} - known
    problems = [f"{n}: no such setting" for n in sorted(unknown) if not _INJECTED.fullmatch(n)]
    settings: Settings | None = None
    try:
        settings = Settings()
    except ValidationError as error:
        problems += [_problem(dict(e)) for e in error.errors(include_input=False, include_url=False)]
    if problems or settings is None:
        raise SettingsError("\n".join(problems))
    return settings


def _problem(error: dict[str, Any]) -> str:
    where = str(error["loc"][0]) if error["loc"] else ""
    message = error["msg"].removeprefix("Value error, ")
    if not where:
        return str(message)
    return f"{variable(where) if where in Settings.model_fields else where}: {message}"
