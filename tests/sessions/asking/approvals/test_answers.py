"""Who answers what a turn asks, and what each answer leaves. tests/test_postgres.py runs this file on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.urls import reverse
from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from sessions.asking.approvals import queries, writes
from sessions.asking.approvals.answering import why_not_answer
from sessions.models import Approval, ApprovalKind, ApprovalStatus, ChatSession, Consent, TurnStatus
from sessions.turns import asked, waiting
from sessions.turns.asked import is_tool_run
from sessions.turns.fencing import Conflict
from sessions.turns.reaping import reap
from tests.cast import make_approval, make_member, make_session
from tests.sessions.run_turns import accept, events_of
from tests.sessions.steps import add_call, claimed, reread
from tests.threads import at_once
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Invitation, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.targets import addresses_of

pytestmark = pytest.mark.django_db(transaction=True)

Answer = Callable[[Approval, Membership], Approval]
ANSWERS: dict[ApprovalStatus, Answer] = {
    ApprovalStatus.APPROVED: lambda approval, actor: writes.approve(approval, actor=actor),
    ApprovalStatus.DENIED: lambda approval, actor: writes.deny(approval, actor=actor, proposal="Ask me on Monday."),
    ApprovalStatus.RESPONDED: lambda approval, actor: writes.respond(approval, actor=actor, response="It is 4."),
}


@pytest.fixture
def asks(session: ChatSession) -> Callable[..., Approval]:
    """Bob's turn, in a session of its own, waits for this; it is read anew, as a view reads it."""

    def ask(**fields: Any) -> Approval:
        turn = accept(make_session(session.membership, session.agent))
        claim = claimed(turn)
        approval = make_approval(add_call(claim), **fields)
        with organisation_scope(session.organisation_id):
            assert waiting.park(claim)
            return queries.with_all_shown(Approval.objects.all()).get(pk=approval.pk)

    return ask


def actions() -> list[str]:
    return list(AuditEntry.objects.order_by("number").values_list("action", flat=True))


# -- Answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ANSWERS)
def test_an_answer_is_stored_with_its_audit_row_and_lets_the_turn_go_on(
    asks: Callable[..., Approval], status: ApprovalStatus
) -> None:
    approval = asks()
    bob = approval.requester

    with organisation_scope(bob.organisation_id):
        before = len(actions())
        answered = ANSWERS[status](approval, bob)

        assert (answered.status, answered.decided_by, answered.used_at) == (status, bob, None)
        verb = {"approved": "approve", "denied": "deny", "responded": "respond"}[status]
        assert actions()[before:] == [f"approval.{verb}"]
        assert reread(approval.turn).status == TurnStatus.QUEUED
        assert events_of(approval.turn)[-2:] == ["approval_answered", "resumed"]


def test_no_word_of_an_answer_stands_in_the_audit(asks: Callable[..., Approval]) -> None:
    approval = asks(arguments='{"secret": "zebracanary"}')
    with organisation_scope(approval.organisation_id):
        writes.deny(approval, actor=approval.requester, proposal="zebracanary", note="zebracanary")
        entry = AuditEntry.objects.latest("number")

    assert "zebracanary" not in f"{entry.before}{entry.after}{entry.target_label}"
    assert entry.after["digest"] == approval.digest


def test_the_audit_leads_whoever_may_see_it_to_the_approval(asks: Callable[..., Approval], alice: Membership) -> None:
    approval = asks()
    with organisation_scope(alice.organisation_id):
        writes.approve(approval, actor=approval.requester)
        entry = AuditEntry.objects.filter(action="approval.approve").get()
        dave = make_member(alice.organisation, "dave")

        page = reverse("approval_detail", args=[alice.organisation.slug, approval.public_id])
        assert addresses_of([entry], alice) == {("approval", str(approval.public_id)): page}
        assert addresses_of([entry], dave) == {}


