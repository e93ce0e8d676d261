"""Calls that stop for a member's own account, through whole turns: a service that wants a sign-in, or a wider one, a
real authorization server, and the member's browser. What the far side hears, and what the model reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import build_opener

import pytest
from django.test import Client

from capabilities.catalogue.tools.writes import Origin
from capabilities.models import McpServer, StoredCredential, StoredSecret, Tool, ToolKind
from sessions.models import Approval, ApprovalKind, ChatSession, StepStatus, Turn, TurnStatus
from sessions.turns import ledger
from sessions.turns.reaping import reap
from tests.authorization_server import AuthorizationServer
from tests.capabilities.running.credentials.test_oauth import NoRedirects, oauth_credential
from tests.capabilities.running.kinds.far import Far
from tests.capabilities.running.mcp_client.over_http import http_server
from tests.capabilities.running.mcp_client.scripted import Script, text_result
from tests.cast import make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_call_waits import answer, asked_of, error_of
from tests.sessions.run_turns import run, tool_steps_of, work
from tests.sessions.steps import reread
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as running:
        yield running


@pytest.fixture
def files(session: ChatSession, server: AuthorizationServer, provider: ScriptedOpenAI) -> StoredCredential:
    """What signs `list_files`, which wants the permission `files`; sign-ins ask for `mail` alone. A model that calls it
    once, and then says what it read."""
    credential = oauth_credential(session.organisation, server, name="far", title="Far Files", scopes=["mail"])
    make_tool(
        session.organisation,
        "list_files",
        origin=Origin(ToolKind.HTTP, credential=credential),
        implementation={"method": "GET", "url": f"{server.url}/files", "arguments": {}},
        effect="external",
        on_crash="retry",
        untrusted_output=True,
    )
    provider.enqueue(Say(calls=[call("list_files", {})]), Say("Read."))
    return credential


class Browser:
    """The member's, signed in here. It keeps the pages that it saw."""

    def __init__(self, member: Membership) -> None:
        self.client = Client()
        self.client.force_login(member.user)
        self.pages: list[str] = []

    def get(self, url: str) -> str:
        answer = self.client.get(url, follow=True)
        self.pages.append(answer.content.decode())
        return self.pages[-1]

    def sign_in(self, page: str) -> str:
        """From the page that a call links to, over the authorization server, and back; what is shown then."""
        shown = self.get(page)
        form = re.search(r'action="([^"]*sign-in/)"', shown)
        assert form is not None, shown
        departure = self.client.post(form[1]).content.decode()
        self.pages.append(departure)
        there = re.search(r'class="btn btn-primary" href="([^"]+)"', departure)
        assert there is not None, departure
        return self.get(self.agree(there[1].replace("&amp;", "&")))

    def agree(self, url: str) -> str:
        """The address of ours that the authorization server sends back to."""
        try:
            build_opener(NoRedirects).open(url, timeout=5).close()
        except HTTPError as answered:
            with answered:
                parts = urlsplit(answered.headers["Location"])
            return f"{parts.path}?{parts.query}"
        raise AssertionError("The server did not send the member back.")


def link_of(turn: Turn) -> Approval:
    """The one thing that the turn waits for."""
    approval = asked_of(turn)[-1]
    assert (turn.status, approval.status) == (TurnStatus.WAITING_INPUT, "pending")
    assert (approval.kind, approval.is_own_url) == (ApprovalKind.LINK, True)
    return approval


def go_on(turn: Turn) -> Turn:
    """What workers do beside the turns, and then with this one."""
    reap()
    return work(reread(turn))


def result_of(turn: Turn) -> Any:
    (step,) = tool_steps_of(turn)
    assert step.status == StepStatus.DONE, step.result
    return json.loads(step.result)


def connected_for_mail(session: ChatSession, credential: StoredCredential) -> Browser:
    browser = Browser(session.membership)
    assert "Far Files is connected" in browser.sign_in("/o/acme/accounts/far/")
    return browser


# -- An HTTP service --------------------------------------------------------------------------------------------------


