"""Random ids beside the keys: existing rows get one each, and nothing of them is lost. Runs on either database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.db.migrations.migration import Migration
from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from toolhub.tenants.rows import public_ids
from toolhub.tenants.rows.public_ids import public_id_operations


@pytest.fixture
def parcels(transactional_db: None) -> Iterator[ProjectState]:
    """A table of its own, as it was before public ids, with five rows."""
    fields: list[tuple[str, models.Field[Any, Any]]] = [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=20)),
    ]
    state = apply([CreateModel("Parcel", fields)], ProjectState())
    parcel = state.apps.get_model("tenants", "Parcel")
    parcel.objects.bulk_create(parcel(name=f"parcel {number}") for number in range(5))
    yield state
    with connection.schema_editor() as editor:
        editor.delete_model(parcel)


def apply(operations: list[Operation], state: ProjectState) -> ProjectState:
    migration = Migration("0001_parcels", "tenants")
    setattr(migration, "operations", operations)  # noqa: B010 -- the stubs know it for the class alone
    with connection.schema_editor(atomic=True) as editor:
        return migration.apply(state, editor)


def test_rows_that_are_there_get_a_random_id_each_and_keep_everything_else(
    parcels: ProjectState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_ids, "ROWS_AT_ONCE", 2)
    before = list(parcels.apps.get_model("tenants", "Parcel").objects.order_by("pk").values())

    state = apply(public_id_operations("tenants", "parcel"), parcels.clone())

    parcel = state.apps.get_model("tenants", "Parcel")
    after = list(parcel.objects.order_by("pk").values())
    ids = [row.pop("public_id") for row in after]
    assert after == before
    assert len(set(ids)) == 5
    assert {each.version for each in ids} == {4}
    for taken in (ids[0], None):
        with pytest.raises(IntegrityError), transaction.atomic():
            parcel.objects.filter(name="parcel 1").update(public_id=taken)
