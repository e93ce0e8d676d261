"""Rows that are set aside: which tables have them, and that no join finds them."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import models

from capabilities.models.set_aside import SetAside, set_aside_models
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db

#: Tables whose rows go with a row that may be set aside and are not set aside with it, and why.
STAY = {
    "ToolVersion": "past turns name the version that ran",
    "Approval": "a record of what was asked",
    "LoadedToolkit": "a record of what a session loaded; what is loaded is read through the tools",
    "ToolTestCase": "reached from its tool alone",
    "AgentRoom": "reached from its agent alone",
    "RuntimeConfig": "reached from its agent alone",
    "Schedule": "a member's own; it submits nothing to an agent that is switched off",
    "Budget": "what was spent stays",
    "AgentNote": "what members keep stays",
}


def keys(model: type[models.Model]) -> list[models.ForeignKey[Any, Any]]:
    return [field for field in model._meta.concrete_fields if isinstance(field, models.ForeignKey)]


def joined() -> list[tuple[type[models.Model], str, type[SetAside]]]:
    """Each way in which a query can come to rows that may be set aside from the other side of a foreign key."""
    ways = [(key.related_model, key.remote_field, model) for model in set_aside_models() for key in keys(model)]
    return [(target, str(rel.name), model) for target, rel, model in ways if not rel.hidden]


def sql(queryset: models.QuerySet[Any]) -> str:
    return str(queryset.query)


@pytest.mark.parametrize(("target", "name", "model"), joined(), ids=lambda each: getattr(each, "__name__", each))
def test_a_join_from_the_other_side_leaves_them_out(
    target: type[models.Model], name: str, model: type[SetAside]
) -> None:
    key = model._meta.get_field(target._meta.get_field(name).field.name).name  # type: ignore[union-attr]
    table = model._meta.db_table
    with system_scope():
        rows = target._default_manager.all()
        inner = sql(rows.filter(**{f"{name}__pk": 1}))
        outer = sql(rows.annotate(number=models.Count(name)))
        without = sql(rows.exclude(**{f"{name}__pk__gt": 1}))
        forward = sql(model.every.filter(**{f"{key}__pk__gt": 1, f"{key}__organisation__slug": "acme"}))

    assert f'AND (NOT "{table}"."is_set_aside")' in inner
    assert f'AND (NOT "{table}"."is_set_aside")' in outer
    assert 'NOT U1."is_set_aside"' in without or f'AND (NOT "{table}"."is_set_aside")' in without
    assert f'NOT "{table}"."is_set_aside"' not in forward


def test_ways_to_join_are_found() -> None:
    assert {"tools", "agent_tools", "toolkit_tools", "toolkit_categories", "rules"} <= {name for _, name, _ in joined()}


def test_each_table_whose_rows_go_with_such_a_row_is_set_aside_with_it_or_says_why_not() -> None:
    owning = [(model, key) for model in apps.get_models() for key in keys(model)]
    owning = [(model, key) for model, key in owning if key.remote_field.on_delete is models.CASCADE]
    found = {model for model, key in owning if issubclass(key.related_model, SetAside)}
    open_ends = {model.__name__ for model in found if not issubclass(model, SetAside)}

    assert open_ends == set(STAY)
