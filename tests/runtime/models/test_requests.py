"""What a provider is sent: settings only if set, and a history that a strict one takes, whatever its origin."""

import json
from dataclasses import replace
from typing import Any

import pytest
from agents import Agent, AgentOutputSchema, ModelSettings, WebSearchTool, function_tool, handoff
from agents.exceptions import UserError
from openai.types.shared import Reasoning
from pydantic import BaseModel

from app.runtime.models.requests import ModelRequest, input_items, outgoing
from app.runtime.models.sdk_objects import sdk_item
from app.runtime.models.transport import FixedEndpoint, Upstream, Wire


@function_tool
def lookup(q: str) -> str:
    """Look something up."""
    return q


class Answer(BaseModel):
    answer: str


def upstream(wire: Wire, **options: Any) -> Upstream:
    return Upstream("here", wire, FixedEndpoint("http://127.0.0.1:1/v1", None), **options)


def request(input: Any = "Hi", **fields: Any) -> ModelRequest:
    plain = ModelRequest("m", True, None, [], ModelSettings(), [], None, [], None, None, None)
    return replace(plain, items=input_items(input, is_whole=fields.pop("is_whole", True)), **fields)


def body(wire: Wire, input: Any = "Hi", /, up: Upstream | None = None, **fields: Any) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(outgoing(request(input, **fields), up or upstream(wire)).body)
    return sent


def messages(items: list[Any], up: Upstream | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body("chat_completions", items, up)["messages"]
    return found


CALL = {"type": "function_call", "call_id": "a", "name": "lookup", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "found"}
EVERYTHING = ModelSettings(
    temperature=0.0,
    top_p=0.5,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    max_tokens=99,
    tool_choice="required",
    parallel_tool_calls=False,
    truncation="auto",
    reasoning=Reasoning(effort="low"),
    verbosity="low",
    metadata={"a": "b"},
    store=False,
    prompt_cache_retention="24h",
    top_logprobs=2,
    response_include=["x.y"],
    extra_args={"seed": 7},
    extra_body={"top_k": 5},
)


def test_everything_that_is_set_is_sent_on_the_chat_wire() -> None:
    sent = body("chat_completions", settings=EVERYTHING, tools=[lookup], instructions="Be brief.")
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    expected = {
        "temperature": 0.0,
        "top_p": 0.5,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "max_tokens": 99,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "verbosity": "low",
        "metadata": {"a": "b"},
        "store": False,
        "prompt_cache_retention": "24h",
        "top_logprobs": 2,
        "logprobs": True,
        "seed": 7,
        "top_k": 5,
    }
    assert expected.items() <= sent.items()
    assert sent["tools"][0]["function"]["name"] == "lookup"


def test_everything_that_is_set_is_sent_on_the_responses_wire() -> None:
    sent = body("responses", settings=EVERYTHING, tools=[lookup], instructions="Be brief.")
    expected = {
        "instructions": "Be brief.",
        "temperature": 0.0,
        "top_p": 0.5,
        "max_output_tokens": 99,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "truncation": "auto",
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "metadata": {"a": "b"},
        "store": False,
        "prompt_cache_retention": "24h",
        "top_logprobs": 2,
        "seed": 7,
        "top_k": 5,
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content", "x.y"],
    }
    assert expected.items() <= sent.items()
    assert sent["tools"][0]["name"] == "lookup"


def test_what_is_not_set_is_not_sent() -> None:
    assert set(body("responses")) == {"model", "input", "stream"}
    assert set(body("chat_completions")) == {"model", "messages", "stream", "stream_options"}


def test_parallel_calls_and_tool_choice_go_only_with_tools() -> None:
    settings = ModelSettings(parallel_tool_calls=True, tool_choice="auto")
    for wire in ("responses", "chat_completions"):
        assert not {"parallel_tool_calls", "tool_choice"} & set(body(wire, settings=settings))


def test_handoffs_are_tools() -> None:
    to = handoff(Agent(name="Billing"))
    assert body("chat_completions", handoffs=[to])["tools"][0]["function"]["name"] == "transfer_to_billing"
    assert body("responses", handoffs=[to])["tools"][0]["name"] == "transfer_to_billing"


def test_an_output_schema_is_asked_for() -> None:
    schema = AgentOutputSchema(Answer)
    assert body("chat_completions", output_schema=schema)["response_format"]["type"] == "json_schema"
    text = body("responses", output_schema=schema, settings=ModelSettings(verbosity="high"))["text"]
    assert text["format"]["type"] == "json_schema"
    assert text["verbosity"] == "high"


def test_hosted_tools_need_the_responses_wire() -> None:
    assert body("responses", tools=[WebSearchTool()])["tools"][0]["type"] == "web_search"
    with pytest.raises(UserError):
        body("chat_completions", tools=[WebSearchTool()])


def test_openai_has_its_own_name_for_the_limit_and_the_developer() -> None:
    official = upstream("chat_completions", is_openai=True)
    sent = body(
        "chat_completions",
        [{"role": "developer", "content": "x"}],
        official,
        settings=ModelSettings(max_tokens=5),
    )
    assert sent["max_completion_tokens"] == 5
    assert sent["messages"][0]["role"] == "developer"
    assert messages([{"role": "developer", "content": "x"}])[0]["role"] == "system"


def test_an_upstream_s_own_defaults_give_way_to_what_is_set() -> None:
    small = upstream("chat_completions", body_defaults={"max_tokens": 100, "return_progress": True})
    assert body("chat_completions", "Hi", small)["max_tokens"] == 100
    assert body("chat_completions", "Hi", small, settings=ModelSettings(max_tokens=5))["max_tokens"] == 5


def test_a_state_that_the_provider_keeps_is_named_and_its_outputs_stay() -> None:
    output = {"type": "function_call_output", "call_id": "call_a", "output": "1"}
    sent = body("responses", [output], is_whole=False, previous_response_id="resp_1")
    assert sent["previous_response_id"] == "resp_1"
    assert sent["input"] == [output]


def test_a_stored_prompt_brings_its_own_model() -> None:
    prompt: Any = {"id": "pmpt_1"}
    assert "model" not in body("responses", prompt=prompt, is_model_named=False)
    assert body("responses", prompt=prompt)["model"] == "m"


# history

USER = {"type": "message", "role": "user", "content": "Hi"}


def said(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]} | more


