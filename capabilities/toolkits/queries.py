"""Toolkits, as pages and the API show them: what is in them, what it weighs, and which agents may load it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Aggregate, Count, Exists, IntegerField, OuterRef, Prefetch, Q, QuerySet, Subquery, Sum
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce
from django.http import Http404

from capabilities.catalogue.tools.queries import shown_tools
from capabilities.contract.loading import META_CATEGORY, RESERVED_TOOLS
from capabilities.models import AgentToolkit, Category, Tool, Toolkit, ToolkitCategory, ToolkitTool


def shown_toolkits() -> QuerySet[Toolkit]:
    """With `tool_count` and `tokens`, each tool once, whether named or through a category; and the agents' lines."""
    users = AgentToolkit.objects.select_related("agent").order_by("agent__name", "agent_id")
    return Toolkit.objects.annotate(
        tool_count=_over_tools(Count, "pk"), tokens=_over_tools(Sum, "current_version__tokens")
    ).prefetch_related(Prefetch("agent_toolkits", users))


def _over_tools(aggregate: type[Aggregate], column: str) -> CombinedExpression:
    """An aggregate over a toolkit's tools, as it is now. What no toolkit may hold does not count.

    The tools of its categories, and the listed ones in none of these. Not one query over tools that are either the one
    or the other: that reads the whole catalogue for each toolkit.
    """
    allowed = ~Q(category__tools__name__in=RESERVED_TOOLS)
    of_categories = ToolkitCategory.objects.filter(toolkit=OuterRef("pk")).order_by().values("toolkit")
    of_categories = of_categories.annotate(number=aggregate(f"category__tools__{column}", filter=allowed))
    whole = ToolkitCategory.objects.filter(toolkit=OuterRef("toolkit"), category=OuterRef("tool__category"))
    listed = ToolkitTool.objects.filter(~Exists(whole), toolkit=OuterRef("pk")).exclude(tool__name__in=RESERVED_TOOLS)
    of_lines = listed.order_by().values("toolkit").annotate(number=aggregate(f"tool__{column}"))
    return _or_zero(of_categories) + _or_zero(of_lines)


def _or_zero(numbers: QuerySet[Any, Any]) -> Coalesce:
    return Coalesce(Subquery(numbers.values("number"), output_field=IntegerField()), 0)


def whole_toolkits() -> QuerySet[Toolkit]:
    """As the API tells them: with the lines of tools and categories too."""
    tools = ToolkitTool.objects.select_related("tool").order_by("position", "tool__name")
    categories = ToolkitCategory.objects.select_related("category").order_by("category__name")
    return shown_toolkits().prefetch_related(
        Prefetch("toolkit_tools", tools), Prefetch("toolkit_categories", categories)
    )


def toolkits_by_name() -> Sequence[Toolkit]:
    """Two queries."""
    return list(shown_toolkits().order_by("name"))


def toolkit_or_404(name: str) -> Toolkit:
    """With the agents that may load it. Two queries."""
    toolkit = shown_toolkits().filter(name=name).first()
    if toolkit is None:
        raise Http404("No such toolkit.")
    return toolkit


@dataclass(frozen=True)
class ToolkitPage:
    """One toolkit: its lines, each with its tool as a list shows it, and its categories with their numbers."""

    toolkit: Toolkit
    lines: Sequence[ToolkitTool]
    categories: Sequence[Category]


def toolkit_page_or_404(name: str) -> ToolkitPage:
    """Five queries."""
    toolkit = toolkit_or_404(name)
    lines = ToolkitTool.objects.filter(toolkit=toolkit).order_by("position", "tool__name")
    categories = _counted(Category.objects.filter(toolkit_categories__toolkit=toolkit))
    return ToolkitPage(toolkit, list(lines.prefetch_related(Prefetch("tool", shown_tools()))), list(categories))


def categories_for_toolkits() -> Sequence[Category]:
    """Those that a toolkit may hold, with how many tools each has and their tokens. One query."""
    reserved = Q(name=META_CATEGORY) | Q(pk__in=Tool.objects.filter(name__in=RESERVED_TOOLS).values("category"))
    return list(_counted(Category.objects.exclude(reserved)))


def _counted(categories: QuerySet[Category]) -> QuerySet[Category]:
    counted = categories.annotate(tool_count=Count("tools"), tokens=Sum("tools__current_version__tokens"))
    return counted.order_by("title", "name")


def knobs_of(names: Sequence[str]) -> dict[str, tuple[float | None, int | None]]:
    """{name: (timeout, max_result_chars)} of these tools' current versions. One query."""
    rows = Tool.objects.filter(name__in=names).values_list(
        "name", "current_version__timeout", "current_version__max_result_chars"
    )
    return {name: (timeout, chars) for name, timeout, chars in rows}
