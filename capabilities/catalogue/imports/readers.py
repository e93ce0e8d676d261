"""Readers of each kind of source. A room above registers its own when the apps are ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from capabilities.catalogue.imports.found import ReadSource
from capabilities.common.provided import Provided
from capabilities.models import ToolImport
from toolhub.tenants.models import Membership

#: Reads the source of an import, by a worker and outside any transaction. Raises SourceRefused, EgressError or
#: ConfinedError, whose messages are sentences for people. It may set the import's `document` and `title`.
Reader = Callable[[ToolImport], ReadSource]

READERS: dict[str, Reader] = {}
#: Called when definitions of a source were accepted, in that transaction. Returns what became of the whole, in words.
AFTER_ACCEPT: dict[str, Callable[[ToolImport, Membership], str]] = {}
#: Calls a worker for an import. False where nobody could be called: a sweep will.
ring_for_import: Provided[[UUID], bool] = Provided("a bell for imports")
#: Additions to the review of a source: `template`, and what that needs.
REVIEWS: dict[str, Callable[[ToolImport, Membership], Mapping[str, Any]]] = {}


def register_reader(source: str, read: Reader) -> None:
    READERS[source] = read
