"""Policies: which tools are sent at all, for the whole organisation and for one provider; and profiles of tools."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Coalesce

from capabilities.models.agents import Provider
from toolhub.tenants.rows.guarded import PublicModel


class PolicyProfile(PublicModel):
    """A named set of tools that policies begin with. `capabilities/contract/policy.py` says what it keeps."""

    name = models.CharField(max_length=64)
    description = models.TextField(blank=True, default="")
    #: Patterns, see `capabilities/contract/patterns.py`.
    patterns = models.JSONField(default=list)
    #: Whether it keeps only tools that read, whatever the patterns name.
    reads_only = models.BooleanField(default=False)
    #: Whether it came with the service: then nobody changes it.
    is_shipped = models.BooleanField(default=False)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "name"], name="policy_profile_name_once"),)

    def __str__(self) -> str:
        return self.name


class Policy(PublicModel):
    """Policy of one layer: the organisation's (`provider` is empty) or one provider's. Without a row all is allowed."""

    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, null=True, blank=True, related_name="policies")
    profile = models.ForeignKey(
        PolicyProfile, on_delete=models.RESTRICT, null=True, blank=True, related_name="policies"
    )
    #: Lists of patterns.
    allow = models.JSONField(default=list, blank=True)
    also_allow = models.JSONField(default=list, blank=True)
    deny = models.JSONField(default=list, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (
            # One for each provider, and one without.
            models.UniqueConstraint("organisation", Coalesce("provider", 0), name="policy_layer_once"),
        )

    def __str__(self) -> str:
        return f"Policy of {self.provider}" if self.provider else "Policy of the organisation"
