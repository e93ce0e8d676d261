from __future__ import annotations

import gc
import hashlib
import os
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as effort
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from capabilities.common.memory import forget_everything
from tests.browser import chromium, service
from tests.cast import make_member, make_organisation
from tests.clients.installed import NOT_INSTALLED
from tests.isolation import NOT_ISOLATED
from tests.paths import ROOT
from tests.postgres import ask_no_foreign_keys
from tests.scripted_openai import ScriptedOpenAI
from tests.test_up import Up
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A busy machine makes no case wrong.
effort.register_profile(
    "calm", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
effort.load_profile("calm")


@dataclass
class MigratedDatabase:
    """On SQLite: a database that is migrated and empty, kept in pytest's folder for the runs after this one."""

    file: Path
    #: Of several processes that start at once, one migrates; the others wait for its file.
    lock: TextIO

    def keep(self, made: Path) -> None:
        """Keep the database that this process had to migrate itself, in place of older ones."""
        if not self.file.exists():
            for old in self.file.parent.glob("*.sqlite3"):
                old.unlink()
            copy_database(made, self.file)


@pytest.fixture(scope="session")
def migrated_database(request: pytest.FixtureRequest) -> MigratedDatabase | None:
    if not settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        return None
    folder = ROOT / ".pytest_cache" / "d" / "migrated"  # with pytest's cache, or without: -p no:cacheprovider
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lock").open("w")
    flock(lock, LOCK_EX)
    return MigratedDatabase(folder / f"{migrations_digest()}.sqlite3", lock)


def migrations_digest() -> str:
    """Of everything that decides what an empty database holds."""
    rooms, files = ("capabilities", "sessions", "toolhub"), ("migrations/*.py", "*_operations.py")
    sources = [path for room in rooms for each in files for path in ROOT.glob(f"{room}/**/{each}")]
    sources += [ROOT / "requirements/dev.txt", ROOT / "toolhub/settings.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:20]


@pytest.fixture(scope="session")
def django_db_keepdb(
    request: pytest.FixtureRequest, django_db_modify_db_settings: None, migrated_database: MigratedDatabase | None
) -> bool:
    """Whether the tests begin with the database that is there: on SQLite a copy of the migrated one."""
    if migrated_database is None:
        return bool(request.config.getvalue("reuse_db"))
    target = database_of_tests()
    if request.config.getvalue("create_db"):
        target.unlink(missing_ok=True)
    if migrated_database.file.exists() and not target.exists():
        copy_database(migrated_database.file, target)
    return True


@pytest.fixture(scope="session")
def django_db_createdb(request: pytest.FixtureRequest, migrated_database: MigratedDatabase | None) -> bool:
    """Whether to migrate from nothing, as `--create-db` asks: on SQLite a fresh copy is as good."""
    return migrated_database is None and bool(request.config.getvalue("create_db"))


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, migrated_database: MigratedDatabase | None) -> None:
    if migrated_database is None:
        return
    if settings.DATABASES["default"]["NAME"] == str(database_of_tests()):  # else no test asks for it, and none was made
        migrated_database.keep(database_of_tests())
    migrated_database.lock.close()


@pytest.fixture(scope="session")
def empty_database(django_db_setup: None, migrated_database: MigratedDatabase | None) -> Path | None:
    """The file of a migrated database without a row, for a service that then need not migrate.

    None on PostgreSQL, and where nothing made it yet: no test of this run asks for a database, and none before did.
    """
    return migrated_database.file if migrated_database and migrated_database.file.exists() else None


def database_of_tests() -> Path:
    return Path(settings.DATABASES["default"]["TEST"]["NAME"])


def copy_database(source: Path, target: Path) -> None:
    unfinished = target.with_suffix(f".{os.getpid()}")
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(unfinished)) as other:
        one.backup(other)
    unfinished.replace(target)


#: Tables whose rows are made when the database is migrated, and that no test changes.
MADE_BY_MIGRATING = {"django_content_type", "auth_permission"}


