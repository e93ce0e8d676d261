"""Tools by words and in an order, one page at a time: the catalogue's list, the pickers, Explain and REST."""

from __future__ import annotations

from collections.abc import Mapping
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
    numbers: Mapping[int, int] | None = None,
    after: str = "",
    before: str = "",
    limit: int = PAGE,
) -> Page[Tool]:
    """Return one page of those tools that the words of `q` find: the best first, or in another order, or the highest of
    `numbers` first, which are by the tool's key; by name among those of one place. Without words all of them, in one
    query, or two by numbers.

    With words three queries, two more where the catalogue has changed: its version, the names, and the page.
    """
    if not q.strip() and numbers is None:
        return in_order(tools, order).page(after, before, limit=limit)
    ranks = {name: rank for rank, name in enumerate(search_names(q))} if q.strip() else None
    among = tools.filter(name__in=list(ranks)) if ranks is not None and len(ranks) <= MOST_NAMED else tools
    found = among.order_by()
    if numbers is not None:
        rows = [(-numbers.get(key, 0), name) for key, name in found.values_list("pk", "name")]
    elif order is not None:
        rows = list(found.annotate(place=order).values_list("place", "name"))
    else:
        rows = [((ranks or {}).get(name, 0), name) for name in found.values_list("name", flat=True)]
    rows = [row for row in rows if ranks is None or row[1] in ranks]
    page = page_of_sorted(sorted(rows), itemgetter(0, 1), after, before, limit=limit)
    by_name = {tool.name: tool for tool in tools.filter(name__in=[name for _, name in page.rows])}
    return Page([by_name[name] for _, name in page.rows if name in by_name], page.after, page.before)


def in_order(tools: QuerySet[Tool], order: Combinable | None) -> Keyset[Tool]:
    """Return these tools by a number that is annotated as `place`, and by name among those of one number."""
    return Keyset(tools.annotate(place=Value(0) if order is None else order), ("place", "name"))
