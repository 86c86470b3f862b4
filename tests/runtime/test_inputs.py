"""What callers may send, and what a model gets of it."""

import base64
from typing import Any

import pytest

from app.errors import InvalidRequest, UnsupportedInput
from app.runtime.inputs import MAX_ITEMS, MAX_PARTS, MAX_PROBLEMS, Wire, is_blank, normalise

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n").decode()
WIRES: list[Wire] = ["responses", "chat_completions"]
CALL = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": '{"id": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
ANSWER = {"role": "assistant", "content": "Found it."}


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def items(input: Any, wire: Wire = "responses", *, seeding: bool = False) -> list[dict[str, Any]]:
    return [new.item for new in normalise(input, wire=wire, seeding=seeding).items]


def parts(part: dict[str, Any], wire: Wire = "responses") -> list[dict[str, Any]]:
    [message] = items([{"role": "user", "content": [part]}], wire)
    content: list[dict[str, Any]] = message["content"]
    return content


def problems(input: Any, wire: Wire = "responses", *, seeding: bool = False) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequest) as caught:
        normalise(input, wire=wire, seeding=seeding)
    assert caught.value.errors is not None
    return [(".".join(map(str, e["loc"])), e["message"]) for e in caught.value.errors]


def places(input: Any, wire: Wire = "responses", *, seeding: bool = False) -> list[str]:
    return [place for place, _ in problems(input, wire, seeding=seeding)]


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_text_is_one_user_message(wire: Wire) -> None:
    assert items("Hello", wire) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    ]


def test_text_keeps_its_white_space() -> None:
    assert items("  two\n\nlines ")[0]["content"][0]["text"] == "  two\n\nlines "


def test_each_item_gets_an_id_of_its_own() -> None:
    message = {"role": "user", "content": "Hi"}
    ids = [new.id for new in normalise([message, message], wire="responses").items]
    assert len(set(ids)) == 2
    assert all(i.startswith("item_") for i in ids)


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_text_of_any_role_becomes_a_part(role: str) -> None:
    assert items([{"role": role, "content": "Hi"}]) == [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": "Hi"}]}
    ]


def test_the_assistants_text_is_output_text_however_it_was_sent() -> None:
    said = [{"type": "output_text", "text": "Hi", "annotations": []}]
    for content in (
        "Hi",
        [{"type": "text", "text": "Hi"}],
        [{"type": "output_text", "text": "Hi", "logprobs": []}],
    ):
        assert items([{"role": "assistant", "content": content}])[0]["content"] == said


def test_parts_keep_their_order() -> None:
    content = [
        {"type": "text", "text": "before"},
        {"type": "input_image", "image_url": PNG},
        {"type": "input_text", "text": "after"},
    ]
    assert [p["type"] for p in items([{"role": "user", "content": content}])[0]["content"]] == [
        "input_text",
        "input_image",
        "input_text",
    ]


def test_keys_that_a_frontend_adds_are_dropped() -> None:
    message = {
        "type": "message",
        "id": "msg_ui",
        "role": "user",
        "createdAt": "today",
        "content": [{"type": "text", "text": "Hi", "state": "done", "providerMetadata": {}}],
    }
    assert items([message]) == items("Hi")


def test_a_blank_part_beside_others_is_dropped() -> None:
    content = [{"type": "text", "text": ""}, {"type": "input_image", "image_url": PNG}]
    assert [p["type"] for p in items([{"role": "user", "content": content}])[0]["content"]] == ["input_image"]


def test_transient_items_are_told_apart_and_lose_the_mark() -> None:
    read = normalise(
        [
            {"role": "system", "content": "It is noon.", "transient": True},
            {"role": "user", "content": "Hi", "transient": False},
        ],
        wire="responses",
    )
    assert read.transient == {read.items[0].id}
    assert all("transient" not in new.item for new in read.items)


@pytest.mark.parametrize(
    "text", ["", "  \n\t", "\u200b", "\ufeff\u2060\u00ad", "\u3164", "\u2800 \u3000", "\ufe0f"]
)
def test_text_that_nobody_can_see_is_refused(text: str) -> None:
    assert places(text) == ["body.input"]
    assert places([{"role": "user", "content": text}]) == ["body.input.0.content"]
    assert places([{"role": "user", "content": [{"type": "text", "text": text}]}]) == ["body.input.0.content"]


@pytest.mark.parametrize(
    "text", ["a", "\u200bx\u200b", "👍🏽", "🏴\U000e0067\U000e007f", "。", "नि", "❤\ufe0f"]
)
def test_text_that_can_be_seen_is_not_blank(text: str) -> None:
    assert not is_blank(text)