def delete_committed_rows(_: TransactionTestCase | None = None) -> None:
    """Empty the tables that hold rows, after a test with `transaction=True`. One query more than such tables.

    Django empties every table, and then makes the rows of permissions and content types again.
    """
    tables = sorted(set(connection.introspection.django_table_names(only_existing=True)) - MADE_BY_MIGRATING)
    names = [connection.ops.quote_name(table) for table in tables]
    filled = (f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {name})" for number, name in enumerate(names))
    with transaction.atomic(), connection.cursor() as cursor:
        ask_no_foreign_keys(cursor)
        cursor.execute(" UNION ALL ".join(filled))
        for (number,) in cursor.fetchall():
            cursor.execute(f"DELETE FROM {names[number]}")


TransactionTestCase._fixture_teardown = delete_committed_rows  # type: ignore[attr-defined]


#: Marks of files that take long, the longest first.
LONG = ("postgres", "lasting", "exhaustive", "browser", "processes", "long")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several processes each takes a file at a time: the long ones come first, so that all end at about once."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=longest_first(items))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector of garbage passes over it from here on."""
    gc.collect()
    gc.freeze()


def longest_first(items: Sequence[pytest.Item]) -> Callable[[pytest.Item], tuple[int, int, str]]:
    """A key to sort by: files by their marks, in the order of LONG, then by their tests; in a file nothing moves."""
    counts = Counter(item.path for item in items)
    ranks: dict[Path, int] = {}
    for item in items:
        rank = next((rank for rank, mark in enumerate(LONG) if item.get_closest_marker(mark)), len(LONG))
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    return lambda item: (ranks[item.path], -counts[item.path], str(item.path))


#: Files that ask the service of the fixture `up`.
WITH_ONE_SERVICE = {"tests/test_newcomer.py", "tests/test_static_files.py", "tests/test_doors_browser.py"}


class FilesApart(LoadFileScheduling):  # type: ignore[misc]
    """Each process takes a file at a time; but those with one service together, so that it starts once."""

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        return "one service" if path in WITH_ONE_SERVICE else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesApart | None:
    return FilesApart(config, log) if config.getvalue("dist") == "loadfile" else None


#: What the reason of a skipped test begins with, and what its silence would hide.
UNHEARD = {
    NOT_ISOLATED: ("ISOLATION", "tests of full Python and of commands"),
    NOT_INSTALLED: ("CLIENTS", "tests with clients of npm and LiteLLM"),
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each kind of tests that did not run, and why: their silence would look like safety. Then the lanes."""
    reasons = [str(each.longrepr[2]) for each in terminalreporter.stats.get("skipped", ()) if each.longrepr]
    for begin, (title, tests) in UNHEARD.items():
        told = [reason.partition(begin)[2] for reason in reasons if begin in reason]
        if told:
            terminalreporter.write_line(f"{title}: {len(told)} {tests} did not run here: {told[0]}", red=True)
    write_lanes(terminalreporter)


def write_lanes(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each lane of a large run: its tests, and their seconds, added up over all processes."""
    tests: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport):
            lane = next((mark for mark in LONG if mark in report.keywords), "quick")
            tests[lane] += report.when == "call"
            seconds[lane] += report.duration
    if tests.total() > 1_000:
        for lane, took in sorted(seconds.items(), key=itemgetter(1), reverse=True):
            terminalreporter.write_line(f"LANE {lane}: {tests[lane]:,} tests, {took:,.0f} s")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more process than processors: tests of processes and browsers wait for them much of the time."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Up]:
    """The whole service as `make run` starts it. Who needs other settings, or a fresh one, starts one more."""
    with service(tmp_path_factory.mktemp("up"), empty_database) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for all tests of one file."""
    with chromium() as found:
        yield found


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme")


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    """Each test begins as a new process does: the registry versions of its organisations begin anew."""
    forget_everything()


@pytest.fixture
def globex(db: None) -> Organisation:
    return make_organisation("globex")


@pytest.fixture
def alice(acme: Organisation) -> Membership:
    return make_member(acme, "alice", Access.ADMIN)


@pytest.fixture
def bob(acme: Organisation) -> Membership:
    return make_member(acme, "bob")


@pytest.fixture
def charlie(globex: Organisation) -> Membership:
    return make_member(globex, "charlie", Access.ADMIN)


@pytest.fixture
def provider() -> Iterator[ScriptedOpenAI]:
    """A model provider that answers from a script."""
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


@pytest.fixture
def in_acme(acme: Organisation) -> Iterator[Organisation]:
    """The test's own reads and writes are Acme's."""
    with organisation_scope(acme):
        yield acme
