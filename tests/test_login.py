from __future__ import annotations

import re

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import NoReverseMatch, reverse

from tests.cast import PASSWORD
from toolhub.tenants.models import Membership

LOGIN = "/accounts/login/"


@pytest.fixture(autouse=True)
def _fresh_limits() -> None:
    cache.clear()


def test_the_right_password_signs_in_and_comes_back_to_the_page(client: Client, bob: Membership) -> None:
    page = client.get("/o/acme/sessions/?cursor=x")
    assert page["Location"] == f"{LOGIN}?next=/o/acme/sessions/%3Fcursor%3Dx"
    assert 'value="/o/acme/sessions/?cursor=x"' in client.get(page["Location"]).content.decode()

    answer = client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD, "next": "/o/acme/sessions/"})

    assert (answer.status_code, answer["Location"]) == (302, "/o/acme/sessions/")


def test_a_wrong_password_says_so_and_keeps_the_address(client: Client, bob: Membership) -> None:
    answer = client.post(LOGIN, {"login": "bob@example.com", "password": "wrong"})

    assert answer.status_code == 200
    assert b'role="alert"' in answer.content
    assert b'value="bob@example.com"' in answer.content
    assert b'value="wrong"' not in answer.content


def test_after_five_wrong_passwords_the_right_one_is_refused_too(client: Client, bob: Membership) -> None:
    for _ in range(5):
        client.post(LOGIN, {"login": "bob@example.com", "password": "wrong"})

    answer = client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD})

    assert answer.status_code == 200
    assert b"Too many failed login attempts" in answer.content


def test_wrong_passwords_from_one_address_do_not_lock_the_account_at_another(client: Client, bob: Membership) -> None:
    for number in range(7):
        client.post(LOGIN, {"login": "Bob@example.com", "password": f"wrong{number}"}, REMOTE_ADDR="192.0.2.66")

    right = {"login": "bob@example.com", "password": PASSWORD}
    locked = client.post(LOGIN, right, REMOTE_ADDR="192.0.2.66")
    home = client.post(LOGIN, right, REMOTE_ADDR="192.0.2.1")

    assert b"Too many failed login attempts" in locked.content
    assert (home.status_code, home["Location"]) == (302, "/")


def test_a_known_and_an_unknown_address_get_the_same_answer(client: Client, bob: Membership) -> None:
    answers = [
        client.post(LOGIN, {"login": f"{name}@example.com", "password": "wrong"}).content.decode().replace(name, "x")
        for name in ("bob", "eve")
    ]

    known, unknown = (re.sub(r'(csrfmiddlewaretoken" value|"X-CSRFToken":)[^>]*', "", each) for each in answers)
    assert known == unknown


def test_too_many_sign_ins_from_one_address_get_a_page_that_says_so(client: Client, bob: Membership) -> None:
    for number in range(30):
        client.post(LOGIN, {"login": f"nobody{number}@example.com"})

    answer = client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD})

    assert answer.status_code == 429
    assert b"Too many tries" in answer.content


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_signing_in_never_leads_to_another_site(client: Client, bob: Membership, elsewhere: str) -> None:
    answer = client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD, "next": elsewhere})

    assert answer["Location"] == "/"


def test_signing_out_asks_first_and_ends_the_login(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    assert b"Sign out" in client.get("/accounts/logout/").content
    assert client.get("/o/acme/").status_code == 200
    client.post("/accounts/logout/")

    assert client.get("/o/acme/").status_code == 302


@pytest.mark.parametrize("view", ["account_signup", "account_reset_password", "account_email"])
def test_no_page_makes_accounts_or_resets_passwords(view: str) -> None:
    with pytest.raises(NoReverseMatch):
        reverse(view)


def test_a_form_without_the_csrf_token_is_refused(bob: Membership) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(bob.user)

    answer = strict.post("/o/acme/sessions/", {"agent": "starter"})

    assert answer.status_code == 403
    assert b"This form has expired" in answer.content
