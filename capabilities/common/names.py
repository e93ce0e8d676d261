"""Names of an organisation's things: each once, whatever its case and the alphabet of its letters. One way for all who
write names."""

from __future__ import annotations

import logging
from typing import Any

from django.db import models

from capabilities.common.refused import ChangeRefused
from capabilities.contract.names import name_key

logger = logging.getLogger(__name__)


class NameKeyField(models.CharField):  # type: ignore[type-arg]
    """Field with the `name_key` of the row's name, unique in its organisation. None for a row that is older than the
    column and whose name another row had first: that stays as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs |= {"max_length": 64, "null": True, "editable": False}
        super().__init__(*args, **kwargs)

    def pre_save(self, model_instance: models.Model, add: bool) -> str | None:
        if not add and getattr(model_instance, self.attname) is None:
            return None
        key = name_key(model_instance.name)[:64]  # type: ignore[attr-defined]
        setattr(model_instance, self.attname, key)
        return key


def check_name_free(
    rows: models.QuerySet[Any], kind: str, name: str, *, column: str = "name", field: str = "name"
) -> None:
    """Raise ChangeRefused where one of these rows has this name, or one that is taken for it. One query, two for a name
    that is taken."""
    keyed = any(each.name == "name_key" for each in rows.model._meta.fields)
    taken = rows.filter(name_key=name_key(name)).first() if keyed else None
    if taken is None and rows.filter(**{f"{column}__iexact": name}).exists():
        raise ChangeRefused(field, f"There is {kind} named {name} already.", code="taken")
    if taken is not None:
        other = f": {taken.name}" if taken.name != name else ""
        raise ChangeRefused(field, f"There is {kind} named {name} already{other}.", code="taken")


def check_name_imitates(rows: models.QuerySet[Any], kind: str, name: str) -> None:
    """Raise ChangeRefused where one of these rows has another name that is taken for this one: other case, letters of
    another alphabet. One query."""
    key = name_key(name)
    other = next((each for each in rows.values_list("name", flat=True) if each != name and name_key(each) == key), None)
    if other is not None:
        raise ChangeRefused("name", f"{name} would be taken for {kind} {other}: choose another name.", code="taken")


def release_key(rows: models.QuerySet[Any], name: str) -> None:
    """Let the service itself have this name: a row that imitates it keeps its own, and is written to the log."""
    for row in rows.filter(name_key=name_key(name)).exclude(name=name):
        logger.warning("%s %s has a name like that of a tool of the service itself: rename it.", row._meta.label, row)
        rows.filter(pk=row.pk).update(name_key=None)
