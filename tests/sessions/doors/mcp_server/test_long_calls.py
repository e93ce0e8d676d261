"""Calls that take their time: progress, clients that leave, people who are asked, and workers that die."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from functools import partial
from typing import Any

import mcp_types as types
import pytest
from django.db import connection
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.models import Agent, Tool, ToolVersion
from sessions.asking.approvals.queries import with_all_shown
from sessions.asking.approvals.writes import approve, deny
from sessions.models import (
    Approval,
    ApprovalStatus,
    ChatSession,
    Step,
    StepFile,
    StepKind,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns import ledger
from tests.capabilities.running.mcp_client.scripted import PIXEL, wait_until
from tests.cast import make_role, make_token
from tests.sessions.doors.mcp_server.far_side import NAME, FarSide
from tests.sessions.doors.mcp_server.gateway import BOTH, ask, call, connected, text_of, web_server, workers
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("mode", BOTH)
def test_a_client_hears_that_its_call_has_begun(origin: str, far: FarSide, bob: Membership, mode: str) -> None:
    heard: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))
        if message == "The call has begun.":
            far.may_answer.set()

    async def with_progress(client: Client) -> types.CallToolResult:
        return await client.call_tool(NAME, {"text": "x"}, progress_callback=tell)

    result = ask(f"{origin}/mcp/desk", make_token(bob), with_progress, mode)

    assert (text_of(result), result.is_error) == ("heard", False)
    waits, begun = [message for _, message in heard][:2]
    assert "waits for a worker" in str(waits)
    assert begun == "The call has begun."
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})


@pytest.mark.parametrize("mode", BOTH)
def test_a_client_that_leaves_stops_its_call(origin: str, far: FarSide, bob: Membership, mode: str) -> None:
    async def leave() -> None:
        async with connected(f"{origin}/mcp/desk", make_token_of_bob, mode) as client:
            asked = asyncio.ensure_future(client.call_tool(NAME, {"text": "x"}))
            await asyncio.to_thread(far.was_called.wait, 30)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    make_token_of_bob = make_token(bob)
    asyncio.run(leave())

    assert was_stopped(far, bob)


def was_stopped(far: FarSide, bob: Membership) -> bool:
    """Whether the only call was stopped while its far side worked; then that may answer."""

    def is_asked_to_stop() -> bool:
        with organisation_scope(bob.organisation):
            return Turn.objects.get().cancel_requested_at is not None

    def is_over() -> bool:
        with organisation_scope(bob.organisation):
            return Turn.objects.get().status == TurnStatus.CANCELLED

    asked = wait_until(is_asked_to_stop)
    far.may_answer.set()
    return asked and wait_until(is_over)


def test_files_of_a_result_come_as_what_they_are(origin: str, far: FarSide, bob: Membership) -> None:
    far.may_answer.set()
    document = types.BlobResourceContents(
        uri="file:///a.pdf", mime_type="application/pdf", blob=base64.b64encode(b"%PDF").decode()
    )
    far.answers = types.CallToolResult(
        content=[
            types.TextContent(text="Three."),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            types.AudioContent(data=PIXEL, mime_type="audio/wav"),
            types.EmbeddedResource(resource=document),
        ],
        structured_content={"count": 3},
    )

    result = call(f"{origin}/mcp/desk", make_token(bob), NAME, text="x")

    assert [each.type for each in result.content] == ["text", "image", "audio", "resource"]
    assert result.structured_content == {"count": 3}
    with organisation_scope(bob.organisation):
        assert StepFile.objects.count() == 3


def test_files_and_data_of_a_result_that_a_hook_changed_stay_here(
    origin: str, far: FarSide, alice: Membership, bob: Membership
) -> None:
    """A link to the file is for a person, who signs in."""
    far.may_answer.set()
    image = types.ImageContent(data=PIXEL, mime_type="image/png")
    far.answers = types.CallToolResult(
        content=[types.TextContent(text="The word is mellon."), image], structured_content={"word": "mellon"}
    )
    with organisation_scope(bob.organisation):
        entry = {"name": "short", "phase": "after_tool_call", "action": "truncate", "settings": {"chars": 3}}
        create_hook(HookContent(entry), actor=alice)

    result = call(f"{origin}/mcp/desk", make_token(bob), NAME, text="x")

    assert [each.type for each in result.content] == ["text", "resource_link"]
    assert (result.structured_content, "mellon" in text_of(result)) == (None, False)


@pytest.mark.parametrize("mode", BOTH)
def test_a_call_that_somebody_must_allow_names_the_page_where_that_is_done(
    origin: str, agent: Agent, bob: Membership, mode: str
) -> None:
    make_role(bob.organisation, bob)
    with organisation_scope(bob.organisation):
        ToolVersion.objects.filter(tool__name="calculator").update(in_untrusted="ask")
    url, token = f"{origin}/mcp/desk", make_token(bob)
    call(url, token, "calculator", mode, expression="1+1")
    with organisation_scope(bob.organisation):
        ChatSession.objects.update(is_untrusted=True)

    result = call(url, token, "calculator", mode, expression="6*7")

    with organisation_scope(bob.organisation):
        approval = Approval.objects.get()
        turn = Turn.objects.order_by("-seq")[0]
    assert result.is_error
    assert f"{origin}/o/acme/approvals/{approval.public_id}/" in text_of(result)
    assert turn.status == TurnStatus.WAITING_APPROVAL
    again = call(url, token, "task_create", mode, title="Buy milk")
    assert not again.is_error, "a call that waits keeps no other one back"


def test_a_call_whose_worker_died_in_the_middle_is_not_made_again(agent: Agent, far: FarSide, bob: Membership) -> None:
    """The far side may have done it: `on_crash` of the tool is `never`."""
    with organisation_scope(bob.organisation):
        ToolVersion.objects.filter(tool__name=NAME).update(on_crash="never")
    token = make_token(bob)

    async def crashed(url: str) -> types.CallToolResult:
        async with connected(url, token) as client:
            asked = asyncio.ensure_future(client.call_tool(NAME, {"text": "x"}))
            await asyncio.to_thread(begin_and_die, bob)
            with workers(1):
                return await asked

    with web_server() as origin:
        result = asyncio.run(crashed(f"{origin}/mcp/desk"))

    assert result.is_error
    assert not far.was_called.is_set()
    with organisation_scope(bob.organisation):
        assert Step.objects.get(kind=StepKind.TOOL).status == StepStatus.UNKNOWN
        assert Turn.objects.get().status == TurnStatus.DONE


def begin_and_die(bob: Membership) -> None:
    """As a worker that is killed between the start of the call and its end."""
    with organisation_scope(bob.organisation):
        assert wait_until(Turn.objects.exists)
        turn = Turn.objects.get()
        claim = ledger.claim(turn.pk, "dead")
        assert claim is not None
        stored = {"id": "call_1", "name": NAME, "arguments": '{"text": "x"}'}
        _, (step,), _ = ledger.record_client_call(claim, stored, None)
        ledger.start_step(claim, step, tool_version_id=Tool.objects.get(name=NAME).current_version_id)
        Turn.objects.filter(pk=turn.pk).update(lease_until=turn.created_at)


# -- A person must answer first ----------------------------------------------------------------------------------------


def answer(member: Membership, *, allows: bool) -> None:
    with organisation_scope(member.organisation):
        approval = with_all_shown(Approval.objects.filter(status=ApprovalStatus.PENDING)).get()
        (approve if allows else deny)(approval, actor=member)
    connection.close()


def call_with_pages(
    url: str, token: str, opened: Callable[[types.ElicitRequestURLParams], str], **arguments: Any
) -> types.CallToolResult:
    """What a client is answered whose user is shown pages, and does there what `opened` does."""

    async def shows(context: Any, params: Any) -> types.ElicitResult:
        action: Any = await asyncio.to_thread(opened, params)
        return types.ElicitResult(action=action)

    asked = partial(Client.call_tool, name="calculator", arguments=arguments)
    result: types.CallToolResult = ask(url, token, asked, elicitation_callback=shows)
    return result


@pytest.mark.usefixtures("asks_first")
def test_mr_42_a_client_that_shows_pages_has_its_user_allow_the_call_and_gets_its_result(
    origin: str, bob: Membership
) -> None:
    shown: list[types.ElicitRequestURLParams] = []

    def opened(params: types.ElicitRequestURLParams) -> str:
        shown.append(params)
        answer(bob, allows=True)
        return "accept"

    result = call_with_pages(f"{origin}/mcp/desk", make_token(bob), opened, expression="6*7")

    assert not result.is_error
    assert "42" in text_of(result)
    with organisation_scope(bob.organisation):
        approval = Approval.objects.get()
        assert Turn.objects.count() == 1
    assert [params.url for params in shown] == [f"{origin}/o/acme/approvals/{approval.public_id}/"]


@pytest.mark.usefixtures("asks_first")
def test_mr_42_a_user_who_declines_stops_the_call(origin: str, bob: Membership) -> None:
    result = call_with_pages(f"{origin}/mcp/desk", make_token(bob), lambda params: "decline", expression="6*7")

    assert result.is_error
    with organisation_scope(bob.organisation):
        assert Turn.objects.get().status == TurnStatus.CANCELLED
        assert Approval.objects.get().status == ApprovalStatus.VOID


@pytest.mark.usefixtures("asks_first")
@pytest.mark.parametrize("allows", [True, False])
def test_mr_42_the_same_call_again_has_what_was_allowed_once(origin: str, bob: Membership, allows: bool) -> None:
    url, token = f"{origin}/mcp/desk", make_token(bob)
    first = call(url, token, "calculator", "legacy", expression="6*7")
    assert "make the same call again" in text_of(first)
    still = call(url, token, "calculator", "legacy", expression="6*7")
    other_token = call(url, make_token(bob), "calculator", "legacy", expression="6*7")
    assert all(each.is_error for each in (still, other_token))
    with organisation_scope(bob.organisation):
        other = with_all_shown(Approval.objects.order_by("-pk"))[0]
        deny(other, actor=bob)

    answer(bob, allows=allows)
    again = call(url, token, "calculator", "legacy", expression="6*7")
    once_more = call(url, token, "calculator", "legacy", expression="6*7")

    assert again.is_error is not allows
    assert ("42" in text_of(again)) is allows
    assert "Not done yet" in text_of(once_more), "what was allowed is allowed once"
    with organisation_scope(bob.organisation):
        assert Approval.objects.count() == 3


@pytest.mark.usefixtures("asks_first")
def test_state_of_another_token_or_of_another_call_is_refused(origin: str, bob: Membership, alice: Membership) -> None:
    async def begun(client: Client) -> types.InputRequiredResult:
        result = await client.session.call_tool("calculator", {"expression": "6*7"}, allow_input_required=True)
        assert isinstance(result, types.InputRequiredResult)
        return result

    async def shows(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept")

    def resume(expression: str, token: str) -> int:
        async def resumed(client: Client) -> int:
            with pytest.raises(MCPError) as refused:
                await client.session.call_tool(
                    "calculator",
                    {"expression": expression},
                    request_state=state,
                    input_responses={},
                    allow_input_required=True,
                )
            return int(refused.value.error.code)

        return ask(url, token, resumed, elicitation_callback=shows)

    url, token = f"{origin}/mcp/desk", make_token(bob)
    make_role(alice.organisation, alice, slug="all-of-alice")
    state = ask(url, token, begun, elicitation_callback=shows).request_state
    assert state is not None

    assert resume("6*7", make_token(alice)) == types.INVALID_PARAMS
    assert resume("6*7", make_token(bob)) == types.INVALID_PARAMS
    assert resume("6*8", token) == types.INVALID_PARAMS
