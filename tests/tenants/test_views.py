"""The pages of people, tokens and audit."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.cast import PASSWORD, make_category, make_member, make_organisation, make_token
from toolhub.logs import MaskingFormatter
from toolhub.tenants.audit.writes import record
from toolhub.tenants.identity.resets import issue_reset_link
from toolhub.tenants.models import (
    Access,
    AdminRight,
    ApiToken,
    AuditEntry,
    Invitation,
    Membership,
    Organisation,
    Right,
    User,
)
from toolhub.tenants.people.invitations import invite
from toolhub.tenants.people.writes import GivenRight, give_right, held_rights
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
NEW = "another-long-password"


@pytest.fixture(autouse=True)
def _fresh_limits() -> None:
    cache.clear()


@pytest.fixture
def admin(alice: Membership) -> Client:
    client = Client()
    client.force_login(alice.user)
    return client


def queries(client: Client, url: str) -> int:
    client.get(url)
    with CaptureQueriesContext(connection) as seen:
        assert client.get(url).status_code == 200
    return len(seen)


def kept(member: Membership) -> Membership:
    with system_scope():
        return Membership.objects.prefetch_related("admin_rights").get(pk=member.pk)


# -- Members ----------------------------------------------------------------------------------------------------------


def test_the_list_shows_members_rights_and_invitations(
    admin: Client, alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    give_right(bob, GivenRight(Right.AUDIT), actor=alice)
    invite("dana@example.com", Access.VIEWER, actor=alice)

    page = admin.get("/o/acme/members/").content.decode()

    assert "2 members\n        · 1 admin" in page
    assert re.findall(r'href="/o/acme/members/[0-9a-f-]{36}/">(\w+)<', page) == ["Alice", "Bob"]
    assert '<span class="chip">Audit</span>' in page
    assert "dana@example.com" in page


def test_the_list_takes_as_many_queries_for_three_as_for_one(
    admin: Client, alice: Membership, in_acme: Organisation
) -> None:
    first = make_member(in_acme, "m0")
    give_right(first, GivenRight(Right.AUDIT), actor=alice)
    invite("i0@example.com", Access.MEMBER, actor=alice)
    one = queries(admin, "/o/acme/members/")
    for number in (1, 2):
        give_right(make_member(in_acme, f"m{number}"), GivenRight(Right.AUDIT), actor=alice)
        invite(f"i{number}@example.com", Access.MEMBER, actor=alice)

    assert queries(admin, "/o/acme/members/") == one
    assert one <= 15


def test_the_list_is_paged_both_ways_and_filtered(admin: Client, acme: Organisation) -> None:
    for number in range(60):
        make_member(acme, f"m{number:02}", Access.VIEWER if number == 30 else Access.MEMBER)

    first = admin.get("/o/acme/members/").content.decode()
    forward = re.search(r'href="(\?after=[^"]+)"', first)
    assert forward is not None
    second = admin.get(f"/o/acme/members/{forward[1]}").content.decode()
    back = re.search(r'href="(\?before=[^"]+)"', second)
    assert back is not None

    names = re.compile(r'href="/o/acme/members/[0-9a-f-]{36}/">(\w+)<')
    assert len(names.findall(first)) == 50
    assert len(names.findall(second)) == 11
    assert names.findall(admin.get(f"/o/acme/members/{back[1]}").content.decode()) == names.findall(first)
    assert names.findall(admin.get("/o/acme/members/?access=viewer").content.decode()) == ["M30"]
    assert names.findall(admin.get("/o/acme/members/?q=m4+example").content.decode())[0] == "M40"
    assert b"Nobody matches" in admin.get("/o/acme/members/?q=zzz").content
    assert admin.get("/o/acme/members/?access=emperor&after=%00").status_code == 200


def test_a_member_with_too_little_access_is_told_so_and_a_stranger_is_not(
    client: Client, alice: Membership, bob: Membership, charlie: Membership
) -> None:
    urls = ["/o/acme/members/", f"/o/acme/members/{alice.public_id}/", "/o/acme/members/invite/", "/o/acme/audit/"]
    client.force_login(bob.user)
    assert {client.get(url).status_code for url in urls} == {403}
    client.force_login(charlie.user)
    assert {client.get(url).status_code for url in urls} == {404}
    assert client.get(f"/o/globex/members/{alice.public_id}/").status_code == 404


def test_what_changes_something_takes_post_alone(admin: Client, bob: Membership) -> None:
    acts = ["access", "rights/give", "rights/take", "reset", "remove", f"tokens/{bob.public_id}/revoke"]

    assert {admin.get(f"/o/acme/members/{bob.public_id}/{act}/").status_code for act in acts} == {405}


def test_access_is_changed_on_the_members_page(admin: Client, bob: Membership) -> None:
    answer = admin.post(f"/o/acme/members/{bob.public_id}/access/", {"access": "operator"}, follow=True)

    assert b"Bob is operator now." in answer.content
    assert kept(bob).access == Access.OPERATOR


def test_bad_access_shows_beside_the_field(client: Client, bob: Membership) -> None:
    dana = make_member(bob.organisation, "dana", Access.VIEWER)
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.MEMBERS)
    client.force_login(bob.user)

    page = client.get(f"/o/acme/members/{dana.public_id}/").content.decode()
    answer = client.post(f"/o/acme/members/{dana.public_id}/access/", {"access": "admin"})

    assert 'value="admin"' not in page
    assert answer.status_code == 422
    assert b'id="id_access_error"' in answer.content
    assert b"You cannot give this access." in answer.content
    assert kept(dana).access == Access.VIEWER


def test_the_last_admin_cannot_be_demoted_on_the_page(admin: Client, alice: Membership) -> None:
    dana = make_member(alice.organisation, "dana", Access.ADMIN)
    alice.user.is_active = True
    client = Client()
    client.force_login(dana.user)
    with system_scope():
        Membership.objects.filter(pk=dana.pk).update(access=Access.OPERATOR)
        AdminRight.objects.create(organisation=alice.organisation, membership=dana, right=Right.MEMBERS)

    answer = client.post(f"/o/acme/members/{alice.public_id}/access/", {"access": "viewer"})

    assert answer.status_code == 422
    assert b"has more access than you" in answer.content
    assert kept(alice).access == Access.ADMIN


def test_ones_own_page_offers_no_change(admin: Client, alice: Membership) -> None:
    page = admin.get(f"/o/acme/members/{alice.public_id}/").content.decode()

    assert "Nobody changes their own access" in page
    assert "/access/" not in page
    assert "/remove/" not in page
    assert admin.post(f"/o/acme/members/{alice.public_id}/access/", {"access": "member"}).status_code == 422


def test_a_right_is_given_and_taken_with_and_without_script(admin: Client, bob: Membership) -> None:
    make_category(bob.organisation, "web")
    url = f"/o/acme/members/{bob.public_id}/rights"

    plain = admin.post(f"{url}/give/", {"right": "audit", "category": ""})
    partial = admin.post(f"{url}/give/", {"right": "catalogue", "category": "web"}, headers=HTMX)

    assert plain["Location"] == f"/o/acme/members/{bob.public_id}/"
    assert partial.content.decode().strip().startswith('<section id="rights">')
    assert b"Catalogue in web" in partial.content
    assert held_rights(kept(bob)) == {GivenRight(Right.AUDIT), GivenRight(Right.CATALOGUE, "web")}

    admin.post(f"{url}/take/", {"right": "audit", "category": ""})
    left = admin.post(f"{url}/take/", {"right": "catalogue", "category": "web"}, headers=HTMX)

    assert b"None." in left.content
    assert held_rights(kept(bob)) == set()


@pytest.mark.parametrize(
    ("right", "category", "said"),
    [
        ("audit", "web", b"cannot be limited"),
        ("catalogue", "nowhere", b"There is no such category."),
        ("emperor", "", b"You cannot give this right."),
    ],
)
def test_a_right_that_cannot_be_given_shows_why(
    admin: Client, bob: Membership, right: str, category: str, said: bytes
) -> None:
    make_category(bob.organisation, "web")

    for headers in ({}, HTMX):
        answer = admin.post(
            f"/o/acme/members/{bob.public_id}/rights/give/", {"right": right, "category": category}, headers=headers
        )
        assert answer.status_code == 422
        assert said in answer.content
    assert held_rights(kept(bob)) == set()


def test_removing_a_member_ends_their_way_in(admin: Client, bob: Membership) -> None:
    browser = Client()
    browser.force_login(bob.user)

    answer = admin.post(f"/o/acme/members/{bob.public_id}/remove/", follow=True)

    assert b"Bob is no longer a member." in answer.content
    assert browser.get("/o/acme/").status_code == 404
    assert admin.get(f"/o/acme/members/{bob.public_id}/").status_code == 404


def test_an_admin_sees_and_revokes_the_tokens_of_others(admin: Client, bob: Membership) -> None:
    make_token(bob)
    with system_scope():
        token = ApiToken.objects.get()

    page = admin.get(f"/o/acme/members/{bob.public_id}/").content.decode()
    answer = admin.post(f"/o/acme/members/{bob.public_id}/tokens/{token.public_id}/revoke/", headers=HTMX)

    assert token.prefix in page
    assert (answer.status_code, answer.content) == (200, b"")
    with system_scope():
        assert ApiToken.objects.get().revoked_at is not None


def test_a_token_is_found_on_its_own_members_page_alone(admin: Client, alice: Membership, bob: Membership) -> None:
    make_token(alice)
    with system_scope():
        token = ApiToken.objects.get()

    assert admin.post(f"/o/acme/members/{bob.public_id}/tokens/{token.public_id}/revoke/").status_code == 404


# -- Invitations ------------------------------------------------------------------------------------------------------


def invited(admin: Client, email: str = "dana@example.com") -> str:
    page = admin.post("/o/acme/members/invite/", {"email": email, "access": "member"}).content.decode()
    found = re.search(r"http://testserver(/join/[\w-]+/)<", page)
    assert found is not None
    return found[1]


def opened(client: Client, link: str) -> tuple[str, str]:
    """Open a link: the plain address that it leads to, and what the form there names it by."""
    door = str(client.get(link)["Location"])
    found = re.search(r'name="link" value="(\w+)"', client.get(door).content.decode())
    return door, found[1] if found else ""


def send(client: Client, link: str, **data: str) -> Any:
    door, mark = opened(client, link)
    return client.post(door, {"link": mark, **data})


def test_a_link_is_shown_once_and_makes_a_member_of_a_newcomer(admin: Client, client: Client) -> None:
    link = invited(admin)
    assert link not in admin.get("/o/acme/members/").content.decode()

    weak = send(client, link, first_name="Dana", password="short")
    assert weak.status_code == 422
    assert b'id="id_password_error"' in weak.content
    answer = send(client, link, first_name="Dana", password=NEW)

    assert answer["Location"] == "/o/acme/"
    assert client.get("/o/acme/").status_code == 200
    assert User.objects.get(email="dana@example.com").check_password(NEW)
    assert client.get("/join/").status_code == 404


def test_opening_a_link_takes_its_secret_out_of_the_address(admin: Client, client: Client) -> None:
    link = invited(admin)

    opening = client.get(link)
    door = client.get("/join/")

    assert (opening.status_code, opening["Location"]) == (302, "/join/")
    assert (opening["Referrer-Policy"], door["Referrer-Policy"]) == ("no-referrer", "same-origin")
    assert "no-store" in opening["Cache-Control"]
    assert "no-store" in door["Cache-Control"]
    cookie = opening.cookies["toolhub_link"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"], cookie["max-age"]) == ("/join/", True, "Lax", 3600)
    secret = link.split("/")[2]
    assert secret not in str(cookie) + door.content.decode()


def test_the_cookie_of_a_link_cannot_be_made_or_carried_to_the_other_door(
    admin: Client, client: Client, bob: Membership
) -> None:
    made = client.get(invited(admin)).cookies["toolhub_link"].value

    for door, value in (("/reset/", made), ("/join/", made[:-1]), ("/join/", f"{'0' * 64}:x:y")):
        stranger = Client()
        stranger.cookies["toolhub_link"] = value
        assert stranger.get(door).status_code == 404


def test_a_form_shown_for_an_earlier_link_does_nothing(admin: Client, client: Client) -> None:
    _, earlier = opened(client, invited(admin, "ivan@example.com"))
    opened(client, invited(admin, "judy@example.com"))

    for mark in (earlier, ""):
        answer = client.post("/join/", {"link": mark, "first_name": "Ivan", "password": NEW})
        assert b"Another link was opened in this browser meanwhile" in answer.content
    assert not User.objects.filter(first_name="Ivan").exists()


def test_every_dead_link_gets_the_same_answer(admin: Client, client: Client, alice: Membership) -> None:
    used, revoked, late = (invited(admin, f"{name}@example.com") for name in ("used", "revoked", "late"))
    opened(client, revoked)
    send(Client(), used, first_name="Used", password=NEW)
    with organisation_scope(alice.organisation):
        Invitation.objects.filter(email="late@example.com").update(expires_at=timezone.now() - timedelta(seconds=1))
        key = Invitation.objects.get(email="revoked@example.com").public_id
    admin.post(f"/o/acme/members/invitations/{key}/revoke/")

    links = [used, revoked, late, "/join/unknown/", f"/join/{'x' * 43}/", "/reset/unknown/", "/join/", "/reset/"]
    answers = [client.get(link) for link in links]
    answers += [client.post(link) for link in ("/join/", "/reset/")]

    assert {answer.status_code for answer in answers} == {404}
    assert len({re.sub(rb'"X-CSRFToken": "[^"]+"', b"", answer.content) for answer in answers}) == 1
    assert b"This link does not work" in answers[0].content


def test_who_has_an_account_signs_in_first_then_joins(admin: Client, client: Client, charlie: Membership) -> None:
    link = invited(admin, "charlie@example.com")

    door, mark = opened(client, link)
    assert 'href="/accounts/login/?next=/join/"' in client.get(door).content.decode()
    client.post(door, {"link": mark, "first_name": "X", "password": NEW})
    charlie.user.refresh_from_db()
    assert charlie.user.check_password(PASSWORD)

    client.force_login(charlie.user)
    assert b"Join Acme" in client.get(door).content
    assert send(client, link)["Location"] == "/o/acme/"
    assert client.get("/o/acme/").status_code == 200
    assert client.get(link).status_code == 404


def test_whose_address_has_an_account_is_said_to_nobody_who_holds_a_link(
    admin: Client, charlie: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page, refusals and the work behind them are the same; only who makes an account learns that there was none."""
    hashed: list[str] = []
    monkeypatch.setattr(User, "set_password", lambda self, password: hashed.append(self.email))
    answers = []
    for email in ("charlie@example.com", "nobody12@example.com"):
        link, browser = invited(admin, email), Client()
        door, mark = opened(browser, link)
        page = browser.get(door)
        weak = browser.post(door, {"link": mark, "first_name": "X", "password": "short"})
        answers.append(
            [
                re.sub(r'"X-CSRFToken".*|.*csrfmiddleware.*', "", each.content.decode())
                .replace(email, "")
                .replace(mark, "")
                for each in (page, weak)
            ]
        )
    taken = send(Client(), invited(admin, "charlie@example.com"), first_name="X", password=NEW)
    made = send(Client(), invited(admin, "nobody12@example.com"), first_name="X", password=NEW)

    assert answers[0] == answers[1]
    assert "Sign in to join" in answers[0][0]
    assert (taken.status_code, made.status_code) == (422, 302)
    assert b"No account was made: there may be one for this address." in taken.content
    assert hashed == ["charlie@example.com", "nobody12@example.com"]


