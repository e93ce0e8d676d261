"""Budgets with what is spent, reserved and left of them, as pages and the API show them. Every read begins at a member.

The moment at which a window begins is computed, not searched for: so the running windows of all budgets are one query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, FloatField, IntegerField, Max, Q, QuerySet, Sum, Value
from django.db.models.functions import Cast
from django.http import Http404
from django.utils import timezone

from capabilities.contract.budget_windows import TURNS, Amounts, BudgetTerms, Span, window_of
from capabilities.models import Agent, RoleMembership
from sessions.access import visible_to
from sessions.budgets.amounts import amount_shown
from sessions.budgets.averages import Averages, averages_for
from sessions.budgets.writes import MAX_BUDGETS
from sessions.models import UNENDED, Budget, BudgetPeriod, BudgetScope, ChatSession, Measure, Turn, TurnStatus, Window
from sessions.turns.budget_states import BudgetState, has_one_period, terms_of, turns_at_once
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rows.keyset import Keyset, Page, page_of_sorted
from toolhub.tenants.times import day_and_time, shown_as

#: Budgets that are looked at for the fullest.
LOOKED_AT = 50
#: Members that a field suggests.
SUGGESTED = 200
#: Shares of a budget from which its meter is amber.
NEARLY = 80
EACH = {
    BudgetScope.ROLE: "member",
    BudgetScope.MEMBER: "member",
    BudgetScope.AGENT: "agent",
    BudgetScope.SESSION: "session",
}


# -- A meter ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Meter:
    """Amounts of one window of a budget, now or then, with the moment when it begins anew."""

    measure: str
    amounts: Amounts
    is_hard: bool = True
    resets_at: datetime | None = None

    @property
    def spent(self) -> str:
        return amount_shown(self.amounts.spent, self.measure)

    @property
    def reserved(self) -> str:
        return amount_shown(self.amounts.reserved, self.measure) if self.amounts.reserved else ""

    @property
    def left(self) -> str:
        return amount_shown(self.amounts.left, self.measure)

    @property
    def total(self) -> str:
        return amount_shown(self.amounts.total, self.measure)

    @property
    def percent(self) -> int:
        """Share of it that is spent, in percent, for the bar: at most 100."""
        return min(100, self.amounts.percent)

    @property
    def percent_reserved(self) -> int:
        total = self.amounts.total or 1
        return min(100 - self.percent, -(-100 * self.amounts.reserved // total))

    @property
    def percent_left(self) -> int:
        return int(100 * self.amounts.share_left)

    @property
    def state(self) -> str:
        """The colour of the bar, as badges have them."""
        if self.amounts.is_spent:
            return "bad" if self.is_hard else "wait"
        return "wait" if self.amounts.percent >= NEARLY else "ok"


def meter_of(period: BudgetPeriod) -> Meter:
    amounts = Amounts(period.limit, period.added, period.spent, period.reserved)
    return Meter(period.measure, amounts, period.is_hard, period.ends_at)


def meter_of_state(state: BudgetState) -> Meter:
    return Meter(state.terms.measure, state.amounts, state.is_hard, state.resets_at)


# -- Budgets ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TurnNeed:
    """Amount that a turn takes on average, and how many such turns a window has room for, where all share one."""

    amount: str
    turns: int | None


@dataclass(frozen=True)
class BudgetLine:
    """A budget with its running windows: one that all share, or one for each that used it."""

    budget: Budget
    meter: Meter | None
    #: Where each has its own: how many used it in the running window, and the highest share that one spent, in percent.
    users: int = 0
    fullest: int = 0
    #: When its running window ends; None where that does not end by itself.
    resets_at: datetime | None = None

    #: What a turn needs on average, and how many more the shared window has room for; None where nobody knows.
    need: TurnNeed | None = None

    @property
    def percent(self) -> int:
        """Share that is used, in percent; where each has its own, that of the fullest."""
        return self.meter.percent if self.meter else self.fullest

    @property
    def bar(self) -> int:
        """Share that the fullest has used, for a bar: at most 100."""
        return min(100, self.fullest)

    @property
    def state(self) -> str:
        """Colour of that bar, as badges have them."""
        if self.fullest >= 100:
            return "bad" if self.budget.is_hard else "wait"
        return "wait" if self.fullest >= NEARLY else "ok"

    @property
    def each(self) -> str:
        """Kind of those that have a part of it each: "member", "agent", "session"; empty where all share one."""
        return each_of(self.budget)


def each_of(budget: Budget) -> str:
    """Return the kind ("member", "agent", "session") of those that have a part of the budget each; empty where all
    share one."""
    is_shared = has_one_period(replace(terms_of(budget), window=Window.TOTAL))
    return "" if is_shared else EACH[BudgetScope(budget.scope)]


def has_meter(budget: Budget) -> bool:
    """Return whether it has a window to be measured: not one of each turn."""
    return budget.measure == Measure.TURNS or budget.window != Window.TURN


def shown_budgets() -> QuerySet[Budget]:
    """Return the budgets, each with the row that it is for."""
    rows = Budget.objects.select_related("role", "membership__user", "agent", "session")
    return rows.defer("agent__prompt", "session__tool_order", "session__last_prompt")


def budget_or_404(member: Membership, budget_id: UUID) -> Budget:
    budget = shown_budgets().filter(public_id=budget_id, organisation_id=member.organisation_id).first()
    if budget is None:
        raise Http404("No such budget.")
    return budget


def budgets_page(member: Membership, *, after: str = "", before: str = "") -> Page[BudgetLine]:
    """Return a page of budgets, those that are on and fullest first, with what an average turn needs of them. Three
    queries, and one each where some are for an agent or for a member."""
    lines = lines_of(list(shown_budgets().order_by("name")[:MAX_BUDGETS]), member.organisation)
    found = page_of_sorted(sorted(lines, key=_place), _place, after, before)
    averages = averages_for([line.budget for line in found.rows])
    return found.of(lambda line: replace(line, need=_need(line, averages)))


def _place(line: BudgetLine) -> tuple[int, int, str]:
    return int(not line.budget.is_enabled), -line.percent, line.budget.name


def _need(line: BudgetLine, averages: Averages) -> TurnNeed | None:
    """Return what an average turn takes of the budget; None for one that counts turns, and where none ended lately."""
    average = averages.of(line.budget)
    if line.budget.measure == TURNS or average is None:
        return None
    amount = average.money if line.budget.measure == Measure.MONEY else average.tokens
    if amount <= 0:
        return None
    turns = max(0, line.meter.amounts.left) // amount if line.meter else None
    return TurnNeed(amount_shown(amount, line.budget.measure), turns)


def fullest_budget(member: Membership) -> BudgetLine | None:
    """Return the budget that is nearest to its end, or None. Two queries, one where there is none."""
    lines = lines_of(list(shown_budgets().order_by("pk")[:LOOKED_AT]), member.organisation)
    return max((line for line in lines if line.budget.is_enabled), key=lambda line: line.percent, default=None)


def lines_of(budgets: Sequence[Budget], organisation: Organisation) -> list[BudgetLine]:
    """Return each budget with what is spent of it in its running window. Two queries at most, none for none."""
    spans = running_spans(budgets, organisation.time_zone)
    sums = {row["budget"]: row for row in _sums(spans)} if spans else {}
    running = turns_running(budgets)
    return [_line(each, spans.get(each.pk), sums.get(each.pk), running.get(each.pk)) for each in budgets]


def running_spans(budgets: Iterable[Budget], time_zone: str) -> dict[int, Span]:
    """Return the running window of each budget that has one, by the budget's key."""
    now = timezone.now()
    return {each.pk: window_of(terms_of(each), time_zone, now) for each in budgets if has_meter(each)}