def test_an_empty_list_is_refused() -> None:
    assert places([]) == ["body.input"]


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ("text", "0"),
        ({}, "0.type"),
        ({"content": "Hi"}, "0.type"),
        ({"role": "tool", "content": "Hi"}, "0.role"),
        ({"role": ["user"], "content": "Hi"}, "0.role"),
        ({"role": "user"}, "0.content"),
        ({"role": "user", "content": []}, "0.content"),
        ({"role": "user", "content": {"text": "Hi"}}, "0.content"),
        ({"role": "user", "content": ["Hi"]}, "0.content.0"),
        ({"role": "user", "content": [{"type": "input_audio", "data": ""}]}, "0.content.0.type"),
        ({"role": "user", "content": [{"type": {"a": 1}}]}, "0.content.0.type"),
        ({"role": "user", "content": [{"text": "Hi"}]}, "0.content.0.type"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "0.content.0.text"),
        ({"role": "user", "content": [{"type": "output_text", "text": "Hi"}]}, "0.content.0.type"),
        ({"role": "system", "content": [{"type": "input_image", "image_url": PNG}]}, "0.content.0.type"),
        ({"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}, "0.content.0.type"),
        ({"role": "user", "content": "Hi", "transient": "yes"}, "0.transient"),
        ({"type": "sonnet"}, "0.type"),
        ({"type": 3}, "0.type"),
        ({"type": "item_reference", "id": "msg_1"}, "0.type"),
        (OUTPUT, "0.type"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}, "0.type"),
        ({"type": "mcp_approval_response", "approve": True}, "0.type"),
        (CALL, "0.type"),
        ({"type": "reasoning", "summary": []}, "0.type"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_place(item: Any, place: str) -> None:
    assert places([item]) == [f"body.input.{place}"]


def test_an_output_for_a_pending_call_is_told_where_it_belongs() -> None:
    assert "on the turn that waits for it" in problems([OUTPUT])[0][1]


def test_all_problems_are_told_at_once() -> None:
    input = [
        {"role": "tool", "content": "x"},
        {"role": "user", "content": [{"type": "nope"}, {"type": "text"}]},
    ]
    assert places(input) == ["body.input.0.role", "body.input.1.content.0.type", "body.input.1.content.1.text"]


def test_problems_are_bounded_in_number_and_in_what_they_repeat() -> None:
    told = problems([{"role": "x" * 10_000, "content": "Hi"}] * 5_000)
    assert len(told) == MAX_PROBLEMS
    assert all(len(message) < 200 for _, message in told)


def test_too_many_items_or_parts_are_refused() -> None:
    assert places([{"role": "user", "content": "Hi"}] * (MAX_ITEMS + 1)) == ["body.input"]
    content = [{"type": "text", "text": "Hi"}] * (MAX_PARTS + 1)
    assert places([{"role": "user", "content": content}]) == ["body.input.0.content"]


# --- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("url", ["https://example.com/cat.png?sig=a%20b", PNG])
def test_an_image_by_url_goes_to_both_wires(wire: Wire, url: str) -> None:
    assert parts({"type": "input_image", "image_url": url, "alt": "a cat"}, wire) == [
        {"type": "input_image", "image_url": url, "detail": "auto"}
    ]


def test_an_images_detail_is_kept_or_refused() -> None:
    assert parts({"type": "input_image", "image_url": PNG, "detail": "low"})[0]["detail"] == "low"
    part = {"type": "input_image", "image_url": PNG, "detail": "huge"}
    assert places([{"role": "user", "content": [part]}]) == ["body.input.0.content.0.detail"]


def test_an_images_file_id_is_only_for_a_responses_upstream() -> None:
    part = {"type": "input_image", "file_id": "file-abc123"}
    assert parts(part) == [{"type": "input_image", "file_id": "file-abc123", "detail": "auto"}]
    with pytest.raises(UnsupportedInput):
        parts(part, "chat_completions")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a.png",
        "ftp://example.com/a.png",
        "file:///etc/passwd",
        "https://",
        "https:///a.png",
        "https://[half/a.png",
        "https://example.com:99999/",
        "https://example.com/a b.png",
        "https://example.com/\r\nX: y",
        "//example.com/a.png",
        "javascript:alert(1)",
        "https://example.com/" + "a" * 9_000,
        "data:image/png,plain",
        "data:image/png;base64",
        "data:ima ge;base64,AAAA",
        "",
    ],
)
def test_a_url_that_is_neither_https_nor_data_is_refused(url: str) -> None:
    part = {"type": "input_image", "image_url": url}
    [(place, message)] = problems([{"role": "user", "content": [part]}])
    assert place == "body.input.0.content.0.image_url"
    assert "passwd" not in message


