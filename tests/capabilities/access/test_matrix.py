"""The matrix of roles: what it shows, whom a change changes, and what is saved."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.access.roles.writes import Rule, rules_as_text, set_role_rules
from capabilities.models import Role, RoleMembership, RoleRule, Tool
from tests.cast import make_category, make_member, make_tool
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

MATRIX = "/o/acme/roles/matrix/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def coder(acme: Organisation, bob: Membership) -> Role:
    """Bob's role, beside one that opens everything and is nobody's."""
    for category, names in {"file": ("file_read", "file_write"), "web": ("fetch",)}.items():
        for name in names:
            make_tool(acme, name, category=make_category(acme, category))
    with organisation_scope(acme):
        Role.objects.create(organisation=acme, slug="all", name="All", mode="all")
        role = Role.objects.create(organisation=acme, slug="coder", name="Coder", mode="listed")
        RoleMembership.objects.create(organisation=acme, role=role, membership=bob)
        set_role_rules(role, [Rule("allow", category="file"), Rule("deny", tool="file_write")], actor=None)
    return role


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def stamp_in(page: bytes) -> str:
    found = re.search(r'name="stamp"\s+value="([0-9a-f.]+)"', page.decode())
    assert found is not None
    return found[1]


def rules_told_by(role: Role) -> list[str]:
    with organisation_scope(role.organisation):
        return rules_as_text(role)


GAIN = {"coder:c:web:": "allow", "coder:c:file:allow": "allow"}


def test_it_shows_categories_and_the_tools_of_those_that_are_open(as_alice: Client, coder: Role) -> None:
    page = as_alice.get(f"{MATRIX}?open=file").content.decode()

    assert 'name="coder:c:file:allow"' in page
    assert re.search(
        r'<td class="differs"><button name="coder:t:file_write:deny" value="" class=d>denied, differs', page
    )
    assert re.search(r'name="coder:t:file_read:" value="allow" class=i>not listed, on<', page)
    assert 'name="coder:t:file_read:"' in page
    assert "coder:t:fetch" not in page
    assert 'name="all:' not in page
    assert "The mode of All is “All tools”." in page


def test_a_change_is_shown_first_and_saved_with_the_stamp_of_what_was_shown(as_alice: Client, coder: Role) -> None:
    before = rules_told_by(coder)

    shown = as_alice.post(MATRIX, GAIN)
    assert "1 member gains fetch; " in text_of(shown.content)
    assert rules_told_by(coder) == before
    saved = as_alice.post(MATRIX, GAIN | {"stamp": stamp_in(shown.content)})

    assert saved.status_code == 302
    assert rules_told_by(coder) == ["allow category file", "allow category web", "deny tool file_write"]
    with organisation_scope(coder.organisation):
        assert AuditEntry.objects.filter(action="role.update").count() == 2


def test_a_preview_by_htmx_is_the_impact_alone_and_saves_nothing(as_alice: Client, coder: Role) -> None:
    before = rules_told_by(coder)
    stamp = stamp_in(as_alice.post(MATRIX, GAIN).content)

    answer = as_alice.post(MATRIX, GAIN | {"preview": "1", "stamp": stamp}, headers=HTMX).content

    assert (b"<html" in answer, stamp_in(answer)) == (False, stamp)
    assert rules_told_by(coder) == before


def test_a_stale_save_is_refused_with_the_preview_anew_and_loses_nothing(as_alice: Client, coder: Role) -> None:
    stamp = stamp_in(as_alice.post(MATRIX, GAIN).content)
    with organisation_scope(coder.organisation):
        set_role_rules(coder, [Rule("allow", tool="file_write")], actor=None)

    answer = as_alice.post(MATRIX, GAIN | {"stamp": stamp})

    assert (answer.status_code, rules_told_by(coder)) == (409, ["allow tool file_write"])
    assert "was changed in the meantime" in text_of(answer.content)
    again = as_alice.post(MATRIX, GAIN | {"stamp": stamp_in(answer.content)})
    assert (again.status_code, rules_told_by(coder)) == (302, ["allow category web", "allow tool file_write"])


def test_a_form_that_changed_after_its_preview_is_previewed_again(as_alice: Client, coder: Role) -> None:
    stamp = stamp_in(as_alice.post(MATRIX, GAIN).content)

    answer = as_alice.post(MATRIX, GAIN | {"coder:t:file_read:": "deny", "stamp": stamp})

    assert answer.status_code == 200
    assert "1 member gains fetch and loses file_read" in text_of(answer.content)


def test_changes_in_closed_categories_are_carried_along(as_alice: Client, coder: Role) -> None:
    page = as_alice.post(MATRIX, {"coder:t:file_read:": "deny"}).content.decode()

    assert re.search(r'type="hidden"\s+name="coder:t:file_read:\*"\s+value="deny"', page)


@pytest.mark.usefixtures("coder")
@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ({}, "Nothing was changed."),
        ({"coder:c:file:allow": "allow"}, "Nothing was changed."),
        ({"missing:c:file:": "allow"}, "There is no role missing."),
        ({"coder:c:missing:": "allow"}, "There is no category missing."),
        ({"coder:t:missing:": "allow"}, "There is no tool missing."),
        ({"coder:t:a\x00b:": "allow"}, "There is no tool ab."),
        ({"coder:t:fetch:": "perhaps"}, "A cell is on, off, or says nothing."),
        ({"all:t:fetch:": "deny"}, "Its lines do not count"),
        ({"coder:x:fetch:": "allow", "a:b": "c", "::::": ""}, "Nothing was changed."),
    ],
)
def test_an_invalid_change_of_the_matrix_is_refused_and_changes_nothing(
    as_alice: Client, form: dict[str, str], complaint: str
) -> None:
    answer = as_alice.post(MATRIX, form)

    assert (answer.status_code, complaint in text_of(answer.content)) == (422, True)


def test_a_right_for_one_category_changes_its_cells_alone(client: Client, bob: Membership, coder: Role) -> None:
    dora = make_member(bob.organisation, "dora")
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=dora, right=Right.ROLES, category="web")
    client.force_login(dora.user)

    page = client.get(MATRIX).content.decode()
    refused = client.post(MATRIX, {"coder:c:file:allow": "deny"})
    stamp = stamp_in(client.post(MATRIX, GAIN).content)
    saved = client.post(MATRIX, GAIN | {"stamp": stamp})

    assert ("coder:c:web:" in page, "coder:c:file:" in page) == (True, False)
    assert (refused.status_code, saved.status_code) == (403, 302)


@pytest.mark.usefixtures("coder")
def test_the_matrix_gives_403_without_the_right_and_404_to_strangers(
    client: Client, bob: Membership, charlie: Membership
) -> None:
    for member, status in ((bob, 403), (charlie, 404)):
        client.force_login(member.user)
        assert client.get(MATRIX).status_code == status
        assert client.post(MATRIX, GAIN).status_code == status


@pytest.mark.usefixtures("coder")
def test_htmx_gets_the_rows_of_one_category(as_alice: Client) -> None:
    part = as_alice.get(f"{MATRIX}?open=file&roles=coder", headers=HTMX).content.decode()
    missing = as_alice.get(f"{MATRIX}?open=missing", headers=HTMX)

    assert ("<html" in part, part.count("<tr"), part.count("<button name=")) == (False, 2, 2)
    assert (missing.status_code, b"<tr" in missing.content) == (200, False)


@pytest.mark.usefixtures("coder")
@pytest.mark.parametrize(
    "query",
    [
        "differ=1",
        "differ=1&behind=web&q=f",
        "roles=missing",
        "open=%00",
        "q=%00",
        "roles=,,,",
        "after=x&open=web",
        "q=zzz",
        "open=all",
    ],
)
def test_an_address_that_asks_for_the_impossible_shows_what_there_is(as_alice: Client, query: str) -> None:
    assert as_alice.get(f"{MATRIX}?{query}").status_code == 200


def fill(acme: Organisation, categories: int, tools: int, roles: int) -> None:
    own: dict[str, Any] = {"organisation": acme}
    with organisation_scope(acme):
        rows = [make_category(acme, f"category_{number}") for number in range(categories)]
        Tool.objects.bulk_create(
            Tool(**own, category=rows[number % categories], name=f"tool_to_use_{number:05}")
            for number in range(Tool.objects.count(), tools)
        )
        for number in range(Role.objects.count(), roles):
            role = Role.objects.create(**own, slug=f"role-{number}", name=f"Role {number}", mode="listed")
            RoleRule.objects.create(**own, role=role, category=rows[0], effect="deny" if number % 2 else "allow")
            RoleRule.objects.create(**own, role=role, tool=Tool.objects.order_by("name").first())


def test_the_queries_are_the_same_for_more_roles_and_tools(as_alice: Client, acme: Organisation) -> None:
    counts = set()
    for tools, roles in ((10, 1), (10, 3), (1_000, 12)):
        fill(acme, 5, tools, roles)
        for query in ("open=all", *["open=all&differ=1"] * (roles > 1)):
            with CaptureQueriesContext(connection) as seen:
                assert as_alice.get(f"{MATRIX}?{query}").status_code == 200
            counts.add(len(seen))

    assert len(counts) == 1
    assert counts.pop() <= 12


def test_the_starter_catalogue_by_six_roles_is_under_200_kb_with_all_open(as_alice: Client, acme: Organisation) -> None:
    fill(acme, 34, 122, 6)

    page = as_alice.get(f"{MATRIX}?open=all").content

    assert (page.count(b"<button name="), len(page) < 200_000) == ((34 + 122) * 6, True), len(page)


@pytest.mark.long
def test_of_ten_thousand_tools_only_some_are_shown(as_alice: Client, acme: Organisation) -> None:
    fill(acme, 2, 10_000, 6)

    closed, opened = (as_alice.get(f"{MATRIX}{query}").content for query in ("", "?open=all"))
    found = as_alice.get(f"{MATRIX}?q=use_09999").content

    assert closed.count(b"<button name=") == 12
    assert (opened.count(b"tool-line"), len(opened) < 200_000) == (127, True), len(opened)
    assert found.count(b"tool-line") == 1


@pytest.mark.long
def test_ten_thousand_tools_by_twelve_roles_are_under_200_kb_however_they_are_shown(
    as_alice: Client, acme: Organisation
) -> None:
    fill(acme, 300, 10_000, 12)

    for query in ("", "open=all", "open=all&differ=1", "q=to_use", "open=category_7"):
        page = as_alice.get(f"{MATRIX}?{query}").content
        assert (page.count(b'<th scope="col">'), len(page) < 200_000) == (13, True), (query, len(page))


# -- A cell that is saved at once -------------------------------------------------------------------------------------


def press(client: Client, key: str, effect: str, **more: str) -> Any:
    return client.post(MATRIX, {key: effect, "now": "1", **more}, headers=HTMX)


def test_a_cell_is_saved_at_once_and_its_answer_undoes_it(as_alice: Client, coder: Role) -> None:
    before = rules_told_by(coder)

    answer = press(as_alice, "coder:c:web:", "allow")

    assert (answer.status_code, len(answer.content) < 5_000) == (200, True)
    assert rules_told_by(coder) == ["allow category file", "allow category web", "deny tool file_write"]
    page = answer.content.decode()
    assert '<button name="coder:c:web:allow" value="deny" class=a>allowed</button>' in page
    assert "1 member has this role" in text_of(answer.content)
    undo = re.search(r'data-undo="([^"]+)"\s+value="(\w*)"', page)
    assert undo is not None

    undone = press(as_alice, undo[1], undo[2], undo="1")

    assert (undone.status_code, rules_told_by(coder)) == (200, before)
    assert ("Undone" in text_of(undone.content), b"data-undo" in undone.content) == (True, False)
    with organisation_scope(coder.organisation):
        entries = AuditEntry.objects.filter(action="role.update").order_by("number")[1:]
        differences = [(each.before, each.after) for each in entries]
    assert differences == [
        ({"rules": []}, {"rules": ["allow category web"]}),
        ({"rules": ["allow category web"]}, {"rules": []}),
    ]


def test_a_cell_that_somebody_changed_in_the_meantime_is_shown_and_not_saved(as_alice: Client, coder: Role) -> None:
    press(as_alice, "coder:c:web:", "allow")
    press(as_alice, "coder:c:web:allow", "deny")
    stored = rules_told_by(coder)

    late = press(as_alice, "coder:c:web:allow", "", undo="1")

    assert (late.status_code, rules_told_by(coder)) == (422, stored)
    assert 'name="coder:c:web:deny"' in late.content.decode()
    assert "in the meantime" in text_of(late.content)


@pytest.mark.usefixtures("coder")
@pytest.mark.parametrize("key", ["coder:t:missing:", "missing:c:web:", "all:c:web:", "coder:c:file:allow"])
def test_a_cell_that_cannot_be_saved_leaves_the_page_as_it_is_but_for_a_line(as_alice: Client, key: str) -> None:
    answer = press(as_alice, key, "allow")

    assert (answer.status_code, answer["HX-Reswap"], b"<td" in answer.content) == (422, "none", False)


def test_a_cell_is_saved_with_the_right_alone(
    client: Client, bob: Membership, charlie: Membership, coder: Role
) -> None:
    before = rules_told_by(coder)
    for member, status in ((bob, 403), (charlie, 404)):
        client.force_login(member.user)
        assert press(client, "coder:c:web:", "allow").status_code == status
    assert rules_told_by(coder) == before


# -- Only differences -------------------------------------------------------------------------------------------------


def test_only_what_the_shown_roles_treat_differently_is_listed(
    as_alice: Client, acme: Organisation, coder: Role
) -> None:
    with organisation_scope(acme):
        writer = Role.objects.create(organisation=acme, slug="writer", name="Writer", mode="listed")
        rules = [Rule("allow", tool="file_read"), Rule("deny", category="web"), Rule("deny", tool="fetch")]
        set_role_rules(writer, rules, actor=None)

    def shown(query: str) -> tuple[list[str], list[str]]:
        page = as_alice.get(f"{MATRIX}?{query}").content.decode()
        return re.findall(r'<tbody id="in-(\w+)"', page), re.findall(r'/tools/(\w+)/">', page)

    # Both open file_read, one by its category; neither opens fetch.
    assert shown("roles=coder,writer&open=all") == (["file", "web"], ["file_read", "file_write", "fetch"])
    assert shown("roles=coder,writer&open=all&differ=1") == ([], [])
    with organisation_scope(acme):
        set_role_rules(writer, [Rule("allow", tool="file_write")], actor=None)
    assert shown("roles=coder,writer&open=all&differ=1") == (["file"], ["file_read", "file_write"])
    # A role that opens everything differs from one that does not.
    assert shown("roles=all,coder&open=all&differ=1") == (["file", "web"], ["file_write", "fetch"])


@pytest.mark.usefixtures("coder")
def test_pressed_cells_are_collected_without_a_script(as_alice: Client) -> None:
    page = as_alice.post(MATRIX, {"coder:c:web:": "allow"}).content.decode()
    assert '<td class="is-changed"><button name="coder:c:web:" value="deny" class=a>' in page

    # The collected change stands before the cell that is pressed.
    again = as_alice.post(MATRIX, {"coder:c:web:*": "allow", "coder:c:web:": "deny"}).content.decode()
    assert re.search(r'name="coder:c:web:\*"\s+value="deny"', again)
    assert as_alice.post(MATRIX, {"coder:c:web:*": "allow", "coder:c:web:": ""}).status_code == 422
