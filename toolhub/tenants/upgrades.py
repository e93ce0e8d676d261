"""Data of releases before 1.0: the last of them goes on, older ones need a step between."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def older_than_known() -> list[str]:
    """Return the migrations, as `app.name`, that the database lacks of those that 1.0 replaced and that are here no
    more; none where it is empty, had all of them, or is as a first start left it that was stopped between two apps. Two
    queries."""
    disk = MigrationLoader(None).disk_migrations
    applied = set(MigrationRecorder(connection).applied_migrations())
    lacking: list[str] = []
    for migration in disk.values():
        replaced = [key for key in migration.replaces if key not in disk]
        missing = [f"{app}.{name}" for app, name in replaced if (app, name) not in applied]
        if len(missing) < len(replaced):  # with none of them this app has not begun
            lacking += missing
    return lacking
