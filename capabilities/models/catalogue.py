"""Categories, tools and their immutable versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models
from django.db.models import F
from django.db.models.functions import Coalesce, Now

from capabilities.common.names import NameKeyField
from capabilities.models.credentials import StoredCredential
from capabilities.models.servers import McpServer
from capabilities.models.set_aside import SetAside
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class Category(SetAside, PublicModel):
    """Category of tools; each tool has exactly one."""

    name = models.CharField(max_length=64)
    name_key = NameKeyField()
    title = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    #: Words that call for this category, for the router.
    keywords = models.JSONField(default=list, blank=True)
    #: The keywords that came with the service; None for a category that did not, or that is older than this column.
    installed_keywords = models.JSONField(null=True, blank=True, default=None)
    #: Core categories are active for every agent that starts with them.
    is_core = models.BooleanField(default=False)

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (
            models.UniqueConstraint(fields=["organisation", "name"], name="category_name_once"),
            models.UniqueConstraint(fields=["organisation", "name_key"], name="category_name_key_once"),
        )

    def __str__(self) -> str:
        return self.title


class ToolKind(models.TextChoices):
    """Kind of a tool: the way in which it runs."""

    BUILTIN = "builtin", "Built in"
    HTTP = "http", "HTTP request"
    MCP = "mcp", "MCP server"
    PYTHON = "python", "Python"


class VersionStatus(models.TextChoices):
    """Status of a version. Only an approved one is ever sent to a model or called."""

    #: Somebody works on it.
    DRAFT = "draft", "Draft"
    #: It waits for somebody with the right to approve it.
    PENDING = "pending", "Waiting for approval"
    #: The tool's current version.
    APPROVED = "approved", "In force"
    REJECTED = "rejected", "Rejected"
    #: It was in force before.
    RETIRED = "retired", "Retired"


#: Characters of why a tool is kept back.
MAX_QUARANTINE = 300
#: The columns of a tool that is not kept back, for an UPDATE.
RELEASED: Mapping[str, Any] = {"quarantine": "", "quarantined_at": None, "quarantined_by": None}


def kept_back(reason: str, by: int | None = None) -> dict[str, Any]:
    """The columns of a tool that is kept back for this, for an UPDATE; since when stays, where it was so before.

    `by` is the key of a member, None for the service.
    """
    return {"quarantine": reason, "quarantined_at": Coalesce(F("quarantined_at"), Now()), "quarantined_by": by}


class Tool(SetAside, PublicModel):
    """A name that a model can call. What is behind it is its current version."""

    name = models.CharField(max_length=64)
    name_key = NameKeyField()
    category = models.ForeignKey(Category, on_delete=models.PROTECT, related_name="tools")
    kind = models.CharField(max_length=16, choices=ToolKind, default=ToolKind.BUILTIN)
    is_enabled = models.BooleanField(default=True)
    #: While it is off: whether an admin switched it off, or nobody knows who did. Then nobody below switches it on for
    #: their own use.
    off_by_admin = models.BooleanField(default=True)
    #: While it is off: what whoever stopped it tells models and users, or nothing.
    off_message = models.CharField(max_length=300, blank=True, default="")
    #: Name of the service that must be set up before it works, or empty.
    service = models.CharField(max_length=64, blank=True)
    current_version = models.ForeignKey(
        "capabilities.ToolVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    #: The server that runs it, for one of kind MCP.
    server = models.ForeignKey(McpServer, on_delete=models.PROTECT, null=True, blank=True, related_name="tools")
    #: Credential that signs its calls. A tool of kind MCP uses its server's.
    credential = models.ForeignKey(
        StoredCredential, on_delete=models.PROTECT, null=True, blank=True, related_name="tools"
    )
    #: The agent that made it.
    made_by_agent = models.ForeignKey(
        "capabilities.Agent", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: Where it came from, for people, such as "OpenAPI document httpbin.org"; empty where somebody wrote it here.
    source = models.CharField(max_length=300, blank=True, default="")
    #: Why it is kept back, such as a definition that changed at its server, until somebody decides; empty where not.
    quarantine = models.CharField(max_length=MAX_QUARANTINE, blank=True, default="")
    #: Since when; None where it is not kept back, or nobody noted it. And who keeps it back; None for the service.
    quarantined_at = models.DateTimeField(null=True, blank=True)
    quarantined_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: Whether its server offered the definition that is in force, when it was last read.
    is_offered = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (
            models.UniqueConstraint(fields=["organisation", "name"], name="tool_name_once"),
            models.UniqueConstraint(fields=["organisation", "name_key"], name="tool_name_key_once"),
        )
        indexes = (
            models.Index(
                fields=["organisation", "name"],
                condition=models.Q(current_version__isnull=False) & ~models.Q(quarantine=""),
                name="tools_kept_back",
            ),
        )

    def __str__(self) -> str:
        return self.name


class ToolVersion(TenantModel):
    """One content of a tool, never changed once written; only its status is. Its wire form, hash and token count are
    made when saved."""

    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    description = models.TextField()
    #: JSON Schema (draft 2020-12) of the arguments.
    parameters = models.JSONField()
    #: Canonical JSON of the definition in OpenAI form, its SHA-256, and its tokens (o200k).
    wire = models.TextField()
    sha256 = models.CharField(max_length=64)
    tokens = models.PositiveIntegerField()
    #: read, write or external.
    effect = models.CharField(max_length=16)
    #: retry, retry_with_key or never: what may follow a crash between a call's start and its result.
    on_crash = models.CharField(max_length=16, default="never")
    #: Seconds.
    timeout = models.FloatField(default=20.0)
    #: Characters of a result that the model gets to see, at most.
    max_result_chars = models.PositiveIntegerField(default=40_000)
    #: Whether its result is text from outside the organisation.
    untrusted_output = models.BooleanField(default=False)
    #: allow, ask or refuse: what becomes of its call where text from outside is in the conversation.
    in_untrusted = models.CharField(max_length=8, default="allow")
    #: Instructions that the model gets besides, while the tool is at hand, and only then.
    instructions = models.TextField(blank=True)
    #: Implementation, as its kind defines it in `capabilities/running/kinds/`; empty for a built-in tool.
    implementation = models.JSONField(default=dict, blank=True)
    #: A call in one line for people, a format string over the arguments: "Adding {a} and {b}".
    human_format = models.CharField(max_length=300, blank=True, default="")
    status = models.CharField(max_length=12, choices=VersionStatus, default=VersionStatus.APPROVED)
    #: Why it was rejected or retired, or what its checks found.
    status_reason = models.CharField(max_length=500, blank=True, default="")
    decided_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    #: The agent that wrote it, in a turn of `created_by`.
    made_by_agent = models.ForeignKey(
        "capabilities.Agent", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["tool", "number"], name="tool_version_number_once"),)
        indexes = (
            models.Index(
                fields=["organisation", "-id"], condition=models.Q(status="pending"), name="tool_versions_that_wait"
            ),
        )

    def __str__(self) -> str:
        return f"{self.tool.name} v{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save a new row. Raises TypeError for a version that is stored: none is ever changed."""
        if self.pk is not None:
            raise TypeError("A tool version is never changed: write the next one.")
        super().save(*args, **kwargs)
