"""Runtime settings: the values that an organisation, a provider or an agent sets for the knobs of tools."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.models.agents import Agent, Provider
from toolhub.tenants.rows.guarded import PublicModel


class RuntimeLayer(models.TextChoices):
    """Layer that settings belong to."""

    ORGANISATION = "organisation", "Organisation"
    PROVIDER = "provider", "Provider"
    AGENT = "agent", "Agent"


class RuntimeConfig(PublicModel):
    """One layer's document: the organisation's, one provider's or one agent's."""

    layer = models.CharField(max_length=12, choices=RuntimeLayer)
    provider = models.OneToOneField(
        Provider, on_delete=models.CASCADE, related_name="runtime_config", null=True, blank=True
    )
    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, related_name="runtime_config", null=True, blank=True)
    #: As `capabilities/contract/runtime.py` reads it.
    values = models.JSONField(default=dict, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        indexes = (models.Index(fields=["organisation", "id"], name="runtime_configs_of_org"),)
        constraints = (
            models.UniqueConstraint(
                fields=["organisation", "layer"],
                condition=Q(layer=RuntimeLayer.ORGANISATION),
                name="runtime_config_of_organisation_once",
            ),
            models.CheckConstraint(
                condition=Q(layer="organisation", provider__isnull=True, agent__isnull=True)
                | Q(layer="provider", provider__isnull=False, agent__isnull=True)
                | Q(layer="agent", provider__isnull=True, agent__isnull=False),
                name="runtime_config_of_its_layer",
            ),
        )

    def __str__(self) -> str:
        if self.provider is not None:
            return f"Runtime settings of provider {self.provider}"
        return f"Runtime settings of agent {self.agent}" if self.agent is not None else "Runtime settings"
