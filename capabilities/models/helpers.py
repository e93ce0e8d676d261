"""Python that several tools of an organisation share, and the saved tests of tools."""

from __future__ import annotations

from typing import Any

from django.db import models

from capabilities.models.catalogue import Tool, ToolVersion, VersionStatus
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class HelperModule(PublicModel):
    """A module that Python tools import by its name. A tool's version says which version of it it was approved with."""

    name = models.CharField(max_length=64)
    description = models.CharField(max_length=300, blank=True, default="")
    current_version = models.ForeignKey(
        "capabilities.HelperVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "name"], name="helper_name_once"),)

    def __str__(self) -> str:
        return self.name


class HelperVersion(TenantModel):
    """One content of a helper module, never changed once written; only its status is."""

    module = models.ForeignKey(HelperModule, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    code = models.TextField()
    sha256 = models.CharField(max_length=64)
    #: The runtimes that it could be loaded in when it was written: monty, full, or both.
    runtimes = models.JSONField(default=list, blank=True)
    status = models.CharField(max_length=12, choices=VersionStatus, default=VersionStatus.PENDING)
    status_reason = models.CharField(max_length=500, blank=True, default="")
    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    decided_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["module", "number"], name="helper_version_number_once"),)
        indexes = (
            models.Index(
                fields=["organisation", "id"], condition=models.Q(status="pending"), name="helper_versions_that_wait"
            ),
        )

    def __str__(self) -> str:
        return f"{self.module.name} v{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save a new row. Raises TypeError for a version that is stored: none is ever changed."""
        if self.pk is not None:
            raise TypeError("A version of a helper module is never changed: write the next one.")
        super().save(*args, **kwargs)


class HelperUse(TenantModel):
    """A version of a tool imports this version of a helper module: what its `implementation` names, as rows."""

    tool_version = models.ForeignKey(ToolVersion, on_delete=models.CASCADE, related_name="helper_uses")
    helper_version = models.ForeignKey(HelperVersion, on_delete=models.CASCADE, related_name="uses")

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["tool_version", "helper_version"], name="helper_use_once"),)

    def __str__(self) -> str:
        return f"{self.tool_version} uses {self.helper_version}"


class ToolTestCase(PublicModel):
    """A saved call of a tool and what must come of it."""

    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="test_cases")
    name = models.CharField(max_length=100)
    arguments = models.JSONField(default=dict)
    #: The result, as JSON; or a part of the error's text, where an error is expected.
    expected = models.JSONField(null=True, blank=True)
    expects_error = models.BooleanField(default=False)
    #: Result of the last run, and its version.
    version = models.ForeignKey(ToolVersion, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    has_passed = models.BooleanField(null=True, blank=True)
    outcome = models.TextField(blank=True, default="")
    ran_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["tool", "name"], name="test_case_name_once"),)

    def __str__(self) -> str:
        return self.name