def test_who_joins_with_an_account_sees_first_what_opens_it(admin: Client, client: Client, charlie: Membership) -> None:
    key = {"name": "Not mine", "credential": {}}
    Authenticator.objects.create(user=charlie.user, type=Authenticator.Type.WEBAUTHN, data=key)
    client.force_login(charlie.user)
    door, _ = opened(client, invited(admin, "charlie@example.com"))

    page = client.get(door).content.decode()

    assert "security key Not mine, added" in page
    assert "authenticator app" not in page


def test_somebody_else_who_is_signed_in_is_told_to_switch(admin: Client, client: Client, charlie: Membership) -> None:
    link = invited(admin)
    client.force_login(charlie.user)

    answer = send(client, link, first_name="X", password=NEW)
    assert b"This invitation is for somebody else" in answer.content
    assert b'name="next" value="/join/"' in answer.content
    assert client.post("/accounts/logout/", {"next": "/join/"})["Location"] == "/join/"
    assert b"First name" in client.get("/join/").content  # the link is still open


def test_no_log_line_repeats_the_secret_of_a_link() -> None:
    record = logging.LogRecord("x", 40, "", 0, "Forbidden (%s): %s", ("Origin", "/join/s3cret-_x/?a"), None)

    assert MaskingFormatter().format(record) == "Forbidden (Origin): /join/[secret]/?a"
    for address in ("/reset/s3cret/", "http://h/calendar/s3cret.ics"):
        assert "s3cret" not in MaskingFormatter().format(logging.makeLogRecord({"msg": address}))
    handlers = logging.getLogger().handlers
    assert [type(each.formatter) for each in handlers if type(each) is logging.StreamHandler] == [MaskingFormatter]


