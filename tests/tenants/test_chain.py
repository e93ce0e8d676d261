"""The audit is a chain: whatever is changed, taken out or put in is found, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from tests.cast import make_category, make_member
from tests.threads import at_once
from toolhub.tenants.audit.chain import entry_hash
from toolhub.tenants.audit.writes import BrokenEntry, check_chain, record
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

LOCK = import_module("toolhub.tenants.migrations.0001_version_1_0")


@pytest.fixture
def unlocked(db: None) -> Iterator[None]:
    """Without the trigger: as somebody with the rights of the database's owner."""
    with (
        connection.schema_editor(atomic=False)
        if connection.vendor == "sqlite"
        else connection.schema_editor() as editor
    ):
        LOCK.make_changeable(apps, editor)
    yield
    with (
        connection.schema_editor(atomic=False)
        if connection.vendor == "sqlite"
        else connection.schema_editor() as editor
    ):
        LOCK.make_final(apps, editor)


def sql(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def write(actor: Membership, count: int = 4) -> None:
    for number in range(count):
        record("x.do", actor, actor=actor, before={"n": number}, after={"n": number + 1, "t": ["é", None, 0.5, 1e16]})


def test_entries_are_numbered_and_each_names_the_one_before(alice: Membership, in_acme: Organisation) -> None:
    write(alice, 3)

    rows = list(AuditEntry.objects.order_by("pk").values_list("number", "previous_hash", "hash"))

    assert [number for number, _, _ in rows] == [1, 2, 3]
    assert [before for _, before, _ in rows] == ["", rows[0][2], rows[1][2]]
    in_acme.refresh_from_db()
    assert (in_acme.audit_count, in_acme.audit_head) == (3, rows[2][2])
    assert check_chain(in_acme) is None


def test_each_organisation_has_a_chain_of_its_own(alice: Membership, charlie: Membership) -> None:
    for member in (alice, charlie, alice):
        with organisation_scope(member.organisation):
            write(member, 1)

    with system_scope():
        numbers = list(AuditEntry.objects.order_by("pk").values_list("organisation__slug", "number"))
    assert numbers == [("acme", 1), ("globex", 1), ("acme", 2)]
    assert (check_chain(alice.organisation), check_chain(charlie.organisation)) == (None, None)


def test_no_entry_at_all_is_an_intact_chain(acme: Organisation) -> None:
    assert check_chain(acme) is None


TAMPERED: dict[str, tuple[str, int, str]] = {
    "another action": ("UPDATE tenants_auditentry SET action = 'y' WHERE number = 2", 2, "content"),
    "another actor": ("UPDATE tenants_auditentry SET actor_label = 'bob@example.com' WHERE number = 3", 3, "content"),
    "another actor's key": ("UPDATE tenants_auditentry SET actor_id = NULL WHERE number = 3", 3, "content"),
    "another time": ("UPDATE tenants_auditentry SET created_at = '2001-01-01 00:00:00' WHERE number = 1", 1, "content"),
    "another result": ("UPDATE tenants_auditentry SET after = '{\"n\": 9}' WHERE number = 4", 4, "content"),
    "taken out": ("DELETE FROM tenants_auditentry WHERE number = 2", 2, "missing"),
    "the first taken out": ("DELETE FROM tenants_auditentry WHERE number = 1", 1, "missing"),
    "cut off": ("DELETE FROM tenants_auditentry WHERE number = 4", 4, "missing"),
    "another hash": ("UPDATE tenants_auditentry SET hash = 'abc' WHERE number = 2", 2, "content"),
    "another link": ("UPDATE tenants_auditentry SET previous_hash = 'abc' WHERE number = 2", 2, "follow"),
    "another end": ("UPDATE tenants_organisation SET audit_head = 'abc'", 4, "last"),
    "an end too early": ("UPDATE tenants_organisation SET audit_count = 3", 3, "last"),
}


@pytest.mark.parametrize("how", TAMPERED)
@pytest.mark.django_db(transaction=True)
def test_what_was_tampered_with_is_found(alice: Membership, in_acme: Organisation, unlocked: None, how: str) -> None:
    with transaction.atomic():
        write(alice)
    statement, number, word = TAMPERED[how]
    sql(statement)

    broken = check_chain(in_acme)

    assert broken is not None
    assert (broken.number, word in broken.reason) == (number, True), broken


@pytest.mark.django_db(transaction=True)
def test_an_entry_that_was_changed_with_a_fitting_hash_breaks_the_next(
    alice: Membership, in_acme: Organisation, unlocked: None
) -> None:
    with transaction.atomic():
        write(alice)
    entry = AuditEntry.objects.values().get(number=2) | {"action": "y"}
    sql("UPDATE tenants_auditentry SET action = 'y', hash = %s WHERE number = 2", entry_hash(entry))

    assert check_chain(in_acme) == BrokenEntry(3, "it does not follow the entry before it.")


def test_sql_cannot_change_an_entry(alice: Membership, in_acme: Organisation) -> None:
    write(alice, 1)

    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        sql("UPDATE tenants_auditentry SET action = 'y'")


@pytest.mark.parametrize(
    "act",
    [
        lambda rows: rows.update(action="y"),
        lambda rows: rows.delete(),
        lambda rows: rows.bulk_update(list(rows), ["action"]),
        lambda rows: rows.bulk_create(list(rows)),
        lambda rows: rows.filter(number=1).update(action="y"),
    ],
)
def test_querysets_neither_change_nor_remove_entries(
    alice: Membership, in_acme: Organisation, act: Callable[[Any], object]
) -> None:
    write(alice, 1)

    for rows in (AuditEntry.objects.all(), AuditEntry._base_manager.all()):
        with pytest.raises(TypeError):
            act(rows)
    with system_scope(), pytest.raises(TypeError):
        act(AuditEntry.objects.all())

    assert check_chain(in_acme) is None


def test_an_organisation_is_deleted_with_its_audit(alice: Membership, acme: Organisation) -> None:
    with organisation_scope(acme):
        write(alice)

    with system_scope():
        acme.delete()
        assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_writers_at_once_leave_neither_gap_nor_fork(alice: Membership, in_acme: Organisation) -> None:
    def write_some() -> None:
        for _ in range(5):
            with transaction.atomic():
                write(alice, 2)

    at_once([write_some] * 4)

    in_acme.refresh_from_db()
    assert in_acme.audit_count == 40
    assert check_chain(in_acme) is None


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_leaves_no_gap(alice: Membership, in_acme: Organisation) -> None:
    def write_and_fail() -> None:
        with transaction.atomic():
            write(alice)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    with transaction.atomic():
        write(alice, 1)

    assert list(AuditEntry.objects.values_list("number", flat=True)) == [1]
    assert check_chain(in_acme) is None


@pytest.mark.parametrize(
    "value",
    [1e300, 1e16, 1.0, -0.0, 1e-7, 0.1, 2**70, "é\u2028", {"b": 1, "a": [{"z": None, "y": True}]}, (1, 2), {3: 4}],
)
def test_whatever_json_can_hold_reads_back_with_its_hash(
    alice: Membership, in_acme: Organisation, value: object
) -> None:
    record("x", alice, actor=None, before={"value": value})

    assert check_chain(in_acme) is None


# -- The command ------------------------------------------------------------------------------------------------------


def test_the_command_says_how_many_entries_are_intact(alice: Membership, in_acme: Organisation) -> None:
    write(alice)
    out = StringIO()

    call_command("check_audit", stdout=out)

    assert out.getvalue() == "acme: chain intact, 4 entries\n"


@pytest.mark.django_db(transaction=True)
def test_the_command_names_the_first_broken_entry_of_each_organisation(
    alice: Membership, charlie: Membership, unlocked: None
) -> None:
    for member in (alice, charlie):
        with organisation_scope(member.organisation), transaction.atomic():
            write(member, 3)
    sql("UPDATE tenants_auditentry SET action = 'y' WHERE number >= 2 AND organisation_id = %s", alice.organisation_id)
    out, err = StringIO(), StringIO()

    with pytest.raises(CommandError) as failed:
        call_command("check_audit", stdout=out, stderr=err)

    assert failed.value.returncode == 1
    assert str(failed.value) == "The audit of 1 organisation is broken."
    assert re.findall(r"^\w+: entry \d+", err.getvalue(), re.MULTILINE) == ["acme: entry 2"]
    assert out.getvalue() == "globex: chain intact, 3 entries\n"


def test_the_command_can_ask_about_one_organisation(alice: Membership, globex: Organisation) -> None:
    out = StringIO()

    call_command("check_audit", "globex", stdout=out)
    with pytest.raises(CommandError, match="no organisation nowhere"):
        call_command("check_audit", "nowhere")

    assert out.getvalue() == "globex: chain intact, 0 entries\n"


def test_removing_a_member_leaves_the_chain_intact(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    make_category(in_acme)
    write(bob)
    make_member(in_acme, "dana")
    bob.delete()

    assert check_chain(in_acme) is None
