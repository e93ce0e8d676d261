"""Data of gateway clients beside a turn's message, and the session of each of their conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models

from sessions.models.chats import ChatSession
from sessions.models.turns import Turn
from toolhub.tenants.models import ApiToken
from toolhub.tenants.rows.guarded import TenantModel


class ClientRequest(TenantModel):
    """A request of a client of the gateway: what it said beside the message of its turn."""

    turn = models.OneToOneField(Turn, on_delete=models.CASCADE, related_name="client_request")
    token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, related_name="+")
    #: SHA-256 of what a second request with the same Idempotency-Key must agree with.
    digest = models.CharField(max_length=64)
    #: The messages in front of the turn's own, where the client holds the conversation, as `loop/history` makes them;
    #: null where the session's stored turns stand there.
    earlier = models.JSONField(null=True, blank=True)
    #: The client's own system text. It stands behind the agent's prompt.
    instructions = models.TextField(blank=True)
    #: The client's own tools, as definitions of chat completions: the model may call them, and the client runs them.
    tools = models.JSONField(default=list, blank=True)
    #: Whether later requests may name its response, and the items of that, by their ids: OpenAI's `store`. The turn is
    #: on record in any case.
    is_stored = models.BooleanField(default=True)
    #: Parameters of each model call of the turn: `sessions/loop/model_calls/client_requests.py` says which.
    parameters = models.JSONField(default=dict, blank=True)
    #: Its client was told that a person must answer first, and has not come back for the result: the same call again is
    #: this one, once.
    waits_for_client = models.BooleanField(default=False)
    #: A single call that is run without a model: {"name", "arguments"}; null for a message.
    call = models.JSONField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        indexes = (models.Index(fields=["token", "-id"], name="client_requests_of_token"),)

    def __str__(self) -> str:
        return f"Request of turn {self.turn_id}"

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of the client's own tools."""
        return frozenset(name_of(tool) for tool in self.tools)


def name_of(tool: Mapping[str, Any]) -> str:
    """Return the name in a definition as chat completions have it."""
    return str(tool["function"]["name"])


class ClientSession(TenantModel):
    """The session that a client means by a key of its own. Keys of one token say nothing of those of another."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="client_sessions")
    key = models.CharField(max_length=255)
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="client_sessions")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["token", "key"], name="client_session_once"),)

    def __str__(self) -> str:
        return self.key
