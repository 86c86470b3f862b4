"""Which way to the environment's upstream is taken, and what a way that is configured by half says."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.runtime.credentials.databricks import DatabricksLogin
from app.runtime.credentials.environment import (
    OPENAI_URL,
    CredentialsError,
    EnvironmentCredentials,
    ambient,
    reached,
)
from app.runtime.models.transport import PLACEHOLDER_KEY
from tests.runtime.credentials.workspace import Workspace

pytestmark = pytest.mark.anyio
URL, OWN = "http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty file of profiles, and none of this machine's credentials."""
    file = tmp_path / "databrickscfg"
    file.write_text("")
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(file))
    for name in ("HOST", "TOKEN", "CONFIG_PROFILE", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.delenv(f"DATABRICKS_{name}", raising=False)
    return file


@pytest.fixture
def workspace(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    with Workspace() as workspace:
        monkeypatch.setenv("DATABRICKS_CLIENT_ID", "id-of-tests")
        monkeypatch.setenv("DATABRICKS_CLIENT_SECRET", "secret-of-tests")
        yield workspace


async def way(given: EnvironmentCredentials) -> tuple[str, str] | None:
    """The URL, and what is sent as authorization."""
    found = await reached(given)
    if found is None:
        return None
    access = await found.endpoint.access()
    await found.endpoint.aclose()
    assert access.base_url == found.url
    return found.url, access.headers["authorization"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (EnvironmentCredentials(), None),
        (EnvironmentCredentials(openai_key="ambient"), (OPENAI_URL, "Bearer ambient")),
        (EnvironmentCredentials(openai_url=URL), (URL, f"Bearer {PLACEHOLDER_KEY}")),
        (EnvironmentCredentials(openai_url=URL, openai_key="ambient"), (URL, "Bearer ambient")),
        (EnvironmentCredentials(api_key="own"), (OPENAI_URL, "Bearer own")),
        (
            EnvironmentCredentials(api_key="own", openai_url=URL, openai_key="ambient"),
            (URL, "Bearer own"),
        ),
        (
            EnvironmentCredentials(url=OWN, api_key="own", openai_url=URL, openai_key="ambient"),
            (OWN, "Bearer own"),
        ),
        (EnvironmentCredentials(url=OWN, auth_command="echo printed"), (OWN, "Bearer printed")),
        (
            EnvironmentCredentials(auth_command="echo printed", openai_url=URL, openai_key="ambient"),
            (URL, "Bearer printed"),
        ),
        (
            EnvironmentCredentials(url=OWN, api_key="own", auth_command="echo printed"),
            (OWN, "Bearer own"),
        ),
    ],
)
async def test_the_first_way_that_is_configured_is_taken(
    given: EnvironmentCredentials, expected: tuple[str, str] | None
) -> None:
    assert await way(given) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (EnvironmentCredentials(url=OWN), "TURNWIRE_UPSTREAM_URL: set TURNWIRE_UPSTREAM_API_KEY or"),
        (EnvironmentCredentials(url=OWN, openai_key="ambient"), "TURNWIRE_UPSTREAM_URL: set"),
        (EnvironmentCredentials(auth_command="echo t"), "TURNWIRE_AUTH_COMMAND: set TURNWIRE_UPSTREAM_URL or"),
        (EnvironmentCredentials(auth_command="echo t", openai_key="ambient"), "TURNWIRE_AUTH_COMMAND: set"),
    ],
)
async def test_half_of_a_way_is_an_error_that_names_the_other_half(
    given: EnvironmentCredentials, told: str
) -> None:
    with pytest.raises(CredentialsError, match=told):
        await reached(given)


@pytest.mark.parametrize("describes_itself", [True, False])
async def test_a_databricks_host_comes_before_openai(workspace: Workspace, describes_itself: bool) -> None:
    workspace.describes_itself = describes_itself
    login = DatabricksLogin(host=workspace.host)
    given = EnvironmentCredentials(databricks=login, openai_url=URL, openai_key="ambient")
    assert await way(given) == (f"{workspace.host}/serving-endpoints", "Bearer workspace-token-1")


@pytest.fixture
def profile(config_file: Path) -> Iterator[str]:
    """The host of a workspace that the profile `house` leads to."""
    with Workspace() as workspace:
        config_file.write_text(f"[house]\nhost = {workspace.host}\ntoken = dapi-of-tests\n")
        yield workspace.host


async def test_a_databricks_profile_is_read_from_its_file(profile: str) -> None:
    given = EnvironmentCredentials(databricks=DatabricksLogin(profile="house"))
    assert await way(given) == (f"{profile}/serving-endpoints", "Bearer dapi-of-tests")


async def test_a_broken_profile_says_what_to_do_and_not_what_is_wrong_inside(config_file: Path) -> None:
    with pytest.raises(CredentialsError) as caught:
        await reached(EnvironmentCredentials(databricks=DatabricksLogin(profile="house")))
    assert "databricks auth login --profile house" in str(caught.value)
    assert str(config_file) not in str(caught.value)


async def test_a_broken_profile_gives_way_to_openai_with_a_warning_that_names_both(
    config_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    login = DatabricksLogin(profile="house")
    given = EnvironmentCredentials(databricks=login, openai_url=URL, openai_key="ambient")
    assert await way(given) == (URL, "Bearer ambient")
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    for named in ("'house'", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        assert named in warning


async def test_ambient_credentials_are_for_who_configured_nothing_else(workspace: Workspace) -> None:
    login = DatabricksLogin(host=workspace.host)
    found = await ambient(EnvironmentCredentials(openai_url=URL, ambient=login), is_needed=False)
    assert found is not None
    assert found.url == f"{workspace.host}/serving-endpoints"
    assert await ambient(EnvironmentCredentials(api_key="own", ambient=login), is_needed=False) is None
    assert await ambient(EnvironmentCredentials(openai_url=URL), is_needed=False) is None


async def test_broken_ambient_credentials_stop_the_start_only_if_they_are_needed(
    config_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = EnvironmentCredentials(ambient=DatabricksLogin(profile="gone"))
    assert await ambient(given, is_needed=False) is None
    assert "databricks auth login --profile gone" in caplog.text
    with pytest.raises(CredentialsError, match="gone"):
        await ambient(given, is_needed=True)
