from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from tests.cast import PASSWORD
from toolhub.tenants.access import membership_of_user, memberships_of_user
from toolhub.tenants.models import Access, Membership, Organisation, User

pytestmark = pytest.mark.django_db


def make(*args: str, **options: str) -> str:
    out = StringIO()
    call_command("create_organisation", *args, stdout=out, **options)
    return out.getvalue()


def test_a_new_administrator_signs_in_with_the_printed_password(client: Client) -> None:
    said = make("Acme Rockets", admin="Root@Example.com")

    found = re.search(r"Password, shown only now: (\S+)", said)
    assert found is not None
    client.post("/accounts/login/", {"login": "root@example.com", "password": found[1]})
    assert client.get("/o/acme-rockets/").status_code == 200
    member = membership_of_user(User.objects.get(email="root@example.com"), "acme-rockets")
    assert member is not None
    assert member.access == Access.ADMIN


def test_a_known_user_keeps_the_password_and_switches_between_the_two(client: Client, bob: Membership) -> None:
    said = make("Umbrella", slug="umbrella", admin="bob@example.com")

    assert "Password" not in said
    bob.user.refresh_from_db()
    assert bob.user.check_password(PASSWORD)
    assert [each.organisation.slug for each in memberships_of_user(bob.user)] == ["acme", "umbrella"]
    client.force_login(bob.user)
    assert 'href="/o/umbrella/"' in client.get("/o/acme/").content.decode()


@pytest.mark.parametrize(
    ("name", "slug", "admin", "word"),
    [
        ("Acme", "acme", "root@example.com", "already"),
        ("Acme", "Not A Slug", "root@example.com", "lower-case"),
        ("???", "", "root@example.com", "lower-case"),
        ("", "empty", "root@example.com", "characters"),
        ("New", "new", "no address", "email"),
    ],
)
def test_invalid_arguments_create_no_organisation(
    acme: Organisation, name: str, slug: str, admin: str, word: str
) -> None:
    with pytest.raises(CommandError, match=word):
        make(name, slug=slug, admin=admin)

    assert list(Organisation.objects.values_list("slug", flat=True)) == ["acme"]


@pytest.mark.parametrize(
    ("setting", "flags", "has_it"),
    [(True, (), True), (False, (), False), (True, ("--no-assistant",), False), (False, ("--assistant",), True)],
)
def test_the_flag_says_whether_it_begins_with_the_assistant_else_the_setting(
    settings: Any, setting: bool, flags: tuple[str, ...], has_it: bool
) -> None:
    settings.TOOLHUB_ASSISTANT = setting

    printed = make("New", *flags, "--admin", "root@example.com")

    assert Organisation.objects.get(slug="new").has_assistant is has_it
    assert ("without" in printed) is not has_it
