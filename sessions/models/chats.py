"""Conversations, and what the service itself has to say in them."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from capabilities.models import Agent
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel

#: Sessions that nobody deleted: what every page, the REST API and the tools show.
KEPT = Q(deleted_at=None)
#: Sessions that members opened and named, in words that partial indexes have too: a list of a member's or of an
#: organisation's sessions says them, and no other query does, so that no other takes such an index before a better one.
BY_MEMBERS = Q(depth=0, is_throwaway=False)
#: Sessions of one request of a client, in the same way.
THROWAWAY = Q(is_throwaway=True)
#: Sessions that clients of the gateway opened, in the same way.
BY_CLIENTS = ~Q(client="")


class SessionClient(models.TextChoices):
    """Kind of client of the gateway that opened a session."""

    OPENAI = "openai", "Client of OpenAI’s API"
    MCP = "mcp", "MCP client"


class ChatSession(TenantModel):
    """One conversation of one member with an agent. Django's own sessions are login sessions."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="chat_sessions")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="chat_sessions")
    title = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    #: When its last turn was accepted.
    active_at = models.DateTimeField(auto_now_add=True)
    #: Since when nobody sees it. The row itself goes when none of its turns is open any more.
    deleted_at = models.DateTimeField(null=True, blank=True)

    #: Kind of client that opened it: empty for a member, the service and agents.
    client = models.CharField(max_length=8, choices=SessionClient, blank=True, default="")
    #: Made for one request of a client that names no session: lists leave it out, and it is removed after a while.
    is_throwaway = models.BooleanField(default=False)

    #: Whether messages of people are sent without tools, until somebody switches them on again.
    tools_off = models.BooleanField(default=False)

    #: Whether what one agent loaded is there for the session's other agents too, as far as they may load it.
    shares_loads = models.BooleanField(default=False)
    #: Rises with every load and unload: whoever changes what is loaded begins by raising it, and so holds the row.
    load_count = models.PositiveIntegerField(default=0)
    #: For each agent, by its key: the tools that were last sent, in their order, which never changes in a session.
    tool_order = models.JSONField(default=dict)
    #: For each agent, by its key: what its last model call carried, to tell how much of the next one is the same.
    last_prompt = models.JSONField(default=dict)

    #: Whether text from outside is in the conversation: from the first result of a tool that brings some.
    is_untrusted = models.BooleanField(default=False)

    #: For a session that an agent opened by delegation: the turn that waits for it, how deep it is (a member's own: 0),
    #: and the keys of the tools that it may use at most; null for a member's own.
    parent_turn = models.ForeignKey(
        "toolhub_sessions.Turn",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="child_sessions",
        db_index=False,
    )
    depth = models.PositiveSmallIntegerField(default=0)
    delegated_tools = models.JSONField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        indexes = (
            models.Index(fields=["membership", "-active_at", "-id"], name="session_newest_first"),
            models.Index(
                fields=["organisation", "-active_at", "-id"], condition=KEPT & BY_MEMBERS, name="sessions_newest_first"
            ),
            models.Index(
                fields=["organisation", "client", "-active_at", "-id"],
                condition=KEPT & BY_CLIENTS,
                name="sessions_of_clients",
            ),
            models.Index(
                fields=["membership", "client", "-active_at", "-id"],
                condition=KEPT & BY_CLIENTS,
                name="client_sessions_of_member",
            ),
            models.Index(
                fields=["parent_turn"], condition=Q(parent_turn__isnull=False), name="sessions_of_parent_turn"
            ),
            models.Index(fields=["deleted_at"], condition=~KEPT, name="sessions_to_remove"),
            models.Index(fields=["active_at"], condition=KEPT & THROWAWAY, name="throwaways_to_remove"),
        )

    def __str__(self) -> str:
        return self.title or "New session"


class Notice(PublicModel):
    """Message of the service to a member in a session, outside of any turn: a reminder that is due."""

    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="notices")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        indexes = (models.Index(fields=["session", "-id"], name="notice_newest_first"),)

    def __str__(self) -> str:
        return self.text[:80]