def test_bad_invitations_show_beside_the_field(admin: Client, bob: Membership) -> None:
    for email, access, field in (
        ("bob@example.com", "member", "email"),
        ("no address", "member", "email"),
        ("x@example.com", "emperor", "access"),
    ):
        answer = admin.post("/o/acme/members/invite/", {"email": email, "access": access})
        assert answer.status_code == 422
        assert f'id="id_{field}_error"' in answer.content.decode()


def test_an_invitation_is_revoked_in_its_row(admin: Client, alice: Membership) -> None:
    invited(admin)
    with system_scope():
        key = Invitation.objects.get().public_id

    answer = admin.post(f"/o/acme/members/invitations/{key}/revoke/", headers=HTMX)

    assert answer.content.decode().strip().startswith(f'<tr id="invitation-{key}">')
    assert b"Revoked" in answer.content
    assert admin.get(f"/o/acme/members/invitations/{key}/revoke/").status_code == 405


def test_tries_at_links_are_counted(client: Client, acme: Organisation) -> None:
    answers = [client.get(f"/join/guess{number}/").status_code for number in range(61)]

    assert answers == [404] * 60 + [429]


# -- Reset links ------------------------------------------------------------------------------------------------------


def test_a_reset_link_is_shown_once_and_sets_the_password(admin: Client, client: Client, bob: Membership) -> None:
    page = admin.post(f"/o/acme/members/{bob.public_id}/reset/").content.decode()
    found = re.search(r"http://testserver(/reset/[\w-]+/)<", page)
    assert found is not None

    door, _ = opened(client, found[1])
    assert b"bob@example.com" in client.get(door).content
    weak = send(client, found[1], password="bob@example.com")
    assert weak.status_code == 422
    assert b'id="id_password_error"' in weak.content
    done = send(client, found[1], password=NEW)

    assert done["Location"] == "/accounts/login/"
    assert client.get(found[1]).status_code == client.get(door).status_code == 404
    client.post("/accounts/login/", {"login": "bob@example.com", "password": NEW})
    assert client.get("/o/acme/").status_code == 200


