"""What is stored survives an upgrade: no migration takes a table or a column away."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import migrations
from django.db.migrations.loader import MigrationLoader

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
