"""Definitions that came from outside and wait for a person: what was found, what is to be known of each, what became
of it. Nothing here can be called."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.models.catalogue import Category, Tool, ToolKind, ToolVersion
from capabilities.models.credentials import StoredCredential
from capabilities.models.servers import McpServer
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class ImportSource(models.TextChoices):
    """Kind of source that an import reads."""

    OPENAPI = "openapi", "OpenAPI document"
    MCP = "mcp", "MCP server"
    #: A list of MCP tools as a file, without a server to call.
    DEFINITIONS = "definitions", "List of definitions"
    #: Toolkits that `export_toolkit` wrote, or another organisation published.
    TOOLKIT = "toolkit", "Toolkit file"


class ImportStatus(models.TextChoices):
    """Status of an import."""

    QUEUED = "queued", "Waiting for a worker"
    RUNNING = "running", "Reading"
    REVIEW = "review", "To review"
    FAILED = "failed", "Failed"
    #: Each of its definitions was accepted, dismissed or refused, or somebody closed it.
    CLOSED = "closed", "Closed"


#: An import in one of these may still move on by itself.
OPEN_IMPORTS = (ImportStatus.QUEUED, ImportStatus.RUNNING)


class ToolImport(PublicModel):
    """One reading of a source, by a worker."""

    source = models.CharField(max_length=12, choices=ImportSource)
    title = models.CharField(max_length=200)
    #: Where the document was read from; empty for a file.
    url = models.CharField(max_length=1_000, blank=True, default="")
    #: The document itself, and its SHA-256. Empty while it was not read, and for a server.
    document = models.TextField(blank=True, default="")
    sha256 = models.CharField(max_length=64, blank=True, default="")
    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, null=True, blank=True, related_name="imports")
    #: Credential of its tools, and their category where they are accepted without another choice.
    credential = models.ForeignKey(
        StoredCredential, on_delete=models.SET_NULL, null=True, blank=True, related_name="imports"
    )
    category = models.ForeignKey(Category, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: For a toolkit file: {"toolkit", "modules", "left_out"}, and the toolkit that was made of it.
    content = models.JSONField(default=dict, blank=True)
    toolkit = models.ForeignKey(
        "capabilities.Toolkit", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    #: The line of publications that it was read from: another publisher's toolkit of the same name is another source.
    line = models.UUIDField(null=True, blank=True)
    #: The part of the document that is meant: {"tags", "path", "text"}, as far as they were given; empty: all of it.
    part = models.JSONField(default=dict, blank=True)
    #: The base address that calls go to, where the document names several or none.
    base_url = models.CharField(max_length=1_000, blank=True, default="")
    status = models.CharField(max_length=12, choices=ImportStatus, default=ImportStatus.QUEUED)
    #: One sentence, where it failed.
    reason = models.CharField(max_length=500, blank=True, default="")
    #: Counts and facts of the source: {"format", "found", "refused", "servers", ...}.
    summary = models.JSONField(default=dict, blank=True)
    #: Member who asked for it; None for a refresh.
    membership = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    #: It is read by then, or has failed.
    deadline_at = models.DateTimeField()
    #: When a worker was last called for it.
    rang_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        indexes = (
            models.Index(fields=["organisation", "-id"], name="imports_newest_first"),
            models.Index(fields=["deadline_at"], condition=Q(ended_at=None), name="imports_unended"),
            models.Index(fields=["organisation", "id"], condition=Q(status="review"), name="imports_to_review"),
        )

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_IMPORTS


class ImportedStatus(models.TextChoices):
    """Status of one definition in an import."""

    #: No tool has come from it yet.
    NEW = "new", "New"
    #: The tool that came from it before says something else.
    CHANGED = "changed", "Changed"
    #: The tool that came from it before says the same.
    UNCHANGED = "unchanged", "Unchanged"
    #: It is in the catalogue and no longer at the source.
    GONE = "gone", "Gone"
    #: It cannot become a tool; `reason` says why.
    REFUSED = "refused", "Cannot be imported"
    ACCEPTED = "accepted", "Accepted"
    DISMISSED = "dismissed", "Dismissed"


#: A definition in one of these waits for a person.
UNDECIDED = (ImportedStatus.NEW, ImportedStatus.CHANGED, ImportedStatus.GONE)


class ImportedTool(PublicModel):
    """One definition that was found, as it would become a tool."""

    tool_import = models.ForeignKey(ToolImport, on_delete=models.CASCADE, related_name="found")
    position = models.PositiveIntegerField()
    #: Its name in the source, such as `GET /anything` or `create_issue`; the tool's name here.
    original_name = models.CharField(max_length=300)
    name = models.CharField(max_length=64, blank=True, default="")
    #: Kind that its tool would have; empty where its source gives one kind to all.
    kind = models.CharField(max_length=16, choices=ToolKind, blank=True, default="")
    #: The server that would run it, where one source names several.
    server = models.ForeignKey(McpServer, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: Further keys of a toolkit file: instructions, human_format, on_crash, timeout, max_result_chars, effect,
    #: credential, helpers, tests.
    more = models.JSONField(default=dict, blank=True)
    #: Group of it in the source, such as an OpenAPI tag.
    group = models.CharField(max_length=200, blank=True, default="")
    description = models.TextField(blank=True, default="")
    parameters = models.JSONField(default=dict)
    implementation = models.JSONField(default=dict)
    #: The guess: read, write or external; whether it may destroy something; and one sentence where the source's own
    #: hints (`annotations`) count, or do not count because something contradicts them.
    effect = models.CharField(max_length=16, blank=True, default="")
    is_destructive = models.BooleanField(default=False)
    effect_why = models.CharField(max_length=300, blank=True, default="")
    annotations = models.JSONField(default=dict, blank=True)
    tokens = models.PositiveIntegerField(default=0)
    #: Warnings for a person: [{"code", "text"}].
    warnings = models.JSONField(default=list, blank=True)
    #: Which tool has its name already, in one sentence; empty where none has.
    collision = models.CharField(max_length=300, blank=True, default="")
    status = models.CharField(max_length=12, choices=ImportedStatus, default=ImportedStatus.NEW)
    reason = models.CharField(max_length=500, blank=True, default="")
    #: The tool that came from it, now or before, and the version that was made of it.
    tool = models.ForeignKey(Tool, on_delete=models.SET_NULL, null=True, blank=True, related_name="imported")
    version = models.ForeignKey(ToolVersion, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["tool_import", "position"], name="imported_position_once"),)

    def __str__(self) -> str:
        return self.name or self.original_name


class SyncedFile(TenantModel):
    """One file of a folder that `manage.py sync_tools` keeps the catalogue in step with."""

    folder = models.CharField(max_length=500)
    #: Inside the folder.
    path = models.CharField(max_length=500)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    tool = models.ForeignKey(Tool, on_delete=models.SET_NULL, null=True, blank=True, related_name="synced_files")
    #: Why it is no tool, or not in its newest form; empty where it is.
    error = models.TextField(blank=True, default="")
    changed_at = models.DateTimeField(auto_now=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "folder", "path"], name="synced_file_once"),)

    def __str__(self) -> str:
        return self.path
