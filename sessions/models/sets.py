"""Tools and verdicts of model calls, stored once for all calls that carried the same."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from toolhub.tenants.rows.guarded import TenantModel


class ToolSet(TenantModel):
    """The exact bytes of a `tools` array that was sent. Rounds with the same tools share one row."""

    #: SHA-256 of the keys of its tool versions in order, of the overrides, of what its tokens are counted by where that
    #: is not o200k, of what a client brought, and of the namespaces: they determine everything else.
    key = models.CharField(max_length=64)
    #: The JSON array itself, canonical, and its SHA-256.
    sha256 = models.CharField(max_length=64)
    wire = models.TextField()
    tokens = models.PositiveIntegerField()
    #: Keys of the tool versions in it, in order.
    version_ids = models.JSONField()
    #: Names of the tools behind those, which the client of the gateway brought and runs itself.
    client_tools = models.JSONField(default=list, blank=True)
    #: Keys of the versions in its namespaces, which the provider searches and a model may call when it finds them.
    searched_ids = models.JSONField(default=list, blank=True)
    #: Settings of toolkits in place of their tools' own: {key of a version: {knob: value}}.
    overrides = models.JSONField(default=dict)
    #: Instructions of its tools to the model, as they stand in the prompt.
    instructions = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    #: When a sweep found that no step names it; None again as soon as it is used.
    unused_since = models.DateTimeField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "key"], name="tool_set_once"),)
        indexes = (
            models.Index(fields=["unused_since"], condition=Q(unused_since__isnull=False), name="tool_sets_unused"),
        )

    def __str__(self) -> str:
        return f"{len(self.version_ids)} tools, {self.tokens} tokens"

    @property
    def callable_ids(self) -> list[int]:
        """Keys of the versions that a model may call that was sent this."""
        return [*self.version_ids, *self.searched_ids]


class VerdictSet(TenantModel):
    """Reasons why each tool is or is not in a selection. Selections with the same verdicts share one row."""

    #: SHA-256 of the verdicts as canonical JSON.
    key = models.CharField(max_length=64)
    #: In the order of the stages: [{"tool", "stage", "kept", "reason"}].
    verdicts = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)
    #: When a sweep found that no step names it; None again as soon as it is used.
    unused_since = models.DateTimeField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "key"], name="verdict_set_once"),)
        indexes = (
            models.Index(fields=["unused_since"], condition=Q(unused_since__isnull=False), name="verdict_sets_unused"),
        )

    def __str__(self) -> str:
        return f"{len(self.verdicts)} verdicts"
