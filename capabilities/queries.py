"""What pages read of the catalogue, each in a fixed number of queries. The scope says whose rows they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import BooleanField, Case, Count, Exists, OuterRef, Prefetch, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Left
from django.http import Http404

from capabilities.models import Agent, AgentTool, Category, LanguageModel, Provider, Tool, ToolVersion
from capabilities.secrets import SecretUnreadable, masked
from capabilities.services import is_ready

TOOLS_A_PAGE = 50
#: Versions of a tool that its page lists, newest first.
VERSIONS_SHOWN = 50
#: Characters of a description that a list shows.
LINE_CHARS = 160


@dataclass(frozen=True)
class CatalogueNumbers:
    """Tools in all, switched on and not set up yet, and the tokens of sending every one that is on."""

    tools: int
    enabled: int
    tokens: int
    not_ready: int


def catalogue_numbers() -> CatalogueNumbers:
    """One query."""
    on = Q(is_enabled=True)
    row = Tool.objects.annotate(is_ready=is_ready()).aggregate(
        tools=Count("pk"),
        enabled=Count("pk", filter=on),
        tokens=Sum("current_version__tokens", filter=on),
        not_ready=Count("pk", filter=Q(is_ready=False)),
    )
    return CatalogueNumbers(row["tools"], row["enabled"], row["tokens"] or 0, row["not_ready"])


@dataclass(frozen=True)
class ToolsPage:
    """Some tools by name; the names to go on after and before, None at either end."""

    tools: Sequence[Tool]
    after: str | None
    before: str | None


def tools_page(
    *, q: str = "", category: str = "", state: str = "", after: str = "", before: str = "", limit: int = TOOLS_A_PAGE
) -> ToolsPage:
    """The tools that match, one page of them. One query.

    `q` is looked for in names and descriptions, `state` is `on`, `off` or `set-up`; `after` and `before` are names.
    """
    tools = shown_tools()
    if q:
        tools = tools.filter(Q(name__icontains=q) | Q(current_version__description__icontains=q))
    if category:
        tools = tools.filter(category__name=category)
    if state == "set-up":
        tools = tools.exclude(is_ready())
    elif state:
        tools = tools.filter(is_enabled=state == "on")
    if before:
        found = list(tools.filter(name__lt=before).order_by("-name")[: limit + 1])
        page = found[:limit][::-1]
        return ToolsPage(page, page[-1].name if page else None, page[0].name if len(found) > limit else None)
    if after:
        tools = tools.filter(name__gt=after)
    found = list(tools.order_by("name")[: limit + 1])
    page = found[:limit]
    return ToolsPage(page, page[-1].name if len(found) > limit else None, page[0].name if after and page else None)


def shown_tools() -> QuerySet[Tool]:
    """Tools as a list shows them: with category and the short facts of the current version."""
    return (
        Tool.objects.select_related("category", "current_version")
        .defer("current_version__wire", "current_version__parameters", "current_version__description")
        .annotate(line=Left("current_version__description", LINE_CHARS), is_ready=is_ready())
    )


def shown_tool_or_404(name: str) -> Tool:
    """One tool as a list shows it."""
    tool = shown_tools().filter(name=name).first()
    if tool is None:
        raise Http404("No such tool.")
    return tool


def categories() -> Sequence[Category]:
    return list(Category.objects.only("organisation_id", "name", "title").order_by("title", "name"))


@dataclass(frozen=True)
class ToolPage:
    """One tool with its current version whole, its versions' short facts, and the agents that bring it."""

    tool: Tool
    versions: Sequence[ToolVersion]
    agents: Sequence[Agent]


def tool_page_or_404(name: str) -> ToolPage:
    """Three queries."""
    tools = Tool.objects.select_related("category", "current_version__created_by__user").annotate(is_ready=is_ready())
    tool = tools.filter(name=name).first()
    if tool is None:
        raise Http404("No such tool.")
    versions = (
        tool.versions.select_related("created_by__user")
        .defer("wire", "parameters", "description")
        .order_by("-number")[:VERSIONS_SHOWN]
    )
    return ToolPage(tool, list(versions), list(_agents_with(tool)))


def _agents_with(tool: Tool) -> QuerySet[Agent]:
    """Agents that bring the tool, as their own or with its core category."""
    own = Exists(AgentTool.objects.filter(agent=OuterRef("pk"), tool=tool))
    brings = Q(is_own=True)
    if tool.category.is_core:
        brings |= Q(starts_with_core=True)
    return Agent.objects.annotate(is_own=own).filter(brings).order_by("name", "pk")


def providers_shown() -> Sequence[Provider]:
    """Providers with their models and these models' agents; keys stay where they are. Three queries."""
    models = LanguageModel.objects.order_by("pk").prefetch_related(
        Prefetch("agents", Agent.objects.only("organisation_id", "name", "slug", "model_id").order_by("name"))
    )
    return list(
        Provider.objects.defer("api_key")
        .annotate(has_key=Case(When(api_key="", then=Value(False)), default=Value(True), output_field=BooleanField()))
        .prefetch_related(Prefetch("models", models))
        .order_by("name", "pk")
    )


def provider_or_404(slug: str) -> Provider:
    """Without its key."""
    provider = Provider.objects.defer("api_key").filter(slug=slug).first()
    if provider is None:
        raise Http404("No such provider.")
    return provider


def default_model(provider: Provider) -> LanguageModel | None:
    """The model that the provider's form names: its first."""
    return LanguageModel.objects.filter(provider=provider).order_by("pk").first()


def shown_key(provider: Provider) -> str:
    """The mask of the provider's key, "" where there is none; a sentence where it cannot be read."""
    try:
        key = Provider.objects.values_list("api_key", flat=True).get(pk=provider.pk)
    except SecretUnreadable:
        return "a key that cannot be read any more; enter it again"
    return masked(key)


def agents_by_name() -> QuerySet[Agent]:
    """With model and provider at hand."""
    return Agent.objects.select_related("model__provider").defer("model__provider__api_key").order_by("name", "pk")
