from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capabilities.contract.context import ToolContext
from capabilities.running.push.writes import add_browser
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.fakes.nextcloud import Nextcloud
from tests.capabilities.assistant.builtin.fakes.push import PushService
from tests.capabilities.assistant.builtin.fakes.smtp import MailServer, make_certificate
from tests.capabilities.assistant.builtin.remote import call_with, check_credential_stays, check_failures, refused
from toolhub.tenants.models import Membership, Organisation

MAIL: dict[str, Any] = {"to": ["bob@example.org"], "subject": "Grüße", "body": "Hello,\n.dot\nBob"}


def smtp(server: MailServer, **more: str) -> dict[str, str]:
    plain = {"host": "127.0.0.1", "port": str(server.port), "from": "robot@example.org", "security": "none"}
    return plain | more


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that this process trusts."""
    path = make_certificate(tmp_path)
    original: Callable[..., ssl.SSLContext] = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: original(cafile=str(path)))
    return path


# -- Mail ------------------------------------------------------------------------------------------------------------


def test_a_mail_arrives_as_it_was_written(context: ToolContext, mail_server: MailServer) -> None:
    sent = call_with(context, "email_send", smtp(mail_server), MAIL | {"to": ["bob@example.org", "al@example.org"]})

    (mail,) = mail_server.mails
    assert sent == {"sent_to": ["bob@example.org", "al@example.org"]}
    assert (mail.sender, mail.recipients) == ("robot@example.org", ["bob@example.org", "al@example.org"])
    assert (mail.message["Subject"], mail.message["From"]) == ("Grüße", "robot@example.org")
    assert mail.message.get_payload(decode=True) == b"Hello,\r\n.dot\r\nBob\r\n"


@pytest.mark.parametrize(("security", "implicit"), [("starttls", False), ("tls", True)])
def test_a_mail_goes_encrypted(context: ToolContext, trusted: Path, security: str, implicit: bool) -> None:
    with MailServer(trusted, implicit=implicit) as server:
        server.wants_login = True
        values = smtp(server, security=security, user=server.user, password=server.password)

        sent = call_with(context, "email_send", values, MAIL)

    assert sent == {"sent_to": ["bob@example.org"]}
    assert len(server.mails) == 1


def test_no_mail_is_sent_to_a_server_with_a_foreign_certificate(context: ToolContext, tmp_path: Path) -> None:
    with MailServer(make_certificate(tmp_path)) as server:
        values = smtp(server, security="starttls", user=server.user, password=server.password)

        told = refused(context, "email_send", values, MAIL)

    assert "certificate" in told
    assert [line.split()[0].upper() for line in server.lines] == [b"EHLO", b"STARTTLS"]


def test_a_password_never_goes_in_the_clear_where_encryption_was_set_up(
    context: ToolContext, mail_server: MailServer
) -> None:
    values = smtp(mail_server, security="starttls", user=mail_server.user, password=mail_server.password)

    told = refused(context, "email_send", values, MAIL)

    assert told.endswith("starttls.")
    assert not any(line.startswith(b"AUTH") for line in mail_server.lines)


def test_some_recipients_may_be_refused(context: ToolContext, mail_server: MailServer) -> None:
    mail_server.refused = {"eve@example.org"}
    to = ["bob@example.org", "eve@example.org"]

    sent = call_with(context, "email_send", smtp(mail_server), MAIL | {"to": to})

    assert sent == {"sent_to": ["bob@example.org"], "refused": ["eve@example.org"]}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"to": ["bob@example.org\nBcc: eve@example.org"]},
            "'bob@example.org Bcc: eve@example.org' is no mail address: give it bare, such as name@example.org.",
        ),
        ({"to": ["Bob <bob@example.org>"]}, "'Bob <bob@example.org>' is no mail address: give it bare"),
        ({"to": ["a@example.org, b@example.org"]}, "'a@example.org, b@example.org' is no mail address"),
        ({"subject": "Hello\r\nBcc: eve@example.org"}, "A subject is one line."),
        ({"subject": "Hello\nX: y"}, "A subject is one line."),
        ({"to": []}, "to: List should have at least 1 item"),
        ({"to": [f"a{number}@example.org" for number in range(11)]}, "to: List should have at most 10 items"),
    ],
)
def test_a_header_cannot_be_smuggled_in(
    context: ToolContext, mail_server: MailServer, change: dict[str, Any], told: str
) -> None:
    assert refused(context, "email_send", smtp(mail_server), MAIL | change).startswith(told)

    assert mail_server.lines == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"from": "robot@example.org\nX: y"}, "'robot@example.org X: y' is no mail address"),
        ({"security": "ssl3"}, "The encryption of the mail server must be starttls, tls or none"),
        ({"port": "0"}, "The mail server is not set up: an administrator must enter its host and port."),
        ({"port": "smtp"}, "The mail server is not set up: an administrator must enter its host and port."),
        ({"host": ""}, "The mail server is not set up: an administrator must enter its host and port."),
        ({"host": "10.0.0.1"}, "The mail server: 10.0.0.1 is a private address; an operator can allow it"),
        ({"host": "8.8.8.8", "port": "22"}, "The mail server: Port 22 of 8.8.8.8 is not open to tools"),
        ({"port": "1"}, "The mail was not sent: 127.0.0.1 did not work as a mail server."),
        ({"user": "robot", "password": "wrong"}, "The mail server refuses the user or password that was set up."),
    ],
)
def test_a_wrong_set_up_is_told(
    context: ToolContext, mail_server: MailServer, change: dict[str, str], told: str
) -> None:
    assert refused(context, "email_send", smtp(mail_server, **change), MAIL).startswith(told)

    assert mail_server.mails == []


def test_refusals_of_the_server_are_sentences(context: ToolContext, mail_server: MailServer) -> None:
    mail_server.wants_login = True
    sender = refused(context, "email_send", smtp(mail_server), MAIL)
    mail_server.wants_login = False
    mail_server.refused = {"bob@example.org"}
    recipient = refused(context, "email_send", smtp(mail_server), MAIL)

    assert "refuses the sender" in sender
    assert "recipients: bob@example.org" in recipient


def test_a_mail_without_an_answer_may_have_been_sent(context: ToolContext, mail_server: MailServer) -> None:
    mail_server.silent = True

    told = refused(replace(context, timeout=1.0), "email_send", smtp(mail_server), MAIL)

    assert "may have been sent" in told


def test_a_server_that_drips_is_left_in_time(context: ToolContext, mail_server: MailServer) -> None:
    mail_server.dripping = True
    started = time.monotonic()

    told = refused(replace(context, timeout=1.0), "email_send", smtp(mail_server), MAIL)

    assert told.startswith("The mail was not sent: 127.0.0.1")
    assert time.monotonic() - started < 3


# -- Nextcloud Talk --------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud() -> Iterator[Nextcloud]:
    with Nextcloud() as service:
        yield service


def values(cloud: Nextcloud) -> dict[str, str]:
    return {"base_url": cloud.url, "user": cloud.user, "password": cloud.password}


@pytest.mark.parametrize("conversation", ["Team", "team ", "x9fj2k"])
def test_a_message_is_sent_once_with_its_key(context: ToolContext, cloud: Nextcloud, conversation: str) -> None:
    keyed = replace(context, idempotency_key="k-1")

    sent = call_with(keyed, "nc_talk_send", values(cloud), {"conversation": conversation, "message": "Hi {all}"})

    (message,) = cloud.messages["x9fj2k"]
    assert sent == {"sent_to": "Team", "id": 100}
    assert (message["message"], message["referenceId"]) == ("Hi {all}", hashlib.sha256(b"k-1").hexdigest())


def test_history_is_told_oldest_first(context: ToolContext, cloud: Nextcloud) -> None:
    for text in ("one", "two", "three"):
        cloud.say("x9fj2k", text, "alice")
    cloud.say("x9fj2k", "Hello {mention-user1}!", "bob", parameters={"mention-user1": {"name": "Alice"}})

    found = call_with(context, "nc_talk_history", values(cloud), {"conversation": "Team", "count": 2})

    assert found == {
        "conversation": "Team",
        "messages": [
            {"id": 102, "from": "Alice", "at": "2026-11-18T11:06:42Z", "text": "three"},
            {"id": 103, "from": "Bob", "at": "2026-11-18T11:06:43Z", "text": "Hello Alice!"},
        ],
    }


def test_an_empty_conversation_has_no_messages(context: ToolContext, cloud: Nextcloud) -> None:
    found = call_with(context, "nc_talk_history", values(cloud), {"conversation": "Team"})

    assert found == {"conversation": "Team", "messages": []}


@pytest.mark.parametrize(
    ("conversation", "told"),
    [
        ("Other", "There is no conversation Other; there is Team, Release, Release."),
        ("../../room", "There is no conversation ../../room; there is Team, Release, Release."),
        ("Release", "Several conversations are named Release; use a token: abc12345, zzz99."),
    ],
)
@pytest.mark.parametrize("name", ["nc_talk_send", "nc_talk_history"])
def test_a_conversation_that_is_unclear_is_told(
    context: ToolContext, cloud: Nextcloud, name: str, conversation: str, told: str
) -> None:
    arguments = {"conversation": conversation} | ({"message": "x"} if name == "nc_talk_send" else {})

    assert refused(context, name, values(cloud), arguments) == told
    assert [asked.method for asked in cloud.asked] == ["GET"]


def test_a_wrong_password_is_told(context: ToolContext, cloud: Nextcloud) -> None:
    told = refused(context, "nc_talk_history", values(cloud) | {"password": "x"}, {"conversation": "Team"})

    assert "Nextcloud refuses" in told
    assert "(status 401)" in told


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("nc_talk_send", {"conversation": "Team", "message": "x"}),
        ("nc_talk_history", {"conversation": "Team"}),
    ],
)
def test_failures_are_sentences(context: ToolContext, cloud: Nextcloud, name: str, arguments: dict[str, Any]) -> None:
    check_failures(context, cloud, name, values(cloud), arguments)
    check_credential_stays(context, cloud, name, values(cloud), arguments)


# -- Web push --------------------------------------------------------------------------------------------------------


def as_member(context: ToolContext, member: Membership) -> ToolContext:
    return replace(context, organisation_id=member.organisation_id, membership_id=member.pk)


PUSH = {"contact": "ops@acme.example"}
NOTE = {"title": "Build done", "body": "All 12 tests are green."}


def test_cx_23_web_push_shows_the_note_in_each_browser_of_the_member(
    context: ToolContext, alice: Membership, in_acme: Organisation
) -> None:
    with PushService() as service:
        phone, laptop = service.browser("phone"), service.browser("laptop")
        for each in (phone, laptop):
            add_browser(alice, each.subscription)

        sent = call_with(as_member(context, alice), "web_push", PUSH, NOTE)

    assert sent == {"browsers": 2}
    assert [service.read(each) for each in (phone, laptop)] == [NOTE | {"url": "/o/acme/"}] * 2


def test_cx_23_web_push_says_how_browsers_are_had(
    context: ToolContext, alice: Membership, in_acme: Organisation
) -> None:
    sentence = refused(as_member(context, alice), "web_push", PUSH, NOTE)

    assert "under Notifications in their menu" in sentence


def test_cx_23_web_push_never_goes_to_another_member(
    context: ToolContext, alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    with PushService() as service:
        add_browser(bob, service.browser("bobs").subscription)

        refused(as_member(context, alice), "web_push", PUSH, NOTE)

        assert service.asked == []


def test_cx_23_web_push_names_what_a_push_service_said(
    context: ToolContext, alice: Membership, in_acme: Organisation
) -> None:
    with PushService() as service:
        service.status = 413
        add_browser(alice, service.browser("phone").subscription)

        sentence = refused(as_member(context, alice), "web_push", PUSH, NOTE)

    assert sentence.endswith("answered with status 413.")


def test_tools_that_send_never_run_again_after_a_crash() -> None:
    sending = ("email_send", "nc_talk_send", "web_push", "http_post", "ha_call_service")

    assert {(registry.tools[name].effect, registry.tools[name].on_crash) for name in sending} == {("external", "never")}
