"""Calls that a person is asked of first, through whole turns: asked, answered, used once. tests/test_postgres.py runs
this file on PostgreSQL."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.access.approval_rules.writes import RuleContent, create_rule, delete_rule, update_rule
from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.assistant.models import Task
from capabilities.catalogue.tools.writes import Definition, set_tool_enabled, update_tool
from capabilities.common.registry_version import touch_registry
from capabilities.contract import decisions
from capabilities.contract.approvals import MAX_HOURS, MAX_SHOWN, digest_of
from capabilities.contract.decisions import Decision, Terms, Verb
from capabilities.models import (
    Agent,
    ApprovalRule,
    AskWhen,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    RuntimeConfig,
    Tool,
)
from capabilities.running.kinds import RUNNERS
from sessions.asking.approvals import queries, writes
from sessions.insight.trial import writes as trying
from sessions.loop.calls import approvals, preparing
from sessions.loop.calls.preparing import Prepared
from sessions.loop.run import parking
from sessions.models import (
    Approval,
    ApprovalKind,
    ApprovalStatus,
    ChatSession,
    Consent,
    Step,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns import ledger, waiting
from sessions.turns.asked import is_tool_run
from sessions.turns.fencing import Conflict
from sessions.turns.reaping import reap
from tests.cast import make_agent, make_category, make_member, make_meta_tools, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import accept, events_of, run, tool_steps_of, work, work_all
from tests.sessions.steps import change, expire_lease, reread
from tests.sessions.trials import run_trial
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)


def ask_first(session: ChatSession, tool: str = "task_create", **fields: Any) -> ApprovalRule:
    """A rule that asks before calls of the tool."""
    with organisation_scope(session.organisation):
        return create_rule(RuleContent("asks", tool_pattern=tool, **fields), actor=admin_of(session))


def admin_of(session: ChatSession) -> Membership:
    with system_scope():
        found = Membership.objects.filter(organisation=session.organisation, access=Access.ADMIN).first()
        return found or make_member(session.organisation, "admin", Access.ADMIN)


def asked_of(turn: Turn) -> list[Approval]:
    with organisation_scope(turn.organisation_id):
        return list(queries.approvals_of_turn(turn))


def answer(approval: Approval, write: Any, actor: Membership | None = None, **fields: Any) -> Turn:
    """Answer as the requester, and let a worker go on."""
    with organisation_scope(approval.organisation_id):
        write(approval, actor=actor or approval.requester, **fields)
    return work(reread(approval.turn))


def titles(session: ChatSession) -> list[str]:
    with organisation_scope(session.organisation_id):
        return list(Task.objects.order_by("pk").values_list("title", flat=True))


def wants(provider: ScriptedOpenAI, *calls: Any, then: str = "Done.") -> None:
    provider.enqueue(Say(calls=calls or [call("task_create", {"title": "buy milk"})]), Say(then))


# -- Asked and answered ------------------------------------------------------------------------------------------------


def test_a_call_that_is_asked_for_waits_and_nothing_has_happened(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session, message="Tasks are seen by the team.", expires_after=24)
    wants(provider)

    turn = run(session)

    (approval,), (step,) = asked_of(turn), tool_steps_of(turn)
    with organisation_scope(session.organisation):
        version = Tool.objects.get(name="task_create").current_version
    assert (turn.status, turn.owner, turn.lease_until) == (TurnStatus.WAITING_APPROVAL, "", None)
    assert (step.status, titles(session)) == (StepStatus.PENDING, [])
    assert (approval.kind, approval.status) == (ApprovalKind.APPROVAL, ApprovalStatus.PENDING)
    assert (approval.source, approval.for_people) == ("rule asks", "Tasks are seen by the team.")
    assert version is not None
    assert json.loads(approval.arguments)["title"] == "buy milk"
    assert approval.digest == digest_of("task_create", version.sha256, json.loads(approval.arguments))
    assert approval.registry_version == Organisation.objects.get(pk=session.organisation_id).registry_version
    assert timedelta(hours=23) < approval.expires_at - timezone.now() < timedelta(hours=25)
    assert step.display
    assert events_of(turn)[-2:] == ["approval_requested", "waiting_approval"]


def test_an_approved_call_runs_once_and_the_model_reads_who_allowed_it(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))

    turn = answer(approval, writes.approve)

    (step,) = tool_steps_of(turn)
    with organisation_scope(session.organisation):
        approval.refresh_from_db()
    assert (turn.status, turn.answer, titles(session)) == (TurnStatus.DONE, "Done.", ["buy milk"])
    assert step.status == StepStatus.DONE
    assert approval.used_at is not None
    receipt = json.loads(step.result_sent)["note"]
    assert "approved by Bob (bob@example.com) on " in receipt
    assert "approved by" not in step.result
    assert receipt in json.dumps(provider.requests[-1])


def test_a_denied_call_does_not_run_and_the_model_reads_the_proposal(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))

    turn = answer(approval, writes.deny, proposal="Put it on the list instead.", note="Between us: no.")

    (step,) = tool_steps_of(turn)
    said = json.loads(step.result_sent)
    assert (turn.status, titles(session), step.status) == (TurnStatus.DONE, [], StepStatus.REFUSED)
    assert said["error"].startswith("Denied by Bob (bob@example.com) on ")
    assert said["proposal"] == "Put it on the list instead."
    assert "Between us" not in json.dumps(provider.requests)


def test_a_person_answers_in_the_tools_place(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))

    turn = answer(approval, writes.respond, response="It is on the list already.")

    (step,) = tool_steps_of(turn)
    assert (turn.status, titles(session), step.status) == (TurnStatus.DONE, [], StepStatus.DONE)
    assert step.result == "It is on the list already."
    said, note = step.result_sent.split("\n\n")
    assert said == step.result
    assert note.startswith("Answered in place of the tool")


def test_what_nobody_answers_in_time_is_refused_to_the_model(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))
    with organisation_scope(session.organisation):
        Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    reap()
    turn = work(approval.turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, titles(session), step.status) == (TurnStatus.DONE, [], StepStatus.REFUSED)
    assert json.loads(step.result_sent)["error"].startswith("Not run: nobody approved it until ")


def test_calls_of_one_reply_are_asked_together_and_those_that_need_nobody_run_meanwhile(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session)
    wants(
        provider,
        call("task_create", {"title": "one"}),
        call("calculator", {"expression": "1+1"}),
        call("task_create", {"title": "two"}),
    )

    turn = run(session)

    first, second = asked_of(turn)
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.PENDING, StepStatus.DONE, StepStatus.PENDING]
    assert first.digest != second.digest
    turn = answer(first, writes.approve)
    assert (turn.status, titles(session)) == (TurnStatus.WAITING_APPROVAL, [])
    turn = answer(second, writes.deny)
    assert (turn.status, titles(session)) == (TurnStatus.DONE, ["one"])
    assert len(provider.requests) == 2


def test_a_call_whose_arguments_cannot_be_shown_whole_is_not_asked_for(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    """MR-42"""
    ask_first(session)
    make_big_tool(session)
    ask_all = RuleContent("all", 200)
    with organisation_scope(session.organisation):
        create_rule(ask_all, actor=admin_of(session))
    wants(provider, call("big", {"text": "x" * MAX_SHOWN}))

    turn = run(session)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, asked_of(turn)) == (TurnStatus.DONE, StepStatus.REFUSED, [])
    assert f"A person can read {MAX_SHOWN:,}" in json.loads(step.result_sent)["error"]


def make_big_tool(session: ChatSession) -> None:
    tool = make_tool(
        session.organisation, "big", parameters={"type": "object", "properties": {"text": {"type": "string"}}}
    )
    assert tool.is_enabled


# -- What an approval is tied to ---------------------------------------------------------------------------------------


def refused_after(approval: Approval) -> str:
    """What the model reads when the approved call did not run."""
    turn = work(approval.turn)
    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status) == (TurnStatus.DONE, StepStatus.REFUSED)
    return str(json.loads(step.result_sent)["error"])


@pytest.fixture
def approved(session: ChatSession, provider: ScriptedOpenAI) -> Approval:
    """A call that Bob approved, and that no worker has taken up yet."""
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))
    with organisation_scope(session.organisation):
        return writes.approve(approval, actor=approval.requester)


def test_an_altered_call_is_refused(approved: Approval, session: ChatSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook, a newer release, anything that makes other arguments of it."""
    with organisation_scope(session.organisation):
        reply = Step.objects.get(turn=approved.turn, kind="model")
        reply.tool_calls[0]["arguments"] = json.dumps({"title": "sell the house"})
        reply.save()

    assert "are not those that were approved" in refused_after(approved)
    assert titles(session) == []


