"""Toolkits: named bundles of tools and whole categories, and which agents may load them."""

from __future__ import annotations

from django.db import models

from capabilities.common.names import NameKeyField
from capabilities.models.agents import Agent
from capabilities.models.catalogue import Category, Tool
from capabilities.models.set_aside import SetAside
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class Toolkit(SetAside, PublicModel):
    """A named bundle that a session can load. Shared in the organisation: any agent may allow it."""

    name = models.CharField(max_length=64)
    name_key = NameKeyField()
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (
            models.UniqueConstraint(fields=["organisation", "name"], name="toolkit_name_once"),
            models.UniqueConstraint(fields=["organisation", "name_key"], name="toolkit_name_key_once"),
        )

    def __str__(self) -> str:
        return self.name


class ToolkitTool(SetAside):
    """A tool of a toolkit, with the values that the toolkit sets in place of the tool's own version (its overrides)."""

    toolkit = models.ForeignKey(Toolkit, on_delete=models.CASCADE, related_name="toolkit_tools")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="toolkit_tools")
    #: Its place in the toolkit, from 1.
    position = models.PositiveIntegerField(default=0)
    #: Seconds, and characters of a result; empty: the tool's own.
    timeout = models.FloatField(null=True, blank=True)
    max_result_chars = models.PositiveIntegerField(null=True, blank=True)
    #: Further knobs by name, as `capabilities/contract/knobs.py` has them.
    knobs = models.JSONField(default=dict, blank=True)

    class Meta(TenantModel.Meta):
        base_manager_name = "every"
        constraints = (models.UniqueConstraint(fields=["toolkit", "tool"], name="toolkit_tool_once"),)

    def __str__(self) -> str:
        return f"{self.toolkit}: {self.tool}"


class ToolkitCategory(SetAside):
    """A whole category in a toolkit: the tools that are in it now, whatever they are."""

    toolkit = models.ForeignKey(Toolkit, on_delete=models.CASCADE, related_name="toolkit_categories")
    category = models.ForeignKey(Category, on_delete=models.CASCADE, related_name="toolkit_categories")

    class Meta(TenantModel.Meta):
        base_manager_name = "every"
        constraints = (models.UniqueConstraint(fields=["toolkit", "category"], name="toolkit_category_once"),)

    def __str__(self) -> str:
        return f"{self.toolkit}: {self.category}"


class AgentToolkit(SetAside):
    """An agent may load the toolkit. Initial ones are loaded with a session's first turn, and stay."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="agent_toolkits")
    toolkit = models.ForeignKey(Toolkit, on_delete=models.CASCADE, related_name="agent_toolkits")
    is_initial = models.BooleanField(default=False)
    #: Its place among the agent's own, from 1: the order in which initial ones are sent.
    position = models.PositiveIntegerField(default=0)

    class Meta(TenantModel.Meta):
        base_manager_name = "every"
        constraints = (models.UniqueConstraint(fields=["agent", "toolkit"], name="agent_toolkit_once"),)

    def __str__(self) -> str:
        return f"{self.agent}: {self.toolkit}"
