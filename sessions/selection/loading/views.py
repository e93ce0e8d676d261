"""Loads of a session in its page: the panel, its actions, and the history."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from capabilities.models import Agent
from sessions.access import check_may_change_loads, session_or_404
from sessions.models import ChatSession
from sessions.selection.loading import writes as loading
from sessions.selection.loading.forms import LoadForm, ShareForm, UnloadForm
from sessions.selection.loading.loadable import LoadResult, LoadTarget
from sessions.selection.loading.panel import panel_of
from sessions.selection.loading.queries import history_page, load_for, sentence_of
from sessions.selection.loading.writes import By
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def session_toolkits(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """The panel of an agent (`?agent=`, else the session's first): alone for htmx, else as a page of its own."""
    member = member_or_404(request)
    session = session_or_404(member, session_id)
    q = request.GET.get("q", "").strip()[:64]
    return _panel(request, member, session, agent_or_404(member, session, request.GET.get("agent", "")), q=q)


@require_POST
@signed_in
def session_load(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    member, session = _to_change(request, session_id)
    form = LoadForm(request.POST, member=member)
    if not form.is_valid():
        return _panel(request, member, session, session.agent, problem=form.problem)
    place = LoadTarget(session, form.agent_of(session))
    wanted = {name: form.cleaned_data[name] for name in ("toolkit", "category")}
    return _answer(request, member, place, load_for(place, actor=member, **wanted))


@require_POST
@signed_in
def session_unload(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    member, session = _to_change(request, session_id)
    form = UnloadForm(request.POST, member=member)
    if not form.is_valid():
        return _panel(request, member, session, session.agent, problem=form.problem)
    place = LoadTarget(session, form.agent_of(session))
    wanted = {name: form.cleaned_data[name] for name in ("name", "kind")}
    return _answer(request, member, place, loading.unload(place, **wanted, by=By(member)))


@require_POST
@signed_in
def session_share(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """Switch whether the session's agents share what they load."""
    member, session = _to_change(request, session_id)
    form = ShareForm(request.POST, member=member)
    if not form.is_valid():
        return _panel(request, member, session, session.agent, problem=form.problem)
    shares = form.cleaned_data["shares"] == "1"
    loading.share_loads(session, shares, actor=member)
    session.refresh_from_db(fields=["shares_loads", "load_count"])
    message = "What one agent loads is there for the others too." if shares else "Each agent has only its own loads."
    return _done(request, member, LoadTarget(session, form.agent_of(session)), message)


@require_GET
@signed_in
def session_loads(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """Show the session's loads, each with who or which call loaded it, and why it ended; the latest first."""
    session = session_or_404(member_or_404(request), session_id)
    context = {"session": session, "page": history_page(session, **ListAddress(request.GET).place)}
    template = (
        "sessions/selection/loading/_loads_history.html"
        if request.htmx
        else "sessions/selection/loading/loads_history.html"
    )
    return render(request, template, context)


def agent_or_404(member: Membership, session: ChatSession, slug: str) -> Agent:
    """Return the agent with this slug, or for "" the session's first, with its model and provider at hand. Raises
    Http404 for one that the member does not see. One query, none for the session's first."""
    if slug in ("", session.agent.slug):
        return session.agent
    agents = Agent.objects.seen_by(member).select_related("model__provider").defer("model__provider__api_key")
    agent = agents.filter(slug=slug).first() if slug.isprintable() else None
    if agent is None:
        raise Http404("No such agent.")
    return agent


def _to_change(request: MemberRequest, session_id: UUID) -> tuple[Membership, ChatSession]:
    member = member_or_404(request)
    session = session_or_404(member, session_id)
    check_may_change_loads(member, session)
    return member, session


def _answer(request: MemberRequest, member: Membership, place: LoadTarget, result: LoadResult) -> HttpResponse:
    if not result.is_there:
        return _panel(request, member, place.session, place.agent, problem=sentence_of(result))
    place.session.refresh_from_db(fields=["load_count"])
    return _done(request, member, place, sentence_of(result))


def _done(request: MemberRequest, member: Membership, place: LoadTarget, message: str) -> HttpResponse:
    """The panel with what was done; without script, back to where the panel was."""
    if request.htmx:
        return _panel(request, member, place.session, place.agent, message=message)
    messages.success(request, message)
    if place.agent.pk == place.session.agent_id:
        return redirect("session_detail", member.organisation.slug, place.session.pk)
    panel = reverse("session_toolkits", args=[member.organisation.slug, place.session.pk])
    return redirect(f"{panel}?agent={place.agent.slug}")


def _panel(
    request: MemberRequest,
    member: Membership,
    session: ChatSession,
    agent: Agent,
    *,
    message: str = "",
    problem: str = "",
    q: str = "",
) -> HttpResponse:
    context = panel_of(member, session, agent, q=q) | {"message": message, "problem": problem}
    template = (
        "sessions/selection/loading/_loads_swapped.html" if request.htmx else "sessions/selection/loading/loads.html"
    )
    return render(request, template, context, status=422 if problem else 200)