@pytest.mark.parametrize("first", ANSWERS)
@pytest.mark.parametrize("second", ANSWERS)
def test_a_second_answer_is_refused_and_changes_nothing(
    asks: Callable[..., Approval], first: ApprovalStatus, second: ApprovalStatus
) -> None:
    approval = asks()
    with organisation_scope(approval.organisation_id):
        ANSWERS[first](approval, approval.requester)
        with pytest.raises(Conflict) as refused:
            ANSWERS[second](approval, approval.requester)
        approval.refresh_from_db()

    assert refused.value.code == "already_decided"
    assert approval.status == first


@pytest.mark.parametrize("first", ANSWERS)
@pytest.mark.parametrize("second", ANSWERS)
def test_an_answer_to_what_was_read_before_another_answered_changes_nothing(
    asks: Callable[..., Approval], first: ApprovalStatus, second: ApprovalStatus
) -> None:
    """Whoever is later has the row as it was when both began."""
    approval = asks()
    with organisation_scope(approval.organisation_id):
        mine, theirs = (queries.with_all_shown(Approval.objects.all()).get(pk=approval.pk) for _ in range(2))
        ANSWERS[first](mine, mine.requester)
        with pytest.raises(Conflict) as refused:
            ANSWERS[second](theirs, theirs.requester)
        approval.refresh_from_db()

    assert (refused.value.code, approval.status) == ("already_decided", first)


def test_of_two_answers_at_once_one_wins(asks: Callable[..., Approval]) -> None:
    approval = asks()

    def answer(status: ApprovalStatus) -> Callable[[], str]:
        def work() -> str:
            with organisation_scope(approval.organisation_id):
                mine = queries.with_all_shown(Approval.objects.all()).get(pk=approval.pk)
                try:
                    return str(ANSWERS[status](mine, mine.requester).status)
                except Conflict as lost:
                    return lost.code

        return work

    said = at_once([answer(status) for status in (ApprovalStatus.APPROVED, ApprovalStatus.DENIED) for _ in range(3)])

    with organisation_scope(approval.organisation_id):
        approval.refresh_from_db()
        won = [action for action in actions() if action.startswith("approval.")]
        assert sorted(said) == sorted([*["already_decided"] * 5, str(approval.status)])
        assert len(won) == 1
        assert events_of(approval.turn).count("approval_answered") == 1
        assert reread(approval.turn).status == TurnStatus.QUEUED


@pytest.mark.parametrize("status", ANSWERS)
def test_an_answer_to_a_turn_that_has_ended_is_refused(asks: Callable[..., Approval], status: ApprovalStatus) -> None:
    approval = asks()
    with organisation_scope(approval.organisation_id):
        Approval.objects.filter(pk=approval.pk).update(status=ApprovalStatus.VOID)
        with pytest.raises(Conflict) as refused:
            ANSWERS[status](approval, approval.requester)

    assert refused.value.code == "void"


@pytest.mark.parametrize("is_swept", [False, True])
def test_an_answer_that_comes_too_late_is_refused(asks: Callable[..., Approval], is_swept: bool) -> None:
    approval = asks(expires_at=timezone.now() - timedelta(seconds=1))
    if is_swept:
        reap()
    with organisation_scope(approval.organisation_id), pytest.raises(Conflict) as refused:
        writes.approve(approval, actor=approval.requester)

    assert refused.value.code == "expired"


def test_a_sweep_ends_what_nobody_answered_and_the_turn_goes_on(asks: Callable[..., Approval]) -> None:
    late = asks(expires_at=timezone.now() - timedelta(seconds=1))

    reap()

    with organisation_scope(late.organisation_id):
        late.refresh_from_db()
        assert actions()[-1] == "approval.expire"
        assert late.status == ApprovalStatus.EXPIRED
        assert reread(late.turn).status == TurnStatus.QUEUED


