"""The pages of set-up: the services that tools need, and the form of each."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.common.pages import ask_secrets_again, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.running.services.forms import ServiceForm
from capabilities.running.services.queries import tools_of_service
from capabilities.running.services.writes import clear_service, save_service, shown_service_or_404, shown_services
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def service_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    services = shown_services(member.organisation)
    waiting = [each for each in services if each.state == "needs_set_up"]
    context = {
        "services": services,
        "ready_count": sum(each.state == "ready" for each in services),
        "waiting_count": len(waiting),
        "waiting_tools": sum(each.tools for each in waiting),
    }
    return render(request, "capabilities/running/services/service_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def service_update(request: MemberRequest, org: str, service: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    shown = shown_service_or_404(member.organisation, service)
    form = ServiceForm(request.POST if request.method == "POST" else None, service=shown)
    if form.is_valid():
        try:
            row = save_service(shown.spec, form.values(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            works = "its tools can be used" if row.is_complete else "something is still missing"
            messages.success(request, f"{shown.title} is saved: {works}.")
            return redirect("service_list", org)
    ask_secrets_again(form)
    context = {
        "form": form,
        "service": shown,
        "tools": tools_of_service(service),
        "test": shown.test,
        "may_test": member.has_right(Right.CATALOGUE),
        "may_save": member.has_right(Right.CATALOGUE),
    }
    return render(request, "capabilities/running/services/service_form.html", context, status=status_of(form))


@require_POST
@signed_in
def service_clear(request: MemberRequest, org: str, service: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    shown = shown_service_or_404(member.organisation, service)
    clear_service(shown.spec, actor=member)
    messages.success(request, f"What was set up of {shown.title} is forgotten.")
    return redirect("service_list", org)
