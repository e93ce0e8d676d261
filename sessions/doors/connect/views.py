"""The page that connects a client: what to copy where, with a token that is made in place."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from sessions.doors.connect.blocks import NO_TOKEN, Connection
from sessions.doors.connect.clients import CLIENTS, SCOPES, Protocol
from sessions.doors.connect.forms import ClientTokenForm, TargetForm, client_asked_for
from sessions.doors.connect.queries import agent_targets, toolkit_targets
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access
from toolhub.tenants.pages import signed_in
from toolhub.tenants.people.writes import MemberRefused
from toolhub.tenants.tokens.writes import issue_own_token


@require_http_methods(["GET", "POST"])
@signed_in
def connect(request: MemberRequest, org: str) -> HttpResponse:
    """One client's blocks, for one agent or toolkit. A token that is made here stands in them this once."""
    member = member_or_404(request, at_least=Access.MEMBER if request.method == "POST" else Access.VIEWER)
    client = client_asked_for(request.GET)
    toolkits = toolkit_targets(member) if client.protocol is Protocol.MCP else []
    target_form = TargetForm(request.GET, client, agent_targets(member), toolkits)
    target = target_form.target
    form = ClientTokenForm(request.POST or None, initial={"name": client.name})
    secret = ""
    if form.is_valid():
        try:
            _, secret = issue_own_token(member, form.cleaned_data["name"], SCOPES, form.cleaned_data["days"] or None)
        except MemberRefused as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
    origin = request.build_absolute_uri("/").rstrip("/")
    context = {
        "client": client,
        "groups": [(group.label, [each for each in CLIENTS if each.protocol is group]) for group in Protocol],
        "target_form": target_form,
        "connection": Connection(client, target, origin, secret) if target else None,
        "query": urlencode({"client": client.key, **({"to": target.address} if target else {})}),
        "to": target.address if target else "",
        "form": form,
        "secret": secret,
        "no_token": NO_TOKEN,
        "scopes": [scope.value for scope in SCOPES],
        "may_chat": member.has_access(Access.MEMBER),
    }
    return render(request, "sessions/doors/connect/connect.html", context, status=422 if form.errors else 200)
