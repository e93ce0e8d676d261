"""The pages of chats: an organisation's home, the list of sessions, one session with its turns as they happen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from capabilities.choosing.pipeline.permissions import may_use_nothing
from capabilities.contract.attachments import NotTaken
from capabilities.models import Agent
from sessions.access import may_delete, may_write, rights_in, session_or_404
from sessions.asking.approvals.cards import show_cards
from sessions.doors.chats.client_requests import sent_with
from sessions.doors.chats.exports import FORMATS, MOST_TURNS, export
from sessions.doors.chats.files import attached_to, share_files
from sessions.doors.chats.forms import CLIENTS, MessageForm, NewSessionForm, SessionForm, SessionsAddress
from sessions.doors.chats.live import watch_turn
from sessions.doors.chats.queries import (
    ALL_CHARS,
    branch_at,
    client_request_or_404,
    client_token,
    exported_turns,
    notices_of,
    sessions_page,
    shown_turns,
    step_or_404,
    steps_with_times,
    turn_count,
    turn_or_404,
    turns_after,
    turns_page,
)
from sessions.doors.chats.stream_limits import TRY_AGAIN, TooManyStreams, event_stream
from sessions.doors.chats.timelines import timeline_of
from sessions.doors.chats.writes import change_session, delete_session, open_session
from sessions.models import ChatSession, Schedule, StepFile, Turn
from sessions.selection.examples import examples_for
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.panel import panel_of
from sessions.selection.loading.queries import around, load_for, sentence_of
from sessions.turns import accepting, ledger
from sessions.turns.accepting import Branch
from sessions.turns.files import attachable
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in


@require_http_methods(["GET", "POST"])
@signed_in
def session_list(request: MemberRequest, org: str) -> HttpResponse:
    """The member's sessions (`?whose=all`: everybody's, with the right `sessions`); POST opens one."""
    if request.method == "POST":
        return _create_session(request, member_or_404(request, at_least=Access.MEMBER))
    member = member_or_404(request)
    return _session_list(request, member, NewSessionForm(member=member))


def _create_session(request: MemberRequest, member: Membership) -> HttpResponse:
    form = NewSessionForm(request.POST, member=member)
    if not form.is_valid():
        return _session_list(request, member, form, status=422)
    session = open_session(member, form.cleaned_data["agent"])
    if toolkit := form.cleaned_data["toolkit"]:
        loaded = load_for(LoadTarget(session, session.agent), actor=member, toolkit=toolkit)
        (messages.success if loaded.is_there else messages.error)(request, sentence_of(loaded))
    return redirect("session_detail", org=member.organisation.slug, session_id=session.pk)


def _session_list(request: MemberRequest, member: Membership, form: NewSessionForm, status: int = 200) -> HttpResponse:
    sees_all = member.has_right(Right.SESSIONS)
    address = SessionsAddress(request.GET)
    everyone = sees_all and address.everyone
    q, opened_by = address.filters["q"], address.filters["client"]
    context = {
        **address.context(sessions_page(member, everyone=everyone, client=opened_by, q=q, **address.place)),
        "clients": CLIENTS,
        "opened_by": opened_by,
        "throwaway_days": settings.TOOLHUB_THROWAWAY_DAYS,
        "q": q,
        "form": form,
        "sees_all": sees_all,
        "everyone": everyone,
        "can_chat": member.has_access(Access.MEMBER),
    }
    return render(request, "sessions/doors/chats/session_list.html", context, status=status)


@require_GET
@signed_in
def session_detail(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    member = member_or_404(request)
    return _session_page(request, member, session_or_404(member, session_id))


def _session_page(
    request: MemberRequest, member: Membership, session: ChatSession, form: MessageForm | None = None, status: int = 200
) -> HttpResponse:
    before = request.GET.get("before", "")
    branch = _branch(request, session) if form is None and may_write(member, session) else None
    page = turns_page(session, before=int(before) if before.isdecimal() and len(before) < 10 else None)
    beside = around(session, session.agent, member)
    show_cards(member, page.turns)
    speaks = page.turns[-1].agent if page.turns else session.agent
    panel = panel_of(member, session, session.agent, beside)
    offered = not page.turns and not before and may_write(member, session)
    context = (
        panel
        | {
            "examples": examples_for(each.name for each in panel["selection"].tools) if offered else [],
            "session": session,
            "page": page,
            "is_last": not before,
            "is_running": any(turn.is_open for turn in page.turns),
            "client_token": client_token(session),
            "removed_at": session.active_at + timedelta(days=settings.TOOLHUB_THROWAWAY_DAYS),
            "may_use_nothing": session.membership_id == member.pk and may_use_nothing(member),
            "form": form or _message_form(member, session, speaks, branch, beside.agents),
        }
        | rights_in(member, session)
        | _notices(session)
    )
    return render(request, "sessions/doors/chats/session_detail.html", context, status=status)


def _branch(request: MemberRequest, session: ChatSession) -> Branch | None:
    """Where the message to be written leaves the conversation, as the address says. Raises Http404."""
    try:
        places = {name: UUID(request.GET[name]) for name in ("replaces", "follows") if name in request.GET}
    except ValueError:
        raise Http404("No such turn.") from None
    return branch_at(session, **places)


def _message_form(
    member: Membership, session: ChatSession, speaks: Agent, branch: Branch | None, agents: Sequence[tuple[str, str]]
) -> MessageForm:
    """Return the form of a message to be written. One query where it takes the place of one with files."""
    replaces = branch is not None and not branch.is_behind and branch.turn.attached
    before = attached_to(session, branch.turn.pk) if branch is not None and replaces else ()
    return MessageForm(member=member, initial=_initial(speaks, branch), agents=agents, before=before)


def _initial(agent: Agent, branch: Branch | None) -> dict[str, Any]:
    """Return what the field for a message begins with; `agent` gets it where no turn says another."""
    if branch is None:
        return {"agent": agent.slug}
    turn = branch.turn
    place = {"follows": turn.pk} if branch.is_behind else {"message": turn.message, "replaces": turn.pk}
    return {"agent": turn.agent.slug} | place


@require_GET
@signed_in
def session_export(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """The conversation as a file to download, in one of FORMATS (`?as=`)."""
    session = session_or_404(member_or_404(request), session_id)
    kind = request.GET.get("as", "md")
    if kind not in FORMATS:
        raise Http404("No such format.")
    origin = request.build_absolute_uri("/").rstrip("/")
    exported = export(session, exported_turns(session, MOST_TURNS), kind, origin=origin)
    response = HttpResponse(exported.content, content_type=f"{exported.media_type}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{exported.name}"'
    return response


@require_http_methods(["GET", "POST"])
@signed_in
def session_update(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """Show the page where a session is renamed, which its own member does, and deleted; rename it on POST."""
    is_post = request.method == "POST"
    member = member_or_404(request, at_least=Access.MEMBER if is_post else Access.VIEWER)
    session = session_or_404(member, session_id)
    can_rename = may_write(member, session)
    if not (can_rename or (not is_post and may_delete(member, session))):
        raise PermissionDenied("Only its member renames a session.")
    form = SessionForm(request.POST if is_post else None, initial={"title": session.title})
    if form.is_valid():
        change_session(session, actor=member, title=form.cleaned_data["title"])
        messages.success(request, "The session is renamed.")
        return redirect("session_detail", org, session.pk)
    context = {
        "session": session,
        "form": form,
        "can_rename": can_rename,
        "can_delete": may_delete(member, session),
        "turns": turn_count(session),
        "schedules": Schedule.objects.filter(session=session).order_by("name"),
    }
    return render(request, "sessions/doors/chats/session_update.html", context, status=422 if is_post else 200)


@require_POST
@signed_in
def session_tools_switch(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """Switch the session's tools off or on, from its next message on."""
    member = member_or_404(request, at_least=Access.MEMBER)
    session = session_or_404(member, session_id)
    if not may_write(member, session):
        raise PermissionDenied("Only its member switches the tools of a session.")
    change_session(session, actor=member, tools_off=request.POST.get("tools_off") == "1")
    if not request.htmx:
        return redirect("session_detail", org, session.pk)
    return render(request, "sessions/doors/chats/_tools_switched.html", panel_of(member, session, session.agent))


