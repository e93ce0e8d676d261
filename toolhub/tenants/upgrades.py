"""Data of releases before 1.0: the last of them goes on, older ones need a step between."""

from __future__ import annotations

from django.apps import apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def older_than_known() -> list[str]:
    """Return the migrations that the database lacks of those that 1.0 replaced, as `app.name`; none where it is empty
    or had all of them. Two queries."""
    loader = MigrationLoader(None)
    applied = set(MigrationRecorder(connection).applied_migrations())
    labels = {config.label for config in apps.get_app_configs()}
    replaced = [key for migration in loader.disk_migrations.values() for key in migration.replaces if key[0] in labels]
    if not applied.intersection(replaced):
        return []
    return [f"{app}.{name}" for app, name in replaced if (app, name) not in applied]
