"""Documents and lists that nobody here wrote, read as a worker reads them. They are shared beside the project; without
them these tests say so and are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.change import set_base_url
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.contract.schemas import check_schema
from capabilities.models import ImportedStatus, ImportSource, ImportStatus, Tool, ToolImport, VersionStatus
from tests.cast import make_category, make_member, make_organisation, make_tool
from tests.paths import SHARED_DATA
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

DATA = SHARED_DATA
#: Operations found, and refused.
DOCUMENTS = {
    "airflow-v2-rest.yaml": (128, 0),
    "github-subset.json": (202, 0),
    "httpbin-openapi3.json": (78, 5),
    "open-meteo-forecast.yaml": (1, 0),
    "petstore3.yaml": (19, 0),
    "scalar-galaxy-3.1.json": (9, 0),
}


@pytest.fixture
def alice(db: None) -> Iterator[Membership]:
    alice = make_member(make_organisation("acme"), "alice", Access.ADMIN)
    with organisation_scope(alice.organisation):
        yield alice


@pytest.fixture
def read(alice: Membership) -> Callable[[ImportSource, Path], ToolImport]:
    def read(source: ImportSource, path: Path) -> ToolImport:
        if not path.is_file():
            pytest.skip(f"{path} is not here: the shared data are absent.")
        tool_import = start_import(source, actor=alice, document=path.read_text(), title=path.stem)
        run_import(tool_import.public_id)
        tool_import.refresh_from_db()
        return tool_import

    return read


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_real_openapi_document_is_imported_whole(
    name: str, alice: Membership, read: Callable[[ImportSource, Path], ToolImport]
) -> None:
    tool_import = read(ImportSource.OPENAPI, DATA / "openapi" / name)
    found, refused = DOCUMENTS[name]

    assert (tool_import.status, tool_import.reason) == (ImportStatus.REVIEW, "")
    assert (tool_import.summary["found"], tool_import.summary["refused"]) == (found, refused)
    rows = import_rows(tool_import)
    assert all(row.reason for row in rows.filter(status=ImportedStatus.REFUSED))
    for row in rows.exclude(status=ImportedStatus.REFUSED):
        check_schema(row.parameters)
        assert row.tokens > 0
        assert row.implementation["method"] in row.original_name
    if not tool_import.base_url:
        set_base_url(tool_import, "https://api.example.org", actor=alice)
    accepted = accept_imported(rows, make_category(alice.organisation, "api", is_core=False), actor=alice)
    assert len(accepted.created) == found - refused
    assert Tool.objects.filter(current_version__status=VersionStatus.APPROVED).count() == found - refused


def test_real_lists_of_mcp_tools_are_imported_as_definitions(
    alice: Membership, read: Callable[[ImportSource, Path], ToolImport]
) -> None:
    paths = sorted((DATA / "mcp").glob("*.json"))
    if not paths:
        pytest.skip(f"{DATA / 'mcp'} is not here: the shared data are absent.")
    make_tool(alice.organisation, "send_email")

    imports = [read(ImportSource.DEFINITIONS, path) for path in paths]

    assert {each.status for each in imports} == {ImportStatus.REVIEW}
    found = sum(each.summary["found"] for each in imports)
    refused = sum(each.summary["refused"] for each in imports)
    collisions = sum(each.summary["collisions"] for each in imports)
    tokens = sum(each.summary["tokens"] for each in imports)
    print(f"{len(paths)} lists: {found} tools, {refused} refused, {collisions} collisions, {tokens:,} tokens")
    assert (len(paths), found, refused, collisions) == (34, 484, 0, 0)
    names = [name for each in imports for name in import_rows(each).values_list("name", flat=True)]
    assert len(names) == len(set(names)) == 484
    assert max(map(len, names)) <= 64
