"""The organisation's whole catalogue, ready to be searched by words: made anew where a tool or keyword has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from capabilities.choosing.pipeline.routing import keywords_at
from capabilities.choosing.routing.documents import Document, document_of
from capabilities.choosing.routing.index import Index, build_index, index_key
from capabilities.choosing.routing.keywords import Keywords
from capabilities.choosing.routing.tool_search import names_found
from capabilities.common.memory import Memory
from capabilities.models import Tool
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import current_scope

#: By organisation and registry version, and by content: few, for one of ten thousand tools takes some 30 MB.
_read: Memory[Index] = Memory(16)
_shared: Memory[Index] = Memory(8)
#: The last searches: a page, its next one, and what else of a page asks for the same.
_found: Memory[tuple[str, ...]] = Memory(64)


def search_names(query: str, *, near: bool = False) -> tuple[str, ...]:
    """The names of the organisation's tools that the query finds, best first, `near` also what is near in meaning; none
    for an empty one, without a query to the database. Else one, and two more where the catalogue has changed."""
    query = " ".join(query.split())
    if not query:
        return ()
    index = tools_index()
    return _found.get((index.key, query, near), lambda: tuple(names_found(index, query, near=near)))


def tools_index() -> Index:
    """The index of every tool of the organisation in scope, whether it is on or off. One query, and two more where its
    registry version is new to this process."""
    key = current_scope()
    version = Organisation.objects.values_list("registry_version", flat=True).get(pk=key)
    return _read.get((key, version), lambda: _index(keywords_at(key, version)))


def _index(keywords: Keywords) -> Index:
    documents = _documents(dict(keywords.categories))
    return _shared.get(index_key(documents), lambda: build_index(documents))


def _documents(keywords: Mapping[str, tuple[str, ...]]) -> list[Document]:
    """One query. As routing reads a tool, so that both share what was made ready of it."""
    rows = Tool.objects.order_by("name").values_list(
        "name",
        "current_version__wire",
        "category__name",
        "category__title",
    )
    return [_document(name, wire, category, title, keywords.get(category, ())) for name, wire, category, title in rows]


@lru_cache(maxsize=20_000)
def _document(name: str, wire: str | None, category: str, title: str, keywords: tuple[str, ...]) -> Document:
    function = json.loads(wire)["function"] if wire else {}
    return document_of({**function, "name": name}, toolkit=title, category=category, triggers=keywords)
