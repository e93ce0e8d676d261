"""Second factors and passkeys: enrolled, asked for, kept encrypted, and used in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.core.cache import cache
from django.test import Client

from tests.browser import chromium
from tests.cast import PASSWORD, make_member, make_organisation
from toolhub.tenants.models import Membership

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.django_db

LOGIN = "/accounts/login/"


@pytest.fixture(autouse=True)
def _fresh_limits() -> None:
    cache.clear()


def code_of(secret: str, steps: int = 0) -> str:
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps)))


def confirm(client: Client) -> None:
    client.post("/accounts/reauthenticate/", {"password": PASSWORD})


def enrol(client: Client) -> str:
    """Sets an app up; returns its key."""
    confirm(client)
    page = client.get("/accounts/2fa/totp/activate/").content.decode()
    found = re.search(r'id="secret"[^>]*>(\w+)<', page)
    assert found is not None
    answer = client.post("/accounts/2fa/totp/activate/", {"code": code_of(found[1])})
    assert answer["Location"] == "/accounts/2fa/recovery-codes/"
    cache.clear()  # a code counts once; tests are quicker than half a minute
    return found[1]


def password_login(client: Client) -> Any:
    return client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD})


def test_setting_up_an_app_asks_for_the_password_first(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    answer = client.get("/accounts/2fa/totp/activate/")

    assert answer["Location"] == "/accounts/reauthenticate/?next=%2Faccounts%2F2fa%2Ftotp%2Factivate%2F"
    wrong = client.post("/accounts/reauthenticate/", {"password": "wrong"})
    assert b'id="id_password_error"' in wrong.content
    assert client.get("/accounts/2fa/totp/activate/").status_code == 302


def test_with_an_app_the_password_alone_opens_nothing(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    secret = enrol(client)
    client.logout()

    assert password_login(client)["Location"].startswith("/accounts/2fa/authenticate/")
    assert client.get("/o/acme/").status_code == 302
    wrong = client.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert b'id="id_code_error"' in wrong.content
    assert client.get("/o/acme/").status_code == 302

    client.post("/accounts/2fa/authenticate/", {"code": code_of(secret)})
    assert client.get("/o/acme/").status_code == 200


def test_codes_are_guessed_at_five_times_at_most(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    secret = enrol(client)
    client.logout()
    password_login(client)

    for number in range(5):
        client.post("/accounts/2fa/authenticate/", {"code": f"00000{number}"})
    client.post("/accounts/2fa/authenticate/", {"code": code_of(secret)})

    assert client.get("/o/acme/").status_code == 302


def test_a_recovery_code_signs_in_once(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    enrol(client)
    page = client.get("/accounts/2fa/recovery-codes/").content.decode()
    codes = re.findall(r"\b\d{8}\b", page.split('<pre class="code">')[1])
    assert len(codes) == 10

    for opens in (True, False):
        client.logout()
        password_login(client)
        client.post("/accounts/2fa/authenticate/", {"code": codes[0]})
        assert (client.get("/o/acme/").status_code == 200) is opens


def test_the_keys_are_encrypted_where_they_are_kept(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    secret = enrol(client)

    kept = {row.type: str(row.data) for row in Authenticator.objects.all()}

    assert secret not in kept[Authenticator.Type.TOTP]
    assert "gAAAA" in kept[Authenticator.Type.TOTP]
    assert "gAAAA" in kept[Authenticator.Type.RECOVERY_CODES]


def test_a_reset_link_does_not_get_past_the_second_factor(client: Client, alice: Membership, bob: Membership) -> None:
    client.force_login(bob.user)
    enrol(client)
    admin = Client()
    admin.force_login(alice.user)
    page = admin.post(f"/o/acme/members/{bob.public_id}/reset/").content.decode()
    link = re.search(r"http://testserver(/reset/[\w-]+/)<", page)
    assert link is not None
    client.get(link[1])
    mark = re.search(r'name="link" value="(\w+)"', client.get("/reset/").content.decode())
    assert mark is not None
    client.post("/reset/", {"link": mark[1], "password": "another-long-password"})
    bob.user.refresh_from_db()
    assert bob.user.check_password("another-long-password")

    client.post(LOGIN, {"login": "bob@example.com", "password": "another-long-password"})

    assert client.get("/o/acme/").status_code == 302


def test_the_app_is_switched_off_again(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    enrol(client)
    assert b"Switch the authenticator app off" in client.get("/accounts/2fa/totp/deactivate/").content

    client.post("/accounts/2fa/totp/deactivate/")

    assert not Authenticator.objects.exists()
    client.logout()
    password_login(client)
    assert client.get("/o/acme/").status_code == 200


def test_the_account_says_which_factors_there_are(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    assert b"App</span>" not in client.get("/account/").content

    enrol(client)

    assert b"App</span>" in client.get("/account/").content
    assert b"10 left" in client.get("/accounts/2fa/").content


def test_no_page_of_factors_has_a_script_of_its_own(client: Client, bob: Membership) -> None:
    """Data for the scripts is JSON, which the browser does not run."""
    client.force_login(bob.user)
    confirm(client)
    urls = ["/accounts/2fa/", "/accounts/2fa/totp/activate/", "/accounts/2fa/passkeys/", "/accounts/2fa/passkeys/add/"]
    pages = [client.get(url).content for url in urls] + [Client().get(LOGIN).content]

    for page in pages:
        scripts = re.findall(rb"<script([^>]*)>", page)
        assert [each for each in scripts if b"src=" not in each and b'type="application/json"' not in each] == []
        assert not re.search(rb"\s(style|on\w+)=", page)


# -- A passkey, in a browser ------------------------------------------------------------------------------------------


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # playwright runs a loop in this thread
    with chromium() as found:
        yield found


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_passkey_is_added_and_signs_in_by_itself(browser: Browser, live_server: Any) -> None:
    make_member(make_organisation("acme"), "bob")
    page = browser.new_context().new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    device = page.context.new_cdp_session(page)
    device.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    device.send("WebAuthn.addVirtualAuthenticator", {"options": options})

    page.goto(f"{live_server.url}{LOGIN}?next=/accounts/2fa/passkeys/add/")
    page.fill("[name=login]", "bob@example.com")
    page.fill("[name=password]", PASSWORD)
    page.click("text=Sign in >> nth=1")
    page.fill("[name=password]", PASSWORD)
    page.click("button:has-text('Confirm')")
    page.fill("[name=name]", "Laptop")
    page.check("[name=passwordless]")
    page.click("#mfa_webauthn_add")
    page.wait_for_url("**/accounts/2fa/recovery-codes/")
    page.goto(f"{live_server.url}/accounts/2fa/passkeys/")
    assert "signs in by itself" in page.inner_text("main")

    page.goto(f"{live_server.url}/accounts/logout/")
    page.click("main button:has-text('Sign out')")
    page.wait_for_url(f"**{LOGIN}")
    page.click("#passkey_login")
    page.wait_for_url("**/o/acme/")

    assert told == []
    assert parse_qs(urlsplit(page.url).query) == {}


def test_a_passkey_is_named_by_a_sealed_number_and_reached_by_its_own_user_alone(
    bob: Membership, charlie: Membership, client: Client
) -> None:
    credential = {"name": "Laptop", "credential": {}}
    Authenticator.objects.create(user=bob.user, type=Authenticator.Type.WEBAUTHN, data=credential)
    key = Authenticator.objects.get(user=bob.user).pk
    client.force_login(bob.user)

    page = client.get("/accounts/2fa/passkeys/").content.decode()
    links = re.findall(r'href="(/accounts/2fa/passkeys/[^"/]+/(?:edit|remove)/)"', page)

    assert len(links) == 2
    assert [client.get(link).status_code for link in links] == [302, 302]  # the password first
    assert client.get(f"/accounts/2fa/passkeys/{key}/edit/").status_code == 404
    client.force_login(charlie.user)
    assert [client.get(link).status_code for link in links] == [404, 404]
