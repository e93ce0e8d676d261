"""Clients that listen are told when their own list changes, on whichever web server they listen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
from mcp.client import Client

from capabilities.models import Agent
from sessions.doors.mcp_server import changes
from sessions.doors.mcp_server.callers import McpCaller
from sessions.turns import bell
from tests.capabilities.running.mcp_client.scripted import wait_until
from tests.cast import make_role, make_token
from tests.sessions.doors.mcp_server.gateway import connected, web_server
from tests.sessions.doors.mcp_server.test_calls import deny
from tests.valkey import Valkey, running_valkey
from toolhub.tenants.access import revoke_token
from toolhub.tenants.models import ApiToken, Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 40.0


@pytest.fixture
def other_origin(transactional_db: None) -> Iterator[str]:
    """A second web server, which the change does not come to."""
    with web_server() as found:
        yield found


def test_the_capabilities_say_that_changes_are_told(origin: str, agent: Agent, bob: Membership) -> None:
    async def said(mode: str) -> bool | None:
        async with connected(f"{origin}/mcp/desk", make_token_of[mode], mode) as client:
            tools = client.server_capabilities.tools
            return tools.list_changed if tools else None

    make_token_of = {mode: make_token(bob) for mode in ("auto", "legacy")}

    assert [asyncio.run(said(mode)) for mode in ("auto", "legacy")] == [True, True]


def test_a_change_reaches_a_client_on_another_web_server(
    other_origin: str, agent: Agent, alice: Membership, bob: Membership
) -> None:
    make_role(bob.organisation, bob)
    token = make_token(bob)

    async def told() -> list[str]:
        async with connected(f"{other_origin}/mcp/desk", token) as client, listening(client) as events:
            before = [tool.name for tool in (await client.list_tools()).tools]
            await asyncio.to_thread(deny, alice, bob, "calculator")
            await asyncio.wait_for(anext(events), SECONDS)
            after = [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]
        return sorted(set(before) - set(after))

    assert asyncio.run(told()) == ["calculator"]


def test_a_change_reaches_an_older_client_on_the_stream_that_it_opened(
    other_origin: str, agent: Agent, alice: Membership, bob: Membership
) -> None:
    make_role(bob.organisation, bob)
    headers = {"authorization": f"Bearer {make_token(bob)}", "accept": "text/event-stream"}

    async def told() -> Any:
        async with (
            httpx2.AsyncClient(timeout=SECONDS) as http,
            http.stream("GET", f"{other_origin}/mcp/desk", headers=headers) as answer,
        ):
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            await anext(lines)
            await asyncio.to_thread(deny, alice, bob, "calculator")
            return json.loads(await anext(line[6:] async for line in lines if line.startswith("data: ")))

    assert asyncio.run(told()) == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def test_a_client_hears_of_changes_while_the_broker_goes_and_comes_back(
    other_origin: str, agent: Agent, alice: Membership, bob: Membership, settings: Any
) -> None:
    make_role(bob.organisation, bob)
    token = make_token(bob)

    def has_broker() -> bool:
        return any(each.has_broker for each in list(changes._changes.values()))

    def is_without_broker() -> bool:
        return not has_broker()

    async def told(valkey: Valkey) -> list[set[str]]:
        steps: list[tuple[Callable[[], Any], Callable[[], bool], str]] = [
            (lambda: None, has_broker, "calculator"),
            (valkey.kill, is_without_broker, "generate_uuid"),
            (valkey.start, has_broker, "task_create"),
        ]
        lost = []
        async with connected(f"{other_origin}/mcp/desk", token) as client, listening(client) as events:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            for broker, is_so, tool in steps:
                await asyncio.to_thread(broker)
                assert await asyncio.to_thread(wait_until, is_so)
                await asyncio.to_thread(deny, alice, bob, tool)
                await asyncio.wait_for(anext(events), SECONDS)
                now = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
                lost.append(listed - now)
                listed = now
        return lost

    with running_valkey() as valkey:
        settings.REDIS_URL = valkey.url
        lost = asyncio.run(told(valkey))

    assert lost == [{"calculator"}, {"generate_uuid"}, {"task_create", "read_result"}]


def test_nobody_is_told_of_what_is_not_in_the_own_list(
    other_origin: str, agent: Agent, alice: Membership, bob: Membership
) -> None:
    """Bob loses a tool: Alice, at the same address, hears nothing of it, and then of her own."""
    make_role(bob.organisation, bob)
    make_role(bob.organisation, alice)
    token = make_token(alice)

    async def told() -> list[str]:
        async with connected(f"{other_origin}/mcp/desk", token) as client, listening(client) as events:
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.to_thread(deny, alice, bob, "calculator")
            await asyncio.sleep(4)
            heard = ["Bob's"] if waiting.done() else []
            await asyncio.to_thread(deny, alice, alice, "calculator")
            await asyncio.wait_for(waiting, SECONDS)
            return [*heard, "her own"]

    assert asyncio.run(told()) == ["her own"]


def test_a_stream_ends_with_its_token(other_origin: str, agent: Agent, bob: Membership) -> None:
    make_role(bob.organisation, bob)
    headers = {"authorization": f"Bearer {make_token(bob)}", "accept": "text/event-stream"}

    async def ended() -> str:
        async with (
            httpx2.AsyncClient(timeout=SECONDS) as http,
            http.stream("GET", f"{other_origin}/mcp/desk", headers=headers) as answer,
        ):
            lines = answer.aiter_lines()
            await anext(lines)
            await asyncio.to_thread(revoke, bob)
            return "\n".join([line async for line in lines if line.startswith("data: ")])

    assert asyncio.run(ended()) == ""


def test_a_list_that_cannot_be_read_keeps_no_other_from_being_read(
    other_origin: str, agent: Agent, alice: Membership, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    for member in (alice, bob):
        make_role(bob.organisation, member)
    tokens, read = [make_token(alice) for _ in range(5)], changes.list_of

    def fails_for_alice(caller: McpCaller) -> tuple[int, str] | None:
        if caller.member.pk == alice.pk:
            raise RuntimeError("This row is broken.")
        return read(caller)

    async def told() -> list[str]:
        async with AsyncExitStack() as opened:
            for token in tokens:
                await opened.enter_async_context(
                    listening(await opened.enter_async_context(connected(f"{other_origin}/mcp/desk", token)))
                )
            client = await opened.enter_async_context(connected(f"{other_origin}/mcp/desk", make_token_of_bob))
            events = await opened.enter_async_context(listening(client))
            monkeypatch.setattr(changes, "list_of", fails_for_alice)
            await asyncio.to_thread(deny, alice, bob, "calculator")
            await asyncio.wait_for(anext(events), SECONDS)
            return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

    make_token_of_bob = make_token(bob)

    assert "calculator" not in asyncio.run(told())


def test_the_broker_is_told_of_each_change_once_it_is_committed(
    agent: Agent, alice: Membership, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[tuple[str, str]] = []
    monkeypatch.setattr(bell, "_publish", lambda name, message: published.append((name, message)))

    deny(alice, bob, "calculator")

    assert (bell.REGISTRIES, str(bob.organisation_id)) in published


class listening:
    """The changes that a client is told of, while the block runs."""

    def __init__(self, client: Client) -> None:
        self.stream = client.listen(tools_list_changed=True)

    async def __aenter__(self) -> AsyncIterator[Any]:
        return aiter(await self.stream.__aenter__())

    async def __aexit__(self, *raised: Any) -> None:
        await self.stream.__aexit__(*raised)


def revoke(bob: Membership) -> None:
    with system_scope():
        revoke_token(ApiToken.objects.get(), actor=bob)
