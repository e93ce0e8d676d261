"""What is stored survives an upgrade: no migration takes a table or a column away."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.apps import apps
from django.db import connection, migrations
from django.db.migrations.loader import MigrationLoader

from toolhub.tenants.guarded import TenantModel
from toolhub.tenants.index_operations import DropForeignKeyIndexes

OWN = ("tenants", "capabilities", "toolhub_sessions")
TAKES_AWAY = (migrations.DeleteModel, migrations.RemoveField)


def test_zk_36_no_migration_drops_data() -> None:
    loader = MigrationLoader(None)
    ours = [each for (app, _), each in loader.disk_migrations.items() if app in OWN]

    dropping = [f"{each.app_label}.{each.name}" for each in ours if any_of(each.operations)]

    assert len(ours) >= len(OWN)
    assert dropping == []


def any_of(operations: Sequence[object]) -> bool:
    return any(isinstance(operation, TAKES_AWAY) for operation in operations)


def on_the_organisation_alone(table: str) -> list[str]:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table)
    return [name for name, each in found.items() if each["index"] and each["columns"] == ["organisation_id"]]


@pytest.mark.django_db
def test_no_table_has_an_index_on_the_organisation_alone() -> None:
    """SQLite would take it in place of a better one. What lists rows by organisation has an index that goes on."""
    tables = [model._meta.db_table for model in apps.get_models() if issubclass(model, TenantModel)]

    assert len(tables) > 40
    assert [name for table in tables for name in on_the_organisation_alone(table)] == []


@pytest.mark.django_db(transaction=True)
def test_indexes_that_a_migration_drops_come_back_when_it_is_taken_back() -> None:
    operation = DropForeignKeyIndexes(("task", "organisation"), ("foodentry", "organisation"))
    before = MigrationLoader(connection).project_state(("capabilities", "0013_invitation_roles"))
    after = before.clone()
    operation.state_forwards("capabilities", after)
    tables = ("capabilities_task", "capabilities_foodentry")

    with connection.schema_editor() as editor:
        operation.database_backwards("capabilities", editor, after, before)
    assert [len(on_the_organisation_alone(table)) for table in tables] == [1, 1]

    with connection.schema_editor() as editor:
        operation.database_forwards("capabilities", editor, before, after)
    assert [len(on_the_organisation_alone(table)) for table in tables] == [0, 0]
    assert not after.apps.get_model("capabilities", "task")._meta.get_field("organisation").db_index
