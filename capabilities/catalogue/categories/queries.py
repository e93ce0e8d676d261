"""Categories, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Q, Sum
from django.http import Http404

from capabilities.models import Category


def categories() -> Sequence[Category]:
    return list(Category.objects.only("organisation_id", "name", "title").order_by("title", "name"))


def categories_shown() -> Sequence[Category]:
    """With how many tools each has, how many are on, and the tokens of these. One query."""
    on = Q(tools__is_enabled=True)
    return list(
        Category.objects.annotate(
            tool_count=Count("tools"),
            on_count=Count("tools", filter=on),
            tokens=Sum("tools__current_version__tokens", filter=on),
        ).order_by("title", "name")
    )


def category_or_404(name: str) -> Category:
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise Http404("No such category.")
    return category


def category_names() -> list[tuple[str, str]]:
    """(name, title) of the organisation's categories, by title. One query."""
    return list(Category.objects.order_by("title", "name").values_list("name", "title"))
