from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from capabilities.catalogue.imports.found import FoundTool, ReadSource
from capabilities.catalogue.imports.readers import Source, sources
from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.models import ImportSource, ToolImport
from tests.cast import make_member, make_organisation
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

#: What an import of these tests is given: any text, the reader of the test answers for it.
DOCUMENT = "{}"


@pytest.fixture
def alice(db: None) -> Iterator[Membership]:
    alice = make_member(make_organisation("acme"), "alice", Access.ADMIN)
    with organisation_scope(alice.organisation):
        yield alice


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make documents say this from now on."""

    def offer(*found: FoundTool, **fields: Any) -> None:
        source = ReadSource(found, **{"title": "Pets", "base_url": "https://pets.example.org/v1"} | fields)
        monkeypatch.setitem(sources._values, ImportSource.OPENAPI, Source(lambda _: source))

    return offer


@pytest.fixture
def read(offer: Callable[..., None]) -> Callable[..., ToolImport]:
    """Import what is offered for a member, as a worker would."""

    def read(actor: Membership, *found: FoundTool, **fields: Any) -> ToolImport:
        if found:
            offer(*found, **fields)
        tool_import = start_import(ImportSource.OPENAPI, actor=actor, document=DOCUMENT)
        run_import(tool_import.public_id)
        tool_import.refresh_from_db()
        return tool_import

    return read


def pet(original_name: str = "listPets", **fields: Any) -> FoundTool:
    """One request of an API of pets."""
    implementation = {"method": "GET", "url": f"/{original_name}", "arguments": {}}
    content = {"description": f"Does {original_name}.", "implementation": implementation, "effect": "read"} | fields
    return FoundTool(original_name, **content)
