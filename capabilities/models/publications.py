"""Copies of toolkits that organisations publish for others."""

from __future__ import annotations

import uuid

from django.db import models

from toolhub.tenants.models import Organisation


class Audience(models.TextChoices):
    """Readers of a publication."""

    INSTALLATION = "installation", "Every organisation of this installation"
    #: Its address cannot be guessed.
    ADDRESS = "address", "Whoever has its address"


class Publication(models.Model):
    """One copy of a toolkit, as it was when it was published. It is read by other organisations, so it is no row of the
    publisher's tenancy: it holds nothing but the copy, and names the publisher by a text.

    Only `capabilities/agents/sharing/publications` reads and writes it: there stands who may see which.
    """

    #: Publisher, visible to that organisation alone.
    publisher = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="+", db_index=False)
    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    #: One value for all numbers of one toolkit.
    line = models.UUIDField(default=uuid.uuid4, editable=False)
    number = models.PositiveIntegerField()
    audience = models.CharField(max_length=12, choices=Audience)
    #: The publisher's name, and the toolkit's, as they were.
    publisher_name = models.CharField(max_length=200)
    toolkit_name = models.CharField(max_length=64)
    description = models.TextField(blank=True, default="")
    #: The file, and the SHA-256 that stands in it.
    document = models.TextField()
    sha256 = models.CharField(max_length=64)
    #: Contents: {"tools": {kind: how many}, "modules", "left_out"}.
    summary = models.JSONField(default=dict, blank=True)
    #: How often others began to import it.
    import_count = models.PositiveIntegerField(default=0)
    published_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["publisher", "toolkit_name", "number"], name="publication_number_once"),
        )
        indexes = (
            models.Index(fields=["publisher", "-id"], name="publications_of_publisher"),
            models.Index(
                fields=["-id"],
                condition=models.Q(audience="installation", withdrawn_at=None),
                name="publications_for_everyone",
            ),
        )

    def __str__(self) -> str:
        return f"{self.toolkit_name} {self.number} of {self.publisher_name}"
