"""Index of a foreign key alone, for migrations. Django's own AlterField copies the whole table on SQLite."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.migrations.operations.base import Operation, OperationCategory


class DropForeignKeyIndexes(Operation):
    """Drops the indexes of foreign keys that say `db_index=False` from here on, in one step for many models."""

    category = OperationCategory.ALTERATION

    def __init__(self, *fields: tuple[str, str]) -> None:
        #: Each a model's name in lower case and the name of its field.
        self.fields = fields

    def deconstruct(self) -> tuple[str, Any, dict[str, Any]]:
        return type(self).__name__, [*self.fields], {}

    def state_forwards(self, app_label: str, state: Any) -> None:
        for model_name, name in self.fields:
            fields = state.models[app_label, model_name].fields
            fields[name] = fields[name].clone()
            fields[name].db_index = False
        state._relations = None  # holds the fields as they were
        state.reload_models([(app_label, model_name) for model_name, _ in self.fields], delay=False)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for model_name, name in self.fields:
            model = from_state.apps.get_model(app_label, model_name)
            if not self.allow_migrate_model(schema_editor.connection.alias, model):
                continue
            for index in self._indexes(schema_editor, model, model._meta.get_field(name).column):
                schema_editor.execute(schema_editor._delete_index_sql(model, index))

    def _indexes(self, schema_editor: Any, model: Any, column: str) -> list[str]:
        """The field's own index, and none that the model names."""
        named = {each.name for each in (*model._meta.indexes, *model._meta.constraints)}
        found: list[str] = schema_editor._constraint_names(
            model, [column], index=True, unique=False, type_=models.Index.suffix, exclude=named
        )
        return found

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for model_name, name in self.fields:
            model = to_state.apps.get_model(app_label, model_name)
            if self.allow_migrate_model(schema_editor.connection.alias, model):
                field = model._meta.get_field(name)
                schema_editor.execute(schema_editor._create_index_sql(model, fields=[field]))

    def describe(self) -> str:
        return f"Drop the indexes of {len(self.fields)} foreign keys"
