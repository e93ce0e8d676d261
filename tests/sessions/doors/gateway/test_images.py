"""Images that clients of `/v1` send: they reach a model that takes some, in both protocols, and are nobody else's."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from capabilities.contract.attachments import MAX_ATTACHED, MOST_ATTACHED
from capabilities.models import LanguageModel
from sessions.models import StepFile, TurnStatus
from tests.pictures import gif, png
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI
from tests.sessions.doors.gateway.conftest import Gateway
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope


def address(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def chat(text: str, *images: bytes) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": address(each), "detail": "low"}} for each in images]
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def item(text: str, *images: bytes) -> dict[str, Any]:
    parts = [{"type": "input_image", "image_url": address(each)} for each in images]
    return {"role": "user", "content": [{"type": "input_text", "text": text}, *parts]}


@pytest.fixture
def sees(gateway: Gateway) -> Gateway:
    with organisation_scope(gateway.member.organisation):
        LanguageModel.objects.update(takes_images=True)
    return gateway


def users(provider: ScriptedOpenAI) -> list[Any]:
    """Contents of the user's messages in the last request."""
    return [each["content"] for each in provider.requests[-1]["messages"] if each["role"] == "user"]


def seen(content: Any) -> list[str]:
    if isinstance(content, str):
        return []
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


def test_an_image_of_a_chat_completion_reaches_the_model(sees: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Red."))

    answer = sees.client().chat.completions.create(model="helper", messages=[chat("Which colour?", png(4, 4))])

    (content,) = users(provider)
    assert answer.choices[0].message.content == "Red."
    assert seen(content) == [address(png(4, 4))]
    (turn,) = sees.turns()
    assert (turn.message, turn.attached, turn.untrusted_since) == ("Which colour?", 1, 0)
    assert turn.client_request.earlier is None


def test_an_image_of_a_response_reaches_the_model(sees: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Red."), Say("Still red."))
    client = sees.client().responses
    first = client.create(model="helper", input=[item("Which colour?", png(4, 4), gif(5, 5))])

    client.create(model="helper", input="And now?", previous_response_id=first.id)

    before, after = users(provider)
    assert seen(before) == [address(png(4, 4)), address(gif(5, 5), "image/gif")]
    assert after == "And now?"
    client.create(model="helper", input=[item("This?", png(6, 6))], previous_response_id=sees_last(sees))
    assert [len(seen(each)) for each in users(provider)] == [2, 0, 1]


def sees_last(gateway: Gateway) -> str:
    return f"resp_{gateway.turns()[-1].pk.hex}"


def test_images_of_earlier_messages_stand_in_front_for_a_client_without_a_session(
    sees: Gateway, provider: ScriptedOpenAI
) -> None:
    messages = [chat("One?", png(1, 1)), {"role": "assistant", "content": "A."}, chat("Two?", png(2, 2), png(3, 3))]
    messages += [{"role": "assistant", "content": "B."}, {"role": "user", "content": "And?"}]

    sees.client().chat.completions.create(model="helper", messages=messages)

    assert [seen(each) for each in users(provider)] == [
        [address(png(1, 1))],
        [address(png(2, 2)), address(png(3, 3))],
        [],
    ]
    (turn,) = sees.turns()
    assert turn.attached == 0
    earlier = turn.client_request.earlier or []
    assert [each.get("files") for each in earlier] == [[0], None, [1, 2], None]
    assert "base64" not in str(turn.client_request.earlier)


def test_images_stay_with_the_stored_turns_of_a_named_session(sees: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("A."), Say("B."))
    client = sees.client(default_headers={"X-Session-Id": "chat-1"}).chat.completions
    client.create(model="helper", messages=[chat("One?", png(1, 1))])

    more = [chat("One?", png(1, 1)), {"role": "assistant", "content": "A."}, chat("Two?", png(2, 2))]
    client.create(model="helper", messages=more)

    assert [seen(each) for each in users(provider)] == [[address(png(1, 1))], [address(png(2, 2))]]
    assert [turn.client_request.earlier for turn in sees.turns()] == [None, None]
    with system_scope():
        assert StepFile.objects.count() == 2


def test_the_oldest_images_of_a_request_stay_behind(sees: Gateway, provider: ScriptedOpenAI) -> None:
    messages: list[Any] = []
    for number in range(MOST_ATTACHED + 1):
        messages += [chat(f"{number}?", png(number + 1, 1)), {"role": "assistant", "content": "Yes."}]

    sees.client().chat.completions.create(model="helper", messages=[*messages, {"role": "user", "content": "And?"}])

    first, *others, last = users(provider)
    assert "not sent again" in first
    assert [len(seen(each)) for each in others] == [1] * MOST_ATTACHED
    assert last == "And?"


def test_a_model_that_takes_no_images_reads_that(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    gateway.client().chat.completions.create(model="helper", messages=[chat("Which colour?", png(4, 4))])

    (content,) = users(provider)
    assert content.startswith("Which colour?\n\n[image image.png, ")
    assert content.endswith("this model takes no images]")


def test_an_image_without_words_is_a_message(sees: Gateway, provider: ScriptedOpenAI) -> None:
    body = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address(png(4, 4))}}]}

    sees.client().chat.completions.create(model="helper", messages=[body])

    assert len(seen(users(provider)[0])) == 1
    assert [turn.status for turn in sees.turns()] == [TurnStatus.DONE]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
        "data:image/png,abc",
        "data:image/png;base64,%%%",
        "data:image/png;base64,",
        address(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        address(b"<script>alert(1)</script>"),
        address(b"%PDF-1.7", "application/pdf"),
        address(png(60_000, 60_000)),
        address(b"\x89PNG\r\n\x1a\n" + b"0" * MAX_ATTACHED),
        "",
        5,
        None,
        {},
    ],
)
def test_what_is_no_image_in_a_data_url_is_refused(gateway: Gateway, provider: ScriptedOpenAI, url: Any) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    item = {"type": "input_image", "image_url": url}
    of_chat = gateway.post(
        "/v1/chat/completions", {"model": "helper", "messages": [{"role": "user", "content": [part]}]}
    )
    of_responses = gateway.post("/v1/responses", {"model": "helper", "input": [{"role": "user", "content": [item]}]})

    assert [each.status_code for each in (of_chat, of_responses)] == [400, 400]
    assert of_chat.json()["error"]["param"] == "messages.0.content.0"
    assert of_responses.json()["error"]["param"] == "input.0.content.0"
    assert (gateway.turns(), provider.requests) == ([], [])


@pytest.mark.parametrize("role", ["system", "assistant", "tool"])
def test_images_are_of_the_user_alone(gateway: Gateway, role: str) -> None:
    message = chat("Look", png(1, 1)) | {"role": role, "tool_call_id": "a"}

    answer = gateway.post("/v1/chat/completions", {"model": "helper", "messages": [message]})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_content")


def test_a_message_has_a_bounded_number_of_images(gateway: Gateway) -> None:
    message = chat("Look", *[png(1, 1)] * (MOST_ATTACHED + 1))

    answer = gateway.post("/v1/chat/completions", {"model": "helper", "messages": [message]})

    assert answer.status_code == 400
    assert gateway.turns() == []


def test_s3_nobody_elses_images_are_there(gateway: Gateway, charlie: Membership) -> None:
    gateway.client().chat.completions.create(model="helper", messages=[chat("Look", png(1, 1))])
    with system_scope():
        file = StepFile.objects.get()

    assert Rest(gateway.member).client.get(f"/api/v1/files/{file.public_id}").content == png(1, 1)
    assert Rest(charlie).get(f"files/{file.public_id}").status == 404
