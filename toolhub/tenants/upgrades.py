"""Data of releases before 1.0: the last of them goes on, older ones need a step between."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def older_than_known() -> list[str]:
    """Return the migrations, as `app.name`, that the database lacks of those that 1.0 replaced and that are here no
    more; none where it is empty or had all of them. Two queries."""
    disk = MigrationLoader(None).disk_migrations
    replaced = [key for migration in disk.values() for key in migration.replaces if key not in disk]
    applied = set(MigrationRecorder(connection).applied_migrations())
    lacking = [key for key in replaced if key not in applied]
    return [f"{app}.{name}" for app, name in lacking] if len(lacking) < len(replaced) else []
