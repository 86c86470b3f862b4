from pathlib import Path

import httpx
import pytest

from app.api.auth import ApiKeys
from app.domain.caller import Caller
from app.keys import load_keys
from app.settings import Settings, SettingsError
from tests.api.fake_turns import FakeTurns
from tests.api.serving import app_of
from tests.bridge import bridged_client

pytestmark = pytest.mark.anyio

KEYS = "shop:secret-1, desk:secret:with:colons\nshop:secret-2"


def test_a_name_may_have_several_keys_and_a_key_may_hold_colons() -> None:
    keys = ApiKeys.parse(KEYS)
    assert [keys.name_of(k) for k in ("secret-1", "secret-2", "secret:with:colons")] == ["shop", "shop", "desk"]
    assert keys.name_of("secret-3") is None
    assert keys.name_of("") is None


def test_keys_are_not_kept() -> None:
    keys = ApiKeys.parse(KEYS)
    assert repr(keys) == "ApiKeys(desk, shop)"
    assert "secret" not in repr(vars(keys))


@pytest.mark.parametrize("text", [",", "nameless-secret", ":secret", "name:", "na me:secret", "ok:1,bad"])
def test_keys_that_are_not_pairs_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(SettingsError, match="TURNWIRE_API_KEYS: ") as refused:
        load_keys(Settings(api_keys=text))
    assert "secret" not in str(refused.value)


def test_keys_are_read_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("desk:from-file\n\nshop:other\n")
    keys = load_keys(Settings(api_keys="shop:secret-1", api_keys_file=tmp_path / "keys"))
    assert keys is not None
    assert [keys.name_of(k) for k in ("secret-1", "from-file", "other")] == ["shop", "desk", "shop"]
    with pytest.raises(SettingsError, match="TURNWIRE_API_KEYS_FILE: cannot be read"):
        load_keys(Settings(api_keys_file=tmp_path / "none"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic secret-1"},
        {"Authorization": "secret-1"},
    ],
)
async def test_without_a_known_key_a_caller_is_unauthenticated(
    turns: FakeTurns, headers: dict[str, str]
) -> None:
    async with bridged_client(app_of(turns, api_keys=KEYS)) as client:
        answer = await client.get("/v1/turns", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in ("/", "/healthz", "/readyz"):
            assert (await client.get(path, headers=headers)).status_code == 200


async def test_a_caller_is_known_by_the_name_of_its_key_and_its_user(turns: FakeTurns) -> None:
    async with bridged_client(app_of(turns, api_keys=KEYS)) as client:
        headers = {"authorization": "bearer secret-2", "turnwire-user": "u 1"}
        await client.post("/v1/turns", json={"input": "hi", "background": True}, headers=headers)
        assert turns.all[turns.only].turn.caller == Caller("shop", "u 1")
        assert (await client.get("/v1/turns/turn_1", headers=headers)).status_code == 200
        headers["turnwire-user"] = "u 2"
        assert (await client.get("/v1/turns/turn_1", headers=headers)).status_code == 404


@pytest.mark.parametrize("user", ["", "x" * 129, "caf\xe9", "a\tb"])
async def test_a_user_is_printable_ascii(http: httpx.AsyncClient, user: str) -> None:
    answer = await http.get("/v1/turns", headers=[(b"Turnwire-User", user.encode("latin-1"))])
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_without_keys_everybody_is_anonymous_whatever_they_send(
    http: httpx.AsyncClient, turns: FakeTurns
) -> None:
    await http.post("/v1/turns", json={"input": "x", "background": True}, headers={"Authorization": "Bearer x"})
    assert turns.all[turns.only].turn.caller == Caller("anonymous")