def turns_running(budgets: Iterable[Budget]) -> dict[int, int]:
    """Count the turns that are open under each limit of turns at once that has one for all, by key. One query, or
    none."""
    terms = [terms_of(each) for each in budgets if each.measure == Measure.TURNS]
    counts = [_count_of(each) for each in terms if has_one_period(each)]
    if not counts:
        return {}
    rows = counts[0].union(*counts[1:], all=True) if counts[1:] else counts[0]
    return {row["limit"]: row["count"] for row in rows}


def _count_of(terms: BudgetTerms) -> Any:
    return (
        turns_at_once(terms, "")
        .annotate(limit=Value(terms.id, IntegerField()))
        .values("limit")
        .annotate(count=Count("pk"))
    )


def _running(spans: dict[int, Span]) -> Q:
    """The periods of these windows: one condition for all that begin at the same moment."""
    begins: dict[datetime, list[int]] = {}
    for key, span in spans.items():
        begins.setdefault(span.starts_at, []).append(key)
    found = Q()
    for moment, keys in begins.items():
        found |= Q(budget__in=keys, starts_at=moment)
    return found


def _sums(spans: dict[int, Span]) -> Any:
    rows = BudgetPeriod.objects.filter(_running(spans)).order_by().values("budget")
    total = Cast("limit", FloatField()) + Cast("added", FloatField())
    return rows.annotate(
        users=Count("pk"),
        fullest=Max(Cast("spent", FloatField()) * 100.0 / total),
        all_spent=Sum("spent"),
        all_reserved=Sum("reserved"),
        all_added=Sum("added"),
    )


