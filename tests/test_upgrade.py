"""Data of the last commit before 1.0 go on: a data folder of it, with a session, a credential and its keys."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from tests.browser import TOKEN, service
from tests.paths import ROOT
from tests.processes import wait_for
from toolhub.tenants.rows.table_operations import CreateModels
from toolhub.tenants.upgrades import older_than_known

APPS = ("assistant", "capabilities", "tenants", "toolhub_sessions")
OLD = ROOT / "tests" / "upgrades" / "before_1_0.tar.xz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The old data folder, unpacked."""
    folder = tmp_path / "up" / "data"
    folder.mkdir(parents=True)
    with tarfile.open(OLD) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_an_old_database_becomes_what_an_empty_one_gets(old: Path, empty_database: Path | None) -> None:
    if empty_database is None:
        pytest.skip("compares SQLite's own description of a database")
    before = rows(old / "toolhub.sqlite3", "SELECT count(*) FROM toolhub_sessions_step")

    env = os.environ | {"TOOLHUB_DATA_DIR": str(old), "DJANGO_SETTINGS_MODULE": "toolhub.settings"}
    env.pop("DATABASE_URL", None)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], cwd=ROOT, env=env, check=True, timeout=300)

    assert schema(old / "toolhub.sqlite3") == schema(empty_database)
    assert rows(old / "toolhub.sqlite3", "SELECT count(*) FROM toolhub_sessions_step") == before != [(0,)]
    assert rows(old / "toolhub.sqlite3", "SELECT title FROM capabilities_task") == [("water the plants",)]


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_service_goes_on_with_an_old_data_folder(old: Path) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with service(old.parent, None) as up, httpx.Client(headers=headers, timeout=30) as rest:
        rest.base_url = f"http://localhost:{up.port}/api/v1/"
        [session] = rest.get("sessions").json()["results"]
        turns = f"sessions/{session['id']}/turns"
        [turn] = rest.get(turns).json()["results"]
        assert (turn["status"], turn["message"]) == ("done", "Add a task: water the plants on Friday")
        assert rest.get("credentials/old-key").json()["state"] == "connected"

        later = rest.post(turns, json={"message": "What is on my list?"}).json()["id"]
        wait_for(lambda: rest.get(f"turns/{later}").json()["status"] == "done", 60)
        assert "water the plants" in rest.get(f"turns/{later}").json()["answer"]


@pytest.mark.django_db
def test_data_of_an_older_release_are_told_what_to_do() -> None:
    rows = MigrationRecorder(connection).migration_qs
    assert older_than_known() == []

    rows.filter(app="capabilities").exclude(name__lt="0030").delete()

    assert "capabilities.0051_import_part" in older_than_known()
    with pytest.raises(CommandError, match="release before"):
        call_command("prepare")


@pytest.mark.django_db
def test_a_first_start_that_was_stopped_between_two_apps_goes_on() -> None:
    MigrationRecorder(connection).migration_qs.filter(app__in=("capabilities", "toolhub_sessions")).delete()

    assert older_than_known() == []


@pytest.mark.django_db
def test_an_empty_database_begins_with_version_1_0_of_each_app() -> None:
    MigrationRecorder(connection).migration_qs.all().delete()
    executor = MigrationExecutor(connection)

    plan = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]

    ours = ("toolhub", "capabilities", "sessions")
    own = [(each.app_label, each.name) for each in plan if each.__module__.startswith(ours)]
    first: dict[str, str] = {}
    for app, name in own:
        first.setdefault(app, name)
    assert sorted(first.items()) == [(app, "0001_version_1_0") for app in APPS]
    assert [name for _, name in own if name.startswith("0001") and name != "0001_version_1_0"] == []
    assert older_than_known() == []


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return list(database.execute(query))


def schema(file: Path) -> dict[str, object]:
    """Tables by their columns and constraints in alphabetical order; indexes and triggers as they are."""
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    found: dict[str, object] = {}
    for kind, name, sql in rows(file, query):
        words = " ".join(sql.split())
        found[f"{kind} {name}"] = (columns(file, name), parts(words)) if kind == "table" else words
    return found


def columns(file: Path, table: str) -> list[tuple[Any, ...]]:
    """Name, type, null, default, key: whatever the order in which they came."""
    query = f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_xinfo('{table}') ORDER BY name"
    return rows(file, query)


def parts(statement: str) -> list[str]:
    """What the parentheses of CREATE TABLE hold, split at the commas outside of others."""
    inside = statement.partition("(")[2].rpartition(")")[0]
    return sorted(re.split(r", (?![^()]*\))", inside))


# -- The operation ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keeps_existing", [False, True])
def test_tables_that_refer_to_each_other_are_made_and_taken_back(keeps_existing: bool) -> None:
    def model(name: str, other: str) -> migrations.CreateModel:
        link = models.ForeignKey(f"tenants.{other}", models.CASCADE, null=True)
        return migrations.CreateModel(name, [("id", models.BigAutoField(primary_key=True)), ("other", link)])

    operation = CreateModels([model("Hen", "Egg"), model("Egg", "Hen")], keeps_existing=keeps_existing)
    before, after = ProjectState(), ProjectState()
    operation.state_forwards("tenants", after)
    made = {"tenants_hen", "tenants_egg"}

    for _ in range(2 if keeps_existing else 1):  # once more: what is there stays
        with connection.schema_editor() as editor:
            operation.database_forwards("tenants", editor, before, after)
        assert made <= set(connection.introspection.table_names())

    with connection.schema_editor() as editor:
        operation.database_backwards("tenants", editor, after, before)
    assert not made & set(connection.introspection.table_names())
