"""Rows that a test commits are gone before the next one begins."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from tests.conftest import MADE_BY_MIGRATING, delete_committed_rows
from tests.test_tenancy_routes import fill, tenant_models
from toolhub.tenants.models import Membership

pytestmark = pytest.mark.django_db(transaction=True)


def filled_tables() -> set[str]:
    with connection.cursor() as cursor:
        found = set()
        for table in connection.introspection.django_table_names(only_existing=True):
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            if cursor.fetchone()[0]:
                found.add(table)
    return found


def test_no_table_keeps_a_row_but_what_migrating_makes(alice: Membership) -> None:
    with transaction.atomic():
        fill(alice, "word")
    assert {model._meta.db_table for model in tenant_models()} <= filled_tables()

    delete_committed_rows()

    assert filled_tables() == MADE_BY_MIGRATING
