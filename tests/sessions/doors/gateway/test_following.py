"""What becomes of a turn whose client leaves, waits for a person, or loses its token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from django.utils import timezone

from capabilities.common.registry_version import touch_registry
from capabilities.models import ApprovalRule, LanguageModel
from sessions.asking.approvals.writes import approve
from sessions.doors.gateway import answering
from sessions.doors.gateway.limits import open_requests
from sessions.models import Approval, Turn, TurnStatus
from tests.scripted_openai import Raw, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.doors.gateway.conftest import Gateway, until
from toolhub.tenants.models import ApiToken
from toolhub.tenants.rows.scope import organisation_scope, system_scope

BODY: dict[str, Any] = {"model": "helper", "messages": [{"role": "user", "content": "Hello"}]}


def leave(gateway: Gateway, path: str, body: dict[str, Any], **headers: str) -> None:
    """Ask, and break the connection off while the model thinks."""
    named = {"Authorization": f"Bearer {gateway.token}", **headers}
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(gateway.origin + path, json=body, headers=named, timeout=1.5)


def statuses(gateway: Gateway) -> list[str]:
    return [turn.status for turn in gateway.turns()]


def only_turn(gateway: Gateway) -> Turn:
    (turn,) = gateway.turns()
    return turn


@pytest.mark.parametrize("streams", [False, True])
def test_a_broken_connection_cancels_the_turn(gateway: Gateway, provider: ScriptedOpenAI, streams: bool) -> None:
    provider.enqueue(Say("Late.", delay=4.0))

    leave(gateway, "/v1/chat/completions", {**BODY, "stream": streams})

    until(lambda: statuses(gateway) == [TurnStatus.CANCELLED])
    assert open_requests.count() == {}


def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels_the_turn(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("First.", calls=[call("calculator", {"expression": "1+2"})]), Say("Late.", delay=4.0))
    with gateway.client().chat.completions.create(**BODY, stream=True) as stream:
        next(iter(stream))

    until(lambda: statuses(gateway) == [TurnStatus.CANCELLED])


def test_a_turn_goes_on_without_its_client_where_that_says_so(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Late.", delay=3.0))

    leave(gateway, "/v1/chat/completions", BODY, **{"X-Toolhub-On-Disconnect": "continue"})

    until(lambda: statuses(gateway) == [TurnStatus.DONE])
    assert only_turn(gateway).answer == "Late."


def test_a_token_that_is_revoked_ends_its_stream_and_its_turn(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("First.", calls=[call("calculator", {"expression": "1+2"})]), Say("Late.", delay=20.0))
    stream = iter(gateway.client().chat.completions.create(**BODY, stream=True))
    next(stream)
    with system_scope():
        ApiToken.objects.update(revoked_at=timezone.now())

    with pytest.raises(Exception, match="revoked"):
        list(stream)

    until(lambda: statuses(gateway) == [TurnStatus.CANCELLED])


def test_a_silent_stream_is_kept_open_by_comments(
    gateway: Gateway, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "QUIET_SECONDS", 0.2)
    provider.enqueue(Say("Late.", delay=1.5))

    text = gateway.post("/v1/chat/completions", {**BODY, "stream": True}).text

    assert text.count(": keep-alive\n\n") >= 2
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("streams", [False, True])
def test_mr_43_a_turn_that_waits_for_a_person_says_where_and_goes_on_when_allowed(
    gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    with organisation_scope(gateway.member.organisation):
        ApprovalRule.objects.create(organisation=gateway.member.organisation, name="ask", tool_pattern="calculator")
        touch_registry(gateway.member.organisation_id)
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3."))

    named = {"X_Session_Id": "chat-1"}
    text = gateway.post("/v1/chat/completions", {**BODY, "stream": streams}, **named).text

    with organisation_scope(gateway.member.organisation):
        asked = Approval.objects.get()
    assert f"{gateway.origin}/o/acme/approvals/{asked.public_id}/" in text
    assert "The call of calculator waits" in text
    again = gateway.post("/v1/chat/completions", BODY, **named)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "waits_for_person")
    assert only_turn(gateway).status == TurnStatus.WAITING_APPROVAL


def test_more_requests_at_once_than_a_token_may_have_are_429(
    gateway: Gateway, provider: ScriptedOpenAI, settings: Any
) -> None:
    settings.TOOLHUB_REQUESTS_PER_TOKEN = 1
    provider.enqueue(Say("First.", delay=1.0))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gateway.post, "/v1/chat/completions", BODY)
        until(lambda: bool(open_requests.count()))
        refused = gateway.post("/v1/chat/completions", BODY)

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
    assert refused.headers["Retry-After"] == "2"
    assert first.result().status_code == 200
    until(lambda: open_requests.count() == {})
    assert gateway.post("/v1/chat/completions", BODY).status_code == 200


@pytest.mark.parametrize("streams", [False, True])
def test_a_reply_that_breaks_off_is_told_anew_and_its_beginning_in_streams_alone(
    gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    half = Raw(sse(chunk({"role": "assistant", "content": "It is"}), done=False), linger=0.5)
    provider.enqueue(Say("I will see.", calls=[call("calculator", {"expression": "1+2"})]), half, Say("It is 3."))

    told = said(gateway, streams=streams)

    begun = "It is\n\n(The answer begins anew.)\n\n" if streams else ""
    assert told == f"I will see.\n\n{begun}It is 3."


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("words", ["", "I look."])
def test_a_turn_at_its_limit_of_rounds_says_so(
    gateway: Gateway, provider: ScriptedOpenAI, words: str, streams: bool
) -> None:
    with organisation_scope(gateway.member.organisation):
        LanguageModel.objects.update(max_rounds=1)
    provider.enqueue(Say(words, calls=[call("calculator", {"expression": "1+2"})]))

    told = said(gateway, streams=streams)

    assert told.startswith(f"{words}\n\nI stopped after 1 rounds" if words else "I stopped after 1 rounds")
    assert gateway.post("/v1/chat/completions", again(told), X_Session_Id="chat-1").status_code == 200
    assert gateway.turns()[1].client_request.earlier is None, "the stored turn is what the client has"


def said(gateway: Gateway, *, streams: bool) -> str:
    """The words of an answer in the conversation `chat-1`."""
    client = gateway.client(default_headers={"X-Session-Id": "chat-1"}).chat.completions
    if not streams:
        return str(client.create(**BODY).choices[0].message.content)
    chunks = client.create(**BODY, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def again(answer: str) -> dict[str, Any]:
    """A second question behind this answer."""
    behind = [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    return {**BODY, "messages": [*BODY["messages"], *behind]}


def test_a_conversation_that_waited_goes_on_with_what_came_of_it(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    with organisation_scope(gateway.member.organisation):
        ApprovalRule.objects.create(organisation=gateway.member.organisation, name="ask", tool_pattern="calculator")
        touch_registry(gateway.member.organisation_id)
    provider.enqueue(Say("I ask.", calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3."), Say("Yes."))
    waits = said(gateway, streams=False)
    with organisation_scope(gateway.member.organisation):
        approve(Approval.objects.get(), actor=gateway.member)
    until(lambda: statuses(gateway) == [TurnStatus.DONE])

    gateway.post("/v1/chat/completions", again(waits), X_Session_Id="chat-1")

    told = [each["content"] for each in provider.requests[2]["messages"][1:]]
    assert [told[0], told[1], told[3], told[4]] == ["Hello", "I ask.", "It is 3.", "And?"]
    gateway.post("/v1/chat/completions", again(f"{waits} No."), X_Session_Id="chat-1")
    assert gateway.turns()[2].client_request.earlier is not None, "another answer is not that one"