def _line(budget: Budget, span: Span | None, sums: dict[str, Any] | None, running: int | None) -> BudgetLine:
    if span is None:
        return BudgetLine(budget, None)
    if each_of(budget):
        users, fullest = (sums["users"], int(sums["fullest"] or 0)) if sums else (0, 0)
        return BudgetLine(budget, None, users, fullest, span.ends_at)
    added, spent, reserved = (int(sums[f"all_{name}"]) if sums else 0 for name in ("added", "spent", "reserved"))
    if budget.measure == TURNS:
        spent, reserved = running or 0, 0
    return BudgetLine(
        budget, Meter(budget.measure, Amounts(budget.limit, added, spent, reserved), budget.is_hard, span.ends_at)
    )


def is_moving() -> bool:
    """Return whether a turn of the organisation runs, so that meters move. One query."""
    return Turn.objects.filter(UNENDED, status=TurnStatus.RUNNING).exists()


def member_emails() -> list[str]:
    """Addresses of some members, as suggestions of a field. One query."""
    found = Membership.objects.filter(ended_at=None).order_by("user__email").values_list("user__email", flat=True)
    return list(found[:SUGGESTED])


# -- Windows of one budget --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeriodLine:
    """One window of a budget for one of those that it is for."""

    period: BudgetPeriod
    #: Owner of the window: a member, an agent or a session, if it is there and the reader may see it; None where all
    #: share it.
    owner: Membership | Agent | ChatSession | None
    #: The kind of it, and of the turn behind: "member", "agent", "session", "turn"; empty where all share it.
    kind: str = ""
    is_running: bool = True

    @property
    def meter(self) -> Meter:
        return meter_of(self.period)


def periods_of_budget(budget: Budget) -> QuerySet[BudgetPeriod]:
    return BudgetPeriod.objects.filter(budget=budget)


def periods_page(member: Membership, budget: Budget, *, after: str = "", before: str = "") -> Page[PeriodLine]:
    """Return a page of the budget's windows, the newest first. Two queries at most."""
    page = Keyset(periods_of_budget(budget), ("-starts_at", "-pk")).page(after, before)
    return Page(period_lines(member, budget, page.rows), page.after, page.before)


def period_lines(member: Membership, budget: Budget, periods: Sequence[BudgetPeriod]) -> list[PeriodLine]:
    """Return the windows with their owners. One query, none where all share one."""
    return _with_owners(member, periods, is_measured=has_meter(budget))


def _with_owners(member: Membership, periods: Sequence[BudgetPeriod], *, is_measured: bool) -> list[PeriodLine]:
    parts = {period.pk: owner_part(period.key) for period in periods}
    owners = _owners(member, {part for part in parts.values() if part is not None})
    now, lines = timezone.now(), []
    for period in periods:
        part = parts[period.pk]
        is_running = is_measured and (period.ends_at is None or period.ends_at > now)
        kind = part[0] if part else ("turn" if period.key else "")
        lines.append(PeriodLine(period, owners.get(part) if part else None, kind, is_running))
    return lines


def period_or_404(member: Membership, budget: Budget, period_id: UUID) -> BudgetPeriod:
    found = periods_of_budget(budget).filter(public_id=period_id, organisation_id=member.organisation_id).first()
    if found is None:
        raise Http404("No such window.")
    return found


