"""Loads of a session, now and before: rows that are ended, never deleted."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.models import Agent, Category, Tool, Toolkit
from sessions.models.chats import ChatSession
from sessions.models.turns import Step
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


class LoadSource(models.TextChoices):
    """Source of a load."""

    #: The agent's configuration; it stays as long as that says so.
    INITIAL = "initial", "Initial"
    #: A call of the model.
    MODEL = "model", "By the agent"
    #: A person, in the browser or over REST.
    PERSON = "person", "By a person"


class UnloadReason(models.TextChoices):
    """Reason why a load ended."""

    UNLOADED = "unloaded", "Unloaded"
    #: The agent may not load it any more.
    NOT_ALLOWED = "not_allowed", "No longer allowed to the agent"
    #: The toolkit, category or tool is gone.
    GONE = "gone", "Deleted"
    #: Its member may not use any of its tools any more.
    NOT_PERMITTED = "not_permitted", "None of its tools is permitted any more"
    #: Whoever loaded the category has lost the right to.
    RIGHT_GONE = "right_gone", "Whoever loaded it may not any more"
    #: An edit gave one of its tools other overrides than one that was there before.
    CONFLICT = "conflict", "It came into conflict with another"


class LoadedToolkit(PublicModel):
    """One agent of one session has a toolkit, a category, or a deferred tool of its own at hand, since when and why."""

    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="loads")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    toolkit = models.ForeignKey(Toolkit, on_delete=models.SET_NULL, null=True, blank=True, related_name="loads")
    category = models.ForeignKey(Category, on_delete=models.SET_NULL, null=True, blank=True, related_name="loads")
    tool = models.ForeignKey(Tool, on_delete=models.SET_NULL, null=True, blank=True, related_name="loads")
    #: Its name when it was loaded: the history stays readable when the thing itself is gone.
    name = models.CharField(max_length=64)

    source = models.CharField(max_length=16, choices=LoadSource)
    #: Whoever asked for it: for a call of the model, the session's member. Empty for initial ones.
    loaded_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: The call that asked for it.
    loaded_in = models.ForeignKey(Step, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    loaded_at = models.DateTimeField(auto_now_add=True)

    unloaded_at = models.DateTimeField(null=True, blank=True)
    unload_reason = models.CharField(max_length=16, choices=UnloadReason, blank=True)
    unloaded_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    unloaded_in = models.ForeignKey(Step, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta(PublicModel.Meta):
        indexes = (models.Index(fields=["session", "id"], name="loads_of_session"),)
        constraints = (
            models.UniqueConstraint(
                fields=["session", "agent", "toolkit"], condition=Q(unloaded_at=None), name="toolkit_loaded_once"
            ),
            models.UniqueConstraint(
                fields=["session", "agent", "category"], condition=Q(unloaded_at=None), name="category_loaded_once"
            ),
            models.UniqueConstraint(
                fields=["session", "agent", "tool"], condition=Q(unloaded_at=None), name="tool_loaded_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.get_source_display()})"

    @property
    def is_sticky(self) -> bool:
        return self.source == LoadSource.INITIAL