def test_one_that_cannot_be_ended_stops_no_other(
    asks: Callable[..., Approval], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = asks(expires_at=timezone.now() - timedelta(minutes=5))
    good = asks(expires_at=timezone.now() - timedelta(minutes=1))
    settle = asked.settle

    def fails_for_bad(approval: Approval, *args: Any, **fields: Any) -> bool:
        if approval.pk == bad.pk:
            raise ValueError("broken")
        return settle(approval, *args, **fields)

    monkeypatch.setattr(asked, "settle", fails_for_bad)

    reap()

    with organisation_scope(bad.organisation_id):
        bad.refresh_from_db()
        good.refresh_from_db()
    assert (bad.status, good.status) == (ApprovalStatus.PENDING, ApprovalStatus.EXPIRED)


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (lambda approval: writes.respond(approval, actor=approval.requester, response="  "), "response"),
        (lambda approval: writes.respond(approval, actor=approval.requester, response="x" * 20_001), "response"),
        (lambda approval: writes.deny(approval, actor=approval.requester, proposal="x" * 4_001), "proposal"),
        (lambda approval: writes.approve(approval, actor=approval.requester, note="x" * 2_001), "note"),
    ],
)
def test_an_answer_that_is_empty_or_too_long_is_refused(
    asks: Callable[..., Approval], answer: Callable[[Approval], Approval], field: str
) -> None:
    approval = asks()
    with organisation_scope(approval.organisation_id):
        with pytest.raises(ChangeRefused) as refused:
            answer(approval)
        approval.refresh_from_db()

    assert (refused.value.field, approval.status) == (field, ApprovalStatus.PENDING)


def test_a_question_is_not_approved(asks: Callable[..., Approval]) -> None:
    approval = asks(kind=ApprovalKind.QUESTION)
    with organisation_scope(approval.organisation_id), pytest.raises(Conflict) as refused:
        writes.approve(approval, actor=approval.requester)

    assert refused.value.code == "not_a_call"


# -- Who may -----------------------------------------------------------------------------------------------------------


def approver(session: ChatSession, access: Access = Access.MEMBER, category: str | None = "utility") -> Membership:
    """Carol, with the right `approvals` in one category, in every one (""), or in none (None)."""
    carol = make_member(session.organisation, "carol", access)
    if category is not None:
        with organisation_scope(session.organisation):
            AdminRight.objects.create(
                organisation=session.organisation, membership=carol, right=Right.APPROVALS, category=category
            )
    return carol


@pytest.mark.parametrize(
    ("access", "category", "fields", "may"),
    [
        (Access.MEMBER, "utility", {}, True),
        (Access.MEMBER, "", {}, True),
        (Access.MEMBER, "", {"needs_other_person": True}, True),
        (Access.OPERATOR, None, {}, True),
        (Access.ADMIN, None, {}, True),
        (Access.MEMBER, None, {}, False),
        (Access.MEMBER, "mail", {}, False),
        (Access.VIEWER, "", {}, False),
        (Access.ADMIN, None, {"kind": ApprovalKind.QUESTION}, False),
    ],
)
def test_other_members_answer_an_approval_by_their_rights(
    asks: Callable[..., Approval],
    session: ChatSession,
    access: Access,
    category: str | None,
    fields: dict[str, Any],
    may: bool,
) -> None:
    carol = approver(session, access, category)
    approval = asks(**fields)

    with organisation_scope(session.organisation_id):
        assert (why_not_answer(carol, approval) == "") is may
        assert queries.waiting_for(carol).filter(pk=approval.pk).exists() is may
        assert queries.count_waiting_for(carol) == int(may)
        for answer in ANSWERS.values():
            if not may:
                with pytest.raises(PermissionDenied):
                    answer(approval, carol)
        if may:
            assert writes.approve(approval, actor=carol).decided_by == carol


def test_mr_42_a_requester_does_not_answer_where_another_person_must(asks: Callable[..., Approval]) -> None:
    approval = asks(needs_other_person=True)
    bob = approval.requester
    with organisation_scope(bob.organisation_id):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.APPROVALS)
        for answer in ANSWERS.values():
            with pytest.raises(PermissionDenied, match="Another person"):
                answer(approval, bob)

        assert not queries.waiting_for(bob).exists()
        approval.refresh_from_db()
    assert approval.status == ApprovalStatus.PENDING