def call(call_id: str = "call_a", arguments: str = '{"q":"x"}', **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "lookup", "arguments": arguments} | more


def output(call_id: str = "call_a", text: Any = "found") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def thought(text: str = "Hm.", upstream: str = "here", field: str = "reasoning_content") -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    mark = {"upstream": upstream, "field": field}
    return {"type": "reasoning", "id": "item_1", "summary": [], "content": content, "provider_data": mark}


@pytest.mark.parametrize(
    "item",
    [
        {"role": "assistant", "content": "Yes."},
        {"type": "message", "role": "assistant", "content": "Yes.", "id": "msg_1", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}], "extra": 1},
        said("Yes.", status="incomplete", provider_data={"model": "other"}, id="x" * 65),
    ],
)
def test_an_assistant_s_words_survive_both_wires(item: dict[str, Any]) -> None:
    assert messages([USER, item, USER])[1] == {"role": "assistant", "content": "Yes."}
    sent = body("responses", [USER, item, USER])["input"][1]
    assert sent.pop("id", "msg_1") == "msg_1"
    assert sent.pop("status") in ("completed", "incomplete")
    assert sent == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
    }


def test_ids_that_no_provider_gave_and_long_ones_are_dropped_at_any_depth() -> None:
    hosted = {
        "type": "mcp_call",
        "id": "mcp_1",
        "name": "n",
        "arguments": "{}",
        "results": [{"id": "y" * 65, "v": 1}],
    }
    items = [
        USER,
        said("a", id="item_x"),
        said("b", id="__fake_id__"),
        said("c", id="msg_3"),
        hosted,
        call(id="x" * 65, namespace=None),
        output(),
    ]
    sent = body("responses", items)["input"]
    assert [i.get("id") for i in sent] == [None, None, None, "msg_3", "mcp_1", None, None]
    assert sent[4]["results"] == [{"v": 1}]
    assert "namespace" not in sent[5]


def test_a_step_is_one_assistant_message_followed_by_its_outputs() -> None:
    items = [USER, said("Let me see."), call("a"), call("b"), output("a"), output("b"), said("Done.")]
    sent = messages(items)
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "assistant"]
    assert sent[1]["content"] == "Let me see."
    assert [c["id"] for c in sent[1]["tool_calls"]] == ["a", "b"]
    assert [m["tool_call_id"] for m in sent[2:4]] == ["a", "b"]


def test_words_after_a_call_stay_in_its_step() -> None:
    sent = messages([USER, call(), said("Looking it up."), output()])
    assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
    assert sent[1]["content"] == "Looking it up."


def test_arguments_that_are_no_object_go_back_within_one() -> None:
    for wire in ("responses", "chat_completions"):
        sent = json.dumps(body(wire, [USER, call(arguments="q=1"), output()]))
        assert "q=1" in sent
    arguments = messages([USER, call(arguments="[1]"), output()])[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_arguments": "[1]"}


def test_parts_become_what_the_chat_wire_knows() -> None:
    image = {"type": "input_image", "image_url": "https://a.example/i.png", "detail": "low"}
    parts = [{"type": "input_text", "text": "See:"}, image]
    sent = messages([{"role": "user", "content": parts}, {"role": "user", "content": [parts[0], parts[0]]}])
    assert sent[0]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": image["image_url"], "detail": "low"},
    }
    assert sent[1]["content"] == "See:\nSee:"


