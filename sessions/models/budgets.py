"""Budgets, what is spent and reserved of them, and usage by the hour.

Amounts are whole numbers: tokens, turns, or billionths of a US dollar, so that sums are exact on every database.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.models import Agent, Role
from sessions.models.chats import ChatSession
from sessions.models.turns import UNENDED, Turn
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class BudgetScope(models.TextChoices):
    """Group of turns that count on a budget."""

    ORGANISATION = "organisation", "The whole organisation"
    ROLE = "role", "A role"
    MEMBER = "member", "A member"
    AGENT = "agent", "An agent"
    SESSION = "session", "A session"


class Measure(models.TextChoices):
    """Unit that a budget counts."""

    TOKENS = "tokens", "Tokens"
    MONEY = "money", "US dollars"
    #: Number of turns that run at the same time; it has no window.
    TURNS = "turns", "Turns at once"


class Window(models.TextChoices):
    """Time after which a budget begins anew, in the organisation's time zone."""

    TURN = "turn", "Each turn"
    HOUR = "hour", "Each hour"
    DAY = "day", "Each day"
    MONTH = "month", "Each month"
    TOTAL = "total", "For good"


class Budget(PublicModel):
    """A limit of tokens, money or turns at once."""

    name = models.CharField(max_length=100)
    scope = models.CharField(max_length=16, choices=BudgetScope)
    #: The one that it is for, by its scope. Empty, but for a role: every member, agent or session has its own.
    role = models.ForeignKey(Role, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    #: For a role: whether each of its members has one of their own.
    is_per_member = models.BooleanField(default=False)
    measure = models.CharField(max_length=8, choices=Measure, default=Measure.TOKENS)
    window = models.CharField(max_length=8, choices=Window, default=Window.DAY)
    #: Tokens, billionths of a dollar, or turns.
    limit = models.PositiveBigIntegerField()
    #: Whether it stops turns; else it only warns.
    is_hard = models.BooleanField(default=True)
    #: Shares of the limit, in percent, at which it warns.
    warn_at = models.JSONField(default=list, blank=True)
    is_enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "name"], name="budget_name_once"),)

    def __str__(self) -> str:
        return self.name


class BudgetPeriod(PublicModel):
    """Amounts spent and reserved of one budget in one window, for one of those that it is for.

    It repeats the budget's limit: the UPDATE that reserves compares columns of its own row only, so that no two of them
    pass the limit together on any database. Whoever changes the budget changes its open periods.
    """

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="periods")
    #: Its owner: "" where there is one for all; "member:12", "agent:3", "session:<id>", "turn:<id>", joined by
    #: a blank where a turn's window meets several of these.
    key = models.CharField(max_length=120, blank=True, default="")
    starts_at = models.DateTimeField()
    #: When the window ends; None where it does not by itself.
    ends_at = models.DateTimeField(null=True, blank=True)
    measure = models.CharField(max_length=8, choices=Measure)
    is_hard = models.BooleanField()
    limit = models.PositiveBigIntegerField()
    #: Amount that somebody added for this window alone.
    added = models.PositiveBigIntegerField(default=0)
    spent = models.PositiveBigIntegerField(default=0)
    reserved = models.PositiveBigIntegerField(default=0)
    #: The highest of the budget's shares that was warned of.
    warned = models.PositiveSmallIntegerField(default=0)
    #: When somebody set it back to nothing spent, and what had been spent until then.
    reset_at = models.DateTimeField(null=True, blank=True)
    spent_before_reset = models.PositiveBigIntegerField(default=0)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["budget", "key", "starts_at"], name="budget_period_once"),)
        indexes = (
            models.Index(fields=["budget", "-starts_at"], name="budget_periods_newest"),
            models.Index(fields=["ends_at"], condition=Q(ends_at__isnull=False), name="budget_periods_running"),
        )

    def __str__(self) -> str:
        return f"{self.budget_id} {self.key} {self.starts_at:%Y-%m-%d %H:%M}"


class ReservationStatus(models.TextChoices):
    HELD = "held", "Held"
    #: The call was made: what it used is spent.
    SETTLED = "settled", "Settled"
    #: The call was not made, or nobody will ever know: nothing is spent.
    RELEASED = "released", "Released"


