"""Calls that take their time: progress, clients that leave, people who are asked, and workers that die."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from capabilities.models import Agent, Tool, ToolVersion
from sessions.models import Approval, ChatSession, Step, StepFile, StepKind, StepStatus, Turn, TurnStatus
from sessions.turns import ledger
from tests.capabilities.kinds.far import Far
from tests.capabilities.mcp_client.scripted import PIXEL, Script, http_server, text_result, wait_until
from tests.cast import give_tool, make_role, make_token
from tests.sessions.mcp_server.gateway import BOTH, ask, call, connected, text_of, web_server, workers
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


class FarSide:
    """A tool whose far side answers when it is let, in the desk's hands."""

    def __init__(self, agent: Agent, script: Script, url: str) -> None:
        self.organisation = agent.organisation
        self.may_answer = threading.Event()
        self.was_called = threading.Event()
        script.tool("do", self.answer)
        self.answers: Any = text_result("heard")
        give_tool(agent, Far(agent.organisation, url).tool, position=9)

    async def answer(self, params: Any) -> Any:
        self.was_called.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.02)
        return self.answers


@pytest.fixture
def far(agent: Agent, bob: Membership) -> Iterator[FarSide]:
    make_role(bob.organisation, bob)
    script = Script()
    with http_server(script) as url:
        yield FarSide(agent, script, url)


NAME = "mcp__far__do"


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
    assert [message for _, message in heard][:2] == [
        "The call is on record, and waits for a worker.",
        "The call has begun.",
    ]
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

    def is_over() -> bool:
        with organisation_scope(bob.organisation):
            return Turn.objects.get().status == TurnStatus.CANCELLED

    assert wait_until(is_over)


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
