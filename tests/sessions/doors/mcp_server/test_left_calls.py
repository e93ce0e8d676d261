"""Calls that were left waiting for a person and are taken up again, and calls that are stopped in the middle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from django.db import connection
from django.db.models.functions import Now
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from capabilities.common.registry_version import touch_registry
from capabilities.models import AgentTool
from sessions.asking.approvals.queries import with_all_shown
from sessions.asking.approvals.writes import approve
from sessions.doors.mcp_server import results, server, writes
from sessions.models import Approval, Step, StepKind, StepStatus, Turn
from tests.capabilities.running.mcp_client.scripted import wait_until
from tests.cast import make_budget, make_token
from tests.sessions.doors.mcp_server.far_side import NAME, FarSide
from tests.sessions.doors.mcp_server.gateway import BOTH, ask, call, connected, refusal, text_of
from tests.sessions.doors.mcp_server.test_long_calls import answer, was_stopped
from toolhub.tenants.access import revoke_token
from toolhub.tenants.models import Access, ApiToken, Membership
from toolhub.tenants.people.writes import remove_member, set_access
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)


def results_at_once(url: str, token: str, count: int) -> list[types.CallToolResult]:
    """Of the same call, made so many times side by side by a client that shows no pages."""

    async def at_once(client: Client) -> list[types.CallToolResult]:
        return await asyncio.gather(*(client.call_tool("calculator", {"expression": "6*7"}) for _ in range(count)))

    return ask(url, token, at_once, "legacy")


def allow(bob: Membership, place: int) -> None:
    """The approval at this place among those that wait, the oldest first."""
    with organisation_scope(bob.organisation):
        waiting = list(with_all_shown(Approval.objects.filter(status="pending").order_by("pk")))
        approve(waiting[place], actor=bob)
    connection.close()


def has_run(bob: Membership) -> bool:
    with organisation_scope(bob.organisation):
        return Step.objects.filter(kind=StepKind.TOOL, status=StepStatus.DONE).exists()


@pytest.mark.usefixtures("asks_first")
def test_what_was_allowed_once_reaches_one_of_several_calls_at_once(origin: str, bob: Membership) -> None:
    url, token = f"{origin}/mcp/desk", make_token(bob)
    call(url, token, "calculator", "legacy", expression="6*7")
    answer(bob, allows=True)

    results = results_at_once(url, token, 4)

    assert sorted(each.is_error for each in results) == [False, True, True, True]
    with organisation_scope(bob.organisation):
        assert Step.objects.filter(kind=StepKind.TOOL, status=StepStatus.DONE).count() == 1
        assert Approval.objects.exclude(used_at=None).count() == 1


@pytest.mark.usefixtures("asks_first")
@pytest.mark.parametrize("place", [0, 1])
def test_of_two_same_calls_that_wait_the_one_that_was_answered_is_had_first(
    origin: str, bob: Membership, place: int
) -> None:
    url, token = f"{origin}/mcp/desk", make_token(bob)
    assert all(each.is_error for each in results_at_once(url, token, 2))

    allow(bob, place)
    assert wait_until(lambda: has_run(bob))
    first, second = (call(url, token, "calculator", "legacy", expression="6*7") for _ in range(2))

    assert (first.is_error, "Not done yet" in text_of(second)) == (False, True)
    with organisation_scope(bob.organisation):
        assert Turn.objects.count() == 2


@pytest.mark.usefixtures("asks_first")
def test_the_result_of_a_call_that_was_left_is_had_after_its_tool_has_left_the_address(
    origin: str, bob: Membership
) -> None:
    url, token = f"{origin}/mcp/desk", make_token(bob)
    call(url, token, "calculator", "legacy", expression="6*7")
    answer(bob, allows=True)
    assert wait_until(lambda: has_run(bob))
    with organisation_scope(bob.organisation):
        AgentTool.objects.filter(tool__name="calculator").delete()
        touch_registry(bob.organisation_id)

    again = call(url, token, "calculator", "legacy", expression="6*7")

    assert not again.is_error
    assert refusal(url, token, "calculator", "legacy") == types.INVALID_PARAMS


@pytest.mark.usefixtures("asks_first")
@pytest.mark.parametrize("mode", BOTH)
def test_an_answer_that_comes_while_the_client_is_told_brings_the_result(
    origin: str, bob: Membership, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = results.waiting_result

    def answered_meanwhile(*args: Any, **more: Any) -> Any:
        answer(bob, allows=True)
        return told(*args, **more)

    monkeypatch.setattr(server, "waiting_result", answered_meanwhile)

    result = call(f"{origin}/mcp/desk", make_token(bob), "calculator", mode, expression="6*7")

    assert not result.is_error


@pytest.mark.parametrize("mode", BOTH)
def test_a_client_that_leaves_while_its_call_is_put_on_record_stops_it(
    origin: str, far: FarSide, bob: Membership, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, has_left, begin = threading.Event(), threading.Event(), writes.begin_call

    def slowly(*args: Any) -> Any:
        begun.set()
        has_left.wait(20)
        return begin(*args)

    monkeypatch.setattr(server, "begin_call", slowly)

    async def leave() -> None:
        async with connected(f"{origin}/mcp/desk", token, mode) as client:
            asked = asyncio.ensure_future(client.call_tool(NAME, {"text": "x"}))
            await asyncio.to_thread(begun.wait, 20)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    token = make_token(bob)
    asyncio.run(leave())
    has_left.set()

    with organisation_scope(bob.organisation):
        assert wait_until(Turn.objects.exists)
    assert was_stopped(far, bob)


def revoke(alice: Membership, bob: Membership) -> None:
    revoke_token(ApiToken.objects.get(), actor=bob)


def expire(alice: Membership, bob: Membership) -> None:
    ApiToken.objects.update(expires_at=Now())


def remove(alice: Membership, bob: Membership) -> None:
    remove_member(bob, actor=alice)


def demote(alice: Membership, bob: Membership) -> None:
    set_access(bob, Access.VIEWER, actor=alice)


@pytest.mark.parametrize("ends", [revoke, expire, remove, demote])
@pytest.mark.parametrize("mode", BOTH)
def test_a_token_that_may_not_be_used_any_more_stops_its_call(
    origin: str,
    far: FarSide,
    alice: Membership,
    bob: Membership,
    mode: str,
    ends: Callable[[Membership, Membership], None],
) -> None:
    def end() -> None:
        with system_scope():
            ends(alice, bob)
        connection.close()

    async def ended(client: Client) -> types.CallToolResult:
        asked = asyncio.ensure_future(client.call_tool(NAME, {"text": "x"}))
        await asyncio.to_thread(far.was_called.wait, 20)
        await asyncio.to_thread(end)
        return await asked

    result = ask(f"{origin}/mcp/desk", make_token(bob), ended, mode)

    assert (result.is_error, text_of(result).startswith("Stopped: this token")) == (True, True)
    assert was_stopped(far, bob)


@pytest.mark.parametrize(
    ("limit", "code"), [("turns", "too_many_turns_at_once"), ("tokens", "budget_exceeded"), ("queue", "too_many_turns")]
)
def test_a_call_without_room_is_told_so_and_leaves_nothing(
    origin: str, far: FarSide, bob: Membership, limit: str, code: str, settings: Any
) -> None:
    if limit == "queue":
        settings.TOOLHUB_QUEUED_PER_MEMBER = 0
    else:
        make_budget(bob.organisation, measure=limit, limit=0)

    result = call(f"{origin}/mcp/desk", make_token(bob), NAME, text="x")

    assert (result.is_error, text_of(result).endswith(f"({code})")) == (True, True)
    with organisation_scope(bob.organisation):
        assert not Turn.objects.exists()


@pytest.mark.parametrize("mode", BOTH)
def test_a_call_that_cannot_be_followed_any_more_is_stopped(
    origin: str, far: FarSide, bob: Membership, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client is told of an error, and may make the call again."""

    def breaks(event: Any) -> str:
        if event.type == "tool_started":
            raise RuntimeError("The database is away.")
        return ""

    monkeypatch.setattr(server, "_progress_line", breaks)

    async def failed(client: Client) -> None:
        with pytest.raises(MCPError):
            await client.call_tool(NAME, {"text": "x"})

    ask(f"{origin}/mcp/desk", make_token(bob), failed, mode)

    assert was_stopped(far, bob)
