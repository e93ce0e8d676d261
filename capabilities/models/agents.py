"""What a turn talks to: providers, their models, and the agents on top."""

from __future__ import annotations

from django.db import models

from capabilities.models.catalogue import Tool
from capabilities.secrets import EncryptedTextField
from toolhub.tenants.guarded import TenantModel
from toolhub.tenants.models import slug_validator


class Provider(TenantModel):
    """An OpenAI-compatible address, and the key for it."""

    slug = models.CharField(max_length=63, validators=[slug_validator])
    name = models.CharField(max_length=100)
    #: Up to and with the version part: https://api.openai.com/v1. Empty: the offline model of this service.
    base_url = models.URLField(max_length=500, blank=True)
    api_key = EncryptedTextField(blank=True, default="")
    #: Tools that one request may carry: 128 at OpenAI.
    tool_limit = models.PositiveIntegerField(default=128)
    is_enabled = models.BooleanField(default=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "slug"], name="provider_slug_once"),)

    def __str__(self) -> str:
        return self.name


class LanguageModel(TenantModel):
    """One model of a provider, under the name that goes over the wire."""

    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="models")
    name = models.CharField(max_length=200)
    #: Tokens.
    context_window = models.PositiveIntegerField(default=128_000)
    #: The model's own number, where it differs from its provider's.
    tool_limit = models.PositiveIntegerField(null=True, blank=True)
    #: Model calls a turn may take; it beats an agent's own number, the setting TOOLHUB_MAX_ROUNDS stands behind both.
    max_rounds = models.PositiveIntegerField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["provider", "name"], name="model_name_once"),)

    def __str__(self) -> str:
        return f"{self.provider.name}: {self.name}"


class Agent(TenantModel):
    """What a turn talks to: a prompt, a model, and the tools it starts with."""

    slug = models.CharField(max_length=63, validators=[slug_validator])
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    prompt = models.TextField(blank=True)
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="agents")
    #: Whether it starts with every core category.
    starts_with_core = models.BooleanField(default=True)
    tools = models.ManyToManyField(Tool, through="capabilities.AgentTool", related_name="agents")
    max_rounds = models.PositiveIntegerField(null=True, blank=True)
    is_enabled = models.BooleanField(default=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "slug"], name="agent_slug_once"),)

    def __str__(self) -> str:
        return self.name


class AgentTool(TenantModel):
    """A tool of an agent's own, whatever its category."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="agent_tools")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="agent_tools")
    #: Its place among the agent's own; those with the same one stand by category and name.
    position = models.PositiveIntegerField(default=0)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["agent", "tool"], name="agent_tool_once"),)

    def __str__(self) -> str:
        return f"{self.agent}: {self.tool}"
