"""Messages between the members of one organisation. Nothing leaves it; who is no member does not exist here."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Concat
from pydantic import Field

from capabilities.assistant.models import Message
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import one_line
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL, create_numbered
from capabilities.running.registry import CategorySpec, tool
from toolhub.tenants.models import Membership

CATEGORY = CategorySpec(
    name="communication",
    title="Messages",
    description="Messages between the members of the organisation.",
    keywords=("message", "messages", "send a message", "tell", "let know", "inbox", "write to", "colleague", "unread"),
    is_core=True,
)

#: Messages that wait unread for one member, before nobody can write another.
UNREAD_LIMIT = 500
TEXT_LIMIT = 5_000


@tool(category="communication", effect="write", human_format="Writing to {to}")
def message_send(
    context: ToolContext,
    to: Annotated[str, Field(description="E-mail address or name of a member.", max_length=254), WITHOUT_NUL],
    text: Annotated[str, Field(max_length=TEXT_LIMIT), WITHOUT_NUL],
) -> dict[str, Any]:
    """Send a message to another member of this organisation. It waits in their inbox here; no e-mail is sent."""
    if not text.strip():
        raise ToolError("The message is empty.")
    recipient = _member(one_line(to, "Say to whom: an e-mail address or a name."))
    waiting = Message.objects.filter(membership=recipient, read_at=None).count()
    if waiting >= UNREAD_LIMIT:
        raise ToolError(f"{recipient} has too many unread messages; try again later.")
    sender = Membership.objects.select_related("user").get(pk=context.membership_id)
    theirs = replace(context, membership_id=recipient.pk)
    create_numbered(Message, theirs, sender=sender, sender_name=str(sender)[:300], text=text.strip())
    return {"sent_to": str(recipient)}


# Listing marks as read; a second time shows the same messages, further down.
@tool(category="communication", effect="write", on_crash="retry", untrusted=True, human_format="Reading the inbox")
def message_list(
    context: ToolContext,
    unread_only: bool = False,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    """Read the user's inbox: messages from other members, unread ones first, then the latest. Marks them as read."""
    inbox = own_rows(Message, context)
    if unread_only:
        inbox = inbox.filter(read_at=None)
    total = inbox.count()
    shown = list(inbox.order_by(F("read_at").desc(nulls_first=True), "-number")[:limit])
    unread = [message.pk for message in shown if message.read_at is None]
    Message.objects.filter(pk__in=unread).update(read_at=context.now())
    answer: dict[str, Any] = {"messages": [_as_json(message) for message in shown]}
    return answer | ({"more": total - limit} if total > limit else {})


def _member(address: str) -> Membership:
    """The member meant: by e-mail address, else by a name that only one has."""
    members = Membership.objects.select_related("user").filter(user__is_active=True, ended_at=None)
    found = list(members.filter(user__email__iexact=address)[:1]) or list(_named(members, address)[:2])
    if not found:
        raise ToolError(f"There is no member {address} in this organisation.")
    if len(found) > 1:
        raise ToolError(f"Several members are called {address}: give the e-mail address.")
    return found[0]


def _named(members: QuerySet[Membership], address: str) -> QuerySet[Membership]:
    full = Concat("user__first_name", Value(" "), "user__last_name")
    is_named = Q(full__iexact=address) | Q(user__first_name__iexact=address) | Q(user__last_name__iexact=address)
    return members.annotate(full=full).filter(is_named)


def _as_json(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"number": message.number, "from": message.sender_name}
    row |= {"at": message.created_at.isoformat(timespec="minutes"), "text": message.text}
    return row | ({"unread": True} if message.read_at is None else {})