@pytest.mark.parametrize("data", ["", "####", "AAA", "data\u00e9"])
def test_an_image_that_is_empty_or_does_not_decode_is_unsupported(data: str) -> None:
    with pytest.raises(UnsupportedInput):
        parts({"type": "input_image", "image_url": f"data:image/png;base64,{data}"})


def test_data_that_is_no_image_is_unsupported() -> None:
    with pytest.raises(UnsupportedInput):
        parts({"type": "input_image", "image_url": "data:text/plain;base64," + b64(b"hi")})


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image"},
        {"type": "input_image", "image_url": PNG, "file_id": "file-1"},
        {"type": "input_file"},
        {"type": "input_file", "file_data": PNG, "file_url": "https://example.com/a"},
    ],
)
def test_a_part_has_exactly_one_source(part: dict[str, Any]) -> None:
    assert places([{"role": "user", "content": [part]}]) == ["body.input.0.content.0"]


def test_a_source_that_is_no_string_is_refused() -> None:
    part = {"type": "input_image", "image_url": {"url": PNG}}
    assert places([{"role": "user", "content": [part]}]) == ["body.input.0.content.0.image_url"]


# --- files --------------------------------------------------------------------------------------

PDF = b"%PDF-1.7 rest"


def test_base64_data_becomes_a_data_url_with_the_type_that_its_name_says() -> None:
    part = {"type": "input_file", "filename": "a.pdf", "file_data": b64(PDF)}
    assert parts(part) == [
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64," + b64(PDF),
        }
    ]


def test_a_nameless_file_gets_a_name_and_the_type_that_its_bytes_say() -> None:
    [part] = parts({"type": "input_file", "file_data": b64(PDF)})
    assert part["filename"] == "file.pdf"
    assert part["file_data"].startswith("data:application/pdf;")


def test_a_data_url_in_file_url_is_data() -> None:
    url = "data:application/pdf;base64," + b64(PDF)
    [part] = parts({"type": "input_file", "file_url": url})
    assert part == {"type": "input_file", "filename": "file.pdf", "file_data": url}


def test_a_file_by_url_or_id_goes_to_a_responses_upstream() -> None:
    assert parts({"type": "input_file", "file_url": "https://example.com/a.pdf"}) == [
        {"type": "input_file", "file_url": "https://example.com/a.pdf"}
    ]
    assert parts({"type": "input_file", "file_id": "file-1", "filename": "a.pdf"}) == [
        {"type": "input_file", "file_id": "file-1", "filename": "a.pdf"}
    ]


@pytest.mark.parametrize(
    "source",
    [
        {"file_data": b64(b"caf\xc3\xa9 notes")},
        {"file_data": "data:text/markdown;base64," + b64(b"caf\xc3\xa9 notes")},
        {"file_data": "data:text/plain;charset=iso-8859-1;base64," + b64(b"caf\xe9 notes")},
        {"file_data": "data:text/plain;base64," + b64("café notes".encode("utf-16"))},
        {"file_data": "data:application/octet-stream;base64," + b64(b"\xef\xbb\xbfcaf\xc3\xa9 notes")},
        {"file_url": "data:;base64," + b64(b"caf\xc3\xa9 notes")},
    ],
)
def test_a_text_file_becomes_text_for_a_chat_upstream(source: dict[str, Any]) -> None:
    part = {"type": "input_file", "filename": "notes", **source}
    assert parts(part, "chat_completions") == [
        {"type": "input_text", "text": '<file name="notes">\ncafé notes\n</file>'}
    ]


def test_a_pdf_goes_to_a_chat_upstream_as_a_file() -> None:
    part = {"type": "input_file", "filename": "a.pdf", "file_data": b64(PDF)}
    assert parts(part, "chat_completions")[0]["type"] == "input_file"


@pytest.mark.parametrize(
    "part",
    [
        {"file_url": "https://example.com/a.txt"},
        {"filename": "a.zip", "file_data": b64(b"PK\x03\x04")},
        {"file_data": b64(b"\xff\xfe\xfd\x00\x01")},
        {"filename": "a.txt", "file_data": b64(b"\xff\xe9")},
        {"filename": "a.txt", "file_data": b64(b"a\x00b")},
        {"filename": "a.txt", "file_data": b64(b" \n")},
        {"filename": "a.txt", "file_data": ""},
        {"filename": "a.txt", "file_data": "!!"},
    ],
)
def test_a_file_that_a_chat_upstream_cannot_take_is_unsupported(part: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedInput):
        parts({"type": "input_file", **part}, "chat_completions")


@pytest.mark.parametrize("data", ["", "!!", "data:text/plain;base64,"])
def test_an_empty_or_undecodable_file_is_unsupported_everywhere(data: str) -> None:
    with pytest.raises(UnsupportedInput):
        parts({"type": "input_file", "file_data": data})


