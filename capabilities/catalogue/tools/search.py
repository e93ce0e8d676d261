"""Tools by words and in an order, one page at a time: the catalogue's list, the pickers, Explain and REST."""

from __future__ import annotations

from operator import itemgetter

from django.db.models import F, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from capabilities.choosing.pipeline.tool_index import search_names
from capabilities.models import Tool
from toolhub.tenants.rows.keyset import PAGE, Keyset, Page, page_of_sorted

#: Tools that are found, up to which the database is asked for them by name.
MOST_NAMED = 1_000


def by_tokens() -> Combinable:
    """Return an order by tokens, the most first."""
    return Value(0) - Coalesce(F("current_version__tokens"), Value(0))


def found_page(
    tools: QuerySet[Tool],
    q: str,
    order: Combinable | None = None,
    *,
    after: str = "",
    before: str = "",
    limit: int = PAGE,
) -> Page[Tool]:
    """Return one page of those tools that the words of `q` find: the best first, or in another order, and by name among
    those of one place. Without words all of them, in one query.

    With words three queries, two more where the catalogue has changed: its version, the names, and the page.
    """
    if not q.strip():
        return in_order(tools, order).page(after, before, limit=limit)
    ranks = {name: rank for rank, name in enumerate(search_names(q))}
    among = tools.filter(name__in=list(ranks)) if len(ranks) <= MOST_NAMED else tools
    if order is None:
        names = among.order_by().values_list("name", flat=True)
        rows = [(ranks[name], name) for name in names if name in ranks]
    else:
        placed = among.order_by().annotate(place=order).values_list("place", "name")
        rows = [(rank, name) for rank, name in placed if name in ranks]
    page = page_of_sorted(sorted(rows), itemgetter(0, 1), after, before, limit=limit)
    by_name = {tool.name: tool for tool in tools.filter(name__in=[name for _, name in page.rows])}
    return Page([by_name[name] for _, name in page.rows if name in by_name], page.after, page.before)


def in_order(tools: QuerySet[Tool], order: Combinable | None) -> Keyset[Tool]:
    """Return these tools by a number that is annotated as `place`, and by name among those of one number."""
    return Keyset(tools.annotate(place=Value(0) if order is None else order), ("place", "name"))