def test_no_reset_link_for_a_user_of_another_organisation(admin: Client, bob: Membership) -> None:
    make_member(make_organisation("umbrella"), "bob")

    answer = admin.post(f"/o/acme/members/{bob.public_id}/reset/", follow=True)

    assert b"also belongs to another organisation" in answer.content
    assert b"umbrella" not in answer.content.lower()
    assert b"/reset/" not in re.sub(rb'action="[^"]+"', b"", answer.content)


def test_changing_the_password_ends_every_login(client: Client, bob: Membership) -> None:
    other = Client()
    other.force_login(bob.user)
    client.force_login(bob.user)

    wrong = client.post("/accounts/password/", {"oldpassword": "x", "password1": NEW, "password2": NEW})
    assert b'id="id_oldpassword_error"' in wrong.content
    answer = client.post("/accounts/password/", {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW})

    assert answer["Location"] == "/accounts/login/"
    assert [each.get("/o/acme/").status_code for each in (client, other)] == [302, 302]


def test_a_reset_link_made_before_is_dead_after_a_change(client: Client, alice: Membership, bob: Membership) -> None:
    with organisation_scope(alice.organisation):
        _, secret = issue_reset_link(bob, actor=alice)
    client.force_login(bob.user)
    client.post("/accounts/password/", {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW})

    assert client.get(f"/reset/{secret}/").status_code == 404


