"""Browsers that show notifications: who adds and removes them, and what becomes of one that is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from capabilities.common.refused import ChangeRefused
from capabilities.models import PushKey, PushSubscription
from capabilities.running.push.sending import MAX_BYTES, send_to
from capabilities.running.push.writes import MAX_BROWSERS, Browser, add_browser, application_server_key, private_key
from tests.capabilities.assistant.builtin.fakes.http import Reply
from tests.capabilities.assistant.builtin.fakes.push import PushService, decoded
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

NOTE = {"title": "Done", "body": "All green", "url": "/o/acme/"}
PAGE = "/o/acme/notifications/"


@pytest.fixture
def service() -> Iterator[PushService]:
    with PushService() as service:
        yield service


def send(member: Membership, **more: str) -> tuple[int, int, list[str]]:
    sent = send_to(member.pk, member.organisation_id, NOTE | more, contact="ops@acme.example", seconds=5)
    return sent.delivered, sent.removed, list(sent.reasons)


def form_of(browser: Browser, **more: str) -> dict[str, str]:
    fields = {"endpoint": browser.endpoint, "p256dh": browser.p256dh, "auth": browser.auth, "label": browser.label}
    return fields | more


def test_a_browser_that_is_over_is_removed(service: PushService, alice: Membership, in_acme: Organisation) -> None:
    add_browser(alice, service.browser("phone").subscription)
    service.status = 410

    assert send(alice) == (0, 1, [])
    assert not PushSubscription.objects.exists()


def test_a_push_service_that_fails_keeps_the_browser(
    service: PushService, alice: Membership, in_acme: Organisation
) -> None:
    row = add_browser(alice, service.browser("phone").subscription)
    service.status = 503

    assert send(alice) == (0, 0, ["127.0.0.1 answered with status 503."])
    assert PushSubscription.objects.get().last_sent_at is None
    service.status = 201
    assert send(alice) == (1, 0, [])
    row.refresh_from_db()
    assert row.last_sent_at is not None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_push_service_that_redirects_is_not_followed(
    service: PushService, alice: Membership, in_acme: Organisation, status: int
) -> None:
    """What it would be sent on to, its answer names: nobody has checked that."""
    add_browser(alice, service.browser("phone").subscription)
    service.instead = lambda asked: Reply(status, b"", {"Location": f"{service.url}/elsewhere"})

    delivered, removed, reasons = send(alice)

    assert (delivered, removed, len(reasons)) == (0, 0, 1)
    assert [asked.path for asked in service.asked] == ["/push/phone"]


def test_one_dead_service_does_not_keep_a_note_from_the_others(
    service: PushService, alice: Membership, in_acme: Organisation
) -> None:
    dead = replace(service.browser("dead").subscription, endpoint="http://127.0.0.1:9/push/dead")
    add_browser(alice, dead)
    phone = service.browser("phone")
    add_browser(alice, phone.subscription)

    delivered, _, reasons = send(alice)

    assert (delivered, len(reasons)) == (1, 1)
    assert service.read(phone) == NOTE


def test_a_note_that_is_too_long_is_not_sent(service: PushService, alice: Membership, in_acme: Organisation) -> None:
    add_browser(alice, service.browser("phone").subscription)

    with pytest.raises(ValueError, match="at most"):
        send(alice, body="x" * MAX_BYTES)
    assert service.asked == []


def test_each_organisation_has_a_key_of_its_own(alice: Membership, charlie: Membership, in_acme: Organisation) -> None:
    ours = application_server_key(alice.organisation_id)
    assert application_server_key(alice.organisation_id) == ours
    assert (len(decoded(ours)), decoded(ours)[0]) == (65, 4)
    with organisation_scope(charlie.organisation_id):
        assert application_server_key(charlie.organisation_id) != ours
        assert PushKey.objects.count() == 1
    assert b"PRIVATE KEY" in private_key(alice.organisation_id)


def test_a_key_that_cannot_be_read_is_made_anew(service: PushService, alice: Membership, in_acme: Organisation) -> None:
    before = application_server_key(alice.organisation_id)
    add_browser(alice, service.browser("phone").subscription)
    PushKey.objects.update(private_pem="no key")

    after = application_server_key(alice.organisation_id)

    assert after != before
    assert application_server_key(alice.organisation_id) == after
    service.status = 403
    *counts, (trouble,) = send(alice)
    assert counts == [0, 0]
    assert trouble.startswith("phone has to be turned on again")


def test_an_invalid_push_subscription_is_refused(
    service: PushService, alice: Membership, in_acme: Organisation
) -> None:
    good = service.browser("phone").subscription
    wrong = {
        "ftp": replace(good, endpoint="ftp://push.example/x"),
        "plain http": replace(good, endpoint="http://push.example/x"),
        "user": replace(good, endpoint="https://user@push.example/x"),
        "long": replace(good, endpoint="https://push.example/" + "x" * 2_000),
        "no point": replace(good, p256dh="AAAA"),
        "no base64": replace(good, p256dh="%%%"),
        "short secret": replace(good, auth="AAAA"),
    }
    for name, browser in wrong.items():
        with pytest.raises(ChangeRefused):
            add_browser(alice, browser)
        assert not PushSubscription.objects.exists(), name


def test_a_member_has_ten_browsers_and_each_once(
    service: PushService, alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    browsers = [service.browser(f"b{number}").subscription for number in range(MAX_BROWSERS + 1)]
    for browser in browsers[:MAX_BROWSERS]:
        add_browser(alice, browser)
    add_browser(alice, replace(browsers[0], label="renamed"))

    with pytest.raises(ChangeRefused, match="at most 10"):
        add_browser(alice, browsers[-1])
    add_browser(bob, browsers[-1])
    assert PushSubscription.objects.filter(membership=alice).count() == MAX_BROWSERS
    assert PushSubscription.objects.filter(label="renamed").count() == 1


def test_a_browser_shows_the_notes_of_who_sits_there_now(
    service: PushService, alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    shared = service.browser("shared").subscription
    add_browser(alice, shared)
    other_keys = service.browser("other").subscription

    add_browser(bob, replace(other_keys, endpoint=shared.endpoint))  # the address alone takes nothing away
    assert PushSubscription.objects.filter(membership=alice).count() == 1
    add_browser(bob, shared)

    assert not PushSubscription.objects.filter(membership=alice).exists()
    assert send(alice) == (0, 0, [])
    assert AuditEntry.objects.filter(action="push.remove").count() == 1


def test_s31_nothing_is_sent_to_a_private_address(
    service: PushService, alice: Membership, in_acme: Organisation, settings: Any
) -> None:
    add_browser(alice, service.browser("phone").subscription)
    settings.TOOLHUB_PRIVATE_HOSTS = []

    delivered, removed, reasons = send(alice)

    assert (delivered, removed, len(reasons)) == (0, 0, 1)
    assert service.asked == []


def test_the_page_adds_and_removes_a_browser(
    client: Client, service: PushService, alice: Membership, in_acme: Organisation
) -> None:
    client.force_login(alice.user)
    browser = service.browser("phone").subscription

    added = client.post(PAGE, form_of(browser, label="my  phone"))
    row = PushSubscription.objects.get()
    page = client.get(PAGE).content.decode()
    removed = client.post(f"{PAGE}{row.public_id}/remove/")

    assert (added.status_code, removed.status_code, row.label) == (302, 302, "my phone")
    assert "my phone" in page
    assert browser.endpoint not in page
    assert not PushSubscription.objects.exists()
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)[:2]) == ["push.add", "push.remove"]


def test_the_page_says_what_is_wrong(client: Client, alice: Membership, in_acme: Organisation) -> None:
    client.force_login(alice.user)

    answer = client.post(PAGE, form_of(Browser("ftp://x", "AAAA", "AAAA")))

    without_script = client.post(PAGE, {"label": "x"})

    assert (answer.status_code, without_script.status_code) == (422, 422)
    assert "The browser said nothing of itself" in without_script.content.decode()
    assert "Only http and https addresses" in answer.content.decode()


def test_nobody_removes_another_members_browser(
    client: Client, service: PushService, alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    row = add_browser(alice, service.browser("phone").subscription)
    client.force_login(bob.user)

    assert client.post(f"{PAGE}{row.public_id}/remove/").status_code == 404
    assert client.get(PAGE).content.decode().count("Turn off") == 0
    assert PushSubscription.objects.exists()


def test_the_worker_is_served_at_the_root(client: Client) -> None:
    answer = client.get("/push-worker.js")

    assert (answer["Content-Type"], answer["Cache-Control"]) == ("text/javascript", "no-cache")
    assert b"showNotification" in answer.content
