"""Who reads which kind of source. A room above registers its own when the apps are ready."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from capabilities.common.provided import Provided
from capabilities.importers.found import ReadSource
from capabilities.models import ToolImport

#: Reads the source of an import, by a worker and outside any transaction. Raises SourceRefused, EgressError or
#: ConfinedError, whose messages are sentences for people. It may set the import's `document` and `title`.
Reader = Callable[[ToolImport], ReadSource]

READERS: dict[str, Reader] = {}
#: Calls a worker for an import. False where nobody could be called: a sweep will.
ring_for_import: Provided[[UUID], bool] = Provided("a bell for imports")


def register_reader(source: str, read: Reader) -> None:
    READERS[source] = read
