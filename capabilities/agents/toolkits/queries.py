"""Toolkits, as pages and the API show them: what is in them, what it weighs, and which agents may load it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet, Sum, Value
from django.http import Http404

from capabilities.catalogue.tools.queries import shown_tools
from capabilities.common.picker import SHOWN, Fields, Picker, Search, shown_and_kept
from capabilities.contract.loading import META_CATEGORY, RESERVED_TOOLS
from capabilities.models import Agent, AgentToolkit, Category, Offer, Tool, Toolkit, ToolkitCategory, ToolkitTool
from capabilities.running.services.writes import acts_as_member, acts_as_organisation
from toolhub.tenants.models import Membership, Right


def shown_toolkits(member: Membership) -> QuerySet[Toolkit]:
    """Return the toolkits with the lines of agents that the member sees. `weigh` gives them their numbers."""
    seen = Agent.objects.seen_by(member, Right.TOOLKITS).order_by().values("pk")
    users = AgentToolkit.objects.filter(agent__in=seen).select_related("agent").order_by("agent__name", "agent_id")
    return Toolkit.objects.prefetch_related(Prefetch("agent_toolkits", users))


def weigh(toolkits: Collection[Toolkit]) -> None:
    """Give each of these its `tool_count` and `tokens`: each tool once, whether named or through a category.

    What no toolkit may hold does not count. One query for all of them: as a part of the query of toolkits, the
    database would look for each toolkit's tools four times.
    """
    weights = {toolkit.pk: (0, 0) for toolkit in toolkits}
    # A filter of each sum, not of the rows: so the database begins with the few lines of toolkits, not with all tools.
    allowed = ~Q(category__tools__name__in=RESERVED_TOOLS)
    of_categories = ToolkitCategory.objects.filter(toolkit__in=list(weights)).order_by().values("toolkit")
    of_categories = of_categories.annotate(
        count=Count("category__tools", filter=allowed),
        sum=Sum("category__tools__current_version__tokens", filter=allowed),
    )
    whole = ToolkitCategory.objects.filter(toolkit=OuterRef("toolkit"), category=OuterRef("tool__category"))
    lines = ToolkitTool.objects.filter(~Exists(whole), toolkit__in=list(weights)).order_by()
    of_lines = lines.exclude(tool__name__in=RESERVED_TOOLS).values("toolkit")
    of_lines = of_lines.annotate(count=Count("pk"), sum=Sum("tool__current_version__tokens"))
    columns = ("toolkit", "count", "sum")
    numbers = of_categories.values_list(*columns).union(of_lines.values_list(*columns), all=True)
    for key, count, tokens in numbers:
        weights[key] = (weights[key][0] + count, weights[key][1] + (tokens or 0))
    for toolkit in toolkits:
        toolkit.tool_count, toolkit.tokens = weights[toolkit.pk]  # type: ignore[attr-defined]


def note_scopes(toolkits: Collection[Toolkit]) -> None:
    """Give each of these its `scope`: `organisation` where a tool of it acts with a credential that the organisation
    shares, else `member` where one acts with the member's own account, else empty. One query for all of them."""
    keys = [toolkit.pk for toolkit in toolkits]
    rows: list[Any] = []
    for rank, tools in enumerate((Tool.objects.filter(acts_as_organisation()), Tool.objects.filter(acts_as_member()))):
        lines = ToolkitTool.objects.filter(toolkit__in=keys, tool__in=tools.values("pk"))
        whole = ToolkitCategory.objects.filter(toolkit__in=keys, category__in=tools.values("category"))
        rows += [each.order_by().annotate(rank=Value(rank)).values_list("toolkit", "rank") for each in (lines, whole)]
    ranks: dict[int, int] = {}
    for key, rank in rows[0].union(*rows[1:]):
        ranks[key] = min(rank, ranks.get(key, rank))
    for toolkit in toolkits:
        toolkit.scope = {0: "organisation", 1: "member"}.get(ranks.get(toolkit.pk, 2), "")  # type: ignore[attr-defined]


def whole_toolkits(member: Membership) -> QuerySet[Toolkit]:
    """Return the toolkits as the API shows them: with the lines of tools and categories too."""
    tools = ToolkitTool.objects.select_related("tool").order_by("position", "tool__name")
    tools = tools.only("organisation", "toolkit", "position", "timeout", "max_result_chars", "knobs", "tool__name")
    categories = ToolkitCategory.objects.select_related("category").order_by("category__name")
    return shown_toolkits(member).prefetch_related(
        Prefetch("toolkit_tools", tools), Prefetch("toolkit_categories", categories)
    )