def test_mr_40_a_call_that_lacks_permissions_goes_on_when_the_member_gave_them(
    session: ChatSession, files: StoredCredential, server: AuthorizationServer, provider: ScriptedOpenAI
) -> None:
    browser = connected_for_mail(session, files)

    turn = run(session)
    link = link_of(turn)
    back = browser.sign_in(link.url)
    turn = go_on(turn)

    assert link.for_people.startswith("Far Files: ")
    assert link.for_people.endswith("permissions are needed: files.")
    assert (link.url, link.credential_id) == ("/o/acme/accounts/far/", files.pk)
    assert f'You go on to <strong class="mono">{server.url.removeprefix("http://")}' in browser.pages[-2]
    assert "Far Files is connected" in back
    assert server.asked("/authorize")[-1].query["scope"] == "mail files"
    assert result_of(turn) == {"path": "/files", "scope": "mail files", "resource": server.resource}
    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Read.")
    tokens = {each.headers.get("authorization", "") for each in server.asked("/files")}
    assert len(tokens) == 2
    everything = str(provider.requests)
    assert not any(token.removeprefix("Bearer ") in everything for token in tokens)


def test_of_a_service_without_an_account_the_call_waits_twice_and_is_made_once_it_may(
    session: ChatSession, files: StoredCredential, server: AuthorizationServer
) -> None:
    browser = Browser(session.membership)
    turn = run(session)
    assert (link_of(turn).for_people, server.asked("/files")) == ("Far Files: connect your account first.", [])

    browser.sign_in(link_of(turn).url)
    turn = go_on(turn)
    assert link_of(turn).for_people.endswith("permissions are needed: files.")
    browser.sign_in(link_of(turn).url)
    turn = go_on(turn)

    assert result_of(turn)["scope"] == "mail files"
    assert (len(server.asked("/files")), len(asked_of(turn))) == (2, 2)


def test_a_token_that_the_service_refuses_is_renewed_and_the_call_made_again(
    session: ChatSession, files: StoredCredential, server: AuthorizationServer
) -> None:
    server.files_scope = "mail"
    connected_for_mail(session, files)
    server.tokens.clear()

    turn = run(session)

    assert result_of(turn)["scope"] == "mail"
    first, second = (each.headers["authorization"] for each in server.asked("/files"))
    assert (first != second, server.refreshes()) == (True, 1)


def test_who_says_no_at_the_service_can_still_say_yes(
    session: ChatSession, files: StoredCredential, server: AuthorizationServer
) -> None:
    browser = connected_for_mail(session, files)
    turn = run(session)

    server.consent = "deny"
    assert "you did not agree there" in browser.sign_in(link_of(turn).url)
    turn = go_on(turn)
    link_of(turn)
    server.consent = "agree"
    browser.sign_in(link_of(turn).url)

    assert result_of(go_on(turn))["scope"] == "mail files"


def test_a_service_that_gives_less_than_was_asked_for_is_not_asked_for_ever(
    session: ChatSession, files: StoredCredential, server: AuthorizationServer
) -> None:
    """The authorization server agrees, and leaves the permission out."""
    browser = connected_for_mail(session, files)
    server.withheld = "files"
    turn = run(session)

    times = 0
    while turn.status == TurnStatus.WAITING_INPUT:
        times += 1
        assert times < 20
        browser.sign_in(link_of(turn).url)
        turn = go_on(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status) == (TurnStatus.DONE, StepStatus.REFUSED)
    assert "asked for something 5 times" in error_of(step)


@pytest.mark.parametrize(("action", "word"), [("decline", "declined"), ("cancel", "cancelled")])
def test_a_member_who_does_not_want_it_says_so_to_the_model(
    session: ChatSession,
    files: StoredCredential,
    server: AuthorizationServer,
    provider: ScriptedOpenAI,
    action: str,
    word: str,
) -> None:
    connected_for_mail(session, files)
    turn = run(session)

    turn = answer(turn, action)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, len(server.asked("/files"))) == (TurnStatus.DONE, StepStatus.REFUSED, 1)
    assert re.match(rf"Not finished: Bob \(bob@example.com\) {word} it on ", error_of(step))
    assert error_of(step) in json.loads(provider.requests[-1]["messages"][-1]["content"])["error"]


def test_nobody_who_opens_the_link_in_time_is_told_to_the_model(
    session: ChatSession, files: StoredCredential, server: AuthorizationServer
) -> None:
    connected_for_mail(session, files)
    turn = run(session)
    with system_scope():
        Approval.objects.filter(turn=turn).update(expires_at=ledger.from_now(-1))

    turn = go_on(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status) == (TurnStatus.DONE, StepStatus.REFUSED)
    assert "nobody opened the link until " in error_of(step)


def test_permissions_of_the_organisations_sign_in_are_an_administrators_to_give(
    session: ChatSession, files: StoredCredential, alice: Membership, server: AuthorizationServer
) -> None:
    with organisation_scope(session.organisation):
        StoredCredential.objects.filter(pk=files.pk).update(scope="organisation")
    Browser(alice).sign_in("/o/acme/credentials/far/")

    turn = run(session)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, asked_of(turn)) == (TurnStatus.DONE, StepStatus.FAILED, [])
    assert error_of(step).startswith("Far Files needs more permissions: ")