def test_a_tool_s_output_is_text_on_the_chat_wire() -> None:
    parts = [{"type": "input_text", "text": "found"}, {"type": "input_image", "image_url": "data:x"}]
    assert messages([USER, call(), output(text=parts)])[2]["content"] == "found"
    assert messages([USER, call(), output(text=parts[1:])])[2]["content"]


def test_items_that_a_wire_cannot_carry_are_left_out() -> None:
    items = [
        USER,
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "encrypted_content": "x"},
        said("Done."),
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]
    sent = messages(items)
    assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "patch", "arguments": '{"input":"*"}'}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thought_goes_back_with_the_calls_of_the_same_turn(field: str) -> None:
    items = [
        USER,
        thought("Old.", field=field),
        call("a"),
        output("a"),
        said("x"),
        USER,
        thought("New.", field=field),
        said("Let me see."),
        call("b"),
        output("b"),
    ]
    sent = messages(items)
    assert [m.get(field) for m in sent if m["role"] == "assistant"] == [None, None, "New."]


@pytest.mark.parametrize(("replay", "seen"), [("always", "Hm."), ("never", None), ("turn", None)])
def test_which_thought_goes_back_is_a_matter_of_the_upstream(replay: Any, seen: str | None) -> None:
    sent = messages(
        [USER, thought(), call(), output(), USER], upstream("chat_completions", replay_reasoning=replay)
    )
    assert sent[1].get("reasoning_content") == seen


def test_thought_goes_only_to_where_it_came_from() -> None:
    assert "reasoning_content" not in messages([USER, thought(upstream="elsewhere"), call(), output()])[1]
    assert "reasoning_content" not in messages([USER, thought(), said("No calls.")])[1]


def test_what_a_provider_adds_to_thought_goes_back_to_it_alone() -> None:
    details = {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    thought = {"type": "reasoning", "summary": [], "content": []}
    for upstream_name, seen in (("here", details["thinking_blocks"]), ("there", None)):
        mark = {"upstream": upstream_name, "field": "", "details": details}
        sent = messages([{"role": "user", "content": "Hi"}, thought | {"provider_data": mark}, CALL, OUTPUT])
        assert sent[1].get("thinking_blocks") == seen


def test_a_refusal_goes_back_as_what_was_said() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert messages([{"role": "user", "content": "Hi"}, refusal])[1] == {"role": "assistant", "content": "No."}


@pytest.mark.parametrize(
    ("name", "sent_as"),
    [
        ("lookup", "lookup"),
        ("functions.lookup", "functions_lookup"),
        ("look up\n", "look_up_"),
        ("x" * 99, "x" * 64),
        ("\u65e5", "_"),
    ],
)
def test_names_that_a_model_made_up_go_back_as_providers_take_them(name: str, sent_as: str) -> None:
    items = [{"role": "user", "content": "Hi"}, CALL | {"name": name}, OUTPUT]
    assert messages(items)[1]["tool_calls"][0]["function"]["name"] == sent_as
    assert body("responses", items)["input"][1]["name"] == sent_as


def test_names_of_tools_that_there_are_stay_as_they_are() -> None:
    tool = replace(lookup, name="house.lookup")
    items = [{"role": "user", "content": "Hi"}, CALL | {"name": "house.lookup"}, OUTPUT]
    sent = body("chat_completions", items, tools=[tool])["messages"]
    assert sent[1]["tool_calls"][0]["function"]["name"] == "house.lookup"


def test_reasoning_of_another_upstream_leaves_with_the_ids_that_depend_on_it() -> None:
    own = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
    items = [USER, thought(), call("a", id="fc_1"), output("a"), USER, own, call("b", id="fc_2"), output("b")]
    sent = body("responses", items)["input"]
    assert [i["type"] for i in sent].count("reasoning") == 1
    assert [i.get("id") for i in sent if i["type"] == "function_call"] == [None, "fc_2"]
    assert "provider_data" not in json.dumps(sent)


def test_what_a_provider_attached_goes_back_to_it_alone() -> None:
    mark = {"upstream": "here", "extra_content": {"google": {"thought_signature": "s"}}}
    marked = call(provider_data=mark)
    assert messages([USER, marked, output()])[1]["tool_calls"][0]["extra_content"] == mark["extra_content"]
    foreign = call(provider_data=mark | {"upstream": "elsewhere"})
    assert "extra_content" not in messages([USER, foreign, output()])[1]["tool_calls"][0]


def test_lone_surrogates_in_a_tool_s_output_do_not_hinder_the_next_request() -> None:
    sent = outgoing(request([USER, call(), output(text="a\ud83d")]), upstream("responses")).body
    assert json.loads(sent)["input"][2]["output"] == "a\ufffd"


def test_the_sdk_s_own_objects_are_items_too() -> None:
    reply = sdk_item(said("Yes.", id="msg_1"))
    assert messages([USER, reply, USER])[1] == {"role": "assistant", "content": "Yes."}