def toolkits_by_name(member: Membership) -> Sequence[Toolkit]:
    """Three queries."""
    found = list(shown_toolkits(member).order_by("name"))
    weigh(found)
    return found


def toolkit_or_404(name: str, member: Membership) -> Toolkit:
    """Return the toolkit with the agents that may load it and that the member sees. Three queries. Raises Http404 where
    there is none of this name."""
    toolkit = shown_toolkits(member).filter(name=name).first()
    if toolkit is None:
        raise Http404("No such toolkit.")
    weigh([toolkit])
    return toolkit


def agents_without(toolkit: Toolkit, member: Membership) -> Sequence[Agent]:
    """Return the agents that the member sees and that may not load the toolkit, by name. One query."""
    may_load = AgentToolkit.objects.filter(agent=OuterRef("pk"), toolkit=toolkit)
    agents = Agent.objects.seen_by(member).filter(~Exists(may_load))
    return list(agents.only("organisation_id", "slug", "name").order_by("name", "pk"))


def agent_to_try(toolkit: Toolkit) -> Agent | None:
    """Return the first agent, of those that `shown_toolkits` gave the toolkit, that is switched on and offered to
    everybody; None where there is none. No query."""
    agents = (line.agent for line in toolkit.agent_toolkits.all())
    return next((each for each in agents if each.is_enabled and each.offered_to == Offer.EVERYBODY), None)


@dataclass(frozen=True)
class ToolkitPage:
    """One toolkit: its lines, each with its tool as a list shows it, and its categories with their numbers."""

    toolkit: Toolkit
    lines: Sequence[ToolkitTool]
    categories: Sequence[Category]


def toolkit_page_or_404(name: str, member: Membership) -> ToolkitPage:
    """Return what the page of the toolkit shows. Seven queries. Raises Http404 where there is none of this name."""
    toolkit = toolkit_or_404(name, member)
    note_scopes([toolkit])
    lines = ToolkitTool.objects.filter(toolkit=toolkit).order_by("position", "tool__name")
    categories = _counted(Category.objects.filter(toolkit_categories__toolkit=toolkit))
    return ToolkitPage(toolkit, list(lines.prefetch_related(Prefetch("tool", shown_tools()))), list(categories))


def categories_for_toolkits() -> Sequence[Category]:
    """Return the categories that a toolkit may hold, each with the number of its tools and their tokens. One query."""
    reserved = Q(name=META_CATEGORY) | Q(pk__in=Tool.objects.filter(name__in=RESERVED_TOOLS).values("category"))
    return list(_counted(Category.objects.exclude(reserved)))


@dataclass(frozen=True)
class PickedCategory:
    """A whole category of a toolkit, as its form shows it."""

    name: str
    title: str
    tool_count: int
    tokens: int
    is_chosen: bool

    def __str__(self) -> str:
        return self.title

    def fields(self) -> Fields:
        return [("categories", self.name)]


def category_picker(chosen: Sequence[str], search: Search) -> Picker:
    """One query. Those that are chosen and not there stay: the save says that they are not."""
    by_name = {
        each.name: PickedCategory(each.name, each.title, each.tool_count, each.tokens or 0, each.name in chosen)  # type: ignore[attr-defined]
        for each in categories_for_toolkits()
    }
    words = search.q.lower().split()

    def fits(row: PickedCategory) -> bool:
        return all(word in f"{row.title} {row.name}".lower() for word in words)

    ticked = [by_name.get(name) or PickedCategory(name, name, 0, 0, True) for name in chosen]
    shown, kept, count = shown_and_kept(ticked, PickedCategory.fields, fits)
    found = [row for row in by_name.values() if not row.is_chosen and fits(row)]
    return Picker(
        "categories",
        "category",
        search,
        len(by_name),
        shown,
        found[:SHOWN],
        "capabilities/agents/toolkits/_toolkit_category.html",
        "capabilities/agents/toolkits/_toolkit_category.html",
        words="title or short name",
        none="There are no categories.",
        has_more=len(found) > SHOWN,
        kept=kept,
        kept_count=count,
    )


def _counted(categories: QuerySet[Category]) -> QuerySet[Category]:
    counted = categories.annotate(tool_count=Count("tools"), tokens=Sum("tools__current_version__tokens"))
    return counted.order_by("title", "name")


def knobs_of(names: Sequence[str]) -> dict[str, tuple[float | None, int | None]]:
    """{name: (timeout, max_result_chars)} of these tools' current versions. One query."""
    rows = Tool.objects.filter(name__in=names).values_list(
        "name", "current_version__timeout", "current_version__max_result_chars"
    )
    return {name: (timeout, chars) for name, timeout, chars in rows}
