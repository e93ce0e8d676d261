"""The page of one role: one form for its words, its rules and its members, shown before it is saved."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.models import Category, Role, RoleMembership, RoleRule
from tests.cast import make_category, make_member, make_tool
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db

PAGE = "/o/acme/roles/coder/"
STAMP = re.compile(r'name="stamp"\s+value="([^"]+)"')


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def coder(in_acme: Organisation, alice: Membership, bob: Membership) -> Role:
    """Bob has it, and Alice does not; it opens file, of file and web."""
    for name in ("file", "web"):
        make_tool(in_acme, f"{name}_read", category=make_category(in_acme, name, is_core=False))
    role = Role.objects.create(organisation=in_acme, slug="coder", name="Coder", mode="listed")
    RoleRule.objects.create(organisation=in_acme, role=role, category_id=tool_category("file"), effect="allow")
    RoleMembership.objects.create(organisation=in_acme, role=role, membership=bob)
    return role


def tool_category(name: str) -> int:
    return Category.objects.get(name=name).pk


def form_of(*shown: Membership, members: tuple[Membership, ...] = (), **fields: Any) -> dict[str, Any]:
    said = {"name": "Coder", "slug": "coder", "mode": "listed", "category-file": "allow", "category-web": ""}
    ids = {"shown": [str(each.public_id) for each in shown], "members": [str(each.public_id) for each in members]}
    return said | ids | fields


def stamp_in(answer: Any) -> str:
    found = STAMP.search(answer.content.decode())
    assert found is not None, "no stamp: nothing was shown to be saved"
    return found[1]


def holders(role: Role) -> set[str]:
    return set(RoleMembership.objects.filter(role=role).values_list("membership__user__email", flat=True))


def test_words_rules_and_members_are_saved_together(
    as_alice: Client, coder: Role, alice: Membership, bob: Membership
) -> None:
    form = form_of(alice, bob, members=(alice,), name="Writer", **{"category-web": "allow"})

    shown = as_alice.post(PAGE, form)
    saved = as_alice.post(PAGE, form | {"stamp": stamp_in(shown)})

    coder.refresh_from_db()
    assert (shown.status_code, saved.status_code, coder.name) == (200, 302, "Writer")
    assert holders(coder) == {alice.user.email}
    assert set(RoleRule.objects.values_list("category__name", flat=True)) == {"file", "web"}
    actions = AuditEntry.objects.order_by("pk").values_list("action", flat=True)
    assert [action for action in actions if action.startswith("role.")] == [
        "role.update",
        "role.assign",
        "role.unassign",
    ]


def test_a_change_of_members_alone_is_shown_first(as_alice: Client, coder: Role, bob: Membership) -> None:
    form = form_of(bob)

    shown = as_alice.post(PAGE, form).content.decode()

    assert "1 member loses file_read" in shown
    assert "taken from 1" in shown
    assert holders(coder) == {bob.user.email}


def test_words_alone_are_saved_at_once(as_alice: Client, coder: Role, bob: Membership) -> None:
    answer = as_alice.post(PAGE, form_of(bob, members=(bob,), name="Writer"))

    coder.refresh_from_db()
    assert (answer.status_code, coder.name) == (302, "Writer")


def test_another_choice_of_members_than_was_shown_is_shown_anew(
    as_alice: Client, coder: Role, alice: Membership, bob: Membership
) -> None:
    stamp = stamp_in(as_alice.post(PAGE, form_of(alice, bob)))

    answer = as_alice.post(PAGE, form_of(alice, bob, members=(alice,), stamp=stamp))

    assert answer.status_code == 200
    assert holders(coder) == {bob.user.email}


def test_a_search_for_members_keeps_what_is_not_saved(
    as_alice: Client, coder: Role, alice: Membership, bob: Membership
) -> None:
    form = form_of(
        alice, bob, members=(alice,), name="Unsaved", find="1", member_q="nobody", **{"category-web": "deny"}
    )

    page = as_alice.post(PAGE, form).content.decode()

    assert 'value="Unsaved"' in page
    assert f'name="shown" value="{bob.public_id}"' in page
    assert f'name="members" value="{bob.public_id}"' not in page
    assert f'name="members" value="{alice.public_id}"' in page
    assert re.search(r'name="category-web".*?<option value="deny" selected>', page, re.DOTALL)
    assert holders(coder) == {bob.user.email}


def test_members_who_are_not_shown_keep_what_they_have(as_alice: Client, coder: Role, bob: Membership) -> None:
    answer = as_alice.post(PAGE, form_of(name="Writer"))

    assert (answer.status_code, holders(coder)) == (302, {bob.user.email})


def test_categories_without_a_rule_are_folded(as_alice: Client, coder: Role) -> None:
    page = as_alice.get(PAGE).content.decode()

    listed, _, rest = page.partition("rules-rest")
    assert ("category-file" in listed, "category-web" in listed) == (True, False)
    assert "category-web" in rest


def test_a_new_role_is_shown_before_it_is_given(as_alice: Client, coder: Role, alice: Membership) -> None:
    form = form_of(alice, members=(alice,), slug="fresh", name="Fresh")

    shown = as_alice.post("/o/acme/roles/new/", form)
    saved = as_alice.post("/o/acme/roles/new/", form | {"stamp": stamp_in(shown)})

    assert b"1 member gains file_read" in shown.content
    assert (saved.status_code, holders(Role.objects.get(slug="fresh"))) == (302, {alice.user.email})


def test_a_right_for_one_category_changes_no_member(
    client: Client, coder: Role, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES, category="file")
    client.force_login(bob.user)

    client.post(PAGE, form_of(alice, bob, members=(alice,)))

    assert holders(coder) == {bob.user.email}


def test_a_member_of_higher_access_has_no_box(
    client: Client, coder: Role, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES)
    client.force_login(bob.user)

    page = " ".join(client.get(PAGE).content.decode().split())

    boxes = dict(re.findall(r'name="members" value="([^"]+)" [^>]*?(disabled|)>', page))
    assert boxes == {str(alice.public_id): "disabled", str(bob.public_id): ""}
    assert page.count("has more access than you") == 1
    assert f'name="shown" value="{alice.public_id}"' not in page


def test_a_role_of_a_member_of_higher_access_is_shown_and_gives_itself_to_others_alone(
    client: Client, coder: Role, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES)
    RoleMembership.objects.create(organisation=acme, role=coder, membership=alice)
    client.force_login(bob.user)
    reason = "Alice has the role Coder and more access than you: you may not change what it says. Ask an admin."

    page = client.get(PAGE).content.decode()
    assert (page.count(reason), "Remove the role" in page) == (1, False)
    assert re.findall(r'type="radio" name="mode" value="(\w+)"', page) == ["listed"]
    assert all(" readonly" in tag for tag in re.findall(r'<input type="text"[^>]*>', page))
    assert all(" disabled" in tag for tag in re.findall(r"<select [^>]*rule-select[^>]*>", page))
    matrix = client.get("/o/acme/roles/matrix/").content.decode()
    assert (matrix.count("<button name="), reason in matrix) == (0, True)

    for change in ({"name": "Mine"}, {"mode": "all"}, {"category-web": "allow"}):
        form = form_of(bob, members=(bob,), **change)
        shown = client.post(PAGE, form)
        found = STAMP.search(shown.content.decode())
        answer = client.post(PAGE, form | {"stamp": found[1]}) if found else shown
        assert (answer.status_code, reason in answer.content.decode()) == (422, True)
    cell = {"coder:c:web:": "allow"}
    answer = client.post("/o/acme/roles/matrix/", cell)
    assert (answer.status_code, reason in answer.content.decode()) == (422, True)

    form = form_of(bob)
    saved = client.post(PAGE, form | {"stamp": stamp_in(client.post(PAGE, form))})
    assert (saved.status_code, holders(coder)) == (302, {alice.user.email})


def test_another_organisations_member_gets_no_role(
    as_alice: Client, coder: Role, bob: Membership, charlie: Membership
) -> None:
    answer = as_alice.post(PAGE, form_of(charlie, members=(charlie,)))

    assert (answer.status_code, holders(coder)) == (302, {bob.user.email})


def test_a_stranger_and_a_member_without_the_right_are_told_so(
    client: Client, coder: Role, bob: Membership, charlie: Membership
) -> None:
    found = []
    for member in (bob, charlie):
        client.force_login(member.user)
        found.append(client.post(PAGE, form_of()).status_code)

    assert found == [403, 404]


def test_the_page_takes_the_same_queries_for_more_members(as_alice: Client, coder: Role, acme: Organisation) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as log:
            assert as_alice.get(PAGE).status_code == 200
        return len(log)

    few = queries()
    for number in range(3):
        member = make_member(acme, f"m{number}")
        RoleMembership.objects.create(organisation=acme, role=coder, membership=member)

    assert queries() == few