def test_nobody_answers_for_a_member_of_higher_access(asks: Callable[..., Approval], session: ChatSession) -> None:
    carol = approver(session, category="")
    approval = asks()
    with organisation_scope(session.organisation_id):
        Membership.objects.filter(pk=approval.requester_id).update(access=Access.OPERATOR)
        again = queries.with_all_shown(Approval.objects.all()).get(pk=approval.pk)
        for answer in ANSWERS.values():
            with pytest.raises(PermissionDenied, match="more access than you"):
                answer(again, carol)

        assert not queries.waiting_for(carol).exists()


def test_a_second_account_of_the_requester_is_no_other_person(
    asks: Callable[..., Approval], session: ChatSession
) -> None:
    """Bob invited Carol, and so may hold her account."""
    carol = approver(session, category="")
    approval = asks(needs_other_person=True)
    with organisation_scope(session.organisation_id):
        Invitation.objects.create(
            organisation=session.organisation,
            email=carol.user.email,
            digest="x",
            created_by=approval.requester,
            expires_at=timezone.now(),
            accepted_at=timezone.now(),
        )
        with pytest.raises(PermissionDenied, match="linked by invitations"):
            writes.approve(approval, actor=carol)


def test_a_member_who_became_a_viewer_does_not_answer(asks: Callable[..., Approval]) -> None:
    approval = asks()
    with organisation_scope(approval.organisation_id):
        Membership.objects.filter(pk=approval.requester_id).update(access=Access.VIEWER)
        bob = Membership.objects.get(pk=approval.requester_id)
        with pytest.raises(PermissionDenied):
            writes.approve(approval, actor=bob)

        assert not queries.waiting_for(bob).exists()


def test_a_tool_answers_nothing(asks: Callable[..., Approval]) -> None:
    approval = asks()
    token = is_tool_run.set(True)
    try:
        with organisation_scope(approval.organisation_id), pytest.raises(PermissionDenied, match="agent never"):
            writes.approve(approval, actor=approval.requester)
    finally:
        is_tool_run.reset(token)


def test_bob_sees_and_answers_no_approval_of_alice(asks: Callable[..., Approval], alice: Membership) -> None:
    approval = asks()
    with organisation_scope(alice.organisation_id):
        dave = make_member(alice.organisation, "dave")
        with pytest.raises(Http404):
            queries.approval_or_404(dave, approval.public_id)
        assert not queries.approvals_seen_by(dave).exists()
        assert queries.approval_or_404(alice, approval.public_id) == approval


def test_charlie_finds_nothing(asks: Callable[..., Approval], charlie: Membership) -> None:
    approval = asks(allows_consent=True)
    with organisation_scope(approval.organisation_id):
        writes.approve(approval, actor=approval.requester)
        consent = Consent.objects.get()

    with organisation_scope(charlie.organisation_id):
        assert not queries.waiting_for(charlie).exists()
        assert queries.count_waiting_for(charlie) == 0
        assert not queries.approvals_seen_by(charlie).exists()
        for find, row in ((queries.approval_or_404, approval), (queries.consent_or_404, consent)):
            with pytest.raises(Http404):
                find(charlie, row.public_id)


# -- Consents ----------------------------------------------------------------------------------------------------------


def test_a_consent_is_whose_call_was_approved_and_not_the_approvers(asks: Callable[..., Approval]) -> None:
    approval = asks(allows_consent=True)
    with organisation_scope(approval.organisation_id):
        admin = make_member(approval.organisation, "ada", Access.ADMIN)
        writes.approve_with_consent(approval, actor=admin, until=timezone.now() + timedelta(hours=1))
        kept = set(Consent.objects.values_list("membership", "granted_by"))

    assert approval.requester_id != admin.pk
    assert kept == {(approval.requester_id, admin.pk)}


