"""The pages of credentials, of one's own accounts, and of signing in at authorization servers."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.common.pages import ask_secrets_again, refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import CredentialKind, CredentialScope, OAuthSignIn, StoredCredential
from capabilities.running.credentials.forms import ABOUT, AccountForm, CredentialFilter, CredentialForm
from capabilities.running.credentials.oauth.clients import client_document
from capabilities.running.credentials.oauth.requests import OAuthRefused
from capabilities.running.credentials.oauth.sign_in import (
    Answer,
    Departure,
    OwnAddresses,
    begin_sign_in,
    end_sign_in,
    forget_client,
    sign_in_of_state,
    used_sign_in,
)
from capabilities.running.credentials.queries import (
    accounts_of,
    accounts_page,
    credential_or_404,
    credentials_page,
    own_account_or_404,
    own_accounts_page,
    own_secret,
    shared_secret,
    state_of,
    use_of,
)
from capabilities.running.credentials.writes import (
    clear_secret,
    connect_account,
    create_credential,
    delete_credential,
    may_manage,
    may_see,
    remove_secret,
    update_credential,
)
from toolhub.tenants.access import MemberRequest, member_or_404, membership_of_user
from toolhub.tenants.models import Access, Membership, User
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.scope import organisation_scope


def manager_or_404(request: MemberRequest) -> Membership:
    """Return the member, who must be allowed to manage credentials."""
    member = member_or_404(request)
    if not may_manage(member):
        raise PermissionDenied("This needs the admin right providers, or catalogue for every category.")
    return member


def reader_or_404(request: MemberRequest) -> Membership:
    """Return the member, who must be allowed to see which credentials there are."""
    member = member_or_404(request)
    if not may_see(member):
        raise PermissionDenied("This needs the admin right catalogue or providers.")
    return member


# -- The organisation's credentials -----------------------------------------------------------------------------------


@require_GET
@signed_in
def credential_list(request: MemberRequest, org: str) -> HttpResponse:
    """List the credentials. Two queries at most beside the frame's."""
    member = reader_or_404(request)
    address = CredentialFilter(request.GET)
    page = credentials_page(**address.values())
    shown = page.of(lambda credential: {"credential": credential, "state": state_of(credential)})
    context = {**address.context(shown), "may_manage": may_manage(member)}
    return render(request, "capabilities/running/credentials/credential_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def credential_create(request: MemberRequest, org: str) -> HttpResponse:
    """Add a credential. Without a `kind` in the address or the form, show the choice of one."""
    member = manager_or_404(request)
    kind = (request.POST if request.method == "POST" else request.GET).get("kind", "")
    if kind not in CredentialKind.values:
        kinds = [(each, each.label, ABOUT[each]) for each in CredentialKind]
        return render(request, "capabilities/running/credentials/credential_choose.html", {"kinds": kinds})
    form = CredentialForm(request.POST if request.method == "POST" else None, CredentialKind(kind))
    if form.is_valid():
        try:
            made = create_credential(form.cleaned_data["name"], form.content(), actor=member, secret=form.secret())
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{made} is saved.")
            return redirect("credential_detail", org, made.name)
    return _form_page(request, form, None)


@require_GET
@signed_in
def credential_detail(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Show a credential, where it is used, and who is connected. Six queries at most beside the frame's."""
    member = reader_or_404(request)
    row = credential_or_404(credential)
    address = CredentialFilter(request.GET)
    is_own = row.scope == CredentialScope.MEMBER
    context: dict[str, Any] = {
        "credential": row,
        "state": state_of(row),
        "use": use_of(row),
        "secret": None if is_own else shared_secret(row),
        "may_manage": may_manage(member),
    }
    if is_own and may_manage(member):
        context |= address.context(accounts_page(row, **address.place))
    return render(request, "capabilities/running/credentials/credential_detail.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def credential_update(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    member = manager_or_404(request)
    row = credential_or_404(credential)
    form = CredentialForm(request.POST if request.method == "POST" else None, CredentialKind(row.kind), credential=row)
    if form.is_valid():
        try:
            update_credential(row, form.content(), actor=member, secret=form.secret())
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{row} is saved.")
            return redirect("credential_detail", org, row.name)
    return _form_page(request, form, row)


def _form_page(request: MemberRequest, form: CredentialForm, row: StoredCredential | None) -> HttpResponse:
    ask_secrets_again(form)
    context = {"form": form, "credential": row, "kind": form.kind, "kind_title": form.kind.label}
    return render(request, "capabilities/running/credentials/credential_form.html", context, status=status_of(form))


@require_POST
@signed_in
def credential_clear(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Forget the organisation's secret."""
    member = manager_or_404(request)
    row = credential_or_404(credential)
    secret = shared_secret(row)
    if secret is None:
        messages.info(request, "There was no secret.")
    elif row.kind == CredentialKind.OAUTH:
        _show_end(request, row, remove_secret(secret, actor=member))
    else:
        clear_secret(row, actor=member)
        messages.success(request, "The secret is deleted.")
    return redirect("credential_detail", org, row.name)


@require_POST
@signed_in
def credential_delete(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    member = manager_or_404(request)
    row = credential_or_404(credential)
    try:
        delete_credential(row, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "credential_detail", org, row.name)
    messages.success(request, f"{row} is deleted.")
    return redirect("credential_list", org)


@require_POST
@signed_in
def credential_forget_client(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Read the authorization server, and register there, again at the next sign-in."""
    member = manager_or_404(request)
    row = credential_or_404(credential)
    forget_client(row, actor=member)
    messages.success(request, "The authorization server is read again at the next sign-in.")
    return redirect("credential_detail", org, row.name)


@require_POST
@signed_in
def credential_sign_in(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Begin to sign in for the organisation."""
    member = manager_or_404(request)
    row = credential_or_404(credential)
    page = reverse("credential_detail", args=[org, row.name])
    if row.scope != CredentialScope.ORGANISATION:
        raise Http404("Each member connects an own account.")
    return _begin(request, row, member, page)


@require_POST
@signed_in
def credential_disconnect(request: MemberRequest, org: str, credential: str, account_id: UUID) -> HttpResponse:
    """Remove a member's account."""
    member = manager_or_404(request)
    row = credential_or_404(credential)
    secret = accounts_of(row).filter(public_id=account_id).first()
    if secret is None:
        raise Http404("No such account.")
    _show_end(request, row, remove_secret(secret, actor=member))
    return redirect("credential_detail", org, row.name)


# -- One's own accounts -----------------------------------------------------------------------------------------------


@require_GET
@signed_in
def accounts(request: MemberRequest, org: str) -> HttpResponse:
    """List the accounts that the member can connect. Three queries beside the frame's."""
    member = member_or_404(request)
    address = CredentialFilter(request.GET)
    page = own_accounts_page(member, **address.place)
    shown = page.of(lambda credential: {"credential": credential, "secret": own_secret(credential)})
    return render(request, "capabilities/running/credentials/accounts.html", address.context(shown))


@require_http_methods(["GET", "POST"])
@signed_in
def accounts_connect(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Connect an own account by typing a secret; by signing in, where that is the way. A call that needs the account
    links here."""
    at_least = Access.MEMBER if request.method == "POST" else Access.VIEWER
    member = member_or_404(request, at_least=at_least)
    row = own_account_or_404(member, credential)
    is_oauth = row.kind == CredentialKind.OAUTH
    form = AccountForm(request.POST if request.method == "POST" else None, credential=row)
    back_url = own_path(request, request.POST.get("next") or request.GET.get("next") or "")
    if not is_oauth and form.is_valid():
        try:
            connect_account(row, form.values(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Your account for {row} is connected.")
            return redirect(back_url or reverse("accounts", args=[org]))
    if not is_oauth:
        ask_secrets_again(form)
    context = {"credential": row, "secret": own_secret(row), "form": form, "is_oauth": is_oauth, "next": back_url}
    status = 200 if is_oauth else status_of(form)
    return render(request, "capabilities/running/credentials/accounts_connect.html", context, status=status)


@require_POST
@signed_in
def accounts_sign_in(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Begin to sign in with an own account."""
    member = member_or_404(request, at_least=Access.MEMBER)
    row = own_account_or_404(member, credential)
    return _begin(request, row, member, own_path(request, request.POST.get("next", "")))


@require_POST
@signed_in
def accounts_disconnect(request: MemberRequest, org: str, credential: str) -> HttpResponse:
    """Revoke one's own sign-in, and remove it."""
    member = member_or_404(request, at_least=Access.MEMBER)
    row = own_account_or_404(member, credential)
    secret = own_secret(row)
    if secret is not None:
        _show_end(request, row, remove_secret(secret, actor=member))
    return redirect("accounts", org)


def own_path(request: HttpRequest, path: str) -> str:
    """A path of ours to go back to; empty for any other address."""
    is_ours = path.startswith("/") and url_has_allowed_host_and_scheme(path, None)
    return path if is_ours and len(path) <= 500 else ""


def _show_end(request: HttpRequest, row: StoredCredential, hosts: list[str]) -> None:
    """Say in a message how the account ended. `hosts`: as `remove_secret` returns them."""
    if row.kind != CredentialKind.OAUTH:
        messages.success(request, "The account is disconnected.")
    elif hosts:
        messages.success(request, f"The account is disconnected, and its sign-in is being revoked at {hosts[0]}.")
    else:
        messages.warning(
            request,
            "The account is disconnected here. The sign-in cannot be revoked at the service from here: end it there.",
        )


# -- Signing in elsewhere ---------------------------------------------------------------------------------------------


def own_addresses(request: HttpRequest) -> OwnAddresses:
    """Return our addresses as the browser reaches us: only a host of ALLOWED_HOSTS comes this far."""
    return OwnAddresses(
        request.build_absolute_uri(reverse("oauth_callback")), request.build_absolute_uri(reverse("oauth_client"))
    )


def _begin(request: MemberRequest, row: StoredCredential, member: Membership, return_to: str) -> HttpResponse:
    """Show the page from which the member goes on to sign in: a form cannot send the browser to another host."""
    context: dict[str, Any] = {"credential": row, "back": return_to}
    try:
        departure: Departure | None = begin_sign_in(
            row,
            actor=member,
            login_key=request.session.session_key or "",
            addresses=own_addresses(request),
            return_to=return_to,
        )
    except OAuthRefused as error:
        departure, context["problem"] = None, str(error)
    context["departure"] = departure
    status = 200 if departure else 422
    return render(request, "capabilities/running/credentials/sign_in.html", context, status=status)


@require_GET
@signed_in
def oauth_callback(request: HttpRequest) -> HttpResponse:
    """Address that authorization servers send members back to."""
    found = sign_in_of_state(request.GET.get("state", "")[:200])
    member = membership_of_user(cast(User, request.user), found.organisation.slug) if found is not None else None
    if found is None or member is None:
        return _not_signed_in(request, "This sign-in is not known here: begin again.", None)
    with organisation_scope(found.organisation_id):
        row = found.credential
        given = {name: request.GET.get(name, "")[:4_000] for name in ("code", "iss", "error")}
        try:
            used_sign_in(found, login_key=request.session.session_key or "")
            secret = end_sign_in(found, Answer(**given), actor=member)
        except (OAuthRefused, ChangeRefused) as error:
            return _not_signed_in(request, str(error), found)
        messages.success(request, f"{row} is connected{f' as {secret.account}' if secret.account else ''}.")
        return redirect(own_path(request, found.return_to) or _page_of(found))


def _page_of(found: OAuthSignIn) -> str:
    org = found.organisation.slug
    if found.is_for_organisation:
        return reverse("credential_detail", args=[org, found.credential.name])
    return reverse("accounts", args=[org])


def _not_signed_in(request: HttpRequest, problem: str, found: OAuthSignIn | None) -> HttpResponse:
    context = {"problem": problem, "back": _page_of(found) if found is not None else reverse("home")}
    return render(request, "capabilities/running/credentials/not_signed_in.html", context, status=422)


@require_GET
def oauth_client(request: HttpRequest) -> JsonResponse:
    """Our Client ID Metadata Document: public, the same for everybody, without anything of an organisation."""
    addresses = own_addresses(request)
    return JsonResponse(client_document(addresses.document_url, addresses.redirect_uri))