def test_an_approval_of_another_digest_is_refused(approved: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        Approval.objects.update(digest="0" * 64)

    assert "are not those that were approved" in refused_after(approved)
    assert titles(session) == []


def test_an_expired_approval_is_refused(approved: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert "could be used until" in refused_after(approved)
    assert titles(session) == []


def test_a_replayed_approval_is_refused(approved: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        Approval.objects.update(used_at=timezone.now())

    assert refused_after(approved).startswith("Not run: this approval was used before")
    assert titles(session) == []


@pytest.mark.parametrize("field", ["used_at", "expires_at"])
def test_an_approval_that_is_used_or_ends_between_the_look_and_the_start_lets_nothing_run(
    approved: Approval, session: ChatSession, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    look = approvals.why_not_as_approved

    def changed_meanwhile(approval: Approval, prepared: Prepared) -> Any:
        found = look(approval, prepared)
        Approval.objects.update(**{field: timezone.now()})
        return found

    monkeypatch.setattr(approvals, "why_not_as_approved", changed_meanwhile)

    assert refused_after(approved).startswith("Not run: this approval was used before")
    assert titles(session) == []


def test_an_approval_is_of_one_call_and_the_same_call_again_is_asked_again(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    """In the next round of the same turn, with the same arguments."""
    ask_first(session)
    milk = Say(calls=[call("task_create", {"title": "buy milk"})])
    provider.enqueue(milk, milk, Say("Done."))
    (first,) = asked_of(run(session))

    again = answer(first, writes.approve)

    _, second = asked_of(again)
    assert (again.status, titles(session)) == (TurnStatus.WAITING_APPROVAL, ["buy milk"])
    assert (second.digest, second.status) == (first.digest, ApprovalStatus.PENDING)


def test_a_re_versioned_tool_is_refused(approved: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        tool = Tool.objects.select_related("category").get(name="task_create")
        version = tool.current_version
        assert version is not None
        definition = Definition(tool.name, "Does something else.", version.parameters, version.effect, version.on_crash)
        update_tool(tool, definition, actor=None)

    assert "the tool was changed" in refused_after(approved)
    assert titles(session) == []


def test_a_self_approved_call_is_refused_where_another_person_must_approve_it(
    approved: Approval, session: ChatSession
) -> None:
    """The rule was made stricter after Bob had approved his own call."""
    with organisation_scope(session.organisation):
        rule = ApprovalRule.objects.get()
        update_rule(
            rule, RuleContent("asks", tool_pattern="task_create", needs_other_person=True), actor=admin_of(session)
        )

    assert "approved by its requester" in refused_after(approved)
    assert titles(session) == []


def test_a_call_that_another_person_approved_runs(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session, needs_other_person=True)
    wants(provider)
    (approval,) = asked_of(run(session))
    carol = make_member(session.organisation, "carol")
    with organisation_scope(session.organisation):
        AdminRight.objects.create(
            organisation=session.organisation, membership=carol, right=Right.APPROVALS, category="tasks"
        )

    turn = answer(approval, writes.approve, carol)

    (step,) = tool_steps_of(turn)
    assert (turn.status, titles(session)) == (TurnStatus.DONE, ["buy milk"])
    assert "approved by Carol (carol@example.com)" in step.result_sent


def test_a_right_that_was_taken_meanwhile_keeps_an_approved_call_from_running(
    approved: Approval, session: ChatSession
) -> None:
    with organisation_scope(session.organisation):
        Grant.objects.create(
            organisation=session.organisation, membership=approved.requester, tool=approved.tool, effect=Effect.DENY
        )

    assert refused_after(approved).startswith("Access denied")
    assert titles(session) == []


def test_a_tool_that_was_switched_off_meanwhile_does_not_run(approved: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        set_tool_enabled(Tool.objects.get(name="task_create"), False, actor=admin_of(session))

    assert "switched off" in refused_after(approved)
    assert titles(session) == []


def test_a_decision_that_became_a_denial_keeps_an_approved_call_from_running(
    approved: Approval, session: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(prepared: Prepared) -> Decision:
        return Decision(Verb.DENY, "test", for_model="Frozen.")

    monkeypatch.setattr(preparing, "DECIDERS", (*preparing.DECIDERS, deny))

    assert refused_after(approved) == "Frozen."
    assert titles(session) == []


def test_an_approved_call_runs_though_nobody_asks_any_more(approved: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        delete_rule(ApprovalRule.objects.get(), actor=admin_of(session))

    assert work(approved.turn).status == TurnStatus.DONE
    assert titles(session) == ["buy milk"]


def test_a_member_who_leaves_while_a_call_waits_ends_the_turn(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))
    with system_scope():
        Membership.objects.filter(pk=approval.requester_id).update(ended_at=timezone.now())

    reap()

    with organisation_scope(session.organisation):
        approval.refresh_from_db()
        assert (reread(approval.turn).status, approval.status) == (TurnStatus.CANCELLED, ApprovalStatus.VOID)


# -- Crashes -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_before_the_turn_waits_asks_nobody_twice(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_first(session)
    wants(provider)

    def dies(*_: object, **__: object) -> None:
        raise SystemExit("killed")

    with monkeypatch.context() as patched:
        patched.setattr(parking, "park", dies)
        turn = accept(session)
        with pytest.raises(SystemExit):
            work(turn)
    expire_lease(turn.pk)

    turn = work(turn)

    (approval,) = asked_of(turn)
    assert turn.status == TurnStatus.WAITING_APPROVAL
    assert answer(approval, writes.approve).status == TurnStatus.DONE
    assert titles(session) == ["buy milk"]


def test_an_answer_that_comes_before_the_turn_waits_lets_it_go_on_at_once(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_first(session)
    wants(provider)
    park = waiting.park

    def answered_first(claim: ledger.Claim) -> bool:
        for approval in queries.with_all_shown(Approval.objects.filter(status=ApprovalStatus.PENDING)):
            writes.approve(approval, actor=approval.requester)
        return park(claim)

    monkeypatch.setattr(parking, "park", answered_first)

    turn = run(session)

    assert (turn.status, titles(session)) == (TurnStatus.DONE, ["buy milk"])
    assert "waiting_approval" not in events_of(turn)


def test_a_call_that_was_approved_and_cut_off_by_a_crash_does_not_run_again(
    approved: Approval, session: ChatSession
) -> None:
    """`task_create` may not be repeated: what came of it is unknown."""
    with organisation_scope(session.organisation):
        claim = ledger.claim(approved.turn_id, "dies")
        assert claim is not None
        ledger.start_step(claim, approved.step, approval_id=approved.pk)
    expire_lease(approved.turn_id)

    turn = work(approved.turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, titles(session)) == (TurnStatus.DONE, StepStatus.UNKNOWN, [])


@pytest.mark.parametrize(("merged", "status"), [({}, StepStatus.DONE), ({"expression": "40+2"}, StepStatus.UNKNOWN)])
def test_a_call_that_began_goes_on_only_as_it_was_approved(
    session: ChatSession, provider: ScriptedOpenAI, merged: dict[str, Any], status: StepStatus
) -> None:
    """`calculator` may be repeated. A hook that came since then makes another call of it."""
    ask_first(session, "calculator")
    wants(provider, call("calculator", {"expression": "1+1"}))
    (approval,) = asked_of(run(session))
    with organisation_scope(session.organisation):
        writes.approve(approval, actor=approval.requester)
        claim = ledger.claim(approval.turn_id, "dies")
        assert claim is not None
        ledger.start_step(claim, approval.step, approval_id=approval.pk, tool_version_id=approval.tool_version_id)
        if merged:
            create_hook(HookContent({"action": "merge_input", "settings": {"values": merged}}), actor=admin_of(session))
    expire_lease(approval.turn_id)

    turn = work(approval.turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status) == (TurnStatus.DONE, status)
    assert "42" not in step.result


def test_a_rule_whose_hours_are_stored_beyond_all_bounds_asks_all_the_same(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session)
    with organisation_scope(session.organisation):
        ApprovalRule.objects.update(expires_after=2_000_000_000)
        touch_registry(session.organisation_id)
    wants(provider)

    (approval,) = asked_of(run(session))

    assert approval.expires_at - timezone.now() < timedelta(hours=MAX_HOURS)


def test_the_deadline_stands_still_while_a_call_waits(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session)
    wants(provider)
    (approval,) = asked_of(run(session))
    change(
        approval.turn_id,
        waiting_since=timezone.now() - timedelta(days=6),
        deadline_at=timezone.now() - timedelta(days=6) + timedelta(minutes=5),
    )

    reap()

    assert reread(approval.turn).status == TurnStatus.WAITING_APPROVAL
    assert answer(approval, writes.approve).status == TurnStatus.DONE


# -- First time, always, never, consents -------------------------------------------------------------------------------


def test_a_first_time_in_a_session_is_asked_once_and_in_the_next_session_again(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session, when=AskWhen.FIRST_IN_SESSION)
    for _ in range(3):
        wants(provider)
    (approval,) = asked_of(run(session))
    answer(approval, writes.approve)

    assert run(session).status == TurnStatus.DONE
    assert run(make_session(session.membership, session.agent)).status == TurnStatus.WAITING_APPROVAL
    assert titles(session) == ["buy milk"] * 2


def test_always_is_asked_each_time(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session)
    for _ in range(2):
        wants(provider)
    (approval,) = asked_of(run(session))
    answer(approval, writes.approve)

    assert run(session).status == TurnStatus.WAITING_APPROVAL


def test_mr_42_the_first_rule_wins_so_never_in_front_asks_nobody(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session)
    with organisation_scope(session.organisation):
        content = RuleContent("milk", 1, "task_*", argument="title", argument_pattern="*milk*", when=AskWhen.NEVER)
        create_rule(content, actor=admin_of(session))
    wants(provider)

    assert run(session).status == TurnStatus.DONE


@pytest.fixture
def consent(session: ChatSession, provider: ScriptedOpenAI) -> Consent:
    """Bob's, for an hour, in every session."""
    ask_first(session, when=AskWhen.FIRST_IN_SESSION)
    wants(provider)
    (approval,) = asked_of(run(session))
    answer(approval, writes.approve_with_consent, until=timezone.now() + timedelta(hours=1))
    with organisation_scope(session.organisation):
        return Consent.objects.get(session=None)


def elsewhere(session: ChatSession, provider: ScriptedOpenAI, member: Membership | None = None) -> TurnStatus:
    """How a call of the same tool goes in another session."""
    wants(provider)
    return TurnStatus(run(make_session(member or session.membership, session.agent)).status)


def test_a_consent_for_a_time_counts_in_other_sessions(
    consent: Consent, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    assert elsewhere(session, provider) == TurnStatus.DONE


@pytest.mark.parametrize("end", [{"until": timezone.now()}, {"revoked_at": timezone.now()}])
def test_a_consent_that_ended_or_was_revoked_counts_no_more(
    consent: Consent, session: ChatSession, provider: ScriptedOpenAI, end: dict[str, Any]
) -> None:
    with organisation_scope(session.organisation):
        Consent.objects.filter(pk=consent.pk).update(**end)

    assert elsewhere(session, provider) == TurnStatus.WAITING_APPROVAL


def test_a_consent_is_void_on_a_new_version(consent: Consent, session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation):
        tool = Tool.objects.select_related("category").get(name="task_create")
        version = tool.current_version
        assert version is not None
        definition = Definition(tool.name, "Newer.", version.parameters, version.effect, version.on_crash)
        update_tool(tool, definition, actor=None)

    assert elsewhere(session, provider) == TurnStatus.WAITING_APPROVAL


def test_a_consent_is_for_one_member(consent: Consent, session: ChatSession, provider: ScriptedOpenAI) -> None:
    carol = make_member(session.organisation, "carol")
    make_role(session.organisation, carol, slug="hers")

    assert elsewhere(session, provider, carol) == TurnStatus.WAITING_APPROVAL


def test_one_s_own_consent_counts_no_more_when_another_person_must_answer(
    consent: Consent, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation):
        content = RuleContent(
            "asks", tool_pattern="task_create", when=AskWhen.FIRST_IN_SESSION, needs_other_person=True
        )
        update_rule(ApprovalRule.objects.get(), content, actor=admin_of(session))

    assert elsewhere(session, provider) == TurnStatus.WAITING_APPROVAL


def test_a_consent_does_not_answer_for_a_hook_or_for_trust(
    consent: Consent, session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(prepared: Prepared) -> Decision:
        return Decision(Verb.ASK, "hook", for_people="Look at this one.")

    monkeypatch.setattr(preparing, "DECIDERS", (*preparing.DECIDERS, hook))

    assert elsewhere(session, provider) == TurnStatus.WAITING_APPROVAL


def test_the_terms_of_who_asks_stand_in_the_approval(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(prepared: Prepared) -> Decision:
        return Decision(Verb.ASK, "hook money", for_people="Money.", terms=Terms(2, needs_other_person=True))

    monkeypatch.setattr(preparing, "DECIDERS", (hook,))
    wants(provider)

    (approval,) = asked_of(run(session))

    assert (approval.source, approval.needs_other_person, approval.allows_consent) == ("hook money", True, False)
    assert approval.expires_at - timezone.now() < timedelta(hours=2, minutes=1)


# -- Questions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def question(session: ChatSession, provider: ScriptedOpenAI) -> Approval:
    make_tool(session.organisation, "ask_user", category=make_category(session.organisation, "session"))
    asks = {"question": "Which shop?", "choices": ["The one at the corner.", "Another."]}
    wants(provider, call("ask_user", asks), then="Thanks.")
    turn = run(session)
    assert turn.status == TurnStatus.WAITING_INPUT
    (asked,) = asked_of(turn)
    return asked


def test_a_question_parks_the_turn_and_its_answer_is_the_result(question: Approval, session: ChatSession) -> None:
    assert (question.kind, question.for_people) == (ApprovalKind.QUESTION, "Which shop?")
    assert json.loads(question.arguments)["choices"] == ["The one at the corner.", "Another."]
    assert events_of(question.turn)[-2:] == ["question_asked", "waiting_input"]

    turn = answer(question, writes.respond, response="The one at the corner.")

    (step,) = tool_steps_of(turn)
    assert (turn.status, turn.answer, step.status) == (TurnStatus.DONE, "Thanks.", StepStatus.DONE)
    assert step.result == "The one at the corner."
    assert "Answered by Bob (bob@example.com) on " in step.result_sent


def test_a_turn_says_what_it_still_waits_for(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask_first(session)
    make_tool(session.organisation, "ask_user", category=make_category(session.organisation, "session"))
    wants(provider, call("task_create", {"title": "buy milk"}), call("ask_user", {"question": "Which?"}))
    turn = run(session)
    approval, question = asked_of(turn)
    assert turn.status == TurnStatus.WAITING_APPROVAL

    with organisation_scope(session.organisation):
        writes.approve(approval, actor=approval.requester)
        assert reread(turn).status == TurnStatus.WAITING_INPUT
        assert titles(session) == []

    assert answer(question, writes.respond, response="This one.").status == TurnStatus.DONE
    assert titles(session) == ["buy milk"]


def test_a_question_that_nobody_answers_ends_with_a_sentence(question: Approval, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    reap()

    assert "nobody answered the question until " in refused_after(question)


# -- Other ways to a tool ----------------------------------------------------------------------------------------------


@pytest.fixture
def coder(session: ChatSession, provider: ScriptedOpenAI) -> Agent:
    """An agent with the same tools, that Bob's agent asks."""
    make_tool(session.organisation, "spawn_agent", category=make_category(session.organisation, "agents"))
    return make_agent(session.organisation, provider.url, slug="coder")


def spawn() -> Any:
    return call("spawn_agent", {"agent": "coder", "message": "Add it."})


def test_what_a_child_turn_asks_is_asked_of_its_member_in_the_member_s_own_session(
    session: ChatSession, provider: ScriptedOpenAI, coder: Agent
) -> None:
    ask_first(session)
    provider.enqueue(
        Say(calls=[spawn()]), Say(calls=[call("task_create", {"title": "buy milk"})]), Say("Added."), Say("All done.")
    )
    parent = accept(session)
    work_all()

    with organisation_scope(session.organisation):
        (approval,) = queries.waiting_in_session(session)
        assert (approval.session, approval.requester, approval.turn.session.depth) == (session, session.membership, 1)
        assert reread(parent).status == TurnStatus.WAITING_CHILD
        assert reread(approval.turn).status == TurnStatus.WAITING_APPROVAL
        assert list(queries.waiting_in_session(approval.turn.session)) == [approval]
        writes.approve(approval, actor=session.membership)
    work_all()

    assert (reread(parent).status, reread(parent).answer) == (TurnStatus.DONE, "All done.")
    assert titles(session) == ["buy milk"]


def test_stopping_the_turn_above_voids_what_its_child_asks(
    session: ChatSession, provider: ScriptedOpenAI, coder: Agent
) -> None:
    ask_first(session)
    provider.enqueue(Say(calls=[spawn()]), Say(calls=[call("task_create", {"title": "buy milk"})]))
    parent = accept(session)
    work_all()

    with organisation_scope(session.organisation):
        (approval,) = queries.waiting_in_session(session)
        ledger.cancel(reread(parent), actor=session.membership)
        approval.refresh_from_db()
        assert (approval.status, reread(approval.turn).status) == (ApprovalStatus.VOID, TurnStatus.CANCELLED)
        with pytest.raises(Conflict, match="ended"):
            writes.approve(approval, actor=session.membership)


def test_another_agent_is_asked_only_when_a_person_allows_it(
    session: ChatSession, provider: ScriptedOpenAI, coder: Agent
) -> None:
    ask_first(session, "spawn_agent")
    provider.enqueue(Say(calls=[spawn()]), Say("By the child."), Say("All done."))
    turn = run(session)
    (approval,) = asked_of(turn)
    with organisation_scope(session.organisation):
        assert not Turn.objects.exclude(pk=turn.pk).exists()
        writes.approve(approval, actor=approval.requester)

    work_all()

    (step,) = tool_steps_of(turn)
    assert (reread(turn).status, reread(turn).answer) == (TurnStatus.DONE, "All done.")
    assert json.loads(step.result_sent)["answer"] == "By the child."
    assert json.loads(step.result_sent)["note"].startswith("This call was approved by Bob")


def test_a_long_answer_of_another_agent_stays_within_the_cap_with_its_receipt(
    session: ChatSession, provider: ScriptedOpenAI, coder: Agent
) -> None:
    ask_first(session, "spawn_agent")
    with organisation_scope(session.organisation):
        LanguageModel.objects.update(context_window=10_000)
    provider.enqueue(Say(calls=[spawn()]), Say("x" * 50_000), Say("All done."))
    turn = run(session)
    (approval,) = asked_of(turn)
    with organisation_scope(session.organisation):
        writes.approve(approval, actor=approval.requester)

    work_all()

    (step,) = tool_steps_of(turn)
    assert len(step.result_sent) <= 8_800 < len(step.result)
    assert json.loads(step.result_sent)["note"].startswith("This call was approved by Bob")


def test_a_tool_behind_call_tool_is_asked_for_by_its_own_name_and_arguments(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask_first(session)
    make_meta_tools(session.organisation)
    with organisation_scope(session.organisation):
        session.agent.loading_mode = LoadingMode.CONSTANT
        session.agent.save()
    wants(provider, call("call_tool", {"name": "task_create", "arguments": {"title": "buy milk"}}))

    turn = run(session)

    (approval,), (step,) = asked_of(turn), tool_steps_of(turn)
    assert (approval.tool.name, json.loads(approval.arguments)["title"]) == ("task_create", "buy milk")
    assert (step.tool_name, step.called_through) == ("task_create", "call_tool")
    assert answer(approval, writes.approve).status == TurnStatus.DONE
    assert titles(session) == ["buy milk"]


@pytest.mark.parametrize(("fields", "runs"), [({}, True), ({"needs_other_person": True}, False)])
def test_a_tool_run_by_hand_goes_round_no_rule_that_takes_another_person(
    session: ChatSession, fields: dict[str, Any], runs: bool
) -> None:
    ask_first(session, **fields)
    with organisation_scope(session.organisation):
        trial = trying.trial_or_404(session.membership, "task_create")
        trying.request_trial(trial, '{"title": "buy milk"}', actor=session.membership)

    done = run_trial(session.membership)

    assert titles(session) == (["buy milk"] if runs else [])
    assert ("takes another person" in done.result) is not runs


def test_a_setting_of_the_tool_asks_as_a_rule_does(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation):
        values = {"tools": {"task_*": {"ask": "first_time"}}}
        RuntimeConfig.objects.create(organisation=session.organisation, layer="organisation", values=values)
        touch_registry(session.organisation_id)
    wants(provider)

    (approval,) = asked_of(run(session))

    assert (approval.source, approval.allows_consent) == ("setting ask", True)


def test_a_setting_that_is_no_word_of_ours_asks_each_time(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(decisions.KNOB, "off")
    wants(provider)

    (approval,) = asked_of(run(session))

    assert (approval.source, approval.allows_consent) == ("setting ask", False)


def test_no_tool_and_no_turn_reaches_the_answers() -> None:
    """Only pages, REST and tests import what answers: no tool, no worker, no loop."""
    rooms = [
        Path("capabilities"),
        *(Path("sessions") / room for room in ("builtin", "loop", "turns", "worker", "loading")),
    ]
    sources = [path for room in rooms for path in room.rglob("*.py")]

    assert [str(path) for path in sources if "sessions.asking.approvals" in path.read_text()] == []


def test_a_running_tool_answers_nothing(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it came to hold the function: Bob's own calculator tries to approve what Bob's other turn asks."""
    ask_first(session)
    provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]))
    (approval,) = asked_of(run(make_session(session.membership, session.agent)))
    said: list[str] = []

    def approves(**_: Any) -> str:
        try:
            writes.approve(approval, actor=approval.requester)
        except PermissionDenied as error:
            said.append(str(error))
        return "4"

    monkeypatch.setitem(RUNNERS, "builtin", approves)
    wants(provider, call("calculator", {"expression": "2+2"}))

    assert run(session).status == TurnStatus.DONE
    assert said == ["An agent never answers: a person does."]


def test_a_running_tool_revokes_no_consent(consent: Consent) -> None:
    with organisation_scope(consent.organisation_id):
        member, token = consent.membership, is_tool_run.set(True)
        try:
            with pytest.raises(PermissionDenied):
                writes.revoke_consent(consent, actor=member)
        finally:
            is_tool_run.reset(token)
        consent.refresh_from_db()

    assert consent.revoked_at is None


def test_rules_that_mean_no_call_of_a_turn_cost_it_no_statement(session: ChatSession, provider: ScriptedOpenAI) -> None:
    """In a process that knows them; a rule of a role costs none where its pattern means another tool."""
    counts = []
    for _ in range(2):
        for _ in range(2):  # the first one reads what has changed
            wants(provider)
            turn = accept(session)
            with CaptureQueriesContext(connection) as captured:
                assert work(turn).status == TurnStatus.DONE
        counts.append(len(captured))
        if len(counts) == 1:
            ask_first(session, "web_*")
            with organisation_scope(session.organisation):
                create_rule(RuleContent("staff", tool_pattern="mail_*", role="all"), actor=admin_of(session))

    assert counts[0] == counts[1]
