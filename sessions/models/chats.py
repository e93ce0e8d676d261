"""Conversations, and what the service itself has to say in them."""

from __future__ import annotations

import uuid

from django.db import models

from capabilities.models import Agent
from toolhub.tenants.guarded import TenantModel
from toolhub.tenants.models import Membership


class ChatSession(TenantModel):
    """One conversation of one member with an agent. Django's own sessions are login sessions."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="chat_sessions")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="chat_sessions")
    title = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    #: When its last turn was accepted.
    active_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        indexes = (models.Index(fields=["membership", "-active_at", "-id"], name="session_newest_first"),)

    def __str__(self) -> str:
        return self.title or "New session"


class Notice(TenantModel):
    """Something that the service tells a member in a session, outside of any turn: a reminder that is due."""

    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="notices")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        indexes = (models.Index(fields=["session", "-id"], name="notice_newest_first"),)

    def __str__(self) -> str:
        return self.text[:80]
