"""Telling people something: mail, Nextcloud Talk, and notifications in browsers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from pydantic import Field

from capabilities.assistant.builtin._lib import smtp as _smtp
from capabilities.assistant.builtin._lib.remote import Remote, a_dict, basic, dicts, filled, names, remote, short
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.push.sending import send_to
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool
from toolhub.tenants.models import Organisation

CATEGORY = CategorySpec(
    name="notifications",
    title="Notifications",
    description="Send mail, chat messages and notifications.",
    keywords=(
        "notify",
        "send email",
        "email",
        "nextcloud",
        "push",
        "push notification",
        "message",
        "talk",
        "talk message",
    ),
)
SMTP = ServiceSpec(
    name="smtp",
    title="Mail server",
    description="The SMTP server that sends mail of the organisation.",
    fields=(
        ServiceField("host", "Host"),
        ServiceField("port", "Port", default="587"),
        ServiceField("security", "Encryption", "starttls, tls or none.", default="starttls"),
        ServiceField("user", "User", is_required=False, binds_secrets=False),
        ServiceField("password", "Password", is_secret=True, is_required=False),
        ServiceField("from", "Sender", "Such as assistant@example.org.", binds_secrets=False),
    ),
    test=lambda context: _smtp.sign_in(_mail_server(context), context.timeout * 0.9),
)
NEXTCLOUD = ServiceSpec(
    name="nextcloud",
    title="Nextcloud",
    description="Nextcloud with Talk. Messages are sent as this user: make an app password for it.",
    fields=(
        ServiceField("base_url", "Address", "Such as https://cloud.example.org."),
        ServiceField("user", "User", binds_secrets=False),
        ServiceField("password", "App password", is_secret=True),
    ),
    test=lambda context: _rooms(_cloud(context)),
)
WEB_PUSH = ServiceSpec(
    name="web_push",
    title="Web push",
    description="Notifications in the browsers of members, who turn them on under Notifications in their own menu.",
    fields=(
        ServiceField(
            "contact",
            "Contact address",
            help="A mail address of yours. Each notification names it to the browser makers' push services, who write"
            " there when something is wrong.",
            binds_secrets=False,
        ),
    ),
    test=lambda context: _notify(context, "It works", "toolhub can notify you in this browser."),
)
SERVICES = (SMTP, NEXTCLOUD, WEB_PUSH)

TALK = ("ocs", "v2.php", "apps", "spreed", "api")
Conversation = Annotated[str, Field(min_length=1, max_length=255, description="Its name or token.")]
Recipients = Annotated[list[Annotated[str, Field(max_length=254)]], Field(min_length=1, max_length=10)]


@tool(
    category="notifications",
    effect="external",
    service="smtp",
    timeout=40.0,
    in_untrusted="ask",
    human_format="Mailing: {subject}",
)
def email_send(
    context: ToolContext,
    to: Recipients,
    subject: Annotated[str, Field(min_length=1, max_length=200)],
    body: Annotated[str, Field(max_length=100_000, description="Plain text.")],
) -> dict[str, Any]:
    """Send an e-mail as plain text to at most 10 people."""
    recipients = list(dict.fromkeys(_address(each) for each in to))
    if any(character in subject for character in "\r\n\0"):
        raise ToolError("A subject is one line.")
    sender = context.service.get("from", "").strip()
    message = EmailMessage(subject, body, _address(sender), recipients)
    refused = _smtp.send(_mail_server(context), message, context.timeout * 0.9)
    taken = [recipient for recipient in recipients if recipient not in refused]
    return {"sent_to": taken} | ({"refused": refused} if refused else {})


@tool(
    category="notifications",
    effect="external",
    service="nextcloud",
    in_untrusted="ask",
    human_format="Writing in {conversation}",
)
def nc_talk_send(
    context: ToolContext,
    conversation: Conversation,
    message: Annotated[str, Field(min_length=1, max_length=32_000)],
) -> dict[str, Any]:
    """Send a message to a Nextcloud Talk conversation."""
    cloud = _cloud(context)
    room = _room(cloud, conversation)
    body = {"message": message}
    if context.idempotency_key:
        body["referenceId"] = hashlib.sha256(context.idempotency_key.encode()).hexdigest()
    missing = f"There is no conversation {conversation} any more."
    sent = a_dict(_data(cloud.json("POST", *TALK, "v1", "chat", room[0], shape=dict, body=body, missing=missing)))
    return filled({"sent_to": room[1], "id": sent.get("id")})


@tool(
    category="notifications", effect="read", service="nextcloud", untrusted=True, human_format="Reading {conversation}"
)
def nc_talk_history(
    context: ToolContext, conversation: Conversation, count: Annotated[int, Field(ge=1, le=100)] = 20
) -> dict[str, Any]:
    """The last messages of a Nextcloud Talk conversation, the oldest first."""
    cloud = _cloud(context)
    token, name = _room(cloud, conversation)
    query = {"lookIntoFuture": 0, "limit": count, "setReadMarker": 0}
    answer = cloud.ask("GET", *TALK, "v1", "chat", token, query=query, headers={"accept": "application/json"})
    if answer.status == 304:
        return {"conversation": name, "messages": []}
    found = dicts(_data(cloud.parsed(cloud.good(answer, f"There is no conversation {conversation} any more."), dict)))
    return {"conversation": name, "messages": [_message(row) for row in reversed(found[:count])]}


@tool(category="notifications", effect="external", service="web_push", human_format="Notifying: {title}")
def web_push(
    context: ToolContext,
    title: Annotated[str, Field(min_length=1, max_length=100)],
    body: Annotated[str, Field(max_length=1_000)],
) -> dict[str, Any]:
    """Show the user a notification in the browser."""
    return _notify(context, title, body)


def _notify(context: ToolContext, title: str, body: str) -> dict[str, Any]:
    contact = _address(context.service["contact"])
    slug = Organisation.objects.values_list("slug", flat=True).get(pk=context.organisation_id)
    page = f"/o/{slug}/sessions/{context.session_id}/" if context.session_id else f"/o/{slug}/"
    message = {"title": title, "body": body, "url": page}
    try:
        sent = send_to(
            context.membership_id, context.organisation_id, message, contact=contact, seconds=context.timeout * 0.9
        )
    except ValueError as error:
        raise ToolError(str(error), nothing_came=True) from error
    if sent.delivered:
        return {"browsers": sent.delivered} | ({"failed": list(sent.reasons)} if sent.reasons else {})
    if sent.reasons:
        raise ToolError(f"Not shown: {' '.join(sent.reasons)}")
    raise ToolError(
        "Not shown: no browser of the user shows notifications. They turn them on under Notifications in their menu.",
        nothing_came=True,
    )


def _address(text: str) -> str:
    """One bare mail address; a name before it, a second one or a line break could say more than it seems to."""
    address = text.strip(" ")
    try:
        validate_email(address)
    except ValidationError as error:
        raise ToolError(
            f"{short(address, 80)!r} is no mail address: give it bare, such as name@example.org."
        ) from error
    return address


def _mail_server(context: ToolContext) -> _smtp.MailServer:
    values = context.service
    host, security = values.get("host", "").strip(), values.get("security", "").strip().lower()
    port = values.get("port", "").strip()
    if not host or not port.isdecimal() or not 0 < int(port[:6]) < 65_536:
        raise ToolError("The mail server is not set up: an administrator must enter its host and port.")
    if security not in {_smtp.STARTTLS, _smtp.TLS, _smtp.NONE}:
        raise ToolError("The encryption of the mail server must be starttls, tls or none: an administrator sets it up.")
    user, password = values.get("user", "").strip(), values.get("password", "")
    return _smtp.MailServer(host, int(port), user, password, security)


def _cloud(context: ToolContext) -> Remote:
    credential = basic(context.service.get("user", "").strip(), context.service.get("password", "").strip())
    return remote(context, NEXTCLOUD, headers=credential | {"OCS-APIRequest": "true"})


def _room(cloud: Remote, conversation: str) -> tuple[str, str]:
    """Token and name of a conversation of the user's, by either of them."""
    known = [(short(room.get("token"), 60), short(room.get("displayName"), 255)) for room in _rooms(cloud)]
    wanted = " ".join(conversation.split()).casefold()
    found = [room for room in known if wanted in {room[0].casefold(), room[1].casefold()} and room[0]]
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolError(f"Several conversations are named {conversation}; use a token: {names([r[0] for r in found])}.")
    raise ToolError(
        f"There is no conversation {conversation}; there is {names([room[1] for room in known]) or 'none'}."
    )


def _rooms(cloud: Remote) -> list[dict[str, Any]]:
    return dicts(_data(cloud.json("GET", *TALK, "v4", "room", shape=dict, missing="This Nextcloud has no Talk.")))


def _data(answer: Mapping[str, Any]) -> Any:
    """Return the data of an OCS answer."""
    return a_dict(answer.get("ocs")).get("data")


def _message(row: Mapping[str, Any]) -> dict[str, Any]:
    text = short(row.get("message"), 2_000)
    for name, parameter in a_dict(row.get("messageParameters")).items():
        text = text.replace("{" + name + "}", short(a_dict(parameter).get("name"), 100))
    when = row.get("timestamp")
    return filled(
        {
            "id": row.get("id") if isinstance(row.get("id"), int) else None,
            "from": short(row.get("actorDisplayName"), 100) or short(row.get("actorId"), 100),
            "at": _moment(when) if isinstance(when, int) else "",
            "text": text[:4_000],
        }
    )


def _moment(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""