def test_another_members_yes_lets_nothing_go_on(
    session: ChatSession, files: StoredCredential, alice: Membership, server: AuthorizationServer
) -> None:
    """Alice has an account there with every permission; Bob's call waits for Bob."""
    connected_for_mail(session, files)
    with organisation_scope(session.organisation):
        StoredCredential.objects.filter(pk=files.pk).update(scopes=["mail", "files"])
    Browser(alice).sign_in("/o/acme/accounts/far/")

    turn = go_on(run(session))

    assert turn.status == TurnStatus.WAITING_INPUT
    with organisation_scope(session.organisation):
        assert StoredSecret.objects.get(membership=alice).status == "connected"
        assert StoredSecret.objects.get(membership=session.membership).status == "needs_more"


# -- An MCP server ----------------------------------------------------------------------------------------------------


def far_server(
    session: ChatSession, server: AuthorizationServer, script: Script, url: str, wanted: str = "mail"
) -> StoredCredential:
    """An MCP server that lets in who has a token of the authorization server, with this permission."""
    about = f'Bearer resource_metadata="{server.url}/.well-known/oauth-protected-resource/mcp"'

    def refuse(headers: dict[str, str]) -> Any:
        grant = server.tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        if grant is None or grant.is_over:
            return 401, {"www-authenticate": f'{about}, error="invalid_token"'}, b""
        if wanted not in grant.scope.split():
            challenge = f'{about}, error="insufficient_scope", scope="{wanted}"'
            return 403, {"www-authenticate": challenge}, b""
        return None

    script.tool("do", lambda params: text_result("did it"))
    script.refuse = refuse
    credential = oauth_credential(
        session.organisation,
        server,
        name="far",
        title="Far Server",
        scopes=["mail"],
        origins=[url.removesuffix("/mcp"), server.url],
    )
    far = Far(session.organisation, url)
    with organisation_scope(session.organisation):
        McpServer.objects.filter(pk=far.server.pk).update(credential=credential)
        assert Tool.objects.get(name="mcp__far__do").server_id == far.server.pk
    return credential


def test_mr_40_an_mcp_server_is_called_when_the_member_connected_an_account(
    session: ChatSession, server: AuthorizationServer, provider: ScriptedOpenAI
) -> None:
    script = Script()
    browser = Browser(session.membership)
    provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "x"})]), Say("Done."))
    with http_server(script) as url:
        far_server(session, server, script, url)
        turn = run(session)
        assert link_of(turn).for_people == "Far Server: connect your account first."
        browser.sign_in(link_of(turn).url)
        turn = go_on(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, step.result) == (TurnStatus.DONE, StepStatus.DONE, "did it")
    assert len(script.calls) == 1


def test_mr_40_an_mcp_server_that_answers_401_is_called_again_with_a_new_sign_in(
    session: ChatSession, server: AuthorizationServer, provider: ScriptedOpenAI
) -> None:
    """The sign-in was ended at the authorization server: the server says 401, and no refresh helps."""
    script = Script()
    browser = Browser(session.membership)
    provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "x"})]), Say("Done."))
    with http_server(script) as url:
        far_server(session, server, script, url)
        browser.sign_in("/o/acme/accounts/far/")
        server.end_everything()
        turn = run(session)
        assert link_of(turn).for_people == "Far Server: connect your account again."
        assert script.calls == []
        browser.sign_in(link_of(turn).url)
        turn = go_on(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.result, len(script.calls)) == (TurnStatus.DONE, "did it", 1)


def test_mr_40_an_mcp_server_that_wants_more_permissions_is_called_again_with_them(
    session: ChatSession, server: AuthorizationServer, provider: ScriptedOpenAI
) -> None:
    script = Script()
    browser = Browser(session.membership)
    provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "x"})]), Say("Done."))
    with http_server(script) as url:
        far_server(session, server, script, url, wanted="files")
        browser.sign_in("/o/acme/accounts/far/")
        turn = run(session)
        assert link_of(turn).for_people.startswith("Far Server: ")
        assert link_of(turn).for_people.endswith("permissions are needed: files.")
        browser.sign_in(link_of(turn).url)
        turn = go_on(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.result, len(script.calls)) == (TurnStatus.DONE, "did it", 1)
