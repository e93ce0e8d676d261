"""Who gets in at /mcp/, under which name and with what in hand."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from django.db import OperationalError

from capabilities.models import Agent
from sessions.models import Turn
from tests.cast import allow_toolkit, make_role, make_token, make_toolkit
from tests.sessions.doors.mcp_server.gateway import call
from toolhub.tenants.access import revoke_token
from toolhub.tenants.models import Access, ApiToken, Membership
from toolhub.tenants.models import Scope as TokenScope
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
LISTED = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"calculator","arguments":{"expression":[%s1]}}}'
)
BOTH_TYPES = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
#: Bodies that are no request of MCP, by what is wrong with them.
MALFORMED = {
    "empty": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "a batch": json.dumps([LIST, LIST]).encode(),
    "a number": b"7",
    "no method": b'{"jsonrpc": "2.0", "id": 1}',
    "deep": b"[" * 5_000,
    "a name that is no text": json.dumps(LIST | {"method": "tools/call", "params": {"name": 7}}).encode(),
    "arguments that are no object": json.dumps(
        LIST | {"method": "tools/call", "params": {"name": "calculator", "arguments": "x"}}
    ).encode(),
    "half a surrogate": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800","arguments":{}}}',
}


#: Bodies within its bytes that would become far more values than are parsed between the steps of other requests.
DEAR = {
    "lists": LISTED % (b"[]," * 600_000),
    "numbers": LISTED % (b"1," * 25_000),
    "deep": LISTED % (b"[" * 5_000 + b"]" * 5_000 + b","),
}


def post(url: str, token: str | None = None, body: Any = LIST, **headers: str) -> httpx2.Response:
    sent = BOTH_TYPES | {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(url, content=content, headers=sent, timeout=30)


@pytest.mark.parametrize("name", DEAR)
def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(
    origin: str, agent: Agent, bob: Membership, name: str
) -> None:
    answer = post(f"{origin}/mcp/desk", make_token(bob), DEAR[name])

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert post(f"{origin}/mcp/desk", make_token(bob)).status_code == 200


@pytest.mark.parametrize("part", ["identified", "server"])
def test_while_the_database_is_away_the_answer_is_503(
    part: str, origin: str, agent: Agent, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_token(bob)

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("connection refused")

    target = "toolhub.web.mcp_door.token_in" if part == "identified" else "sessions.doors.mcp_server.server.offered_to"
    monkeypatch.setattr(target, away)

    answer = post(f"{origin}/mcp/desk", token)

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "database_unavailable"
    assert "refused" not in answer.text


def test_without_a_usable_token_there_is_nothing_to_see(origin: str, agent: Agent, bob: Membership) -> None:
    token = make_token(bob)
    with system_scope():
        revoke_token(ApiToken.objects.get(), actor=bob)

    answers = [post(f"{origin}/mcp/{path}", given) for path in ("desk", "nobody", "") for given in (None, "x", token)]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="toolhub"'}
    assert len({answer.text for answer in answers}) == 1


def test_another_organisations_agents_and_toolkits_look_like_missing_ones(
    origin: str, agent: Agent, bob: Membership, charlie: Membership
) -> None:
    allow_toolkit(agent, make_toolkit(bob.organisation, "kit"))
    token = make_token(charlie)

    paths = ("desk", "nobody", "toolkit/kit", "toolkit/none", "a/b", "toolkit/%00", "toolkit/%2500", "toolkit/%C3%A9")

    answers = [post(f"{origin}/mcp/{path}", token) for path in paths]

    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1


def test_a_toolkit_that_no_agent_may_load_and_an_agent_that_is_off_are_not_there(
    origin: str, agent: Agent, bob: Membership
) -> None:
    make_toolkit(bob.organisation, "kit")
    with organisation_scope(bob.organisation):
        Agent.objects.update(is_enabled=False)
    token = make_token(bob)

    assert [post(f"{origin}/mcp/{path}", token).status_code for path in ("toolkit/kit", "desk")] == [404, 404]


def test_a_token_without_the_scope_for_chats_and_a_viewer_may_not_call(
    origin: str, agent: Agent, bob: Membership
) -> None:
    reading = post(f"{origin}/mcp/desk", make_token(bob, scopes=[TokenScope.READ]))
    with organisation_scope(bob.organisation):
        Membership.objects.filter(pk=bob.pk).update(access=Access.VIEWER)
    viewing = post(f"{origin}/mcp/desk", make_token(bob))

    assert (reading.status_code, "insufficient_scope" in reading.headers["www-authenticate"]) == (403, True)
    assert viewing.status_code == 403


def test_a_name_that_is_not_this_services_and_a_strangers_page_are_refused(
    origin: str, agent: Agent, bob: Membership
) -> None:
    url, token = f"{origin}/mcp/desk", make_token(bob)

    assert post(url, token, host="evil.example.org").status_code == 421
    assert post(url, token, origin="https://evil.example.org").status_code == 403
    assert post(url, token, origin="null").status_code == 403
    assert post(url, token, origin="http://[").status_code == 403
    assert post(url, token, origin=origin).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
def test_requests_are_posted(origin: str, agent: Agent, bob: Membership, method: str) -> None:
    answer = httpx2.request(method, f"{origin}/mcp/desk", headers={"authorization": f"Bearer {make_token(bob)}"})

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_a_malformed_body_is_refused_and_leaves_nothing(
    origin: str, agent: Agent, bob: Membership, body: bytes, version: str
) -> None:
    make_role(bob.organisation, bob)

    answer = post(f"{origin}/mcp/desk", make_token(bob), body, mcp_protocol_version=version)

    assert answer.status_code < 500, answer.text
    assert '"content"' not in answer.text
    with organisation_scope(bob.organisation):
        assert not Turn.objects.exists()


def test_a_body_over_the_limit_of_the_other_doors_is_not_read(
    origin: str, agent: Agent, bob: Membership, settings: Any
) -> None:
    most, token = settings.DATA_UPLOAD_MAX_MEMORY_SIZE, make_token(bob)

    answers = [post(f"{origin}/mcp/desk", token, b" " * (size - 2) + b"{}") for size in (most, most + 1, 4_200_000)]

    assert [answer.status_code for answer in answers] == [400, 413, 413]


def test_more_requests_at_once_than_streams_may_be_are_sent_away(
    origin: str, agent: Agent, bob: Membership, settings: Any
) -> None:
    settings.TOOLHUB_STREAMS_PER_TOKEN = 0

    answer = post(f"{origin}/mcp/desk", make_token(bob))

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")


def test_a_token_tells_which_client_used_it_where(origin: str, agent: Agent, bob: Membership) -> None:
    make_role(bob.organisation, bob)
    call(f"{origin}/mcp/desk", make_token(bob), "calculator", expression="1+1")

    with system_scope():
        assert ApiToken.objects.values_list("last_agent", "last_address").get() == ("desk", "127.0.0.1")


def test_requests_outside_the_prefix_go_to_django(origin: str, agent: Agent) -> None:
    assert httpx2.get(f"{origin}/healthz").json() == {"status": "ok"}
    assert httpx2.get(f"{origin}/mcp").status_code == 404
