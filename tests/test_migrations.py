"""What is stored survives an upgrade: no migration takes a table or a column away."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations import RunPython, RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from tests.data_loss import takes_away
from toolhub.tenants.rows.guarded import TenantModel

OWN = ("tenants", "capabilities", "assistant", "toolhub_sessions")


def test_zk_36_no_migration_drops_data() -> None:
    loader = MigrationLoader(None)
    ours = [each for (app, _), each in loader.disk_migrations.items() if app in OWN]

    dropping = [f"{each.app_label}.{each.name}" for each in ours if takes_away(each.operations)]

    assert len(ours) >= len(OWN)
    assert dropping == []


DROP_TASKS = "DROP TABLE capabilities_task"


def forget_tasks(apps: Any, schema_editor: Any) -> None:
    apps.get_model("capabilities", "Task").objects.filter(title="").delete()


def through_another(apps: Any, schema_editor: Any) -> None:
    forget_tasks(apps, schema_editor)


def by_sql(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(DROP_TASKS)


def renames(apps: Any, schema_editor: Any) -> None:
    apps.get_model("capabilities", "Task").objects.filter(title="").update(title="-")
    schema_editor.execute("DROP INDEX some_index")


class TakesColumn(Operation):
    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        schema_editor.remove_field(None, None)


@pytest.mark.parametrize(
    ("operation", "takes"),
    [
        (RunSQL("DELETE FROM capabilities_task"), True),
        (RunSQL(["SELECT 1", ("delete  from capabilities_task WHERE id = %s", [1])]), True),
        (RunSQL("ALTER TABLE capabilities_task DROP COLUMN title"), True),
        (RunSQL("truncate capabilities_task"), True),
        (RunSQL("DROP INDEX some_index; DROP TRIGGER IF EXISTS t", reverse_sql=DROP_TASKS), False),
        (RunPython(forget_tasks), True),
        (RunPython(through_another), True),
        (RunPython(by_sql), True),
        (RunPython(renames, reverse_code=forget_tasks), False),
        (TakesColumn(), True),
        (SeparateDatabaseAndState(database_operations=[RunSQL(DROP_TASKS)]), True),
        (SeparateDatabaseAndState(state_operations=[RunSQL(DROP_TASKS)]), False),
    ],
)
def test_zk_36_an_operation_that_takes_data_away_is_seen_however_it_does_it(operation: Operation, takes: bool) -> None:
    assert bool(takes_away([operation])) is takes


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
