"""An empty database is made by the squashed migrations; one of before goes on with those that they replace."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from tests.old_migrations import old_loader
from tests.paths import ROOT
from toolhub.tenants.rows.table_operations import CreateModels

OWN = ("tenants", "capabilities", "toolhub_sessions")

Key = tuple[str, str]


def applied(*keys: Key) -> MigrationExecutor:
    """What `migrate` begins with where these are recorded."""
    rows = MigrationRecorder(connection).migration_qs
    rows.all().delete()
    rows.bulk_create(rows.model(app=app, name=name) for app, name in keys)
    return MigrationExecutor(connection)


def planned(executor: MigrationExecutor) -> list[Key]:
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [(migration.app_label, migration.name) for migration, _ in plan]


def old_states(count: int) -> Iterable[set[Key]]:
    """Random sets of the replaced migrations, each with all that they depend on."""
    graph, chance = old_loader().graph, random.Random(7)
    keys = sorted(graph.nodes)
    for _ in range(count):
        chosen = chance.sample(keys, chance.randint(1, 5))
        yield {key for each in chosen for key in graph.forwards_plan(each)}


@pytest.mark.django_db
def test_a_squashed_migration_replaces_the_first_of_its_app_in_their_order() -> None:
    loader = old_loader()
    squashed = loader.replacements

    assert sorted(app for app, _ in squashed) == sorted(OWN)
    for (app, name), migration in squashed.items():
        last = (app, name.partition("_squashed_")[2])
        own = [key for key in loader.graph.forwards_plan(last) if key[0] == app]
        assert migration.replaces == own


@pytest.mark.django_db
def test_an_empty_database_gets_the_squashed_migrations_alone() -> None:
    executor = applied()
    keys = planned(executor)

    assert len(set(executor.loader.replacements) & set(keys)) == len(OWN)
    assert [key for key in keys if key in old_keys(executor)] == []


@pytest.mark.django_db
def test_a_database_of_the_old_migrations_alone_has_nothing_to_do() -> None:
    assert planned(applied(*old_loader().graph.nodes)) == []


@pytest.mark.exhaustive
@pytest.mark.django_db
def test_a_database_of_any_old_state_goes_on_with_what_it_lacks() -> None:
    everything = set(old_loader().graph.nodes)
    for state in old_states(60):
        executor = applied(*state)
        executor.loader.check_consistent_history(connection)
        replaced = {key: migration.replaces for key, migration in executor.loader.replacements.items()}

        to_do = [old for key in planned(executor) for old in replaced.get(key, [key])]

        assert Counter(to_do) == Counter(everything - state)


def old_keys(executor: MigrationExecutor) -> set[Key]:
    return {key for migration in executor.loader.replacements.values() for key in migration.replaces}


# -- From the middle to the end ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.django_db
def test_a_database_in_the_middle_goes_on_to_what_an_empty_one_gets(
    tmp_path: Path, empty_database: Path | None
) -> None:
    if empty_database is None:
        pytest.skip("compares SQLite's own description of a database")
    old = tmp_path / "toolhub.sqlite3"
    run(tmp_path, "-m", "tests.old_migrations")
    assert "verdicts" in {name for name, *_ in columns(old, "toolhub_sessions_step")}

    run(tmp_path, "manage.py", "migrate", "-v", "0")

    assert schema(old) == schema(empty_database)
    for query in (CONTENT_TYPES, PERMISSIONS, REPLACED):
        assert rows(old, query) == rows(empty_database, query)
    assert rows(old, "SELECT verdicts FROM toolhub_sessions_verdictset") == [('[{"tool": "clock", "kept": true}]',)]
    assert filled(empty_database) == {"django_content_type", "auth_permission", "django_migrations"}
    with closing(sqlite3.connect(old)) as database, database:
        database.execute("DELETE FROM django_migrations WHERE name LIKE '%squashed%'")
    run(tmp_path, "manage.py", "migrate", "--check", "-v", "0")


CONTENT_TYPES = "SELECT app_label, model FROM django_content_type ORDER BY 1, 2"
PERMISSIONS = """SELECT app_label, model, codename, auth_permission.name FROM auth_permission
    JOIN django_content_type ON content_type_id = django_content_type.id ORDER BY 1, 2, 3"""
REPLACED = "SELECT app, name FROM django_migrations ORDER BY 1, 2"


def run(data_dir: Path, *command: str) -> None:
    env = os.environ | {"TOOLHUB_DATA_DIR": str(data_dir), "DJANGO_SETTINGS_MODULE": "toolhub.settings"}
    env.pop("DATABASE_URL", None)
    subprocess.run([sys.executable, *command], cwd=ROOT, env=env, check=True, timeout=500)


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return list(database.execute(query))


def columns(file: Path, table: str) -> list[tuple[Any, ...]]:
    """Name, type, null, default, key: whatever the order in which they came."""
    query = f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_xinfo('{table}') ORDER BY name"
    return rows(file, query)


def filled(file: Path) -> set[str]:
    tables = [name for (name,) in rows(file, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name for name in tables if name != "sqlite_sequence" and rows(file, f'SELECT 1 FROM "{name}" LIMIT 1')}


def schema(file: Path) -> dict[str, object]:
    """Tables by their columns and constraints in alphabetical order; indexes and triggers as they are."""
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    found: dict[str, object] = {}
    for kind, name, sql in rows(file, query):
        words = " ".join(sql.split())
        found[f"{kind} {name}"] = (columns(file, name), parts(words)) if kind == "table" else words
    return found


def parts(statement: str) -> list[str]:
    """What the parentheses of CREATE TABLE hold, split at the commas outside of others."""
    inside = statement.partition("(")[2].rpartition(")")[0]
    return sorted(re.split(r", (?![^()]*\))", inside))


# -- The operation ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_tables_that_refer_to_each_other_are_made_and_taken_back() -> None:
    def model(name: str, other: str) -> migrations.CreateModel:
        link = models.ForeignKey(f"tenants.{other}", models.CASCADE, null=True)
        return migrations.CreateModel(name, [("id", models.BigAutoField(primary_key=True)), ("other", link)])

    operation = CreateModels([model("Hen", "Egg"), model("Egg", "Hen")])
    before, after = ProjectState(), ProjectState()
    operation.state_forwards("tenants", after)
    made = {"tenants_hen", "tenants_egg"}

    with connection.schema_editor() as editor:
        operation.database_forwards("tenants", editor, before, after)
    assert made <= set(connection.introspection.table_names())

    with connection.schema_editor() as editor:
        operation.database_backwards("tenants", editor, after, before)
    assert not made & set(connection.introspection.table_names())
