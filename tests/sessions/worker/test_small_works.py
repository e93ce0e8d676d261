"""Works beside turns: few at once, so that far sides which never answer stop no turn of anybody."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from capabilities.catalogue.imports.writes.start import start_import
from capabilities.common.fair_places import FairPlaces
from capabilities.models import ImportSource, ImportStatus, ToolImport
from sessions.worker import process
from sessions.worker.small_works import limits
from tests.capabilities.running.mcp_client.scripted import wait_until
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

DOCUMENT = '{"server": "s", "tools": [{"name": "a", "description": "A.", "inputSchema": {"type": "object"}}]}'
ACME, GLOBEX, INITECH = 1, 2, 3


def test_one_organisation_has_half_of_the_places_and_all_have_a_fifth_of_the_threads(settings: Any) -> None:
    settings.WORKER_CONCURRENCY = 20
    works = FairPlaces(limits)

    with works.place_for(ACME) as first, works.place_for(ACME) as second, works.place_for(ACME) as third:
        assert (first, second, third) == (True, True, False)
        with works.place_for(GLOBEX) as one, works.place_for(GLOBEX) as two, works.place_for(INITECH) as beyond:
            assert (one, two, beyond) == (True, True, False)
    with works.place_for(ACME) as again:
        assert again


@pytest.mark.django_db(transaction=True)
def test_works_without_a_place_stay_queued_while_others_run(
    alice: Membership, charlie: Membership, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WORKER_CONCURRENCY = 20
    hangs, hanging = threading.Event(), []

    def read(tool_import: ToolImport) -> Any:
        hanging.append(tool_import.organisation_id)
        if tool_import.organisation_id == alice.organisation_id:
            hangs.wait(60)
        raise RuntimeError("It is of no use.")

    monkeypatch.setattr("capabilities.catalogue.imports.runs._source_of", read)
    monkeypatch.setattr(process, "small_works", FairPlaces(limits))
    with organisation_scope(alice.organisation):
        slow = [start_import(ImportSource.DEFINITIONS, actor=alice, document=DOCUMENT) for _ in range(4)]
    with organisation_scope(charlie.organisation):
        quick = start_import(ImportSource.DEFINITIONS, actor=charlie, document=DOCUMENT)

    def work(tool_import: ToolImport) -> None:
        process.work_on_import(tool_import.public_id)
        connection.close()

    threads = [threading.Thread(target=work, args=(each,)) for each in slow]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: len(hanging) == 2)
    work(quick)
    hangs.set()
    for thread in threads:
        thread.join()

    with system_scope():
        statuses = sorted(str(each.status) for each in ToolImport.objects.filter(organisation=alice.organisation_id))
        assert ToolImport.objects.get(pk=quick.pk).status == ImportStatus.FAILED
    assert hanging == [alice.organisation_id] * 2 + [charlie.organisation_id]
    assert statuses == ["failed", "failed", "queued", "queued"]
