"""The pages of members and invitations."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from toolhub.tenants.access import MemberRequest, member_or_404, revoke_token
from toolhub.tenants.identity.resets import issue_reset_link
from toolhub.tenants.models import Access, ApiToken, Invitation, Membership, Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.people.forms import AccessForm, HeldRightForm, InviteForm, MemberFilter, RightForm
from toolhub.tenants.people.invitations import INVITATION_DAYS, invite, revoke_invitation
from toolhub.tenants.people.writes import (
    MemberRefused,
    current_members,
    give_right,
    may_manage,
    remove_member,
    set_access,
    take_right,
    why_not,
)
from toolhub.tenants.rows.keyset import PAGE, Keyset, Page
from toolhub.tenants.tokens.writes import tokens_of

#: Invitations that the list shows, newest first.
INVITATIONS_SHOWN = 50


# -- Members ----------------------------------------------------------------------------------------------------------


def members_page(*, q: str, access: str, after: str = "", before: str = "", limit: int = PAGE) -> Page[Membership]:
    """Return a page of members by address. Four queries: members with users, their rights, and their roles."""
    members = current_members().prefetch_related("role_memberships__role")
    for word in q.split():
        names = (
            Q(user__email__icontains=word) | Q(user__first_name__icontains=word) | Q(user__last_name__icontains=word)
        )
        members = members.filter(names)
    if access:
        members = members.filter(access=access)
    return Keyset(members, ("user__email",)).page(after, before, limit=limit)


@require_GET
@signed_in
def member_list(request: MemberRequest, org: str) -> HttpResponse:
    member_or_404(request, right=Right.MEMBERS)
    address = MemberFilter(request.GET)
    chosen = address.filters
    context = {
        "numbers": Membership.objects.filter(ended_at=None).aggregate(
            members=Count("pk"), admins=Count("pk", filter=Q(access=Access.ADMIN))
        ),
        "accesses": Access.choices,
        **address.context(members_page(q=chosen["q"], access=chosen["access"], **address.place)),
        "invitations": _shown_invitations().order_by("-pk")[:INVITATIONS_SHOWN],
    }
    return render(request, "tenants/member_list.html", context)


def _shown_invitations() -> QuerySet[Invitation]:
    """Two queries: invitations with who made them, and their roles."""
    return Invitation.objects.select_related("created_by__user").prefetch_related("invitation_roles__role")


def _member(member_id: UUID) -> Membership:
    member = current_members().filter(public_id=member_id).first()
    if member is None:
        raise Http404("No such member.")
    return member


@require_GET
@signed_in
def member_detail(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.MEMBERS)
    return _member_page(request, actor, _member(member_id))


def _member_page(
    request: MemberRequest,
    actor: Membership,
    shown: Membership,
    *,
    access_form: AccessForm | None = None,
    right_form: RightForm | None = None,
    template: str = "tenants/member_detail.html",
) -> HttpResponse:
    reason = why_not(actor, shown)
    bound = [form for form in (access_form, right_form) if form is not None]
    context = {
        "shown": shown,
        "reason": reason,
        "may_manage": not reason,
        "access_form": access_form or AccessForm(actor=actor, initial={"access": shown.access}),
        "right_form": right_form or RightForm(actor=actor),
        "tokens": tokens_of(shown),
    }
    return render(request, template, context, status=422 if any(form.errors for form in bound) else 200)


@require_POST
@signed_in
def member_access(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.MEMBERS)
    shown = _member(member_id)
    form = AccessForm(request.POST, actor=actor)
    if form.is_valid():
        try:
            set_access(shown, form.chosen(), actor=actor)
        except MemberRefused as error:
            form.add_error("access", str(error))
        else:
            messages.success(request, f"{shown} is {form.chosen().label.lower()} now.")
            return redirect("member_detail", org=org, member_id=member_id)
    return _member_page(request, actor, shown, access_form=form)


@require_POST
@signed_in
def member_right_give(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    """Give one delegated right; htmx gets the list of rights back."""
    actor = member_or_404(request, right=Right.MEMBERS)
    shown = _member(member_id)
    template = "tenants/_member_rights.html" if request.htmx else "tenants/member_detail.html"
    form = RightForm(request.POST, actor=actor)
    if form.is_valid():
        try:
            shown = give_right(shown, form.given(), actor=actor)
        except MemberRefused as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            if request.htmx:
                return _member_page(request, actor, shown, template=template)
            messages.success(request, f"The right is given to {shown}.")
            return redirect("member_detail", org=org, member_id=member_id)
    return _member_page(request, actor, shown, right_form=form, template=template)


@require_POST
@signed_in
def member_right_take(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    """Take one delegated right away; htmx gets the list of rights back."""
    actor = member_or_404(request, right=Right.MEMBERS)
    shown = _member(member_id)
    form = HeldRightForm(request.POST)
    if form.is_valid():
        try:
            shown = take_right(shown, form.given(), actor=actor)
        except MemberRefused as error:
            messages.error(request, str(error))
    if request.htmx:
        return _member_page(request, actor, shown, template="tenants/_member_rights.html")
    return redirect("member_detail", org=org, member_id=member_id)


@require_POST
@signed_in
def member_remove(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.MEMBERS)
    shown = _member(member_id)
    try:
        remove_member(shown, actor=actor)
    except MemberRefused as error:
        messages.error(request, str(error))
        return redirect("member_detail", org=org, member_id=member_id)
    messages.success(request, f"{shown} is no longer a member.")
    return redirect("member_list", org=org)


@require_POST
@signed_in
def member_reset(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    """Make a reset link and show it, this once."""
    actor = member_or_404(request, right=Right.MEMBERS)
    shown = _member(member_id)
    try:
        _, secret = issue_reset_link(shown, actor=actor)
    except MemberRefused as error:
        messages.error(request, str(error))
        return redirect("member_detail", org=org, member_id=member_id)
    context = {
        "title": f"Reset link for {shown}",
        "link": request.build_absolute_uri(reverse("reset_link", args=[secret])),
        "sentence": f"Send it to {shown} in a way you trust. It works once, for a day, until the password changes. "
        "The new password signs them out everywhere.",
        "back": reverse("member_detail", args=[org, member_id]),
    }
    return render(request, "tenants/link_shown.html", context)


@require_POST
@signed_in
def member_token_revoke(request: MemberRequest, org: str, member_id: UUID, token_id: UUID) -> HttpResponse:
    """Revoke somebody's token; htmx gets nothing back in its row's place."""
    actor = member_or_404(request, right=Right.MEMBERS)
    shown = _member(member_id)
    if not may_manage(actor, shown) and shown.pk != actor.pk:
        messages.error(request, why_not(actor, shown))
        return redirect("member_detail", org=org, member_id=member_id)
    _revoke(shown, token_id, actor)
    if request.htmx:
        return HttpResponse("")
    messages.success(request, "The token is revoked.")
    return redirect("member_detail", org=org, member_id=member_id)


def _revoke(owner: Membership, token_id: UUID, actor: Membership) -> None:
    token = ApiToken.objects.filter(membership=owner, public_id=token_id).first()
    if token is None:
        raise Http404("No such token.")
    revoke_token(token, actor=actor)


# -- Invitations ------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@signed_in
def member_invite(request: MemberRequest, org: str) -> HttpResponse:
    """The form; then the link, this once."""
    actor = member_or_404(request, right=Right.MEMBERS)
    form = InviteForm(request.POST or None, actor=actor)
    if form.is_valid():
        try:
            invitation, secret = invite(
                form.cleaned_data["email"], form.chosen(), actor=actor, roles=form.cleaned_data["roles"]
            )
        except MemberRefused as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            context = {
                "title": f"Invitation for {invitation}",
                "link": request.build_absolute_uri(reverse("join_link", args=[secret])),
                "sentence": f"Send it to {invitation}. It works once, for {INVITATION_DAYS} days, and for nobody else.",
                "back": reverse("member_list", args=[org]),
            }
            return render(request, "tenants/link_shown.html", context)
    return render(request, "tenants/member_invite.html", {"form": form}, status=422 if form.errors else 200)


@require_POST
@signed_in
def member_invitation_revoke(request: MemberRequest, org: str, invitation_id: UUID) -> HttpResponse:
    """End an invitation; htmx gets its row back."""
    actor = member_or_404(request, right=Right.MEMBERS)
    invitation = _shown_invitations().filter(public_id=invitation_id).first()
    if invitation is None:
        raise Http404("No such invitation.")
    try:
        revoke_invitation(invitation, actor=actor)
    except MemberRefused as error:
        messages.error(request, str(error))
        return redirect("member_list", org=org)
    if request.htmx:
        invitation.refresh_from_db(fields=["revoked_at", "accepted_at"])
        return render(request, "tenants/_invitation_row.html", {"invitation": invitation})
    messages.success(request, f"The invitation for {invitation} is revoked.")
    return redirect("member_list", org=org)


# -- Tokens -----------------------------------------------------------------------------------------------------------


# -- Audit ------------------------------------------------------------------------------------------------------------


# -- One's own account ------------------------------------------------------------------------------------------------
