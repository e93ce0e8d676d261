"""Tools that members run by hand. The row is the queue: a worker that claims it runs it, once."""

from __future__ import annotations

import json

from django.db import models
from django.db.models import Q

from capabilities.models import ToolVersion
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


class TrialStatus(models.TextChoices):
    """State of a run by hand."""

    #: It waits for a worker.
    QUEUED = "queued", "Waiting for a worker"
    #: A worker has it; nobody else ever takes it.
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    #: It was run and answered with an error, or could not be run.
    FAILED = "failed", "Failed"
    #: Not permitted when its turn came, or not run for another reason that is the answer.
    REFUSED = "refused", "Refused"
    #: The worker stopped between the start and the result; it is not run again.
    UNKNOWN = "unknown", "Outcome unknown"
    #: No worker took it in time; nothing was run.
    EXPIRED = "expired", "Expired"


#: A run in one of these may still move on.
OPEN_TRIALS = (TrialStatus.QUEUED, TrialStatus.RUNNING)


class TrialRun(PublicModel):
    """One run of a tool by hand, with its arguments, for the member who asked for it. Kept for a day."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")
    #: The version whose form the member filled in.
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.CASCADE, related_name="+")
    #: One JSON object.
    arguments = models.TextField()
    status = models.CharField(max_length=12, choices=TrialStatus, default=TrialStatus.QUEUED)
    #: Part of the result that a model would read, and the characters of all of it.
    result = models.TextField(blank=True)
    result_chars = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    #: A queued one is taken until then, or never; a running one has its result by then.
    deadline_at = models.DateTimeField()
    #: When a worker was last called for it.
    rang_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        indexes = (
            models.Index(fields=["deadline_at"], condition=Q(ended_at=None), name="trials_unended"),
            models.Index(fields=["ended_at"], name="trials_ended"),
        )

    def __str__(self) -> str:
        return f"{self.tool_version} by hand"

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_TRIALS

    @property
    def is_good(self) -> bool:
        return self.status == TrialStatus.DONE

    @property
    def link(self) -> str:
        """The page of ours that the run waits for, such as the one that connects an account; or empty."""
        if self.status != TrialStatus.REFUSED:
            return ""
        try:
            link = str(json.loads(self.result).get("link", ""))
        except (ValueError, AttributeError):
            return ""
        return link if link.startswith("/") and not link.startswith(("//", "/\\")) else ""
