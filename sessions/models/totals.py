"""Sums over all ended turns, for the counters of `/metrics`. They only rise.

Rows are added to in the transaction that adds a turn to the hourly sums, and are never taken back: they stay when the
session, the turn, the tool or the model is removed. No name that a tenant chose stands in them.
"""

from __future__ import annotations

from django.db import models

from sessions.models.turns import TurnStatus
from toolhub.tenants.rows.guarded import TenantModel

#: Columns of `TimedTotal` that count calls by how long they took, with the seconds that these took at most.
BUCKETS = {
    "within_100ms": 0.1,
    "within_500ms": 0.5,
    "within_1s": 1.0,
    "within_3s": 3.0,
    "within_10s": 10.0,
    "within_30s": 30.0,
    "within_60s": 60.0,
    "within_300s": 300.0,
}


class TurnTotal(TenantModel):
    """Turns that ended in one way."""

    status = models.CharField(max_length=20, choices=TurnStatus)
    error_code = models.CharField(max_length=40, blank=True)
    turns = models.PositiveBigIntegerField(default=0)

    class Meta(TenantModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["organisation", "status", "error_code"], name="turn_total_once"),
        )

    def __str__(self) -> str:
        return f"{self.turns} {self.status} {self.error_code}"


class TimedTotal(TenantModel):
    """Calls, and how long those took of which that is known."""

    calls = models.PositiveBigIntegerField(default=0)
    #: Calls whose time is known, the sum of their times, and how many took at most so long.
    timed_calls = models.PositiveBigIntegerField(default=0)
    milliseconds = models.PositiveBigIntegerField(default=0)
    within_100ms = models.PositiveBigIntegerField(default=0)
    within_500ms = models.PositiveBigIntegerField(default=0)
    within_1s = models.PositiveBigIntegerField(default=0)
    within_3s = models.PositiveBigIntegerField(default=0)
    within_10s = models.PositiveBigIntegerField(default=0)
    within_30s = models.PositiveBigIntegerField(default=0)
    within_60s = models.PositiveBigIntegerField(default=0)
    within_300s = models.PositiveBigIntegerField(default=0)

    class Meta(TenantModel.Meta):
        abstract = True


class ModelTotal(TimedTotal):
    """Calls of one model that brought a reply."""

    #: The key of the vendor behind the provider's address, and the model's name in the public price list; "other" where
    #: neither knows it.
    vendor = models.CharField(max_length=40)
    model_name = models.CharField(max_length=200)
    unpriced_calls = models.PositiveBigIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    #: Billionths of a dollar of the calls that had a price.
    cost = models.PositiveBigIntegerField(default=0)

    class Meta(TimedTotal.Meta):
        constraints = (
            models.UniqueConstraint(fields=["organisation", "vendor", "model_name"], name="model_total_once"),
        )

    def __str__(self) -> str:
        return f"{self.calls} {self.vendor} {self.model_name}"


class ToolTotal(TimedTotal):
    """Calls of one built-in tool, or of all other tools of a kind, that ended in one way."""

    #: Kind of the tool; "unknown" where the model called for one that is not there.
    kind = models.CharField(max_length=16)
    #: "other" for a tool that is not built in.
    tool_name = models.CharField(max_length=64)
    #: The status of the step.
    outcome = models.CharField(max_length=12)

    class Meta(TimedTotal.Meta):
        constraints = (
            models.UniqueConstraint(fields=["organisation", "kind", "tool_name", "outcome"], name="tool_total_once"),
        )

    def __str__(self) -> str:
        return f"{self.calls} {self.tool_name} {self.outcome}"
