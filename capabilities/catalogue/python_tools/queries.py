"""Python tools, as the editor shows them."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404

from capabilities.common.refused import not_there
from capabilities.models import Category, Tool, ToolKind, ToolTestCase, ToolVersion, VersionStatus


def python_tool_or_404(name: str) -> Tool:
    """Return the Python tool of this name. Raises Http404. One query."""
    tools = Tool.objects.select_related("category", "current_version")
    tool = tools.filter(name=name, kind=ToolKind.PYTHON).first()
    if tool is None:
        raise Http404("No such Python tool.")
    return tool


def category_named(name: str) -> Category:
    """Raises ChangeRefused where there is none. One query."""
    found = Category.objects.filter(name=name).first()
    if found is None:
        raise not_there("category", "category", name)
    return found


def newest_version(tool: Tool) -> ToolVersion | None:
    """Return the version that the editor begins with: the newest one that was not rejected. One query."""
    versions = ToolVersion.objects.filter(tool=tool).exclude(status=VersionStatus.REJECTED)
    return versions.order_by("-number").first()


def tests_of(tool: Tool) -> list[ToolTestCase]:
    """Return the tool's saved tests. One query."""
    return list(ToolTestCase.objects.filter(tool=tool).select_related("version").order_by("name"))


def test_or_404(tool: Tool, test_id: UUID) -> ToolTestCase:
    """Return the saved test of this id. Raises Http404 where the tool has none."""
    case = ToolTestCase.objects.select_related("tool__category").filter(tool=tool, public_id=test_id).first()
    if case is None:
        raise Http404("No such test.")
    return case


def waiting_number(tool: Tool) -> int:
    """Return the number of the newest version that waits for approval; 0 for none. One query."""
    waiting = ToolVersion.objects.filter(tool=tool, status=VersionStatus.PENDING).order_by("-number")
    return waiting.values_list("number", flat=True).first() or 0
