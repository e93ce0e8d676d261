"""The pages of categories."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.catalogue.categories.forms import CategoryFilter, CategoryForm
from capabilities.catalogue.categories.queries import categories_page, category_numbers, category_or_404
from capabilities.catalogue.categories.writes import create_category, delete_category, update_category
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.keyset import PAGE


@require_GET
@signed_in
def category_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request)
    address = CategoryFilter(request.GET)
    page = categories_page(q=address.filters["q"], **address.place)
    reach = member.reach(Right.CATALOGUE)
    context = {
        **address.context(page),
        "numbers": category_numbers(),
        "rows_of_a_page": PAGE,
        "editable": {each.name for each in page.rows if reach.covers(each.name)},
        "may_add": member.has_right(Right.CATALOGUE),
    }
    return render(request, "capabilities/catalogue/category_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def category_create(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    form = CategoryForm(request.POST or None)
    if form.is_valid():
        try:
            category = create_category(form.cleaned_data["name"], form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{category} is added. Move tools into it on their pages.")
            return redirect("category_list", org)
    return render(request, "capabilities/catalogue/category_form.html", {"form": form}, status=status_of(form))


@require_http_methods(["GET", "POST"])
@signed_in
def category_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    category = category_or_404(name)
    form = CategoryForm(request.POST or None, category=category)
    if form.is_valid():
        try:
            update_category(category, form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{category} is saved.")
            return redirect("category_list", org)
    context = {"form": form, "category": category, "may_remove": member.has_right(Right.CATALOGUE)}
    return render(request, "capabilities/catalogue/category_form.html", context, status=status_of(form))


@require_POST
@signed_in
def category_delete(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    category = category_or_404(name)
    try:
        delete_category(category, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "category_update", org, name)
    messages.success(request, f"{category} is removed, with the rules and grants on it.")
    return redirect("category_list", org)
