"""The pages of what the audit entries of chats and schedules name."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import QuerySet

from sessions.access import visible_sessions, visible_to
from sessions.asking.approvals.queries import approvals_seen_by
from sessions.models import Budget, Schedule, Turn
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.targets import FindAddresses, rows_with_page


def _turns(reader: Membership) -> QuerySet[Turn]:
    return Turn.objects.filter(visible_to(reader, "session__"))


def _schedules(reader: Membership) -> QuerySet[Schedule]:
    """Its page is the form, which is for its member alone."""
    return Schedule.objects.filter(membership=reader)


def _budgets(reader: Membership) -> QuerySet[Budget]:
    return Budget.objects.all()


TARGET_PAGES: Mapping[str, FindAddresses] = {
    "chatsession": rows_with_page(visible_sessions, "session_detail", "pk", key="pk"),
    "turn": rows_with_page(_turns, "turn_detail", "pk", key="pk"),
    "approval": rows_with_page(approvals_seen_by, "approval_detail", "public_id"),
    "budget": rows_with_page(_budgets, "budget_detail", "public_id", right=Right.BUDGETS),
    "schedule": rows_with_page(_schedules, "schedule_update", "public_id"),
}
