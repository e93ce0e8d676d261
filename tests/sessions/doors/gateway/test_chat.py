"""/v1/chat/completions and /v1/models, by the openai SDK against the service."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from django.db.models.sql.compiler import SQLCompiler

from capabilities.models import LanguageModel
from sessions.doors.chats.writes import delete_session
from sessions.models import ChatSession, Door, StepStatus, TurnStatus
from sessions.turns import listener
from tests.cast import make_agent, make_member, make_token
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.doors.gateway.conftest import Gateway
from tests.vendors import refusal
from toolhub.tenants.models import Access, Membership, Scope
from toolhub.tenants.rows.scope import organisation_scope

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}


def test_models_are_the_agents_of_the_organisation(gateway: Gateway, charlie: Membership) -> None:
    make_agent(charlie.organisation, slug="theirs")
    make_agent(gateway.member.organisation, slug="off", is_enabled=False)

    assert [each.id for each in gateway.client().models.list()] == ["helper"]
    assert gateway.client().models.retrieve("helper").owned_by == "toolhub"
    for name in ("theirs", "off", "none"):
        with pytest.raises(openai.NotFoundError) as refused:
            gateway.client().models.retrieve(name)
        assert refused.value.code == "model_not_found"


@pytest.mark.parametrize("which", ["a viewer", "a token that may not chat"])
def test_who_may_not_chat_is_refused_on_each_route(gateway: Gateway, provider: ScriptedOpenAI, which: str) -> None:
    viewer = make_member(gateway.member.organisation, "vera", Access.VIEWER)
    token = make_token(viewer) if which == "a viewer" else make_token(gateway.member, scopes=[Scope.READ, Scope.MANAGE])
    client = gateway.client(api_key=token)

    for ask in (
        client.models.list,
        lambda: client.models.retrieve("helper"),
        lambda: client.chat.completions.create(model="helper", messages=HELLO),
        lambda: client.responses.create(model="helper", input="Hello"),
    ):
        with pytest.raises(openai.PermissionDeniedError):
            ask()
    assert (gateway.turns(), provider.requests) == ([], [])


def test_a_chat_is_a_turn_of_the_ledger_with_true_usage(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3."))

    answer = gateway.client().chat.completions.create(
        model="helper", messages=[{"role": "system", "content": "Answer in English."}, *HELLO]
    )

    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("It is 3.", "stop")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (200, 20, 220)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 120
    (turn,) = gateway.turns()
    assert (turn.status, turn.door, turn.answer) == (TurnStatus.DONE, Door.CHAT, "It is 3.")
    assert turn.session.is_throwaway
    assert [step.status for step in gateway.steps(turn)] == [StepStatus.DONE]
    assert provider.requests[0]["messages"][0]["content"] == "Be brief.\n\nAnswer in English."


@pytest.mark.parametrize("asks", [False, True])
def test_mr_44_a_stream_tells_its_usage_asked_for_or_not(
    gateway: Gateway, provider: ScriptedOpenAI, asks: bool
) -> None:
    provider.enqueue(Say("One two three."))
    options = {"stream_options": {"include_usage": True}} if asks else {}

    chunks = list(gateway.client().chat.completions.create(model="helper", messages=HELLO, stream=True, **options))

    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "One two three."
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 110
    assert [len(chunk.choices) for chunk in chunks][-1] == (0 if asks else 1)


def test_words_of_two_replies_are_told_apart_and_the_same_whole_and_streamed(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    replies = [Say("I will see.", calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3.")]
    provider.enqueue(*replies, *replies)
    client = gateway.client().chat.completions

    whole = client.create(model="helper", messages=HELLO).choices[0].message.content
    chunks = client.create(model="helper", messages=HELLO, stream=True)

    assert whole == "I will see.\n\nIt is 3."
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_a_reply_with_the_callers_calls_alone_ends_with_them_and_goes_on_with_their_results(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("weather", {"town": "Bonn"})]), Say("It rains."))
    client = gateway.client().chat.completions

    first = client.create(model="helper", messages=HELLO, tools=[WEATHER])

    assert first.choices[0].finish_reason == "tool_calls"
    (asked,) = first.choices[0].message.tool_calls
    assert (asked.function.name, asked.function.arguments) == ("weather", '{"town": "Bonn"}')
    second = client.create(
        model="helper",
        messages=[
            *HELLO,
            first.choices[0].message,
            {"role": "tool", "tool_call_id": asked.id, "content": "rain"},
        ],
        tools=[WEATHER],
    )
    assert second.choices[0].message.content == "It rains."
    one, two = gateway.turns()
    assert one.session_id == two.session_id
    assert (one.status, two.is_continuation) == (TurnStatus.DONE, True)
    assert [step.status for step in gateway.steps(one)] == [StepStatus.RETURNED]
    assert [each["role"] for each in provider.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert provider.requests[1]["messages"][-1]["content"] == "rain"
    names = [tool["function"]["name"] for tool in provider.requests[0]["tools"]]
    assert names[-1] == "weather"
    assert "calculator" in names


def test_a_mixed_reply_runs_ours_returns_the_callers_alone_and_goes_on_with_both_results(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    both = [call("calculator", {"expression": "1+2"}), call("weather", {"town": "Bonn"})]
    provider.enqueue(Say("Both.", calls=both), Say("3, and rain."))
    client = gateway.client().chat.completions

    first = client.create(model="helper", messages=HELLO, tools=[WEATHER])

    (asked,) = first.choices[0].message.tool_calls
    assert asked.function.name == "weather"
    (turn,) = gateway.turns()
    assert [(step.tool_name, step.status) for step in gateway.steps(turn)] == [
        ("calculator", StepStatus.DONE),
        ("weather", StepStatus.RETURNED),
    ]
    result = {"role": "tool", "tool_call_id": asked.id, "content": "rain"}
    second = client.create(model="helper", messages=[*HELLO, first.choices[0].message, result], tools=[WEATHER])
    assert second.choices[0].message.content == "3, and rain."
    sent = provider.requests[1]["messages"]
    assert [each["role"] for each in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert [each["content"] for each in sent[-2:]] == ['{"result": 3}', "rain"] or "3" in sent[-2]["content"]
    assert len(sent[2]["tool_calls"]) == 2


def test_a_tool_of_the_caller_with_a_name_of_ours_is_refused(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    taken = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}

    with pytest.raises(openai.BadRequestError) as refused:
        gateway.client().chat.completions.create(model="helper", messages=HELLO, tools=[taken])

    assert (refused.value.code, refused.value.param) == ("tool_name_taken", "tools")
    assert provider.requests == []


def test_results_for_another_token_do_not_join_its_session(
    gateway: Gateway, provider: ScriptedOpenAI, alice: Membership
) -> None:
    provider.enqueue(Say(calls=[call("weather", {"town": "Bonn"})]), Say("It rains."))
    first = gateway.client().chat.completions.create(model="helper", messages=HELLO, tools=[WEATHER])
    (asked,) = first.choices[0].message.tool_calls
    result = {"role": "tool", "tool_call_id": asked.id, "content": "rain"}
    messages = [*HELLO, first.choices[0].message, result]

    for token in (make_token(alice), make_token(gateway.member)):
        client = gateway.client(api_key=token)
        client.chat.completions.create(model="helper", messages=messages, tools=[WEATHER])

    turns = gateway.turns()
    assert len({turn.session_id for turn in turns}) == 3
    assert [step.result for step in gateway.steps(turns[0])] == [""]


def test_a_session_that_is_named_keeps_what_our_tools_did(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3."), Say("Yes."))
    client = gateway.client(default_headers={"X-Session-Id": "chat-1"}).chat.completions
    answer = client.create(model="helper", messages=HELLO).choices[0].message

    client.create(model="helper", messages=[*HELLO, answer, {"role": "user", "content": "Sure?"}])

    one, two = gateway.turns()
    assert one.session_id == two.session_id
    assert not one.session.is_throwaway
    roles = [each["role"] for each in provider.requests[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


def test_a_conversation_that_the_client_changed_counts_as_it_sends_it(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("One."), Say("Two."), Say("Three."))
    client = gateway.client(default_headers={"X-Session-Id": "chat-1"}).chat.completions
    client.create(model="helper", messages=HELLO)
    edited = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Servus."}]

    client.create(model="helper", messages=[*edited, *HELLO])
    more = [*edited, *HELLO, {"role": "assistant", "content": "Two."}, {"role": "user", "content": "And?"}]
    client.create(model="helper", messages=more)

    told = [[each["content"] for each in request["messages"][1:]] for request in provider.requests]
    assert told[1] == ["Hi", "Servus.", "Hello"]
    assert told[2] == ["Hi", "Servus.", "Hello", "Two.", "And?"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, None),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"temperature": 7}, "temperature"),
        ({"model": 1}, "model"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"modalities": 5}, "modalities"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_openais_shape(
    gateway: Gateway, change: dict[str, object], param: str | None
) -> None:
    answer = gateway.post("/v1/chat/completions", {"model": "helper", "messages": HELLO, **change})

    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == (param or "messages.0.content.0")
    assert error["message"].startswith(f"{error['param']}: "), "many clients show nothing else"
    assert gateway.turns() == []


@pytest.mark.parametrize(
    ("asks", "param", "code"),
    [
        ({"max_tokens": 1}, "max_tokens", "setting_refused"),
        ({"temperature": 2}, "temperature", "setting_refused"),
        ({"top_p": 0}, "top_p", "provider_rejected"),
    ],
)
def test_what_a_provider_rejects_of_a_request_is_its_own_fault_and_teaches_nothing(
    gateway: Gateway, provider: ScriptedOpenAI, asks: dict[str, object], param: str, code: str
) -> None:
    provider.enqueue(refusal(f"Invalid '{param}'.", param=param))

    answer = gateway.post("/v1/chat/completions", {"model": "helper", "messages": HELLO, **asks})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert answer.json()["error"]["message"].endswith("in the request.") == (code == "setting_refused")
    with organisation_scope(gateway.member.organisation):
        assert LanguageModel.objects.get().learned == []


def test_no_token_and_a_bad_one_are_401(gateway: Gateway) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        gateway.client(api_key="wrong").chat.completions.create(model="helper", messages=HELLO)

    assert refused.value.code == "invalid_api_key"
    assert "No usable API key" in str(refused.value)


def test_an_address_under_v1_that_is_none_is_a_404_in_openais_shape(gateway: Gateway) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        gateway.client().embeddings.create(model="helper", input="hello")

    assert (refused.value.code, refused.value.type) == ("not_found", "invalid_request_error")


def test_a_provider_that_fails_has_a_status_of_its_own_streamed_or_not(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    from tests.scripted_openai import Raw

    wrong = b'{"error": {"message": "No such model.", "code": "model_not_found"}}'
    provider.enqueue(*[Raw(wrong, status=404)] * 2)
    for streams in (False, True):
        with pytest.raises(openai.InternalServerError) as failed:
            gateway.client().chat.completions.create(model="helper", messages=HELLO, stream=streams)
        assert failed.value.status_code == 502


def test_the_same_idempotency_key_gives_the_same_turn(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("One."), Say("Two."))
    body = {"model": "helper", "messages": HELLO}

    first = gateway.post("/v1/chat/completions", body, Idempotency_Key="k1")
    again = gateway.post("/v1/chat/completions", body, Idempotency_Key="k1")
    other = gateway.post("/v1/chat/completions", {**body, "temperature": 1}, Idempotency_Key="k1")

    assert first.json() == again.json()
    assert len(provider.requests) == 1
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")


def test_no_query_is_compiled_for_a_stream(
    gateway: Gateway, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the web server, from the second one on: it takes ten times what the database takes to answer the query."""
    compiled: list[str] = []
    as_sql = SQLCompiler.as_sql

    def noted(compiler: SQLCompiler, *args: Any, **kwargs: Any) -> Any:
        sql, params = as_sql(compiler, *args, **kwargs)
        if threading.current_thread().name.startswith("request"):
            compiled.append(sql)
        return sql, params

    def stream() -> str:
        provider.enqueue(Say("Hello."))
        chunks = list(gateway.client().chat.completions.create(model="helper", messages=HELLO, stream=True))
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    assert stream() == "Hello."
    # Without a broker, the turns that are watched are looked for all the time.
    monkeypatch.setattr(listener, "read_states", lambda turn_ids: {})
    monkeypatch.setattr(SQLCompiler, "as_sql", noted)
    assert stream() == "Hello."
    assert compiled == []


