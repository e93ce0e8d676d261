"""Hooks over REST and their writes: who may, what is refused, and what is on record."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.agents.hooks.queries import active_hooks
from capabilities.agents.hooks.writes import HookContent, count_failure, count_fired, create_hook, update_hook
from capabilities.contract.hooks import FIELDS
from capabilities.models import Hook
from tests.cast import make_agent, make_member
from tests.rest import Rest
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

FREEZE: dict[str, Any] = {"name": "freeze", "action": "block_tool", "settings": {"message": "Frozen."}}


@pytest.fixture
def rest(alice: Membership, in_acme: Organisation) -> Rest:
    return Rest(alice)


def version_of(organisation: Organisation) -> int:
    return Organisation.objects.values_list("registry_version", flat=True).get(pk=organisation.pk)


def test_a_hook_is_made_changed_and_removed(rest: Rest, acme: Organisation) -> None:
    made = rest.post("hooks", FREEZE)
    address = f"hooks/{made.json['id']}"
    changed = rest.patch(address, {"when": {"tools": "web_*"}, "priority": 5_000})

    assert (made.status, changed.status) == (201, 200)
    assert (made.json["phase"], made.json["on_error"], made.json["priority"]) == ("before_tool_call", "deny", 100)
    assert (changed.json["when"], changed.json["priority"]) == ({"tools": ["web_*"]}, 1_000)
    assert changed.json["settings"] == {"message": "Frozen."}
    assert rest.get("hooks").json["results"] == [changed.json]
    assert rest.delete(address).status == 204
    assert Hook.objects.count() == 0
    written = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert [each for each in written if each.startswith("hook.")] == ["hook.create", "hook.update", "hook.delete"]


def test_agents_providers_and_members_are_named_as_people_know_them(
    rest: Rest, acme: Organisation, bob: Membership
) -> None:
    agent = make_agent(acme)
    when = {"agents": ["starter"], "providers": ["scripted"], "members": [str(bob.public_id)]}

    made = rest.post("hooks", FREEZE | {"when": when})

    assert made.json["when"] == when
    assert Hook.objects.get().when["agents"] == [str(agent.public_id)]  # so a renamed agent keeps its hook


def test_each_write_raises_the_registry_version(alice: Membership, acme: Organisation, in_acme: Organisation) -> None:
    before = version_of(acme)

    hook = create_hook(HookContent(FREEZE), actor=alice)
    made = version_of(acme)
    update_hook(hook, HookContent(FREEZE, is_enabled=False), actor=alice)

    assert before < made < version_of(acme)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"when": {"agents": ["of-globex"]}}, "when.agents"),
        ({"when": {"agents": [str(uuid4())]}}, "when.agents"),
        ({"when": {"providers": ["nobody"]}}, "when.providers"),
        ({"when": {"members": [str(uuid4())]}}, "when.members"),
        ({"action": "set_model", "settings": {"model": "nothing"}}, "settings.model"),
        ({"action": "set_provider", "settings": {"provider": "nobody"}}, "settings.provider"),
        (
            {"action": "python", "phase": "after_tool_call", "settings": {"entry_point": "not-installed"}},
            "settings.entry_point",
        ),
    ],
)
def test_a_hook_that_names_a_missing_row_is_unknown(rest: Rest, body: dict[str, Any], field: str) -> None:
    assert rest.post("hooks", FREEZE | body).error == (400, "unknown", field)
    assert Hook.objects.count() == 0


def test_a_hook_names_no_row_of_another_organisation(
    rest: Rest, globex: Organisation, charlie: Membership, alice: Membership
) -> None:
    """By its id, which Alice might have seen somewhere."""
    agent = make_agent(globex, slug="of-globex")
    provider = str(agent.model.provider.public_id)

    for body in (
        {"when": {"agents": [str(agent.public_id)]}},
        {"when": {"providers": [provider]}},
        {"when": {"members": [str(charlie.public_id)]}},
        {"action": "set_provider", "settings": {"provider": provider}},
    ):
        assert rest.post("hooks", FREEZE | body).error[:2] == (400, "unknown")
    assert Hook.objects.count() == 0


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"settings": "x"}, (400, "invalid", "settings")),
        ({"settings": {}}, (400, "invalid", "settings.message")),
        ({"when": []}, (400, "invalid", "when")),
        ({"phase": "after_tool_call"}, (400, "invalid", "action")),
        ({"colour": "red"}, (400, "unknown_field", "colour")),
        ({"name": "taken"}, (400, "taken", "name")),
    ],
)
def test_a_malformed_hook_is_refused_with_its_field(rest: Rest, body: dict[str, Any], error: Any) -> None:
    rest.post("hooks", FREEZE | {"name": "taken"})

    assert rest.post("hooks", FREEZE | body).error == error


def test_bob_and_charlie_reach_no_hook(
    alice: Membership, bob: Membership, charlie: Membership, in_acme: Organisation
) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)
    address = f"hooks/{hook.public_id}"

    assert Rest(bob).get("hooks").status == Rest(bob).patch(address, {"priority": 1}).status == 403
    assert Rest(charlie).get(address).status == Rest(charlie).delete(address).status == 404
    with pytest.raises(PermissionDenied):
        update_hook(hook, HookContent(FREEZE | {"priority": 1}), actor=bob)
    assert Hook.objects.get().priority == 100


# -- What runs --------------------------------------------------------------------------------------------------------


def test_hooks_that_are_on_are_read_once_for_each_registry_version(
    alice: Membership, acme: Organisation, in_acme: Organisation, django_assert_num_queries: Any
) -> None:
    create_hook(HookContent(FREEZE | {"name": "off"}, is_enabled=False), actor=alice)
    create_hook(HookContent(FREEZE | {"name": "late", "priority": 200}), actor=alice)
    create_hook(HookContent(FREEZE), actor=alice)
    at = version_of(acme)

    with django_assert_num_queries(1):
        first = active_hooks(acme.pk, at)
        again = active_hooks(acme.pk, at)

    assert [each.name for each in first] == ["freeze", "late"]
    assert again is first


def test_members_in_conditions_are_known_by_key(
    alice: Membership, bob: Membership, acme: Organisation, in_acme: Organisation
) -> None:
    create_hook(HookContent(FREEZE | {"when": {"members": [str(bob.public_id)]}}), actor=alice)

    (hook,) = active_hooks(acme.pk, version_of(acme))

    assert hook.when.members == (str(bob.pk),)


def test_a_hook_that_cannot_be_read_stays_among_those_that_run(
    alice: Membership, acme: Organisation, in_acme: Organisation
) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)
    Hook.objects.filter(pk=hook.pk).update(settings=[1])

    (found,) = active_hooks(acme.pk, None)

    assert (found.name, found.denies, bool(found.broken)) == ("freeze", True, True)


# -- Statistics -------------------------------------------------------------------------------------------------------


def test_zs_48_failures_are_counted_with_the_last_error(alice: Membership, in_acme: Organisation) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)

    count_failure(str(hook.public_id), "first")
    count_failure(str(hook.public_id), "second\x00")
    count_fired({str(hook.public_id): 3})

    hook.refresh_from_db()
    assert (hook.failed, hook.failed_in_a_row, hook.fired) == (2, 0, 3)
    assert hook.last_error.startswith("second")
    assert hook.last_failed_at is not None
    assert hook.is_enabled


def test_a_hook_is_switched_off_after_so_many_failures_in_a_row_on_record(
    alice: Membership, acme: Organisation, in_acme: Organisation
) -> None:
    hook = create_hook(HookContent(FREEZE | {"on_error": "disable", "disable_after": 2}), actor=alice)
    key, before = str(hook.public_id), version_of(acme)

    count_failure(key, "one")
    count_fired({key: 1})
    count_failure(key, "two")  # not in a row
    hook.refresh_from_db()
    assert hook.is_enabled
    assert version_of(acme) == before
    count_failure(key, "three")
    count_failure(key, "four")  # it was running still

    hook.refresh_from_db()
    assert (hook.is_enabled, hook.switched_off_at is not None) == (False, True)
    assert AuditEntry.objects.filter(action="hook.switch_off").count() == 1
    assert version_of(acme) > before


def test_who_saves_a_hook_that_was_switched_off_begins_anew(alice: Membership, in_acme: Organisation) -> None:
    hook = create_hook(HookContent(FREEZE | {"on_error": "disable", "disable_after": 1}), actor=alice)
    count_failure(str(hook.public_id), "one")
    hook.refresh_from_db()

    update_hook(hook, HookContent(hook.entry), actor=alice)

    hook.refresh_from_db()
    assert (hook.is_enabled, hook.switched_off_at, hook.failed_in_a_row, hook.failed) == (True, None, 0, 1)


def test_a_hook_of_another_organisation_is_not_counted(
    alice: Membership, globex: Organisation, in_acme: Organisation
) -> None:
    hook = create_hook(HookContent(FREEZE), actor=alice)

    with organisation_scope(globex):
        count_failure(str(hook.public_id), "x")
        count_fired({str(hook.public_id): 1})

    hook.refresh_from_db()
    assert (hook.failed, hook.fired) == (0, 0)


def test_a_row_that_is_gone_keeps_nothing_else_from_being_saved(
    alice: Membership, acme: Organisation, in_acme: Organisation
) -> None:
    agent = make_agent(acme, slug="going")
    hook = create_hook(HookContent(FREEZE | {"when": {"agents": ["going"]}}), actor=alice)
    agent.delete()

    changed = update_hook(hook, HookContent(hook.entry | {"priority": 7}), actor=alice)

    assert (changed.priority, changed.when) == (7, {"agents": [str(agent.public_id)]})


def test_an_entry_has_every_field_of_the_contract() -> None:
    assert tuple(Hook(name="h").entry) == FIELDS


def test_rights_are_asked_of_an_operator_too(acme: Organisation, in_acme: Organisation) -> None:
    viewer = make_member(acme, "viewer")

    with pytest.raises(PermissionDenied):
        create_hook(HookContent(FREEZE), actor=viewer)
