"""The pages of the catalogue and of the providers."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.catalogue import set_tool_enabled
from capabilities.contract.parameters import parameter_rows
from capabilities.forms import CatalogueFilter, ProviderForm
from capabilities.models import Provider
from capabilities.providers import ProviderRefused, save_provider
from capabilities.queries import (
    catalogue_numbers,
    categories,
    default_model,
    provider_or_404,
    providers_shown,
    shown_key,
    shown_tool_or_404,
    tool_page_or_404,
    tools_page,
)
from capabilities.services import service_title
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def tool_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request)
    chosen = CatalogueFilter(request.GET).values()
    filters = {name: chosen[name] for name in ("q", "category", "state")}
    context = {
        "numbers": catalogue_numbers(),
        "page": tools_page(
            q=chosen["q"],
            category=chosen["category"],
            state=chosen["state"],
            after=chosen["after"],
            before=chosen["before"],
        ),
        "categories": categories(),
        "filters": filters,
        "is_filtered": any(filters.values()),
        "query": urlencode({name: value for name, value in filters.items() if value}),
        "may_switch": member.has_right(Right.CATALOGUE),
    }
    return render(request, "capabilities/tool_list.html", context)


@require_GET
@signed_in
def tool_detail(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request)
    page = tool_page_or_404(name)
    version = page.tool.current_version
    context = {
        "tool": page.tool,
        "version": version,
        "versions": page.versions,
        "agents": page.agents,
        "service": service_title(page.tool.service),
        "parameters": parameter_rows(version.parameters) if version else [],
        "may_switch": member.has_right(Right.CATALOGUE),
    }
    return render(request, "capabilities/tool_detail.html", context)


@require_POST
@signed_in
def tool_switch(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Switch a tool on or off; htmx gets the switch back, a browser its page."""
    member = member_or_404(request, right=Right.CATALOGUE)
    tool = shown_tool_or_404(name)
    set_tool_enabled(tool, request.POST.get("enabled") == "1", actor=member)
    if request.htmx:
        return render(request, "capabilities/_tool_switch.html", {"tool": tool, "may_switch": True})
    messages.success(request, f"{tool} is {'on' if tool.is_enabled else 'off'}.")
    return redirect(_page_before(request, member))


def _page_before(request: MemberRequest, member: Membership) -> str:
    """The page that the form was on, if it is ours; else the catalogue."""
    page = request.headers.get("Referer", "")
    if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
        return page
    return f"/o/{member.organisation.slug}/tools/"


@require_GET
@signed_in
def provider_list(request: MemberRequest, org: str) -> HttpResponse:
    member_or_404(request, right=Right.PROVIDERS)
    return render(request, "capabilities/provider_list.html", {"providers": providers_shown()})


@require_http_methods(["GET", "POST"])
@signed_in
def provider_create(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    return _provider_form(request, member, None, ProviderForm(request.POST or None))


@require_http_methods(["GET", "POST"])
@signed_in
def provider_update(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    form = ProviderForm(
        request.POST or None, provider=provider, model=default_model(provider), mask=shown_key(provider)
    )
    return _provider_form(request, member, provider, form)


def _provider_form(
    request: MemberRequest, member: Membership, provider: Provider | None, form: ProviderForm
) -> HttpResponse:
    if form.is_valid():
        try:
            saved = save_provider(provider, form.content(), agents=form.cleaned_data["agents"], actor=member)
        except ProviderRefused as error:
            form.add_error(error.field, str(error))
        else:
            messages.success(request, f"{saved} is saved.")
            return redirect("provider_list", org=member.organisation.slug)
    context = {"form": form, "provider": provider}
    return render(request, "capabilities/provider_form.html", context, status=422 if form.errors else 200)
