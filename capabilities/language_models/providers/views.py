"""The pages of providers and their models."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.common.pages import ask_secrets_again, refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.environment import agents_left_behind, back_to_offline_model
from capabilities.language_models.providers.forms import ModelForm, ProviderForm
from capabilities.language_models.providers.learning import forget_lesson
from capabilities.language_models.providers.queries import (
    counted_by,
    lessons_shown,
    listed_models_shown,
    model_or_404,
    models_of,
    provider_or_404,
    providers_shown,
    shown_key,
)
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.language_models.providers.vendors import OTHER, PRESETS, Vendor, preset, vendor_of
from capabilities.language_models.providers.writes import delete_model, delete_provider, save_model, save_provider
from capabilities.models import ConnectionTest, LanguageModel, Provider
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def provider_list(request: MemberRequest, org: str) -> HttpResponse:
    member_or_404(request, right=Right.PROVIDERS)
    context = {"providers": providers_shown(), "left_behind": agents_left_behind()}
    return render(request, "capabilities/language_models/providers/provider_list.html", context)


@require_POST
@signed_in
def provider_offline(request: MemberRequest, org: str) -> HttpResponse:
    """Let the agents that an earlier start moved to the provider of its environment use the offline model again."""
    member = member_or_404(request, right=Right.PROVIDERS)
    moved = back_to_offline_model(actor=member)
    messages.success(request, f"{len(moved)} agent{'' if len(moved) == 1 else 's'} moved to the offline model.")
    return redirect("provider_list", org)


@require_http_methods(["GET", "POST"])
@signed_in
def provider_create(request: MemberRequest, org: str) -> HttpResponse:
    """Begins with the list of presets; `vendor` in the address names the one that was chosen."""
    member = member_or_404(request, right=Right.PROVIDERS)
    vendor = preset(request.GET.get("vendor", ""))
    if vendor is None and request.method == "GET":
        return render(request, "capabilities/language_models/providers/provider_presets.html", {"presets": PRESETS})
    vendor = vendor or OTHER
    return _provider_form(request, member, None, ProviderForm(request.POST or None, vendor=vendor), vendor)


@require_http_methods(["GET", "POST"])
@signed_in
def provider_update(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    form = ProviderForm(request.POST or None, provider=provider, mask=shown_key(provider))
    return _provider_form(request, member, provider, form, vendor_of(provider.base_url))


def _provider_form(
    request: MemberRequest, member: Membership, provider: Provider | None, form: ProviderForm, vendor: Vendor
) -> HttpResponse:
    if form.is_valid():
        try:
            agents = form.cleaned_data.get("agents", ())
            saved = save_provider(provider, form.content(), agents=agents, actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{saved} is saved.")
            if provider is None:  # its models come next
                page = reverse("provider_update", args=[member.organisation.slug, saved.slug])
                return redirect(f"{page}#models")
            return redirect("provider_list", org=member.organisation.slug)
    ask_secrets_again(form)
    context = {
        "form": form,
        "provider": provider,
        "vendor": vendor,
        "models": models_of(provider) if provider else [],
        "listed": listed_models_shown(provider) if provider else None,
    }
    return render(request, "capabilities/language_models/providers/provider_form.html", context, status=status_of(form))


@require_POST
@signed_in
def provider_delete(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    try:
        delete_provider(provider, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "provider_update", org, slug)
    messages.success(request, f"{provider} is removed, with its models and its key.")
    return redirect("provider_list", org)


@require_http_methods(["GET", "POST"])
@signed_in
def model_create(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    return _model_form(request, member, provider, None, ModelForm(request.POST or None, provider=provider))


@require_http_methods(["GET", "POST"])
@signed_in
def model_update(request: MemberRequest, org: str, slug: str, model_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    model = model_or_404(provider, model_id)
    return _model_form(
        request, member, provider, model, ModelForm(request.POST or None, provider=provider, model=model)
    )


def _model_form(
    request: MemberRequest, member: Membership, provider: Provider, model: LanguageModel | None, form: ModelForm
) -> HttpResponse:
    if form.is_valid():
        try:
            saved = save_model(provider, model, form.content(), agents=form.cleaned_data["agents"], actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{saved.name} is saved.")
            return redirect("provider_update", member.organisation.slug, provider.slug)
    context = {
        "form": form,
        "provider": provider,
        "model": model,
        "spoken": resolve_model(model).chosen_dialect if model else None,
        "counted": counted_by(model) if model else None,
        "sees_prices": member.has_right(Right.BUDGETS),
        "lessons": lessons_shown(model) if model else [],
        "test": ConnectionTest.objects.filter(language_model=model).first() if model else None,
    }
    return render(request, "capabilities/language_models/providers/model_form.html", context, status=status_of(form))


@require_POST
@signed_in
def model_forget(request: MemberRequest, org: str, slug: str, model_id: UUID) -> HttpResponse:
    """Take back what a refusal taught of the model: the lesson that `key` names."""
    member = member_or_404(request, right=Right.PROVIDERS)
    model = model_or_404(provider_or_404(slug), model_id)
    try:
        forget_lesson(model, request.POST.get("key", ""), actor=member)
    except ChangeRefused as error:
        return refused(request, error, "model_update", org, slug, model_id)
    messages.success(request, "Forgotten: the next call is made without it.")
    return redirect("model_update", org, slug, model_id)


@require_POST
@signed_in
def model_delete(request: MemberRequest, org: str, slug: str, model_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.PROVIDERS)
    provider = provider_or_404(slug)
    model = model_or_404(provider, model_id)
    try:
        delete_model(model, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "model_update", org, slug, model_id)
    messages.success(request, f"{model.name} is removed.")
    return redirect("provider_update", org, slug)
