"""Tools, as pages show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Left
from django.http import Http404

from capabilities.catalogue.tools.search import found_page
from capabilities.choosing.pipeline.bringing import toolkit_lines
from capabilities.choosing.pipeline.candidates import candidates_for
from capabilities.choosing.pipeline.tool_index import search_names
from capabilities.common.picker import SHOWN, Fields, Group, Picker, Search, shown_and_kept
from capabilities.contract.loading import RESERVED_TOOLS
from capabilities.language_models.providers.refused_tools import in_force
from capabilities.models import (
    Agent,
    Category,
    Tool,
    Toolkit,
    ToolVersion,
    VersionStatus,
)
from capabilities.running.services.writes import is_ready, tool_scope
from toolhub.tenants.rows.keyset import PAGE, Page

#: Versions of a tool that its page lists, newest first.
VERSIONS_SHOWN = 50
#: Characters of a description that a list shows.
LINE_CHARS = 160


class Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=Named)


@dataclass(frozen=True)
class CatalogueNumbers:
    """Number of tools in all, switched on and not set up yet, the tokens of sending every one that is on, and the
    categories, by title."""

    tools: int
    enabled: int
    tokens: int
    not_ready: int
    categories: Sequence[Group]


def catalogue_numbers() -> CatalogueNumbers:
    """Count the catalogue's tools and tokens, with every category. One query."""
    on = Q(is_enabled=True)
    by_category = Tool.objects.annotate(is_ready=is_ready()).order_by().values("category__name", "category__title")
    counted = by_category.annotate(
        tools=Count("pk"),
        enabled=Count("pk", filter=on),
        tokens=Coalesce(Sum("current_version__tokens", filter=on), 0),
        not_ready=Count("pk", filter=Q(is_ready=False)),
    ).values_list("category__name", "category__title", "tools", "enabled", "tokens", "not_ready")
    nothing = {f"no_{number}": Value(0) for number in range(4)}
    every = Category.objects.order_by().annotate(**nothing).values_list("name", "title", *nothing)
    titles: dict[str, str] = {}
    counts: Counter[str] = Counter()
    tools = enabled = tokens = not_ready = 0
    for name, title, *of_category in every.union(counted, all=True):
        titles[name] = title
        counts[name] += of_category[0]
        tools, enabled, tokens, not_ready = map(sum, zip((tools, enabled, tokens, not_ready), of_category, strict=True))
    by_title = sorted(titles.items(), key=lambda each: (each[1], each[0]))
    categories = [Group(name, title, counts[name]) for name, title in by_title]
    return CatalogueNumbers(tools, enabled, tokens, not_ready, categories)


def tools_page(
    *,
    q: str = "",
    category: str = "",
    state: str = "",
    kind: str = "",
    agent: Agent | None = None,
    order: Combinable | None = None,
    numbers: Mapping[int, int] | None = None,
    after: str = "",
    before: str = "",
    limit: int = PAGE,
) -> Page[Tool]:
    """Return one page of the tools that match. Queries as `found_page`; two more for an agent's.

    `q` is searched as `search_tools` does; `state` is `on`, `off`, `set-up`, `waiting` (a version waits for approval),
    `kept-back` or `refused` (a model's provider takes no definition of it); `kind` is one of ToolKind; of an agent, the
    tools that it brings.
    With `numbers`, by the tool's key, the highest come first. Without them and an `order`, those come first that the
    words find best.
    """
    tools = shown_tools()
    if category:
        tools = tools.filter(category__name=category)
    if kind:
        tools = tools.filter(kind=kind)
    if state == "set-up":
        tools = tools.exclude(is_ready())
    elif state == "waiting":
        waits = ToolVersion.objects.filter(tool=OuterRef("pk"), status=VersionStatus.PENDING)
        tools = tools.filter(Exists(waits))
    elif state == "kept-back":
        tools = tools.exclude(quarantine="")
    elif state == "refused":
        tools = tools.filter(Exists(in_force().filter(tool=OuterRef("pk"))))
    elif state:
        tools = tools.filter(is_enabled=state == "on")
    if agent is not None:
        tools = tools.filter(pk__in=brought_by(agent))
    return found_page(tools, q, order, numbers=numbers, after=after, before=before, limit=limit)


def brought_by(agent: Agent) -> set[int]:
    """Return the keys of the tools that a session with the agent begins with, whoever its member is, beside those that
    load others. Two queries."""
    return {each.spec.tool_id for each in candidates_for(agent)}


