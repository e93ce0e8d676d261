from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.conftest import Call
from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, json_reply
from tests.capabilities.assistant.builtin.remote import slow


class Hook(FakeService):
    def answer(self, asked: Asked) -> Reply:
        return json_reply({"ok": True}, 201)


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as service:
        yield service


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [({"a": "ü"}, '{"a": "ü"}'.encode(), "application/json"), ("a=ü", "a=ü".encode(), "text/plain; charset=utf-8")],
)
def test_an_object_goes_as_json_and_a_text_as_it_is(call: Call, hook: Hook, body: Any, sent: bytes, kind: str) -> None:
    answer = call("http_post", url=f"{hook.url}/in?x=1", body=body)

    assert answer == {
        "url": f"{hook.url}/in?x=1",
        "status": 201,
        "content_type": "application/json",
        "body": '{"ok": true}',
    }
    assert (hook.last.method, hook.last.target) == ("POST", "/in?x=1")
    assert (hook.last.body, hook.last.headers["content-type"]) == (sent, kind)


def test_headers_and_the_key_of_the_call_are_sent(context: ToolContext, hook: Hook) -> None:
    keyed = replace(context, idempotency_key="k-1")
    headers = {"X-Event": "push", "content-type": "text/csv"}

    registry.tools["http_post"].call(keyed, {"url": hook.url, "body": "a,b", "headers": headers})

    sent = hook.last.headers
    assert (sent["x-event"], sent["content-type"], sent["idempotency-key"]) == ("push", "text/csv", "k-1")


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "apikey", "X-Auth-Token", "Cookie", "X-Hub-Signature"])
def test_a_header_that_may_carry_a_credential_is_refused(call: Call, hook: Hook, name: str) -> None:
    with pytest.raises(ToolError, match=f"The header {name} may carry a credential: leave it out"):
        call("http_post", url=hook.url, body="", headers={name: "x"})

    assert hook.asked == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_post_is_not_sent_on(call: Call, hook: Hook, status: int) -> None:
    hook.instead = lambda asked: Reply(status, b"", {"Location": f"{hook.url}/other"})

    with pytest.raises(ToolError, match="redirects elsewhere, and this request is not sent on"):
        call("http_post", url=hook.url, body="x")

    assert len(hook.asked) == 1


def test_a_failed_status_is_an_answer(call: Call, hook: Hook) -> None:
    hook.instead = lambda asked: Reply(500, b"<p>no</p>", {"Content-Type": "text/html"})

    answer = call("http_post", url=hook.url, body="x")

    assert (answer["status"], "may have been done" in answer["outcome"]) == (500, True)
    hook.instead = lambda asked: Reply(409, b"no", {"Content-Type": "text/plain"})
    assert call("http_post", url=hook.url, body="x").keys() == {"url", "status", "content_type", "body"}


def test_a_long_answer_is_cut(call: Call, hook: Hook) -> None:
    hook.instead = lambda asked: Reply(200, b"x" * 10_001, {"Content-Type": "text/plain"})

    answer = call("http_post", url=hook.url, body="x")

    assert (len(answer["body"]), answer["truncated"]) == (10_000, True)


def test_a_body_that_is_too_long_is_not_sent(call: Call, hook: Hook) -> None:
    with pytest.raises(ToolError, match="at most 200,000 are sent"):
        call("http_post", url=hook.url, body="x" * 200_001)

    assert hook.asked == []


def test_without_an_answer_nobody_knows(context: ToolContext, hook: Hook) -> None:
    hook.instead = slow

    with pytest.raises(ToolError, match="It may have been done all the same"):
        registry.tools["http_post"].call(replace(context, timeout=0.5), {"url": hook.url, "body": "x"})


def test_without_a_connection_nothing_was_done(call: Call, hook: Hook) -> None:
    with Hook() as gone:
        address = gone.url

    with pytest.raises(ToolError) as told:
        call("http_post", url=address, body="x")

    assert "It may have been done" not in str(told.value)


def test_a_private_address_is_refused(call: Call, hook: Hook, settings: Any) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []

    with pytest.raises(ToolError, match="is a private address"):
        call("http_post", url=hook.url, body="x")

    assert hook.asked == []
