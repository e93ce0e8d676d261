"""The pages of prices: what each model costs, and a model's own prices with the form for another."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.prices.forms import PriceForm
from capabilities.language_models.prices.queries import (
    price_or_404,
    priced_model_or_404,
    priced_models,
    priced_page,
    prices_of_model,
    shown_prices,
)
from capabilities.language_models.prices.writes import MAX_PRICES, PriceContent, add_price, remove_price
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in

#: Names in the form of fields of the write.
_FIELDS = {"valid_from": "begins"}


@require_GET
@signed_in
def price_list(request: MemberRequest, org: str) -> HttpResponse:
    """Each model with its public price, its own one, and which counts."""
    member_or_404(request, right=Right.BUDGETS)
    address = ListAddress(request.GET)
    context = address.context(priced_page(**address.place))
    return render(request, "capabilities/language_models/prices/price_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def price_model(request: MemberRequest, org: str, model_id: UUID) -> HttpResponse:
    """One model's prices; a POST adds one."""
    member = member_or_404(request, right=Right.BUDGETS)
    model = priced_model_or_404(model_id)
    form = PriceForm(request.POST or None, zone=member.organisation.time_zone)
    if form.is_valid():
        try:
            add_price(model, form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, ChangeRefused(_FIELDS.get(error.field, error.field), str(error), code=error.code))
        else:
            messages.success(request, f"{model.name} has a price of its own.")
            return redirect("price_model", org, model_id)
    (priced,) = priced_models([model])
    context = {
        "form": form,
        "model": model,
        "priced": priced,
        "zone": form.zone,
        "prices": shown_prices(list(prices_of_model(model)[:MAX_PRICES]), priced.own),
    }
    return render(request, "capabilities/language_models/prices/price_model.html", context, status=status_of(form))


@require_POST
@signed_in
def price_public(request: MemberRequest, org: str, model_id: UUID) -> HttpResponse:
    """Let the public price count again from now on."""
    member = member_or_404(request, right=Right.BUDGETS)
    model = priced_model_or_404(model_id)
    try:
        add_price(model, PriceContent(is_public=True), actor=member)
    except ChangeRefused as error:
        return refused(request, error, "price_model", org, model_id)
    messages.success(request, f"From now on the public price of {model.name} counts.")
    return redirect("price_model", org, model_id)


@require_POST
@signed_in
def price_remove(request: MemberRequest, org: str, model_id: UUID, price_id: UUID) -> HttpResponse:
    """Take back a price that has not begun."""
    member = member_or_404(request, right=Right.BUDGETS)
    price = price_or_404(priced_model_or_404(model_id), price_id)
    try:
        remove_price(price, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "price_model", org, model_id)
    messages.success(request, "The price is taken back.")
    return redirect("price_model", org, model_id)
