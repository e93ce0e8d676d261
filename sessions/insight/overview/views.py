"""Home of an organisation, and its first steps."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from capabilities.choosing.pipeline.permissions import may_use_nothing
from sessions.doors.chats.forms import NewSessionForm
from sessions.doors.chats.queries import sessions_page
from sessions.insight.overview.first_steps import first_steps
from sessions.insight.overview.queries import changes_today, open_turns, own_requests, troubles_of, week_of
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in

#: Sessions that Home lists.
LATEST = 6


@require_GET
@signed_in
def organisation_home(request: MemberRequest, org: str) -> HttpResponse:
    """Show what is open, what waits and what the member did last; who looks after the organisation sees its week, what
    fails and what changed besides."""
    member = member_or_404(request)
    context = {
        "page": sessions_page(member, limit=LATEST),
        "form": NewSessionForm(member=member),
        "can_chat": member.has_access(Access.MEMBER),
        "may_use_nothing": may_use_nothing(member),
        "open": open_turns(member),
        "own_requests": own_requests(member),
        "sees_sessions": member.has_right(Right.SESSIONS),
    }
    if administers(member):
        now = timezone.now()
        context["cards"] = week_of(member, now)
        context["troubles"] = troubles_of(member, now)
        context["changes"] = changes_today(member, now) if member.has_right(Right.AUDIT) else None
    if member.has_access(Access.OPERATOR):
        steps = first_steps(member.organisation)
        context["steps_left"] = [step for step in steps if not step.is_done]
        context["steps"] = steps
    return render(request, "sessions/insight/overview/home.html", context)


def administers(member: Membership) -> bool:
    """Return whether the member looks after something that Home speaks of."""
    rights = (Right.BUDGETS, Right.CATALOGUE, Right.PROVIDERS, Right.AGENTS, Right.HOOKS, Right.POLICIES, Right.AUDIT)
    return any(member.has_right(right) for right in rights)


@require_GET
@signed_in
def first_steps_page(request: MemberRequest, org: str) -> HttpResponse:
    """Show the first steps, those that are done ticked."""
    member = member_or_404(request)
    context = {"first_steps": first_steps(member.organisation)}
    return render(request, "sessions/insight/overview/first_steps.html", context)
