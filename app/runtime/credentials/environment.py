"""How the environment's upstream is reached: the first of several ways that is configured.

In this order: a key of its own, a command that prints a token, a Databricks workspace, `OPENAI_*`. A way that
is configured by half is an error that says so; none is passed over in silence.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from app.runtime.credentials.auth_command import AuthCommand, CommandEndpoint
from app.runtime.credentials.databricks import DatabricksEndpoint, DatabricksLogin, DatabricksUnusable
from app.runtime.models.transport import Endpoint, FixedEndpoint

OPENAI_URL: Final = "https://api.openai.com/v1"

logger = logging.getLogger(__name__)


class CredentialsError(Exception):
    """The configuration of an upstream is incomplete or of no use. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Seconds: how long an auth command may take, and how long its token is kept if it is no JWT."""

    timeout_s: float = 10.0
    keep_s: float = 300.0


@dataclass(frozen=True, slots=True)
class EnvironmentCredentials:
    """All that the settings say; `ambient` is what `databricks-` models may use, if the SDK's own variables or
    profiles are there."""

    url: str | None = None
    api_key: str | None = None
    auth_command: str | None = None
    databricks: DatabricksLogin | None = None
    openai_url: str | None = None
    openai_key: str | None = None
    ambient: DatabricksLogin | None = None
    command_limits: CommandLimits = field(default_factory=CommandLimits)

    @property
    def is_given(self) -> bool:
        """True if anything but what is ambient is configured."""
        said = (self.url, self.api_key, self.auth_command, self.databricks, self.openai_url, self.openai_key)
        return any(said)

    @property
    def has_openai(self) -> bool:
        return bool(self.openai_url or self.openai_key)


@dataclass(frozen=True, slots=True)
class Reached:
    """An endpoint and its URL, from which wire and name follow."""

    url: str
    endpoint: Endpoint


async def reached(given: EnvironmentCredentials) -> Reached | None:
    """The way to the environment's upstream, None if there is none. Raises CredentialsError."""
    if given.api_key:
        return fixed(given.url or given.openai_url or OPENAI_URL, given.api_key)
    if given.auth_command:
        url = given.url or given.openai_url
        if url is None:
            raise CredentialsError(
                "TURNWIRE_AUTH_COMMAND: set TURNWIRE_UPSTREAM_URL or OPENAI_BASE_URL too, "
                "so that its token goes to the right host"
            )
        return by_command(url, given.auth_command, given.command_limits)
    if given.url:
        raise CredentialsError(
            "TURNWIRE_UPSTREAM_URL: set TURNWIRE_UPSTREAM_API_KEY or TURNWIRE_AUTH_COMMAND too; "
            "a server that wants no key is set by OPENAI_BASE_URL alone"
        )
    if given.databricks is not None and (found := await _databricks(given.databricks, given)):
        return found
    if given.has_openai:
        return fixed(given.openai_url or OPENAI_URL, given.openai_key)
    return None


async def ambient(given: EnvironmentCredentials, *, is_needed: bool) -> Reached | None:
    """The way to the workspace that serves `databricks-` models by what is ambient, None if there is none.

    What was configured explicitly serves them too: nothing ambient is used then. Raises CredentialsError if it
    `is_needed` and cannot be used.
    """
    explicit = given.api_key or given.auth_command or given.databricks
    if explicit or given.ambient is None:
        return None
    try:
        return await _databricks(given.ambient, given)
    except CredentialsError as error:
        if is_needed:
            raise
        logger.warning("%s; no model is served by them", error)
        return None


async def _databricks(login: DatabricksLogin, given: EnvironmentCredentials) -> Reached | None:
    """None, after a warning, if the workspace cannot be used and `OPENAI_*` can. Raises CredentialsError."""
    try:
        return await by_databricks(login)
    except CredentialsError as error:
        if not given.has_openai:
            raise
        names = " and ".join(
            name
            for name, value in (("OPENAI_BASE_URL", given.openai_url), ("OPENAI_API_KEY", given.openai_key))
            if value
        )
        logger.warning("%s; %s used instead", error, f"{names} {'are' if ' and ' in names else 'is'}")
        return None


async def by_databricks(login: DatabricksLogin) -> Reached:
    """Raises CredentialsError."""
    try:
        endpoint = await DatabricksEndpoint.opened(login)
    except DatabricksUnusable as error:
        raise CredentialsError(str(error)) from None
    return Reached(endpoint.base_url, endpoint)


def by_command(url: str, command: str, limits: CommandLimits) -> Reached:
    auth_command = AuthCommand(command, timeout_s=limits.timeout_s, keep_s=limits.keep_s)
    return Reached(url, CommandEndpoint(url, auth_command))


def fixed(url: str, key: str | None) -> Reached:
    """By a key that never changes; None for a server that wants none."""
    return Reached(url, FixedEndpoint(url, key))
