"""A change and its audit row stand or fall together."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import Client

from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.models import Tool
from tests.cast import make_tool
from toolhub.tenants.audit.writes import record, request_id
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import ScopeError, organisation_scope, system_scope


def entries() -> list[tuple[str, str, str]]:
    with system_scope():
        return list(AuditEntry.objects.order_by("pk").values_list("actor_label", "action", "target_label"))


@pytest.mark.django_db
def test_a_change_writes_who_did_what_from_what_to_what(alice: Membership, in_acme: Organisation) -> None:
    tool = make_tool(in_acme, "calculator")

    set_tool_enabled(tool, False, actor=alice)

    row = AuditEntry.objects.order_by("-pk").values(
        "organisation_id", "actor_id", "actor_label", "action", "target_type", "target_id", "target_label",
        "before", "after",
    )[0]  # fmt: skip
    assert row == {
        "organisation_id": in_acme.pk,
        "actor_id": alice.pk,
        "actor_label": "alice@example.com",
        "action": "tool.disable",
        "target_type": "tool",
        "target_id": str(tool.public_id),
        "target_label": "calculator",
        "before": {"is_enabled": True},
        "after": {"is_enabled": False},
    }


@pytest.mark.django_db
def test_a_change_that_changes_nothing_is_not_written_down(alice: Membership, in_acme: Organisation) -> None:
    tool = make_tool(in_acme, "calculator")

    set_tool_enabled(tool, True, actor=alice)

    assert entries() == [("toolhub", "tool.create", "calculator")]


@pytest.mark.django_db(transaction=True)
def test_the_change_and_its_audit_row_are_rolled_back_together(alice: Membership, in_acme: Organisation) -> None:
    tool = make_tool(in_acme, "calculator")
    before = entries()

    def change_and_fail() -> None:
        with transaction.atomic():
            set_tool_enabled(tool, False, actor=alice)
            assert len(entries()) == len(before) + 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_fail()

    assert entries() == before
    assert Tool.objects.get().is_enabled


@pytest.mark.django_db(transaction=True)
def test_a_change_whose_audit_row_fails_is_not_made(
    alice: Membership, in_acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = make_tool(in_acme, "calculator")

    def fail(**fields: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AuditEntry.objects, "create", fail)
    with pytest.raises(ZeroDivisionError):
        set_tool_enabled(tool, False, actor=alice)

    assert Tool.objects.get().is_enabled


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_is_recorded(alice: Membership, in_acme: Organisation) -> None:
    with pytest.raises(RuntimeError, match="inside the transaction"):
        record("x", alice, actor=alice)

    assert entries() == []


@pytest.mark.django_db
def test_a_row_about_another_organisation_cannot_be_written(alice: Membership, charlie: Membership) -> None:
    with organisation_scope(alice.organisation):
        with pytest.raises(ScopeError):
            record("x", charlie, actor=alice)
        with pytest.raises(ScopeError):
            record("x", alice, actor=charlie)

    assert entries() == []


@pytest.mark.django_db
def test_the_label_of_a_member_who_left_stays(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    record("x", alice, actor=bob)
    key = bob.pk
    bob.delete()

    entry = AuditEntry.objects.get()
    assert (entry.actor_id, entry.actor_label) == (key, "bob@example.com")


@pytest.mark.django_db
def test_long_labels_are_cut(alice: Membership, in_acme: Organisation) -> None:
    alice.user.first_name = "A" * 150
    alice.user.last_name = "B" * 150

    row = record("x", alice, actor=alice)

    assert row.target_label == "A" * 150 + " " + "B" * 49


@pytest.mark.django_db
def test_rows_of_one_request_share_its_id(client: Client, alice: Membership) -> None:
    make_tool(alice.organisation, "calculator")
    client.force_login(alice.user)

    for enabled in ("0", "1"):
        client.post("/o/acme/tools/calculator/switch/", {"enabled": enabled})

    with system_scope():
        ids = list(AuditEntry.objects.filter(actor=alice).values_list("request_id", flat=True))
    assert [len(each) for each in ids] == [32, 32]
    assert len(set(ids)) == 2
    assert request_id.get() in ("", *ids)


@pytest.mark.django_db
def test_an_audit_row_is_never_changed_or_removed(alice: Membership, in_acme: Organisation) -> None:
    row = record("x", alice, actor=alice)
    row.action = "y"

    with pytest.raises(TypeError):
        row.save()
    with pytest.raises(TypeError):
        row.delete()
    assert [entry.action for entry in AuditEntry.objects.all()] == ["x"]
