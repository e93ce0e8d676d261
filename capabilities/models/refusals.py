"""Tools whose definition a model's provider refuses."""

from __future__ import annotations

from django.db import models

from capabilities.models.agents import LanguageModel
from capabilities.models.catalogue import Tool, ToolVersion
from capabilities.models.set_aside import SetAside
from toolhub.tenants.rows.guarded import PublicModel

#: Characters of the provider's words that are kept.
MAX_WORDS = 500


class ToolRefusal(SetAside, PublicModel):
    """A model's provider refused a request for this tool's definition: it is not sent there until it, or the model, is
    another one."""

    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="refusals")
    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="tool_refusals")
    version = models.ForeignKey(ToolVersion, on_delete=models.CASCADE, related_name="+")
    #: SHA-256 of the definition as it went out.
    sha256 = models.CharField(max_length=64)
    #: Which model it was, as `ResolvedModel.origin` writes it: one with another name or address is asked anew.
    origin = models.CharField(max_length=500)
    #: Words of the provider, text from outside.
    words = models.CharField(max_length=MAX_WORDS)
    #: How often it was refused, and when last.
    count = models.PositiveIntegerField(default=1)
    refused_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (models.UniqueConstraint(fields=["tool", "model"], name="tool_refused_once_a_model"),)

    def __str__(self) -> str:
        return f"{self.model} refuses {self.tool}"
