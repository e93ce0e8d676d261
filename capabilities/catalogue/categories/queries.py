"""Categories, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, Sum
from django.http import Http404

from capabilities.models import Category, Tool
from toolhub.tenants.rows.keyset import Keyset, Page


@dataclass(frozen=True)
class CategoryNumbers:
    total: int
    core: int
    #: Tokens of the core categories' tools that are on.
    core_tokens: int


def categories() -> Sequence[Category]:
    return list(Category.objects.only("organisation_id", "name", "title").order_by("title", "name"))


def categories_page(*, q: str = "", after: str = "", before: str = "") -> Page[Category]:
    """Return one page of categories with the number of tools, of those that are on, and their tokens. `q`: part of
    title, name or keywords. One query."""
    on = Q(tools__is_enabled=True)
    found = Q(title__icontains=q) | Q(name__icontains=q) | Q(keywords__icontains=q) if q else Q()
    rows = Category.objects.filter(found).annotate(
        tool_count=Count("tools"),
        on_count=Count("tools", filter=on),
        tokens=Sum("tools__current_version__tokens", filter=on),
    )
    return Keyset(rows, ("title", "name")).page(after, before)


def category_numbers() -> CategoryNumbers:
    """Count the categories, the core ones, and the tokens of the tools of these that are on. Two queries."""
    counted = Category.objects.aggregate(total=Count("pk"), core=Count("pk", filter=Q(is_core=True)))
    sent = Tool.objects.filter(is_enabled=True, category__is_core=True).aggregate(
        tokens=Sum("current_version__tokens", default=0)
    )
    return CategoryNumbers(counted["total"], counted["core"], sent["tokens"])


def category_or_404(name: str) -> Category:
    """Return the category of this name. Raises Http404 where there is none."""
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise Http404("No such category.")
    return category


def category_names() -> list[tuple[str, str]]:
    """Return (name, title) of the organisation's categories, by title. One query."""
    return list(Category.objects.order_by("title", "name").values_list("name", "title"))
