"""The tools of the organisation as policies look at them, whether they are switched on or not."""

from __future__ import annotations

from dataclasses import dataclass

from capabilities.models import Tool

#: Tools that are looked at: more than an organisation has.
MAX_TOOLS = 50_000


@dataclass(frozen=True)
class CatalogueTool:
    """A tool, as far as a policy looks at it."""

    name: str
    category: str
    effect: str


def catalogue_tools() -> list[CatalogueTool]:
    """The first MAX_TOOLS by name. One query."""
    rows = Tool.objects.filter(current_version__isnull=False).order_by("name")
    columns = ("name", "category__name", "current_version__effect")
    return [CatalogueTool(*row) for row in rows.values_list(*columns)[:MAX_TOOLS]]
