"""The pages of published toolkits."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from capabilities.agents.sharing.publications.forms import PublicationsAddress, PublishForm
from capabilities.agents.sharing.publications.queries import (
    WHOSE,
    may_publish,
    own_publication_or_404,
    publication_or_404,
    publications_page,
)
from capabilities.agents.sharing.publications.writes import import_publication, publish_toolkit, withdraw_publication
from capabilities.agents.sharing.queries import toolkit_named_or_404
from capabilities.common.pages import refused
from capabilities.common.refused import ChangeRefused
from capabilities.models import ToolKind
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def publication_list(request: MemberRequest, org: str) -> HttpResponse:
    """Own copies, and those that others published for everyone here."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    address = PublicationsAddress(request.GET)
    page = publications_page(member, **address.values())
    context = {**address.context(page), "whose": WHOSE.items(), "may_publish": may_publish(member)}
    return render(request, "capabilities/agents/sharing/publication_list.html", context)


@require_GET
@signed_in
def publication_detail(request: MemberRequest, org: str, publication_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    publication = publication_or_404(member, publication_id)
    kinds = dict(ToolKind.choices)
    counts = publication.summary.get("tools", {}) if isinstance(publication.summary, dict) else {}
    context = {
        "publication": publication,
        "kinds": [(kinds.get(kind, kind), count) for kind, count in sorted(counts.items())],
        "may_publish": may_publish(member),
    }
    return render(request, "capabilities/agents/sharing/publication_detail.html", context)


@require_POST
@signed_in
def toolkit_publish(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    toolkit = toolkit_named_or_404(name)
    form = PublishForm(request.POST)
    if not form.is_valid():
        return refused(request, ChangeRefused("audience", "Choose who may read it."), "toolkit_detail", org, name)
    try:
        publication = publish_toolkit(toolkit, form.cleaned_data["audience"], actor=member)
    except ChangeRefused as error:
        return refused(request, error, "toolkit_detail", org, name)
    messages.success(request, f"{toolkit} is published as number {publication.number}.")
    return redirect("publication_detail", org, publication.public_id)


@require_POST
@signed_in
def publication_withdraw(request: MemberRequest, org: str, publication_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    publication = own_publication_or_404(member, publication_id)
    withdraw_publication(publication, actor=member)
    messages.success(request, f"Number {publication.number} of {publication.toolkit_name} is withdrawn.")
    return redirect("publication_detail", org, publication_id)


@require_POST
@signed_in
def publication_import(request: MemberRequest, org: str, publication_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    publication = publication_or_404(member, publication_id)
    try:
        tool_import = import_publication(publication, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "publication_detail", org, publication_id)
    return redirect("import_detail", org, tool_import.public_id)