@pytest.mark.parametrize("name", ["", " ", "a/b.txt", "..\\b.txt", "a\x07.txt", "x" * 256, 7])
def test_a_filename_that_is_none_is_refused(name: Any) -> None:
    part = {"type": "input_file", "filename": name, "file_data": b64(b"hi")}
    assert places([{"role": "user", "content": [part]}]) == ["body.input.0.content.0.filename"]


@pytest.mark.parametrize("file_id", ["", "../etc", "a b", "x" * 200])
def test_a_file_id_that_is_none_is_refused(file_id: str) -> None:
    part = {"type": "input_file", "file_id": file_id}
    assert places([{"role": "user", "content": [part]}]) == ["body.input.0.content.0.file_id"]


def test_unsupported_is_only_said_if_nothing_else_is_wrong() -> None:
    unsupported = {"type": "input_file", "file_data": ""}
    with pytest.raises(InvalidRequest) as caught:
        normalise([{"role": "user", "content": [unsupported, {"type": "nope"}]}], wire="responses")
    assert not isinstance(caught.value, UnsupportedInput)
    assert len(caught.value.errors or []) == 2


# --- seeding ------------------------------------------------------------------------------------


def test_a_conversation_can_begin_with_calls_and_reasoning() -> None:
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Look it up."}],
        "encrypted_content": "opaque",
        "status": "completed",
    }
    history = [
        {"role": "user", "content": "Find 1"},
        reasoning,
        {**CALL, "id": "fc_1", "status": "completed"},
        OUTPUT,
    ]
    assert items([*history, ANSWER], seeding=True)[1:4] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Look it up."}],
            "encrypted_content": "opaque",
        },
        CALL,
        OUTPUT,
    ]


def test_what_comes_out_of_a_history_goes_into_a_new_one_unchanged() -> None:
    history = [{"role": "user", "content": "Find 1"}, CALL, OUTPUT, ANSWER]
    once = items(history, seeding=True)
    assert items(once, seeding=True) == once


def test_a_conversation_can_begin_with_nothing() -> None:
    assert items([], seeding=True) == []


def test_an_output_can_be_parts() -> None:
    output = [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": PNG}]
    [_, answered, _] = items([CALL, {**OUTPUT, "output": output}, ANSWER], seeding=True)
    assert [part["type"] for part in answered["output"]] == ["input_text", "input_image"]


def test_call_ids_that_providers_refuse_are_replaced_on_both_sides() -> None:
    call_id = "functions.look_up:0|" + "x" * 80
    [call, output, _] = items(
        [{**CALL, "call_id": call_id}, {**OUTPUT, "call_id": call_id}, ANSWER], seeding=True
    )
    assert call["call_id"] == output["call_id"]
    assert call["call_id"].startswith("call_")


@pytest.mark.parametrize(
    ("history", "place"),
    [
        ([CALL], "0.call_id"),
        ([OUTPUT], "0.call_id"),
        ([OUTPUT, CALL], "0.call_id"),
        ([CALL, OUTPUT, OUTPUT], "2.call_id"),
        ([CALL, CALL, OUTPUT], "1.call_id"),
        ([{**CALL, "call_id": ""}], "0.call_id"),
        ([{**CALL, "name": "a b"}], "0.name"),
        ([{**CALL, "arguments": "[1]"}], "0.arguments"),
        ([{**CALL, "arguments": '{"a": NaN}'}], "0.arguments"),
        ([{**CALL, "arguments": "{" * 100_000}], "0.arguments"),
        ([{**CALL, "arguments": {"id": 1}}], "0.arguments"),
        ([CALL, {**OUTPUT, "output": {"a": 1}}], "1.output"),
        ([CALL, {**OUTPUT, "output": [{"type": "nope"}]}], "1.output.0.type"),
        ([{"type": "reasoning", "summary": []}], "0"),
        ([{"type": "reasoning", "summary": []}, {"role": "user", "content": "Hi"}, ANSWER], "0"),
        ([{"type": "reasoning", "summary": "short"}, ANSWER], "0.summary"),
        ([{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}, ANSWER], "0.content.0"),
        ([{"type": "reasoning", "encrypted_content": 5}, ANSWER], "0.encrypted_content"),
        ([{"type": "item_reference", "id": "x"}], "0.type"),
        ([{"type": "web_search_call"}], "0.type"),
        ([{"role": "user", "content": "Hi", "transient": True}], "0.transient"),
    ],
)
def test_a_history_that_is_not_whole_is_refused_with_its_place(history: list[Any], place: str) -> None:
    told = places(history, seeding=True)
    assert told[0] == f"body.items.{place}"
