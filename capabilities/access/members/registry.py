"""The registry as one member sees it: the tools that the member may use, page by page, and what opens them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from capabilities.choosing.pipeline.permissions import MemberPermissions, permissions_of, tool_key
from capabilities.contract.permission import Permission, ToolKey
from capabilities.models import Tool
from capabilities.running.services.writes import is_ready, set_up_title
from toolhub.tenants.models import Membership

#: Bytes of definitions on one page; one tool that is longer by itself is a page.
MAX_BYTES = 150_000


@dataclass(frozen=True)
class MyTool:
    """A tool that the member may use. `needs_set_up`: the service that an admin has to set up first, or empty."""

    tool: Tool
    needs_set_up: str
    answer: Permission


@dataclass
class OpenCategory:
    """Number of a category's tools that are switched on, number of those that the member may use, and what opens
    them."""

    name: str
    tools: int = 0
    allowed: int = 0
    opened_by: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class MyTools:
    """Some tools by name, after which to go on (empty at the end). `categories` on the first page alone."""

    tools: Sequence[MyTool]
    next: str
    categories: Sequence[OpenCategory] = ()


def my_tools(member: Membership, *, after: str = "", limit: int) -> MyTools:
    """Return a page of the tools that are switched on and that the member may use. Three queries; every tool's
    permission is decided in memory."""
    permissions = permissions_of(member)
    keys = [
        (tool_key(key, category_id, name, kind), category) for key, category_id, name, kind, category in _rows(after)
    ]
    categories = _categories(permissions, keys) if not after else ()
    chosen = _allowed(permissions, [key for key, _ in keys], limit + 1)
    shown = _shown([key.tool_id for key, _ in chosen[:limit]])
    page: list[MyTool] = []
    size = 0
    for key, answer in chosen[:limit]:
        tool = shown.get(key.tool_id)
        if tool is None or tool.current_version is None:
            continue  # removed a moment ago
        size += len(tool.current_version.wire.encode())
        if page and size > MAX_BYTES:
            return MyTools(page, page[-1].tool.name, categories)
        page.append(MyTool(tool, "" if tool.is_ready else set_up_title(tool.service), answer))  # type: ignore[attr-defined]
    return MyTools(page, chosen[limit - 1][0].name if len(chosen) > limit else "", categories)


def _rows(after: str) -> list[tuple[int, int, str, str, str]]:
    tools = Tool.objects.filter(is_enabled=True, current_version__isnull=False, name__gt=after).order_by("name")
    return list(tools.values_list("pk", "category_id", "name", "kind", "category__name"))


def _allowed(permissions: MemberPermissions, keys: Sequence[ToolKey], limit: int) -> list[tuple[ToolKey, Permission]]:
    """The first ones that the member may use."""
    found: list[tuple[ToolKey, Permission]] = []
    for key in keys:
        answer = permissions.decide(key)
        if answer.allowed:
            found.append((key, answer))
            if len(found) == limit:
                break
    return found


def _categories(permissions: MemberPermissions, keys: Sequence[tuple[ToolKey, str]]) -> list[OpenCategory]:
    found: dict[str, OpenCategory] = {}
    for key, category in keys:
        line = found.setdefault(category, OpenCategory(category))
        line.tools += 1
        answer = permissions.decide(key)
        if answer.allowed:
            line.allowed += 1
            line.opened_by[answer.reason] += 1
    return [found[name] for name in sorted(found)]


def _shown(keys: Sequence[int]) -> dict[int, Tool]:
    tools = Tool.objects.select_related("category", "current_version").annotate(is_ready=is_ready())
    return {tool.pk: tool for tool in tools.filter(pk__in=keys)}
