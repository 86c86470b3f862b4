"""Every setting stands in .env.example and docs/settings.md, with the default it has."""

import re
from pathlib import Path

import pytest

from app.settings import Settings, load, variable

ROOT = Path(__file__).parents[2]
SETTINGS = {variable(field): field for field in Settings.model_fields}
EXAMPLE = dict(re.findall(r"^# ([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.M))
ROWS = re.findall(
    r"^\| `([A-Z_]+)` \| (?:`([^`]*)`)? ?\| (.*) \|$", (ROOT / "docs/settings.md").read_text(), re.M
)
DOCUMENTED = {name: default for name, default, _ in ROWS}
NOT_YET = "Not in effect yet."


def default(name: str) -> str:
    """The default as one would write it in the environment; empty for what is unset."""
    match Settings.model_fields[SETTINGS[name]].default:
        case None | ():
            return ""
        case bool(value):
            return str(value).lower()
        case float(value) if value.is_integer():
            return str(int(value))
        case value:
            return str(value)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_stands_in_the_example_with_its_default(name: str) -> None:
    assert EXAMPLE.get(name) == default(name)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_stands_in_the_docs_with_its_default(name: str) -> None:
    assert DOCUMENTED.get(name) == default(name)


def test_the_example_can_be_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    unset = load()
    for name, value in EXAMPLE.items():
        monkeypatch.setenv(name, value)
    example = load()
    assert example.allowed_overrides == frozenset(), "an empty list of what is allowed allows nothing"
    assert example.model_copy(update={"overrides": None}) == unset


def test_neither_names_a_setting_that_is_none() -> None:
    assert EXAMPLE.keys() == DOCUMENTED.keys() == SETTINGS.keys()


def test_the_docs_say_of_a_setting_that_nothing_reads_that_it_is_not_in_effect() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    unread = {
        name for name, field in SETTINGS.items() if not re.search(rf"\b(?:settings|self)\.{field}\b", code)
    }
    assert {name for name, _, meaning in ROWS if NOT_YET in meaning} == unread
