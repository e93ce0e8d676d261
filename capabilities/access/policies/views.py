"""The pages of policies: the list, the form with a live preview of what each rule keeps and drops, and profiles."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import connection
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.access.policies.catalogue import catalogue_tools
from capabilities.access.policies.effect import PolicyEffect, effect_of, tools_of_agent
from capabilities.access.policies.forms import LookForm, PolicyForm, ProfileForm
from capabilities.access.policies.previews import impact_of_policy, impact_of_profile
from capabilities.access.policies.queries import (
    policies_of,
    policy_of_organisation,
    policy_warnings,
    profile_or_404,
    profiles_page,
    providers_page,
)
from capabilities.access.policies.writes import (
    PolicyContent,
    ProfileContent,
    create_profile,
    delete_profile,
    policy_content,
    policy_stamp,
    profile_content,
    profile_stamp,
    save_policy,
    stored_policy,
    update_profile,
)
from capabilities.choosing.pipeline.policies import ORGANISATION_TITLE, profile_of, provider_title, read_policies
from capabilities.common.pages import preview_status, refused, show_refusal, shown_preview, status_of
from capabilities.common.previews import Preview, save_as_shown
from capabilities.common.refused import ChangeRefused
from capabilities.contract.policy import PolicyLayer, PolicyRules
from capabilities.models import Agent, PolicyProfile, Provider
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.cursors import MAX_PLACE


@require_GET
@signed_in
def policy_list(request: MemberRequest, org: str) -> HttpResponse:
    """The organisation's policy, and each provider's."""
    member = member_or_404(request, right=Right.POLICIES)
    page = providers_page(**_page_bounds(request))
    context = {
        "own": policy_of_organisation(member.organisation),
        "lines": policies_of(page.rows, member.organisation),
        "page": page,
        "path": request.path,
    }
    return render(request, "capabilities/access/policies/policy_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def policy_update(request: MemberRequest, org: str) -> HttpResponse:
    """The organisation's."""
    return _policy_page(request, member_or_404(request, right=Right.POLICIES), None)


@require_http_methods(["GET", "POST"])
@signed_in
def policy_provider_update(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    """A provider's."""
    member = member_or_404(request, right=Right.POLICIES)
    provider = Provider.objects.defer("api_key").filter(slug=slug).first()
    if provider is None:
        raise Http404("No such provider.")
    return _policy_page(request, member, provider)


def _policy_page(request: MemberRequest, member: Membership, provider: Provider | None) -> HttpResponse:
    """The form. `look` in the body saves nothing, and shows what the rules as they are typed keep and drop."""
    form = PolicyForm(request.POST or None, stored=policy_content(stored_policy(provider)))
    content = form.shown_content()
    if request.method == "POST" and "look" in request.POST:
        return _looked_at(request, member, form, content, provider)
    if content is None or not form.is_bound:
        return _policy_form(request, member, form, content, provider, {})
    try:
        answer = save_as_shown(
            request,
            [content.profile, content.allow, content.also_allow, content.deny],
            stamp=lambda: policy_stamp(provider),
            impact_of=lambda: impact_of_policy(provider, content, actor=member),
            save=lambda stamp: save_policy(provider, content, actor=member, stamp=stamp),
        )
    except ChangeRefused as error:
        show_refusal(form, error)
        return _policy_form(request, member, form, content, provider, {})
    if isinstance(answer, Preview):
        status = preview_status(request, answer)
        return _policy_form(request, member, form, content, provider, shown_preview(answer), status=status)
    messages.success(request, "The policy is saved: it counts from the next call on, in running turns too.")
    return redirect("policy_list", member.organisation.slug)


def _looked_at(
    request: MemberRequest,
    member: Membership,
    form: PolicyForm,
    content: PolicyContent | None,
    provider: Provider | None,
) -> HttpResponse:
    if not request.htmx:
        return _policy_form(request, member, form, content, provider, {})
    look = LookForm(request.POST, with_provider=provider is None)
    context = {"effect": _effect(member, content, provider, look)}
    return render(request, "capabilities/access/policies/_policy_effect.html", context)


def _policy_form(
    request: MemberRequest,
    member: Membership,
    form: PolicyForm,
    content: PolicyContent | None,
    provider: Provider | None,
    more: dict[str, Any],
    *,
    status: int | None = None,
) -> HttpResponse:
    look = LookForm(request.POST or {}, with_provider=provider is None)
    warnings = policy_warnings(member.organisation).get(provider.pk if provider else None, ())
    context = {
        "form": form,
        "provider": provider,
        "policy": stored_policy(provider),
        "look": look,
        "effect": _effect(member, content, provider, look),
        "warnings": warnings,
        "back": reverse("policy_list", args=[member.organisation.slug]),
        **more,
    }
    page = "capabilities/access/policies/policy_form.html"
    return render(request, page, context, status=status or status_of(form))


def _effect(
    member: Membership, content: PolicyContent | None, provider: Provider | None, look: LookForm
) -> PolicyEffect | None:
    """None where what was typed cannot be read. Six queries at most."""
    if content is None:
        return None
    catalogue = catalogue_tools()
    agent = Agent.objects.filter(slug=look.chosen("agent")).first() if look.chosen("agent") else None
    at = None if connection.in_atomic_block else member.organisation.registry_version
    tools = tools_of_agent(agent, at) if agent is not None else catalogue
    return effect_of(tools, _layers(content, provider, look.chosen("of_provider")), content, catalogue)


def _layers(content: PolicyContent, provider: Provider | None, other: str) -> list[PolicyLayer]:
    """The layer as it is typed, with the other one as it is stored."""
    stored = read_policies()
    rules = _rules(content)
    if provider is not None:
        before = [stored.organisation] if stored.organisation is not None else []
        return [*before, PolicyLayer(provider_title(provider.name), rules)]
    key = Provider.objects.filter(slug=other).values_list("public_id", flat=True).first() if other else None
    provider_layer = stored.providers.get(key) if key is not None else None
    return [PolicyLayer(ORGANISATION_TITLE, rules), *([provider_layer] if provider_layer is not None else [])]


def _rules(content: PolicyContent) -> PolicyRules:
    profile = PolicyProfile.objects.filter(name=content.profile).first() if content.profile else None
    return PolicyRules(
        profile_of(profile) if profile is not None else None, content.allow, content.also_allow, content.deny
    )


def _page_bounds(request: MemberRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "")[:MAX_PLACE] for name in ("after", "before")}


