"""A Databricks workspace as an upstream, by a profile or a host, over `databricks-sdk` (extra `databricks`).

The SDK blocks, takes a second to import and knows many ways to log in: all of it happens in threads.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anyio import to_thread

from app.runtime.failures import UpstreamFailure
from app.runtime.models.transport import Access

_LIMITS: Final = {"http_timeout_seconds": 5, "retry_timeout_seconds": 2}
LOGIN_TIMEOUT_S: Final = 15.0
"""For everything that a log-in may take: the SDK retries by itself."""
PATH: Final = "/serving-endpoints"
NAMES: Final = "databricks-"
"""How the names of models begin that a Databricks workspace serves by itself."""
INSTALL: Final = "install the extra: pip install 'turnwire[databricks]'"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatabricksLogin:
    """Which workspace, and which of the SDK's ways into it; without both, what is ambient."""

    profile: str | None = None
    host: str | None = None

    @property
    def title(self) -> str:
        if self.profile:
            return f"the Databricks profile {self.profile!r}"
        return f"the Databricks host {self.host!r}" if self.host else "the ambient Databricks credentials"

    @property
    def hint(self) -> str:
        """What a person can do; the SDK's own message names files and variables with what stands in them."""
        if self.profile:
            log_in = f"databricks auth login --profile {self.profile}"
            return f"check it by `databricks auth profiles`, or log in by `{log_in}`"
        host = f"--host {self.host}" if self.host else "--host URL"
        return (
            f"log in by `databricks auth login {host}`, "
            "or set DATABRICKS_TOKEN, or DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET"
        )


class DatabricksUnusable(Exception):
    """No log-in is possible; the message says what to do."""


class DatabricksEndpoint:
    """Asks the SDK for its headers before each request; it keeps a token for as long as that is good."""

    def __init__(self, login: DatabricksLogin, config: Any) -> None:
        self._login = login
        self._config = config

    @classmethod
    async def opened(cls, login: DatabricksLogin) -> "DatabricksEndpoint":
        """Raises DatabricksUnusable."""
        return cls(login, await _in_thread(login, lambda: _config(login)))

    @property
    def base_url(self) -> str:
        return f"{str(self._config.host).rstrip('/')}{PATH}"

    async def access(self) -> Access:
        try:
            headers = await _in_thread(self._login, self._config.authenticate)
        except DatabricksUnusable as error:
            raise UpstreamFailure("upstream_auth", str(error)) from None
        lower = {str(name).lower(): str(value) for name, value in headers.items()}
        secrets = tuple(value.removeprefix("Bearer ") for value in lower.values())
        return Access(self.base_url, lower, secrets)

    async def renew(self, refused: Access) -> bool:
        """A refused token stays in the SDK's cache for its life: only another log-in forgets it."""
        try:
            self._config = await _in_thread(self._login, lambda: _config(self._login))
        except DatabricksUnusable:
            return False
        return True

    async def aclose(self) -> None:
        """The SDK holds nothing open between requests."""


def _config(login: DatabricksLogin) -> Any:
    """Log in, without a request if the way in needs none. Raises ValueError."""
    sdk = importlib.import_module("databricks.sdk.core")
    given = {"profile": login.profile, "host": login.host}
    given = {name: value for name, value in given.items() if value}
    try:
        return sdk.Config(**given, **_LIMITS)
    except ValueError:
        if login.host is None or login.profile is not None:
            raise
        # Workspaces that do not describe themselves have their OAuth endpoint here.
        discovery = f"{login.host.rstrip('/')}/oidc/.well-known/oauth-authorization-server"
        return sdk.Config(**given, **_LIMITS, discovery_url=discovery)


async def _in_thread(login: DatabricksLogin, call: Callable[[], Any]) -> Any:
    """Run what blocks; who is cancelled, or has waited long enough, leaves the thread to its end."""
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT_S):
            return await to_thread.run_sync(call, abandon_on_cancel=True)
    except ModuleNotFoundError as error:
        raise DatabricksUnusable(f"{login.title} needs databricks-sdk: {INSTALL}") from error
    except Exception as error:
        logger.info("databricks log-in failed: %s", type(error).__name__)
        raise DatabricksUnusable(f"{login.title} cannot be used: {login.hint}") from error