def owner_part(key: str) -> tuple[str, str] | None:
    """Return kind and key of the owner of a period, from its own key; None where all share it."""
    for part in key.split():
        kind, _, value = part.partition(":")
        if kind in ("member", "agent", "session"):
            return kind, value
    return None


def _owners(member: Membership, parts: Collection[tuple[str, str]]) -> dict[tuple[str, str], Any]:
    """The rows of these parts that are there and that the reader may see. One query for each kind."""
    found: dict[tuple[str, str], Any] = {}
    keys: dict[str, list[str]] = {}
    for kind, value in parts:
        keys.setdefault(kind, []).append(value)
    rows: dict[str, QuerySet[Any]] = {
        "member": Membership.objects.select_related("user"),
        "agent": Agent.objects.seen_by(member, Right.BUDGETS).defer("prompt"),
        "session": ChatSession.objects.filter(visible_to(member)).defer("tool_order", "last_prompt"),
    }
    for kind, wanted in keys.items():
        found |= {(kind, str(row.pk)): row for row in rows[kind].filter(pk__in=wanted)}
    return found


# -- What binds one member --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Binding:
    """A budget that a member's turns count on, and what is left of it."""

    budget: Budget
    #: Windows with whose they are beside the member: one for each agent or session of an own budget for these.
    lines: list[PeriodLine] = field(default_factory=list)
    #: Without such windows: the whole budget; None where each turn, or each session, has one.
    untouched: Meter | None = None


def budgets_binding(member: Membership) -> list[Binding]:
    """The enabled budgets that this member's turns count on, by name. Six queries at most."""
    roles = RoleMembership.objects.filter(membership=member).values("role")
    seen = Agent.objects.seen_by(member, Right.BUDGETS).order_by().values("pk")
    binding = (
        Q(scope=BudgetScope.ORGANISATION)
        | Q(Q(agent=None) | Q(agent__in=seen), scope=BudgetScope.AGENT)
        | Q(scope=BudgetScope.ROLE, role__in=roles)
        | Q(Q(membership=None) | Q(membership=member), scope=BudgetScope.MEMBER)
        | Q(Q(session=None) | Q(session__membership=member), scope=BudgetScope.SESSION)
    )
    budgets = list(shown_budgets().filter(binding, is_enabled=True).order_by("name"))
    spans, running = running_spans(budgets, member.organisation.time_zone), turns_running(budgets)
    mine = Q(key="") | Q(key=f"member:{member.pk}") | Q(key__startswith="agent:")
    kept: dict[int, list[BudgetPeriod]] = {}
    if spans:
        for period in BudgetPeriod.objects.filter(_running(spans), mine).order_by("key", "pk"):
            kept.setdefault(period.budget_id, []).append(period)
    lines = _lines_by_budget(member, budgets, kept)
    return [_binding(each, spans.get(each.pk), lines[each.pk], running.get(each.pk)) for each in budgets]


def _lines_by_budget(
    member: Membership, budgets: Iterable[Budget], periods: dict[int, list[BudgetPeriod]]
) -> dict[int, list[PeriodLine]]:
    """Return the windows of each budget, by the budget's key. One query for each kind of owner."""
    all_periods = [period for each in periods.values() for period in each]
    lines = {line.period.pk: line for line in _with_owners(member, all_periods, is_measured=True)}
    return {each.pk: [lines[period.pk] for period in periods.get(each.pk, [])] for each in budgets}


def _binding(budget: Budget, span: Span | None, lines: list[PeriodLine], running: int | None) -> Binding:
    is_one = span is not None and not each_of(budget)
    if budget.measure == Measure.TURNS:
        turns = Meter(budget.measure, Amounts(budget.limit, spent=running or 0)) if is_one else None
        return Binding(budget, untouched=turns)
    if span is None or lines:
        return Binding(budget, lines)
    return Binding(budget, untouched=Meter(budget.measure, Amounts(budget.limit), budget.is_hard, span.ends_at))


def zone_shown(organisation: Organisation, moment: datetime | None) -> str:
    """Return the moment in words, in the organisation's time zone, with the zone's name; "" for None."""
    if moment is None:
        return ""
    with shown_as(organisation):
        return f"{day_and_time(moment)} ({organisation.time_zone})"