def test_an_idempotency_key_is_of_its_route_its_token_and_its_conversation(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    body = {"model": "helper", "messages": HELLO, "input": "Hello"}
    assert gateway.post("/v1/chat/completions", body, Idempotency_Key="k1").status_code == 200

    other = {"Authorization": f"Bearer {make_token(gateway.member)}"}
    refused = [
        gateway.post("/v1/responses", body, Idempotency_Key="k1"),
        gateway.post("/v1/chat/completions", body, Idempotency_Key="k1", X_Session_Id="chat-1"),
        gateway.post("/v1/chat/completions", body, Idempotency_Key="k1", **other),
    ]

    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in refused} == {
        (422, "idempotency_key_reused")
    }
    assert len(gateway.turns()) == 1


def test_one_key_at_once_is_one_turn_of_one_session(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("One.", delay=0.5))

    with ThreadPoolExecutor(4) as pool:
        body = {"model": "helper", "messages": HELLO}
        asked = [pool.submit(gateway.post, "/v1/chat/completions", body, Idempotency_Key="k1") for _ in range(4)]
        ids = {answer.result().json()["id"] for answer in asked}

    assert len(ids) == len(provider.requests) == 1
    with organisation_scope(gateway.member.organisation):
        assert ChatSession.objects.count() == 1


def test_a_key_whose_session_was_deleted_tells_nothing_of_it(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    body = {"model": "helper", "messages": HELLO}
    assert gateway.post("/v1/chat/completions", body, Idempotency_Key="k1").status_code == 200
    with organisation_scope(gateway.member.organisation):
        delete_session(gateway.turns()[0].session, actor=gateway.member)

    again = gateway.post("/v1/chat/completions", body, Idempotency_Key="k1")

    assert (again.status_code, again.json()["error"]["code"]) == (409, "deleted")
