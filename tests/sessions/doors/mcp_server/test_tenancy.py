"""Generated from what the server answers: each method at each address of Acme, as others ask it.

A method without an entry in PARAMS fails, and so does an entry without a method.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from capabilities.models import Agent
from sessions.doors.mcp_server.server import make_server
from sessions.models import ChatSession, Step, Turn
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_role,
    make_token,
    make_tool,
    make_toolkit,
)
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

MODERN, OLD = "2026-07-28", "2025-11-25"
CANARY = "zebracanary"
ADDRESSES = ("desk", f"toolkit/{CANARY}")
MISSING = ("nobody", "toolkit/nothing")
CLIENT = {"name": "test", "version": "1"}
#: Each method: what it is asked with.
PARAMS: dict[str, dict[str, Any]] = {
    "ping": {},
    "server/discover": {},
    "initialize": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": CLIENT},
    "subscriptions/listen": {"notifications": {"toolsListChanged": True}},
    "tools/list": {},
    "tools/call": {"name": CANARY, "arguments": {"expression": "6*7"}},
}
#: What the SDK answers by itself.
OF_THE_SDK = {"initialize"}
ALL_ASKS = [(method, version) for method in PARAMS for version in (MODERN, OLD)]


@pytest.fixture
def desks(agent: Agent, alice: Membership, bob: Membership, charlie: Membership) -> None:
    """An agent `desk` in both organisations; that of Acme has a tool and a toolkit that Globex has not."""
    tool = make_tool(agent.organisation, CANARY, description=f"The {CANARY} of Acme.")
    give_tool(agent, tool, position=3)
    allow_toolkit(agent, make_toolkit(agent.organisation, CANARY, tool))
    theirs = make_agent(charlie.organisation, slug="desk")
    give_tool(theirs, make_tool(charlie.organisation, "calculator"))
    for member in (alice, charlie):
        make_role(member.organisation, member)


def asked(url: str, token: str | None, method: str, version: str, **params: Any) -> tuple[int, str]:
    """The status, and the body without what differs between two answers to the same request."""
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": method,
    }
    sent = {**PARAMS[method], **params}
    if "name" in sent:
        headers["mcp-name"] = sent["name"]
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if version == MODERN:
        known = {"protocolVersion": version, "clientInfo": CLIENT, "clientCapabilities": {}}
        sent = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in known.items()}, **sent}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}
    with httpx2.stream("POST", url, json=body, headers=headers, timeout=30) as answer:
        if method == "subscriptions/listen" and answer.status_code == 200:
            return answer.status_code, next(answer.iter_text(), "")  # it ends with its client
        return answer.status_code, answer.read().decode()


def rows() -> list[list[Any]]:
    with system_scope():
        return [list(model._base_manager.order_by("pk").values()) for model in (ChatSession, Turn, Step)]


def test_every_method_has_an_entry() -> None:
    assert {*make_server()._request_handlers} | OF_THE_SDK == set(PARAMS)


@pytest.mark.parametrize(("method", "version"), ALL_ASKS)
@pytest.mark.parametrize(("address", "missing"), list(zip(ADDRESSES, MISSING, strict=True)))
def test_nobody_is_answered(origin: str, desks: None, method: str, version: str, address: str, missing: str) -> None:
    answers = [asked(f"{origin}/mcp/{path}", None, method, version) for path in (address, missing)]

    assert answers[0] == answers[1]
    assert answers[0][0] == 401
    assert rows() == [[], [], []]


@pytest.mark.parametrize(("method", "version"), ALL_ASKS)
def test_another_organisation_meets_its_own_or_what_is_missing(
    origin: str, desks: None, charlie: Membership, method: str, version: str
) -> None:
    token = make_token(charlie)
    kits = [asked(f"{origin}/mcp/{path}", token, method, version) for path in (ADDRESSES[1], MISSING[1])]
    own = asked(f"{origin}/mcp/desk", token, method, version)

    assert kits[0] == kits[1]
    assert kits[0][0] == 404
    if method == "tools/call":
        nothing = asked(f"{origin}/mcp/desk", token, method, version, name="nothing")
        assert own == (nothing[0], nothing[1].replace("nothing", CANARY))
    else:
        assert CANARY not in own[1]
    with organisation_scope(charlie.organisation):
        assert not Turn.objects.exists()


@pytest.mark.parametrize("version", [MODERN, OLD])
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_colleague_without_the_right_sees_no_tool_and_calls_none(
    origin: str, desks: None, alice: Membership, bob: Membership, address: str, version: str
) -> None:
    url = f"{origin}/mcp/{address}"
    hers, his = make_token(alice), make_token(bob)

    listed = [asked(url, token, "tools/list", version) for token in (hers, his)]
    called = [asked(url, token, "tools/call", version) for token in (hers, his)]

    assert [f'"{CANARY}"' in text for _, text in listed] == [True, False]
    assert "Access denied" in called[1][1]
    assert "Access denied" not in called[0][1]


@pytest.mark.parametrize(("method", "version"), ALL_ASKS)
def test_a_viewer_and_a_token_for_other_things_are_refused(
    origin: str, desks: None, alice: Membership, method: str, version: str
) -> None:
    token = make_token(alice)
    with system_scope():
        Membership.objects.filter(pk=alice.pk).update(access=Access.VIEWER)

    status, text = asked(f"{origin}/mcp/desk", token, method, version)

    assert (status, json.loads(text)["error"]["code"]) == (403, "forbidden")
    assert rows() == [[], [], []]
