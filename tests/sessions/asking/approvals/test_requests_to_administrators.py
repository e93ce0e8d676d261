"""`cortex_restart` and `cortex_update` ask through the approvals, and `cortex_status` says what became of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.models import AskWhen, Tool
from sessions.asking.approvals import writes
from sessions.doors.builtin import system
from sessions.loop.calls.approvals import why_not_by_hand
from sessions.models import ApprovalStatus, ChatSession, StepStatus, TurnStatus
from sessions.selection.unattended import why_asks_in
from tests.cast import make_agent, make_category, make_member, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_asking import answer, asked_of
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access, AuditEntry, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = ("cortex_restart", "cortex_update")


@pytest.fixture
def chat(alice: Membership, bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob's, with the tools that ask and the one that tells."""
    acme = bob.organisation
    category = make_category(acme, "system")
    for name in (*TOOLS, "cortex_status"):
        make_tool(acme, name, category=category)
    make_role(acme, bob)
    make_role(acme, alice, slug="everything")
    return make_session(bob, make_agent(acme, provider.url))


def asks(provider: ScriptedOpenAI, name: str, **arguments: Any) -> None:
    provider.enqueue(Say(calls=[call(name, arguments)]), Say("Done."))


def status_told(session: ChatSession, provider: ScriptedOpenAI) -> dict[str, Any]:
    asks(provider, "cortex_status")
    found: dict[str, Any] = json.loads(tool_steps_of(run(session))[0].result)
    return found


def agreed(session: ChatSession) -> list[tuple[str, str]]:
    with organisation_scope(session.organisation_id):
        rows = AuditEntry.objects.filter(action__startswith="service.agree_").order_by("number")
        return [(row.action, row.after["reason"]) for row in rows]


@pytest.mark.parametrize("name", TOOLS)
def test_a_request_waits_for_another_person_whatever_the_rules_say(
    chat: ChatSession, alice: Membership, provider: ScriptedOpenAI, name: str
) -> None:
    with organisation_scope(chat.organisation):
        create_rule(RuleContent("never", tool_pattern="cortex_*", when=AskWhen.NEVER, priority=1), actor=alice)
    asks(provider, name, reason="It is slow.")

    turn = run(chat)

    (approval,) = asked_of(turn)
    assert (turn.status, approval.needs_other_person, approval.allows_consent) == (
        TurnStatus.WAITING_APPROVAL,
        True,
        False,
    )
    assert agreed(chat) == []
    with pytest.raises(PermissionDenied):
        answer(approval, writes.approve)
    assert answer(approval, writes.approve, actor=alice).status == TurnStatus.DONE
    assert agreed(chat) == [(f"service.agree_{name.removeprefix('cortex_')}", "It is slow.")]


def test_a_denied_request_is_not_recorded_as_agreed(
    chat: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    asks(provider, "cortex_restart", reason="It is slow.")
    (approval,) = asked_of(run(chat))

    turn = answer(approval, writes.deny, actor=alice)

    assert (tool_steps_of(turn)[0].status, agreed(chat)) == (StepStatus.REFUSED, [])
    (request,) = status_told(chat, provider)["requests"]
    assert (request["what"], request["status"]) == ("restart", ApprovalStatus.DENIED)


def test_the_status_says_whether_what_was_agreed_has_happened(
    chat: ChatSession, alice: Membership, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks(provider, "cortex_restart", reason="It is slow.")
    (approval,) = asked_of(run(chat))
    answer(approval, writes.approve, actor=alice)

    before = status_told(chat, provider)
    monkeypatch.setattr(system, "RUNNING_SINCE", timezone.now() + timedelta(seconds=1))
    after = status_told(chat, provider)

    assert [each["requests"][0]["restarted_since"] for each in (before, after)] == [False, True]
    assert before["running_since"] < after["running_since"]


def test_a_member_reads_of_own_requests_alone_and_who_answers_of_all(
    chat: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("cortex_update", {"reason": "It is old."})]))
    run(chat)
    dora = make_member(chat.organisation, "dora", Access.MEMBER)
    make_role(chat.organisation, dora)

    told = {who: status_told(make_session(who, chat.agent), provider)["requests"] for who in (dora, alice)}

    assert (told[dora], [each["what"] for each in told[alice]]) == ([], ["update"])


def test_an_admin_is_asked_as_well_and_may_answer(
    alice: Membership, chat: ChatSession, provider: ScriptedOpenAI
) -> None:
    asks(provider, "cortex_restart", reason="Because.")

    (approval,) = asked_of(run(make_session(alice, chat.agent)))

    assert answer(approval, writes.approve).status == TurnStatus.DONE
    assert agreed(chat) == [("service.agree_restart", "Because.")]


def test_no_way_without_a_person_runs_it(chat: ChatSession) -> None:
    with organisation_scope(chat.organisation):
        tool = Tool.objects.get(name="cortex_restart")
        (spec,) = current_specs([tool.current_version_id or 0])

        assert why_not_by_hand(chat.organisation_id, chat.membership_id, spec, {"reason": "x"})
        assert why_asks_in(chat, chat.agent, at=None)(spec)
