"""The Test buttons of services, models and MCP servers: asked for by POST; the state is a part of pages."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from capabilities.catalogue.servers.queries import server_or_404, test_of_server
from capabilities.common.pages import refused
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.listings import add_listed_models
from capabilities.language_models.providers.queries import listed_models_shown, model_or_404, provider_or_404
from capabilities.models import ConnectionTest
from capabilities.running.services.writes import shown_service_or_404
from sessions.insight.connections.writes import (
    request_model_test,
    request_provider_test,
    request_server_test,
    request_service_test,
)
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_http_methods(["GET", "POST"])
@signed_in
def service_test(request: MemberRequest, org: str, service: str) -> HttpResponse:
    """POST asks for a test. The answer is the state: the part that htmx swaps, or the service's page."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    shown = shown_service_or_404(member.organisation, service)
    test, refusal = shown.test, ""
    if request.method == "POST":
        try:
            test = request_service_test(shown, actor=member)
        except ChangeRefused as error:
            refusal = str(error)
    page = reverse("service_update", args=[org, service])
    return _state(
        request, page, {"test": test, "service": shown, "may_test": member.has_right(Right.CATALOGUE)}, refusal
    )


@require_http_methods(["GET", "POST"])
@signed_in
def model_test(request: MemberRequest, org: str, slug: str, model_id: UUID) -> HttpResponse:
    """Test a model of a provider, and answer as `service_test` does."""
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    model = model_or_404(provider, model_id)
    test, refusal = ConnectionTest.objects.filter(language_model=model).first(), ""
    if request.method == "POST":
        try:
            test = request_model_test(model, actor=member)
        except ChangeRefused as error:
            refusal = str(error)
    # On the model's own page what was found is shown whole.
    is_whole = "whole" in request.GET
    page = (
        reverse("model_update", args=[org, slug, model_id])
        if is_whole
        else reverse("provider_update", args=[org, slug])
    )
    context = {"test": test, "model": model, "provider": provider, "may_test": True, "whole": is_whole}
    return _state(request, page, context, refusal)


@require_http_methods(["GET", "POST"])
@signed_in
def server_test(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Test an MCP server, whether it is reached and what it offers, and answer as `service_test` does."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    server = server_or_404(name)
    test, refusal = test_of_server(server), ""
    if request.method == "POST":
        try:
            test = request_server_test(server, actor=member)
        except ChangeRefused as error:
            refusal = str(error)
    context = {"test": test, "server": server, "may_test": member.has_right(Right.CATALOGUE), "whole": True}
    return _state(request, reverse("server_detail", args=[org, name]), context, refusal)


@require_http_methods(["GET", "POST"])
@signed_in
def provider_test(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    """Test a provider, and answer with its list of models, to choose from."""
    member = member_or_404(request, right=Right.PROVIDERS)
    provider, refusal = provider_or_404(slug), ""
    if request.method == "POST":
        try:
            request_provider_test(provider, actor=member)
        except ChangeRefused as error:
            refusal = str(error)
    context = {"provider": provider, "listed": listed_models_shown(provider), "refusal": refusal}
    if request.htmx:
        return render(request, "capabilities/language_models/providers/_listed_models.html", context)
    if refusal:
        messages.error(request, refusal)
    return redirect(f"{reverse('provider_update', args=[org, slug])}#listed-models")


@require_POST
@signed_in
def provider_models_add(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    """Add the ticked models of the provider's list."""
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    try:
        added = add_listed_models(provider, request.POST.getlist("names"), actor=member)
    except ChangeRefused as error:
        return refused(request, error, "provider_update", org, slug)
    if added:
        messages.success(request, f"{len(added)} model{'' if len(added) == 1 else 's'} added: test each of them.")
    else:
        messages.error(request, "Tick the models that you want to add.")
    return redirect("provider_update", org, slug)


def _state(request: MemberRequest, page: str, context: dict[str, Any], refusal: str) -> HttpResponse:
    if request.htmx:
        return render(request, "capabilities/common/_connection_test.html", context | {"refusal": refusal})
    if refusal:
        messages.error(request, refusal)
    return redirect(page)