class Reservation(TenantModel):
    """Largest amounts that one model call may take of the budgets that its turn counts on, from before the call to its
    end."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="reservations", db_index=False)
    epoch = models.PositiveIntegerField()
    #: The number of the model call in this epoch, from 1, calls that failed included.
    step = models.PositiveIntegerField()
    status = models.CharField(max_length=8, choices=ReservationStatus, default=ReservationStatus.HELD)
    tokens = models.PositiveBigIntegerField()
    #: Billionths of a dollar; None where the model has no price.
    money = models.PositiveBigIntegerField(null=True, blank=True)
    #: The periods that hold it, and how much each: [[key of a period, amount]].
    lines = models.JSONField(default=list)
    #: Amounts that the call used, once it is settled.
    used_tokens = models.PositiveBigIntegerField(default=0)
    used_money = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    #: None while it is held.
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["turn", "epoch", "step"], name="reservation_once"),)
        # Its condition needs no value: SQLite takes such an index only where the query repeats it.
        indexes = (models.Index(fields=["turn"], condition=UNENDED, name="held_reservations"),)

    def __str__(self) -> str:
        return f"{self.turn_id} {self.epoch}.{self.step}"


class UsageHour(TenantModel):
    """Usage of one member's turns with one agent and one model in one hour (UTC), by when their rounds began.

    Written once for each turn, when it has ended. It stays when the turn, the agent or the model is removed: the keys
    point to rows that may be gone, the names are those of the time.
    """

    hour = models.DateTimeField()
    membership_key = models.PositiveBigIntegerField()
    member_name = models.CharField(max_length=254, blank=True)
    agent_key = models.PositiveBigIntegerField()
    agent_name = models.CharField(max_length=100, blank=True)
    provider_name = models.CharField(max_length=100, blank=True)
    model_name = models.CharField(max_length=200, blank=True)
    turns = models.PositiveBigIntegerField(default=0)
    #: Those of them that ended without an answer because something failed.
    failed_turns = models.PositiveBigIntegerField(default=0)
    rounds = models.PositiveBigIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    #: Billionths of a dollar of the rounds that had a price, and how many had none.
    cost = models.PositiveBigIntegerField(default=0)
    unpriced_rounds = models.PositiveBigIntegerField(default=0)
    #: Rounds whose tokens are our own count.
    estimated_rounds = models.PositiveBigIntegerField(default=0)
    #: Definitions of tools: tokens that were sent, and that all permitted tools would have been.
    tool_tokens = models.PositiveBigIntegerField(default=0)
    all_tool_tokens = models.PositiveBigIntegerField(default=0)
    #: Savings by sending fewer tools, below zero for a loss, adjusted for the provider's cache: in tokens at the full
    #: price of input, and in billionths of a dollar.
    saved_tokens = models.BigIntegerField(default=0)
    saved_cost = models.BigIntegerField(default=0)
    #: Turns whose tools were routed, those that got none, and those in which a tool was missing that was needed.
    routed_turns = models.PositiveBigIntegerField(default=0)
    empty_turns = models.PositiveBigIntegerField(default=0)
    missed_turns = models.PositiveBigIntegerField(default=0)

    class Meta(TenantModel.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=["organisation", "hour", "membership_key", "agent_key", "provider_name", "model_name"],
                name="usage_hour_once",
            ),
        )

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.agent_name}"


class ToolUsageHour(TenantModel):
    """Numbers of times that one tool was sent and called by one agent in one hour (UTC). Written as `UsageHour` is."""

    hour = models.DateTimeField()
    agent_key = models.PositiveBigIntegerField()
    agent_name = models.CharField(max_length=100, blank=True)
    tool_key = models.PositiveBigIntegerField()
    tool_name = models.CharField(max_length=64)
    category_name = models.CharField(max_length=64, blank=True)
    #: Rounds that carried its definition, and the tokens of these.
    sent_rounds = models.PositiveBigIntegerField(default=0)
    sent_tokens = models.PositiveBigIntegerField(default=0)
    calls = models.PositiveBigIntegerField(default=0)
    failed_calls = models.PositiveBigIntegerField(default=0)
    #: Tokens of its results, as the model got to see them.
    result_tokens = models.PositiveBigIntegerField(default=0)
    #: Turns in which routing had left it out, and it was needed.
    missed_turns = models.PositiveBigIntegerField(default=0)

    class Meta(TenantModel.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=["organisation", "hour", "agent_key", "tool_key"], name="tool_usage_hour_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.tool_name}"


class FindingKind(models.TextChoices):
    #: A tool that was needed had been left out.
    MISS = "miss", "A tool was missing"
    #: A keyword sent tools of which none was called.
    MISFIRE = "misfire", "A keyword matched for nothing"


class RoutingFinding(TenantModel):
    """A turn in which routing was wrong, or seems to have been: for those who keep keywords and descriptions."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="routing_findings")
    kind = models.CharField(max_length=8, choices=FindingKind)
    #: The tool that was missing, or the category whose keywords matched, and these words.
    name = models.CharField(max_length=64)
    words = models.JSONField(default=list)
    #: Way in which it showed: found_by_search, asked_for_again, or not_called.
    how = models.CharField(max_length=20)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["turn", "kind", "name"], name="routing_finding_once"),)
        indexes = (models.Index(fields=["organisation", "-id"], name="findings_newest_first"),)

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.name}"
