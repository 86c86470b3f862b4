"""Schemas are programs of whoever wrote them: what they may refer to, and how long they may take."""

import time
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from app.errors import InvalidRequest
from app.runtime.json_schemas import TooMuchToCheck, check_value, checked_schema, errors_of

JsonObject = dict[str, Any]


def told(refused: pytest.ExceptionInfo[InvalidRequest]) -> list[JsonObject]:
    assert refused.value.errors is not None
    return refused.value.errors


def schema(a: JsonObject, **more: Any) -> JsonObject:
    return {"type": "object", "properties": {"a": a}, "required": ["a"]} | more


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:1/x", "file:///etc/passwd", "#/$defs/nope", "#nowhere", "other.json"]
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_out_of_the_schema_is_refused_before_anything_runs(keyword: str, reference: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked_schema(schema({keyword: reference}), ["body", "output_schema"])
    assert told(refused)[0]["message"] == f"{reference!r} leads nowhere in this schema"


@pytest.mark.parametrize(
    "sound",
    [
        schema({"$ref": "#"}),
        schema({"$ref": "#/$defs/b"}, **{"$defs": {"b": {"type": "integer"}}}),
        schema({"$ref": "#here"}, **{"$defs": {"b": {"$anchor": "here"}}}),
        schema({"$ref": "b"}, **{"$id": "https://example.org/a", "$defs": {"b": {"$id": "b"}}}),
        schema({"enum": [{"$ref": "no reference, a value"}]}),
    ],
)
def test_references_within_the_schema_are_taken(sound: JsonObject) -> None:
    assert checked_schema(sound, []) == sound


def test_an_expression_that_exhausts_the_parser_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        checked_schema(schema({"type": "string", "pattern": "(" * 5000 + ")" * 5000}), [])


def test_alternatives_that_multiply_come_to_an_end() -> None:
    levels = {f"l{i}": {"anyOf": [{"$ref": f"#/$defs/l{i + 1}"}] * 8} for i in range(12)}
    bomb = schema({"$ref": "#/$defs/l0"}, **{"$defs": levels | {"l12": {"type": "string"}}})
    checked_schema(bomb, [])
    began = time.thread_time()
    with pytest.raises(TooMuchToCheck):
        errors_of({"a": 1}, bomb)
    with pytest.raises(InvalidRequest):
        check_value(bomb, {"a": 1}, [])
    assert time.thread_time() - began < 5


def test_a_schema_that_takes_too_long_to_read_is_refused() -> None:
    huge = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(200_000)}}
    began = time.thread_time()
    with pytest.raises(InvalidRequest, match="too large"):
        checked_schema(huge, [])
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("dialect", [Draft202012Validator, Draft7Validator])
def test_a_dialect_named_inside_brings_no_expressions_back(dialect: Any) -> None:
    evil = {"$schema": dialect.META_SCHEMA.get("$id"), "pattern": "^(a+)+$"}
    by_reference = {"enum": [evil], "properties": {"x": {"$ref": "#/properties/a/enum/0"}}}
    for hostile in (
        schema(evil),
        schema({"allOf": [evil]}),
        schema(by_reference) | {"$schema": evil["$schema"]},
    ):
        checked_schema(hostile, [])
        assert not [e for e in errors_of({"a": "a" * 40 + "!"}, hostile) if e.validator == "pattern"]


def test_the_place_of_a_mistake_is_named() -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked_schema(schema({"type": "nope"}), ["body"])
    assert told(refused)[0]["loc"] == ["body", "properties", "a", "type"]


def test_many_unique_items_are_compared_in_one_pass() -> None:
    wanted = schema({"type": "array", "uniqueItems": True})
    items: list[Any] = [{"n": number} for number in range(20_000)]
    began = time.thread_time()
    assert errors_of({"a": items}, wanted) == []
    assert errors_of({"a": [*items, {"n": 7.0}]}, wanted)[0].message == "it holds the same item twice"
    assert time.thread_time() - began < 5


def test_true_and_one_are_two_items() -> None:
    assert errors_of({"a": [1, True, "1", [1], [True]]}, schema({"uniqueItems": True})) == []


def test_a_value_with_many_mistakes_names_a_hundred() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_value(schema({"items": {"type": "string"}}), {"a": list(range(1000))}, ["x"])
    assert len(told(refused)) == 100
    assert told(refused)[3]["loc"] == ["x", "a", 3]