@require_POST
@signed_in
def session_delete(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    member = member_or_404(request)
    session = session_or_404(member, session_id)
    title, is_own = str(session), session.membership_id == member.pk
    delete_session(session, actor=member)
    messages.success(request, f"{title} is deleted.")
    response = redirect("session_list", org)
    if not is_own:
        response["Location"] += "?whose=all"
    return response


@require_GET
@signed_in
def session_notices(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """Return what is new for an open page, which asks now and then: notices of the service, and turns from elsewhere.

    `after` is the number of the last turn that the page shows, `newest` the moment of its last notice. 204 where there
    is nothing newer.
    """
    member = member_or_404(request)
    session = session_or_404(member, session_id)
    after = request.GET.get("after", "")
    turns = turns_after(session, int(after)) if after.isdecimal() and len(after) < 10 else []
    show_cards(member, turns)
    notices = _notices(session)
    if not turns and request.GET.get("newest") == notices["newest"]:
        return HttpResponse(status=204)
    context = notices | {"session": session, "turns": turns} | rights_in(member, session)
    return render(request, "sessions/doors/chats/_news.html", context)


def _notices(session: ChatSession) -> dict[str, Any]:
    notices = notices_of(session)
    return {"notices": notices, "newest": notices[-1].created_at.isoformat() if notices else ""}


@require_POST
@signed_in
def turn_create(request: MemberRequest, org: str, session_id: UUID) -> HttpResponse:
    """Take a message. The answer is the new turn and an empty field, or the field with what is wrong."""
    member = member_or_404(request, at_least=Access.MEMBER)
    session = session_or_404(member, session_id)
    if not may_write(member, session):
        raise PermissionDenied("Only its member writes into a session: its turns act with that member's rights.")
    form = MessageForm(request.POST, request.FILES, member=member, before=_files_before(request, session))
    if not form.is_valid():
        return _refused_message(request, member, session, form)
    try:
        files = attachable(session, form.attached(), form.again_ids())
    except NotTaken as refused:
        form.add_error("files_sent", str(refused))
        return _refused_message(request, member, session, form)
    branch = branch_at(session, **{name: form.cleaned_data[name] for name in ("replaces", "follows")})
    try:
        accepted = accepting.accept(
            session,
            form.cleaned_data["message"],
            member=member,
            agent=form.cleaned_data["agent"],
            idempotency_key=form.idempotency_key(),
            without_tools=form.cleaned_data["without_tools"],
            branch=branch,
            files=files,
        )
    except ledger.Conflict as error:
        form.add_error("files_sent" if error.code == "no_room_for_files" else "message", str(error))
        return _refused_message(request, member, session, form)
    address = f"{reverse('session_detail', args=[org, session.pk])}#turn-{accepted.turn.pk}"
    if not request.htmx:
        return redirect(address)
    if branch:  # other turns of the page look otherwise now
        return HttpResponseClientRedirect(address)
    session.refresh_from_db(fields=["title"])
    turns = shown_turns().filter(pk=accepted.turn.pk) if accepted.created else []
    share_files(turns)
    context = {
        "session": session,
        "turn": next(iter(turns), None),
        "form": MessageForm(member=member, initial={"agent": accepted.turn.agent.slug}),
    } | rights_in(member, session)
    return render(request, "sessions/doors/chats/_message_taken.html", context)


def _files_before(request: MemberRequest, session: ChatSession) -> Sequence[StepFile]:
    """Return the files of the message whose place a new one takes, where it takes some over. One query then."""
    if not request.POST.getlist("again"):
        return ()
    try:
        return attached_to(session, UUID(request.POST.get("replaces", "")))
    except ValueError:
        return ()


def _refused_message(
    request: MemberRequest, member: Membership, session: ChatSession, form: MessageForm
) -> HttpResponse:
    if request.htmx:
        return render(request, "sessions/doors/chats/_composer.html", {"session": session, "form": form}, status=422)
    return _session_page(request, member, session, form, status=422)


@require_GET
@signed_in
def turn_detail(request: MemberRequest, org: str, turn_id: UUID) -> HttpResponse:
    """One turn as it stands: what polls or streams it for htmx, its place in its session for a browser."""
    member = member_or_404(request)
    turn = turn_or_404(member, turn_id)
    if request.htmx:
        show_cards(member, [turn])
        context = _turn_context(member, turn) | {"poll": "poll" in request.GET}
        return render(request, "sessions/doors/chats/_live_turn.html", context)
    place = f"?before={turn.seq + 1}#turn-{turn.pk}"
    return redirect(reverse("session_detail", args=[org, turn.session_id]) + place)


@require_POST
@signed_in
def turn_cancel(request: MemberRequest, org: str, turn_id: UUID) -> HttpResponse:
    member = member_or_404(request)
    turn = turn_or_404(member, turn_id)
    ledger.cancel(turn, actor=member)
    if request.htmx:
        return _stopped(request, member, turn_or_404(member, turn_id))
    messages.info(request, "The turn was asked to stop." if turn.is_open else "The turn has ended.")
    return redirect(f"{reverse('session_detail', args=[org, turn.session_id])}#turn-{turn.pk}")


def _stopped(request: MemberRequest, member: Membership, turn: Turn) -> HttpResponse:
    """The turn's state while it stops: what it wrote meanwhile stays as the page has it. Of one that has ended, all."""
    if turn.is_open:
        return render(request, "sessions/doors/chats/_turn_state.html", _turn_context(member, turn))
    show_cards(member, [turn])
    response = render(request, "sessions/doors/chats/_live_turn.html", _turn_context(member, turn))
    response["HX-Retarget"] = f"#turn-{turn.pk}"
    return response


def _turn_context(member: Membership, turn: Any) -> dict[str, Any]:
    return {"turn": turn} | rights_in(member, turn.session)


@require_GET
@signed_in
def step_detail(request: MemberRequest, org: str, turn_id: UUID, index: int) -> HttpResponse:
    """One step with its whole arguments and result: what "Show all" leads to."""
    member = member_or_404(request)
    step = step_or_404(member, turn_id, index)
    context = {
        "step": step,
        "turn": step.turn,
        "session": step.turn.session,
        "arguments": step.arguments[:ALL_CHARS],
        "result": step.result[:ALL_CHARS],
        "hooked_result": step.hooked_result[:ALL_CHARS],
        "all_chars": ALL_CHARS,
        "is_cut": len(step.arguments) > ALL_CHARS or len(step.result) > ALL_CHARS,
    }
    return render(
        request,
        "sessions/doors/chats/_step_full.html" if request.htmx else "sessions/doors/chats/step_detail.html",
        context,
    )


@require_GET
@signed_in
def turn_timeline(request: MemberRequest, org: str, turn_id: UUID) -> HttpResponse:
    """Show when a turn waited, asked its model and ran tools."""
    turn, steps, asked = steps_with_times(member_or_404(request), turn_id)
    context = {"turn": turn, "session": turn.session, "timeline": timeline_of(turn, steps, asked, timezone.now())}
    return render(request, "sessions/doors/chats/turn_timeline.html", context)


@require_GET
@signed_in
def turn_request(request: MemberRequest, org: str, turn_id: UUID) -> HttpResponse:
    """Show what a client sent beside the message of a turn."""
    found = client_request_or_404(member_or_404(request), turn_id)
    context = {"sent": sent_with(found), "asked": found, "turn": found.turn, "session": found.turn.session}
    page = "_client_request.html" if request.htmx else "client_request.html"
    return render(request, f"sessions/doors/chats/{page}", context)


@transaction.non_atomic_requests
@require_GET
@signed_in
def turn_stream(request: MemberRequest, org: str, turn_id: UUID) -> HttpResponseBase:
    """The turn as it happens, as server-sent events: `turn`, `delta`, and `done` at its end. 429: the page polls."""
    member = member_or_404(request)
    turn_or_404(member, turn_id)
    try:
        return event_stream(member, None, watch_turn(request, turn_id))
    except TooManyStreams as error:
        return HttpResponse(str(error), status=429, headers={"Retry-After": str(TRY_AGAIN)}, content_type="text/plain")
