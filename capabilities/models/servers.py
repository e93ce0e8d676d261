"""MCP servers that an organisation takes tools from."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.models.credentials import StoredCredential
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


class Transport(models.TextChoices):
    """Transport by which a server is reached."""

    HTTP = "http", "Streamable HTTP"
    #: A process of this installation, which only its settings can name.
    STDIO = "stdio", "Process of this installation"


class McpServer(PublicModel):
    """One server: its address, and its last description of itself. Its tools are called mcp__NAME__TOOL."""

    name = models.CharField(max_length=32)
    title = models.CharField(max_length=100)
    transport = models.CharField(max_length=8, choices=Transport, default=Transport.HTTP)
    url = models.CharField(max_length=1_000, blank=True, default="")
    #: The name of its entry in TOOLHUB_MCP_STDIO, for a process.
    stdio_name = models.CharField(max_length=64, blank=True, default="")
    credential = models.ForeignKey(
        StoredCredential, on_delete=models.PROTECT, null=True, blank=True, related_name="mcp_servers"
    )
    #: Seconds that it may take to connect, or to start, and to agree on a version.
    start_seconds = models.PositiveSmallIntegerField(default=20)
    #: The version of the protocol that is spoken with it and no other; empty: one is agreed on.
    pinned_protocol = models.CharField(max_length=16, blank=True, default="")
    is_enabled = models.BooleanField(default=True)
    #: While it is off: whether an admin switched it off. Then nobody below switches it on for their own use.
    off_by_admin = models.BooleanField(default=False)

    #: Its last answer about itself: version of the protocol, name and version, instructions, capabilities.
    protocol = models.CharField(max_length=16, blank=True, default="")
    server_info = models.JSONField(default=dict, blank=True)
    instructions = models.TextField(blank=True, default="")
    server_capabilities = models.JSONField(default=dict, blank=True)
    #: SHA-256 of its list of tools as it was last read, and when it is read again.
    list_sha256 = models.CharField(max_length=64, blank=True, default="")
    refreshed_at = models.DateTimeField(null=True, blank=True)
    refresh_at = models.DateTimeField(null=True, blank=True)
    #: Until when one worker reads it, and until when which one hears from it when its list changes.
    refreshing_until = models.DateTimeField(null=True, blank=True)
    listening_until = models.DateTimeField(null=True, blank=True)
    listener = models.CharField(max_length=120, blank=True, default="")
    #: Member who had it read last. Where each member has an own account, it is read again with this one's.
    read_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: One sentence, while it cannot be reached or read, and since when.
    error = models.CharField(max_length=500, blank=True, default="")
    failing_since = models.DateTimeField(null=True, blank=True)

    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "name"], name="mcp_server_name_once"),)
        indexes = (models.Index(fields=["refresh_at"], condition=Q(is_enabled=True), name="mcp_servers_to_refresh"),)

    def __str__(self) -> str:
        return self.title
