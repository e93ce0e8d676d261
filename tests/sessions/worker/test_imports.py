"""A worker takes up imports: by the bell, or by its sweep where nobody was called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from capabilities.catalogue.imports.writes.start import start_import
from capabilities.models import ImportSource, ImportStatus, ToolImport
from sessions.turns import bell
from sessions.worker import process, tasks
from tests.cast import make_member, make_organisation
from toolhub.tenants.models import Access
from toolhub.tenants.rows.scope import organisation_scope

DOCUMENT = '{"server": "s", "tools": [{"name": "a", "description": "A.", "inputSchema": {"type": "object"}}]}'


@pytest.fixture
def queued(db: None) -> Iterator[ToolImport]:
    alice = make_member(make_organisation("acme"), "alice", Access.ADMIN)
    with organisation_scope(alice.organisation):
        yield start_import(ImportSource.DEFINITIONS, actor=alice, document=DOCUMENT)


def test_the_task_reads_the_import(queued: ToolImport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "close", lambda: None)  # the test's transaction is in it

    tasks.read_import(str(queued.public_id))

    queued.refresh_from_db()
    assert (queued.status, queued.summary["found"]) == (ImportStatus.REVIEW, 1)


def test_a_sweep_calls_for_an_import_and_does_it_here_where_nobody_can_be_called(
    queued: ToolImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    ToolImport.objects.update(rang_at=None)
    done: list[Any] = []
    monkeypatch.setattr(bell, "ring_for_import", lambda public_id: False)
    keeper = process.Housekeeper()
    monkeypatch.setattr(keeper, "_run_here", lambda row_id, work: done.append((row_id, work)))

    keeper.call_workers_for_imports()

    assert done == [(queued.public_id, process.work_on_import)]


def test_a_sweep_ends_an_import_whose_worker_is_gone(queued: ToolImport) -> None:
    ToolImport.objects.update(status=ImportStatus.RUNNING, deadline_at=F("created_at"))

    process.Housekeeper().sweep()

    queued.refresh_from_db()
    assert queued.status == ImportStatus.FAILED