# -- Tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_made_shown_once_and_works(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    page = client.post("/o/acme/tokens/", {"name": "laptop", "scopes": ["read"], "days": "7"}).content.decode()
    found = re.search(r">(thub_[\w-]{30,})<", page)
    assert found is not None
    again = client.get("/o/acme/tokens/").content.decode()

    assert found[1] not in again
    assert "laptop" in again
    assert '<span class="chip">read</span>' in again
    bearer = {"Authorization": f"Bearer {found[1]}"}
    assert Client().get("/api/v1/sessions", headers=bearer).status_code == 200


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": "", "scopes": ["read"], "days": "0"}, "name"),
        ({"name": "x", "scopes": ["rule"], "days": "0"}, "scopes"),
        ({"name": "x", "scopes": [], "days": "0"}, "scopes"),
        ({"name": "x", "scopes": ["read"], "days": "100000"}, "days"),
    ],
)
def test_a_bad_token_form_is_shown_again(client: Client, bob: Membership, data: dict[str, object], field: str) -> None:
    client.force_login(bob.user)

    answer = client.post("/o/acme/tokens/", data)

    assert answer.status_code == 422
    assert f'href="#id_{field}' in answer.content.decode()
    with system_scope():
        assert not ApiToken.objects.exists()


def test_a_token_that_never_expires_can_be_made(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    client.post("/o/acme/tokens/", {"name": "x", "scopes": ["read", "chat"], "days": "0"})

    with system_scope():
        token = ApiToken.objects.get()
    assert (token.expires_at, token.scopes) == (None, ["read", "chat"])


def test_ones_own_token_is_revoked_and_nobody_elses(client: Client, alice: Membership, bob: Membership) -> None:
    make_token(alice)
    make_token(bob)
    client.force_login(bob.user)
    with system_scope():
        hers, his = ApiToken.objects.order_by("pk").values_list("public_id", flat=True)

    assert client.post(f"/o/acme/tokens/{hers}/revoke/").status_code == 404
    assert client.post(f"/o/acme/tokens/{his}/revoke/", headers=HTMX).content == b""
    assert client.get(f"/o/acme/tokens/{his}/revoke/").status_code == 405
    with system_scope():
        assert list(ApiToken.objects.filter(revoked_at=None).values_list("public_id", flat=True)) == [hers]


def test_the_list_of_tokens_takes_as_many_queries_for_three_as_for_one(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    make_token(bob)
    one = queries(client, "/o/acme/tokens/")
    make_token(bob)
    make_token(bob)

    assert queries(client, "/o/acme/tokens/") == one


# -- Audit ------------------------------------------------------------------------------------------------------------


def write(member: Membership, count: int) -> None:
    with organisation_scope(member.organisation):
        for number in range(count):
            record("x.update", member, actor=member, before={"n": number}, after={"n": number + 1, "same": 1})


def shown(page: bytes) -> list[int]:
    return [int(number) for number in re.findall(rb'id="entry-(\d+)"', page)]


def test_the_audit_shows_what_changed_and_what_did_not_is_left_out(admin: Client, alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        record("x.update", alice, actor=alice, before={"a": 1, "b": "<i>"}, after={"a": 1, "b": "new"})

    page = admin.get("/o/acme/audit/").content.decode()

    assert "<del>&lt;i&gt;</del>" in page
    assert "<ins>new</ins>" in page
    assert "<dt>a</dt>" not in page


def test_the_audit_is_filtered_by_its_address(admin: Client, alice: Membership, bob: Membership) -> None:
    with organisation_scope(alice.organisation):
        record("tool.update", alice, actor=alice, after={"key": "needle"})
        record("member.access", bob, actor=alice)
        record("member.rights", bob, actor=bob)

    for query, found in {
        "": [3, 2, 1],
        "actor=bob": [3],
        "action=member.": [3, 2],
        "action=tool.update": [1],
        "target=Bob": [3, 2],
        "target=membership": [3, 2, 1],
        "q=needle": [1],
        "q=nothing": [],
        f"since={timezone.now():%Y-%m-%d}": [3, 2, 1],
        "until=2001-01-01": [],
        "since=rubbish&after=x&before=-1": [3, 2, 1],
        "actor=alice&action=member": [2],
    }.items():
        answer = admin.get(f"/o/acme/audit/?{query}")
        assert (answer.status_code, shown(answer.content)) == (200, found), query


def test_the_audit_is_paged_both_ways(admin: Client, alice: Membership) -> None:
    write(alice, 120)

    def page(link: str) -> bytes:
        return admin.get(f"/o/acme/audit/{link}").content

    def link(page: bytes, rel: str) -> str:
        found = re.search(rf'href="(\?action=x\.[^"]+)"\s+rel="{rel}"', page.decode())
        return found[1].replace("&amp;", "&") if found else ""

    first = page("?action=x.")
    assert shown(first) == list(range(120, 70, -1))
    assert link(first, "prev") == ""
    second = page(link(first, "next"))
    assert shown(second) == list(range(70, 20, -1))
    assert shown(page(link(second, "prev"))) == list(range(120, 70, -1))
    last = page(link(second, "next"))
    assert shown(last) == list(range(20, 0, -1))
    assert link(last, "next") == ""


def test_the_audit_takes_as_many_queries_for_three_as_for_one(admin: Client, alice: Membership) -> None:
    write(alice, 1)
    one = queries(admin, "/o/acme/audit/")
    write(alice, 2)

    assert queries(admin, "/o/acme/audit/") == one


def test_htmx_gets_the_entries_alone(admin: Client, alice: Membership) -> None:
    write(alice, 1)

    answer = admin.get("/o/acme/audit/", headers=HTMX).content.decode()

    assert answer.strip().startswith('<div id="entries">')
    assert "<html" not in answer


def test_the_chain_is_checked_on_demand(admin: Client, alice: Membership) -> None:
    write(alice, 3)

    assert b"Chain intact" not in admin.get("/o/acme/audit/").content
    partial = admin.get("/o/acme/audit/check/", headers=HTMX).content.decode()
    assert partial.strip().startswith('<div id="chain"')
    assert "Chain intact" in partial
    assert "3 entries" in partial

    with system_scope():
        Organisation.objects.filter(pk=alice.organisation_id).update(audit_head="x")
    page = admin.get("/o/acme/audit/check/").content.decode()
    assert "Chain broken" in page
    assert "Entry 3: it is not the last" in page


def test_an_auditor_without_other_rights_reads_the_audit(client: Client, alice: Membership, bob: Membership) -> None:
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.AUDIT)
    client.force_login(bob.user)

    assert client.get("/o/acme/audit/").status_code == 200
    assert client.get("/o/acme/audit/check/").status_code == 200
    assert client.post("/o/acme/audit/").status_code == 405


# -- One's own account ------------------------------------------------------------------------------------------------


def test_ones_own_name_is_changed_and_written_down_in_each_organisation(client: Client, bob: Membership) -> None:
    client.force_login(make_member(make_organisation("umbrella"), "bob").user)

    assert client.post("/account/", {"first_name": "Robert", "last_name": "Roe"})["Location"] == "/account/"
    assert client.post("/account/", {"first_name": ""}).status_code == 422

    page = client.get("/account/").content.decode()
    assert 'value="Robert"' in page
    assert re.findall(r'href="(/o/\w+/tokens/)"', page) == ["/o/acme/tokens/", "/o/umbrella/tokens/"]
    with system_scope():
        rows = list(AuditEntry.objects.values_list("organisation__slug", "action", "before", "after"))
    assert sorted(rows) == [
        ("acme", "member.rename", {"name": "Bob"}, {"name": "Robert Roe"}),
        ("umbrella", "member.rename", {"name": "Bob"}, {"name": "Robert Roe"}),
    ]
