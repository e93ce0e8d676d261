"""Tables of many models from one state, for squashed migrations: Django renders it anew for each CreateModel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db.migrations.operations import CreateModel
from django.db.migrations.operations.base import Operation, OperationCategory


class CreateModels(Operation):
    """Creates models that may refer to each other in circles, in one step.

    With a CreateModel for each, a hundred tables take twenty seconds: each renders all models that are related to it.
    """

    category = OperationCategory.ADDITION
    serialization_expand_args: ClassVar[list[str]] = ["operations"]

    def __init__(self, operations: Sequence[CreateModel], *, keeps_existing: bool = False) -> None:
        self.operations = operations
        #: Whether a table that is there already is taken as it is: its model was another app's before.
        self.keeps_existing = keeps_existing

    def deconstruct(self) -> tuple[str, Any, dict[str, Any]]:
        kept = {"keeps_existing": True} if self.keeps_existing else {}
        return type(self).__name__, [], {"operations": self.operations} | kept

    def state_forwards(self, app_label: str, state: Any) -> None:
        state.__dict__.pop("apps", None)  # rendered again when it is asked for, with all of them
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        existing = set(schema_editor.connection.introspection.table_names()) if self.keeps_existing else set()
        for model in self._model_classes(app_label, schema_editor, to_state):
            if model._meta.db_table not in existing:
                schema_editor.create_model(model)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for model in reversed(self._model_classes(app_label, schema_editor, from_state)):
            schema_editor.delete_model(model)

    def _model_classes(self, app_label: str, schema_editor: Any, state: Any) -> list[Any]:
        model_classes = [state.apps.get_model(app_label, operation.name) for operation in self.operations]
        return [model for model in model_classes if self.allow_migrate_model(schema_editor.connection.alias, model)]

    def describe(self) -> str:
        return f"Create {len(self.operations)} models"
