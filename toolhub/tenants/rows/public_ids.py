"""Public ids: as a form gives them, and the steps of a migration that gives the rows of a table theirs."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

ROWS_AT_ONCE = 500


def public_id_of(text: str) -> uuid.UUID | None:
    """The id that a form or a query gives as text; None for what is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def public_id_operations(app: str, model_name: str) -> list[Operation]:
    """Add `public_id`, give each row that is there a random one, then let none be empty or stand twice."""
    unique = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)
    return [
        # Without a default: Django would write one value of it into every row.
        migrations.AddField(model_name, "public_id", models.UUIDField(editable=False, null=True)),
        migrations.RunPython(partial(fill_public_ids, app=app, model_name=model_name), migrations.RunPython.noop),
        migrations.AlterField(model_name, "public_id", unique),
    ]


def fill_public_ids(apps: Any, schema_editor: Any, *, app: str, model_name: str) -> None:
    """Give each row without a public id a random one. `apps` are the models as the migration sees them."""
    model = apps.get_model(app, model_name)
    rows = model._base_manager.using(schema_editor.connection.alias)
    keys = list(rows.filter(public_id=None).values_list("pk", flat=True))
    for start in range(0, len(keys), ROWS_AT_ONCE):
        some = [model(pk=key, public_id=uuid.uuid4()) for key in keys[start : start + ROWS_AT_ONCE]]
        rows.bulk_update(some, ["public_id"])