def shown_tools() -> QuerySet[Tool]:
    """Return the tools as a list shows them: with category and the short facts of the current version."""
    return (
        Tool.objects.select_related("category", "current_version")
        .defer("current_version__wire", "current_version__parameters", "current_version__description")
        .annotate(line=Left("current_version__description", LINE_CHARS), is_ready=is_ready())
    )


def shown_tool_or_404(name: str) -> Tool:
    """Return one tool as a list shows it. Raises Http404."""
    tool = shown_tools().filter(name=name).first()
    if tool is None:
        raise Http404("No such tool.")
    return tool


@dataclass(frozen=True)
class ToolPage:
    """One tool with its current version whole, and its versions' short facts."""

    tool: Tool
    versions: Sequence[ToolVersion]


def tool_page_or_404(name: str) -> ToolPage:
    """Return the page of a tool. Two queries. Raises Http404 where there is none of this name."""
    tools = Tool.objects.select_related(
        "category",
        "current_version__created_by__user",
        "server__credential",
        "credential",
        "made_by_agent",
        "quarantined_by__user",
    )
    secrets = ("credential__client_secret", "server__credential__client_secret")
    tools = tools.defer("server__instructions", "server__server_capabilities", "made_by_agent__prompt", *secrets)
    tools = tools.annotate(is_ready=is_ready(), scope=tool_scope())
    tool = tools.filter(name=name).first()
    if tool is None:
        raise Http404("No such tool.")
    versions = (
        tool.versions.select_related("created_by__user", "made_by_agent")
        .defer("wire", "parameters", "description", "implementation", "instructions", "made_by_agent__prompt")
        .order_by("-number")[:VERSIONS_SHOWN]
    )
    return ToolPage(tool, list(versions))


def tools_found(search: Search, *, without: Collection[str] = ()) -> Page[Tool]:
    """Return the first tools that the words find, the best of them first. Queries as `found_page`."""
    tools = _of_group(search).exclude(name__in=list(without)).select_related("category", "current_version")
    tools = tools.defer("current_version__wire", "current_version__parameters", "current_version__description")
    return found_page(tools, search.q, limit=SHOWN)


def names_found(names: Collection[str], search: Search) -> set[str] | None:
    """Return the names of these tools that a search finds; None where nothing is searched. Two queries."""
    if not search:
        return None
    of_group = set(_of_group(search).filter(name__in=list(names)).values_list("name", flat=True))
    return of_group.intersection(search_names(search.q)) if search.q else of_group


def _of_group(search: Search) -> QuerySet[Tool]:
    return Tool.objects.filter(category__name=search.group) if search.group else Tool.objects.all()


def tool_groups() -> list[Group]:
    """Return every category with tools, and their number. One query."""
    categories = Category.objects.annotate(tool_count=Count("tools")).filter(tool_count__gt=0).order_by("title", "name")
    return [Group(*row) for row in categories.values_list("name", "title", "tool_count")]


def tool_picker(rows: Sequence[Row], fields: Callable[[Row], Fields], search: Search, *, row: str) -> Picker:
    """The tools that are ticked in a form, as rows that have a `name`, and others to tick. Two queries, three for a
    search among many that are ticked."""
    names = [each.name for each in rows if each.name.isprintable()]
    matching = names_found(names, search) if len(rows) > SHOWN else None
    shown, kept, count = shown_and_kept(rows, fields, lambda each: matching is None or each.name in matching)
    groups = tool_groups()
    total = sum(group.count for group in groups)
    is_summary = total > SHOWN and not search
    found = Page[Tool](()) if is_summary else tools_found(search, without=names)
    return Picker(
        "tools",
        "tool",
        search,
        total,
        shown,
        found.rows,
        row,
        "capabilities/catalogue/_tool_found.html",
        words="name, description or category",
        none="There are no tools.",
        has_more=bool(found.after),
        kept=kept,
        kept_count=count,
        groups=groups if total > SHOWN else (),
        many=0,
    )


def toolkits_with(tool: Tool) -> Sequence[Toolkit]:
    """Return the toolkits that bring the tool, named or with its category. One query."""
    listed, whole = toolkit_lines([tool.pk], [tool.category_id])
    if tool.name in RESERVED_TOOLS:
        return []
    brings = Q(pk__in=listed.values("toolkit")) | Q(pk__in=whole.values("toolkit"))
    return list(Toolkit.objects.filter(brings).order_by("name"))