def test_an_approval_of_a_first_time_is_remembered_for_the_session(asks: Callable[..., Approval]) -> None:
    approval = asks(allows_consent=True)
    with organisation_scope(approval.organisation_id):
        writes.approve(approval, actor=approval.requester)
        (consent,) = Consent.objects.all()

        assert (consent.session, consent.until) == (approval.session, None)
        assert (consent.membership, consent.tool_version) == (approval.requester, approval.tool_version)
        assert actions()[-2:] == ["approval.approve", "consent.grant"]


def test_an_approval_of_each_call_is_not_remembered(asks: Callable[..., Approval]) -> None:
    approval = asks()
    with organisation_scope(approval.organisation_id):
        with pytest.raises(Conflict) as refused:
            writes.approve_with_consent(approval, actor=approval.requester)
        writes.approve(approval, actor=approval.requester)

        assert refused.value.code == "no_consent"
        assert not Consent.objects.exists()


@pytest.mark.parametrize("hours", [-1, 24 * 31])
def test_a_consent_lasts_a_month_at_most(asks: Callable[..., Approval], hours: int) -> None:
    approval = asks(allows_consent=True)
    with organisation_scope(approval.organisation_id):
        with pytest.raises(ChangeRefused):
            writes.approve_with_consent(
                approval, actor=approval.requester, until=timezone.now() + timedelta(hours=hours)
            )
        approval.refresh_from_db()

    assert approval.status == ApprovalStatus.PENDING


def test_a_consent_for_a_time_is_kept_beside_that_of_the_session(asks: Callable[..., Approval]) -> None:
    approval, until = asks(allows_consent=True), timezone.now() + timedelta(hours=1)
    with organisation_scope(approval.organisation_id):
        writes.approve_with_consent(approval, actor=approval.requester, until=until)

        assert set(Consent.objects.values_list("session", "until")) == {(approval.session_id, None), (None, until)}


def test_a_consent_is_revoked_by_its_member_and_by_who_holds_the_right(
    asks: Callable[..., Approval], session: ChatSession, alice: Membership
) -> None:
    approval = asks(allows_consent=True)
    with organisation_scope(alice.organisation_id):
        writes.approve_with_consent(approval, actor=approval.requester, until=timezone.now() + timedelta(hours=1))
        one, other = queries.consents_seen_by(alice).order_by("pk")
        dave = make_member(alice.organisation, "dave")
        with pytest.raises(PermissionDenied):
            writes.revoke_consent(one, actor=dave)
        assert not queries.consents_seen_by(dave).exists()

        assert writes.revoke_consent(one, actor=approval.requester).revoked_by == approval.requester
        assert writes.revoke_consent(other, actor=alice).revoked_by == alice
        writes.revoke_consent(other, actor=approval.requester)

        assert actions()[-2:] == ["consent.revoke", "consent.revoke"]
        other.refresh_from_db()
        assert other.revoked_by == alice


# -- Lists -------------------------------------------------------------------------------------------------------------


def test_lists_take_one_query_however_long_they_are(
    asks: Callable[..., Approval], alice: Membership, django_assert_num_queries: Any
) -> None:
    def shown(approval: Approval) -> str:
        who = (str(approval.requester), str(approval.tool.category), str(approval.turn.agent), str(approval.session))
        return f"{who} {approval.tool_version.number} {approval.step.index} {approval.decided_by}"

    first = asks(allows_consent=True)
    for _ in range(2):
        with organisation_scope(alice.organisation_id):
            for read in (
                lambda: [shown(each) for each in queries.waiting_page(alice).rows],
                lambda: [shown(each) for each in queries.approvals_page(alice).rows],
                lambda: [shown(each) for each in queries.waiting_in_session(first.session)],
                lambda: [shown(each) for each in queries.approvals_of_turn(first.turn)],
                lambda: queries.count_waiting_for(alice),
            ):
                with django_assert_num_queries(1):
                    read()
            for _ in range(2):
                more = asks(allows_consent=True)
                Approval.objects.filter(pk=more.pk).update(session=first.session, turn=first.turn)