# -- Profiles ---------------------------------------------------------------------------------------------------------


@require_GET
@signed_in
def policy_profile_list(request: MemberRequest, org: str) -> HttpResponse:
    member_or_404(request, right=Right.POLICIES)
    context = {"page": profiles_page(**_page_bounds(request)), "path": request.path}
    return render(request, "capabilities/access/policies/profile_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def policy_profile_create(request: MemberRequest, org: str) -> HttpResponse:
    """Add a profile. No policy begins with it yet, so it is saved at once. `copy` in the address names one to begin
    with."""
    member = member_or_404(request, right=Right.POLICIES)
    copied = PolicyProfile.objects.filter(name=request.GET.get("copy", "")[:64]).first()
    stored = profile_content(copied) if copied is not None else ProfileContent("")
    start = ProfileContent(f"{stored.name}-copy" if stored.name else "", stored.patterns, stored.reads_only)
    form = ProfileForm(request.POST or None, stored=start)
    if form.is_valid():
        try:
            profile = create_profile(form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{profile} is saved: a policy can begin with it.")
            return redirect("policy_profile_list", org)
    return _profile_form(request, form, None, {})


@require_http_methods(["GET", "POST"])
@signed_in
def policy_profile_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """One that came with the service is shown, and can be copied."""
    member = member_or_404(request, right=Right.POLICIES)
    profile = profile_or_404(name)
    form = ProfileForm(request.POST or None, stored=profile_content(profile))
    if not form.is_valid():
        return _profile_form(request, form, profile, {})
    content = form.content()
    try:
        answer = save_as_shown(
            request,
            [content.patterns, content.reads_only],
            stamp=lambda: profile_stamp(profile),
            impact_of=lambda: impact_of_profile(profile, content, actor=member),
            save=lambda stamp: update_profile(profile_or_404(name), content, actor=member, stamp=stamp),
        )
    except ChangeRefused as error:
        show_refusal(form, error)
        return _profile_form(request, form, profile, {})
    if isinstance(answer, Preview):
        return _profile_form(request, form, profile, shown_preview(answer), status=preview_status(request, answer))
    messages.success(request, f"{answer} is saved.")
    return redirect("policy_profile_list", org)


def _profile_form(
    request: MemberRequest,
    form: ProfileForm,
    profile: PolicyProfile | None,
    more: dict[str, Any],
    *,
    status: int | None = None,
) -> HttpResponse:
    org = request.membership.organisation.slug
    context = {"form": form, "profile": profile, "back": reverse("policy_profile_list", args=[org]), **more}
    page = "capabilities/access/policies/profile_form.html"
    return render(request, page, context, status=status or status_of(form))


@require_POST
@signed_in
def policy_profile_delete(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.POLICIES)
    profile = profile_or_404(name)
    try:
        delete_profile(profile, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "policy_profile_update", org, name)
    messages.success(request, f"{name} is removed.")
    return redirect("policy_profile_list", org)
