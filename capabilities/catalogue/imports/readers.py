"""Sources of imports: how each kind is read, and what else it does. Rooms that know a kind provide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from capabilities.catalogue.imports.found import ReadSource
from capabilities.models import ToolImport
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided, ProvidedByKey


@dataclass(frozen=True)
class Source:
    """One kind of source, as functions."""

    #: Reads the source of an import, by a worker and outside any transaction. Raises SourceRefused, EgressError or
    #: ConfinedError, whose messages are sentences for people. It may set the import's `document` and `title`.
    read: Callable[[ToolImport], ReadSource]
    #: Called when definitions of it were accepted, in that transaction. Returns what became of the whole, in words.
    after_accept: Callable[[ToolImport, Membership], str] | None = None
    #: Returns additions to the review: `template`, and what that needs.
    review: Callable[[ToolImport, Membership], Mapping[str, Any]] | None = None


#: By `ImportSource`.
sources: ProvidedByKey[Source] = ProvidedByKey("sources of imports")


@Provided
def ring_for_import(public_id: UUID) -> bool:
    """Call a worker for an import. False where nobody could be called: a sweep will."""
    raise NotImplementedError
