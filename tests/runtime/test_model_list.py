"""What `TURNWIRE_MODELS` may say, and how a mistake in it is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.usage import Price, TokenCounts
from app.runtime.model_list import ListedModel, ModelListError, parse

URL = "http://127.0.0.1:9/v1"


def listed(environ: dict[str, str] | None = None, **entry: Any) -> ListedModel:
    return parse(json.dumps({"house": entry}), environ or {})["house"]


def test_an_entry_says_all_there_is_to_a_model() -> None:
    model = listed(
        url=URL,
        api="responses",
        model="house-large-2",
        api_key="key-of-house",
        context_window=128_000,
        defaults={"temperature": 0.2, "max_output_tokens": 500, "reasoning_effort": "low"},
        price={"input": 2, "output": 8, "cached_input": 0.5},
    )
    assert (model.url, model.api, model.model, model.context_window) == (
        URL,
        "responses",
        "house-large-2",
        128_000,
    )
    settings = model.defaults.settings()
    assert (settings.temperature, settings.max_tokens, settings.reasoning.effort) == (0.2, 500, "low")  # type: ignore[union-attr]
    assert model.price is not None
    assert model.price.price() == Price(2, 8, 0.5)
    assert "key-of-house" not in repr(model)


def test_a_price_counts_cached_input_by_its_own() -> None:
    counts = TokenCounts(1, 0, input_tokens=1000, cached_input_tokens=400, output_tokens=100)
    assert Price(2, 8, 0.5).of(counts) == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 8) / 1e6)


def test_a_file_holds_the_same_json(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"house": {"url": URL}}))
    assert parse(str(file), {})["house"].url == URL


def test_a_key_may_come_from_a_variable() -> None:
    key = listed({"HOUSE_KEY": "key-of-house"}, url=URL, api_key_env="HOUSE_KEY").api_key
    assert key is not None
    assert key.get_secret_value() == "key-of-house"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"url": URL, "colour": 1}, "house.colour: Extra inputs are not permitted"),
        ({"url": "house:8080/v1"}, "house.url: no http:// or https:// URL"),
        ({"url": 8080}, "house.url: Input should be a valid string"),
        ({"url": URL, "api": "rest"}, "house.api: Input should be 'auto', 'responses' or 'chat_completions'"),
        ({"url": URL, "context_window": "many"}, "house.context_window: Input should be a valid integer"),
        ({"url": URL, "defaults": {"temperature": -1}}, "house.defaults.temperature: Input should be greater"),
        ({"url": URL, "price": {"input": 1}}, "house.price.output: Field required"),
        ({"url": URL, "api_key": " "}, "house.api_key: is blank"),
        ({"url": URL, "api_key": "k", "auth_command": "c"}, "house: api_key, auth_command: only one of them"),
        ({"api_key": "secret-key"}, "house: api_key without url: it would be sent to the wrong host"),
        ({"auth_command": "c"}, "house: auth_command without url"),
        ({"url": URL, "databricks_profile": "p"}, "house: url: a Databricks workspace has its own"),
        ({"api": "responses"}, "house: api without url"),
        ({"url": URL, "api_key_env": "HOUSE_KEY"}, "house.api_key_env: the variable HOUSE_KEY is not set"),
    ],
)
def test_a_mistake_is_told_with_its_place(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelListError) as caught:
        listed(**entry)
    assert f"TURNWIRE_MODELS: {told}" in str(caught.value)
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"house": ', "no JSON at line 1, column 11"),
        ("{}", "names no model"),
        ('{"house": {}, "house": {}}', "'house' stands twice"),
        ('{" ": {}}', "is no model's name"),
        ("/no/such/file.json", "the file /no/such/file.json cannot be read: No such file or directory"),
        ('{"house": 1}', "house: "),
    ],
)
def test_what_is_no_list_is_told(text: str, told: str) -> None:
    with pytest.raises(ModelListError) as caught:
        parse(text, {})
    assert str(caught.value).startswith("TURNWIRE_MODELS: ")
    assert told in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ModelListError) as caught:
        parse(json.dumps({"a": {"url": 1}, "b": {"x": 1}}), {})
    assert len(str(caught.value).splitlines()) == 2
