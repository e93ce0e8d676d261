"""The audited writes of budgets, of their running windows, and of the settings that all budgets go by.

A budget's periods repeat its limit: whoever changes it changes the open ones in the same transaction. What a budget
counts never changes: the numbers on record would be of something else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import available_timezones

from django.db.models import F, Min, Q, QuerySet, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import check_rank, configuration_write, require
from capabilities.contract.budget_windows import span_of
from capabilities.models import Agent, Role
from sessions.access import visible_to
from sessions.budgets.amounts import MOST_IN_A_WINDOW, amount_text, check_amount
from sessions.models import (
    BY_MEMBERS,
    KEPT,
    UNENDED,
    Budget,
    BudgetPeriod,
    BudgetScope,
    ChatSession,
    Measure,
    Turn,
    Window,
)
from sessions.turns.spending import held_in_order
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation, Right

#: Budgets that one organisation may have: each is looked at before each model call.
MAX_BUDGETS = 200
MAX_NAME = 100
#: Shares at which a budget warns.
MAX_SHARES = 5
#: The column of what a budget is for, by its scope.
TARGETS = {
    BudgetScope.ROLE: "role",
    BudgetScope.MEMBER: "member",
    BudgetScope.AGENT: "agent",
    BudgetScope.SESSION: "session",
}
#: Fields of a budget that stay as they were made.
FIXED = ("scope", "target", "is_per_member", "measure", "window")


@dataclass(frozen=True)
class BudgetContent:
    """Content of a budget's form. `target` names what it is for: the short name of a role or agent, the id of a member
    or session; empty for the organisation, and where every member, agent or session has its own."""

    name: str
    limit: int
    scope: str = BudgetScope.ORGANISATION
    target: str = ""
    #: True where each member of the role has a budget of their own.
    is_per_member: bool = False
    measure: str = Measure.TOKENS
    window: str = Window.DAY
    is_hard: bool = True
    warn_at: tuple[int, ...] = (80, 95)
    is_enabled: bool = True


def target_of(budget: Budget) -> str:
    """Return the target of the budget, as `BudgetContent` names it. Reads that row."""
    if budget.scope == BudgetScope.ROLE and budget.role is not None:
        return budget.role.slug
    if budget.scope == BudgetScope.MEMBER and budget.membership is not None:
        return str(budget.membership.public_id)
    if budget.scope == BudgetScope.AGENT and budget.agent is not None:
        return budget.agent.slug
    return str(budget.session_id or "") if budget.scope == BudgetScope.SESSION else ""


def budget_content(budget: Budget) -> BudgetContent:
    """Return the content of the budget as it is stored. Reads the row that it is for."""
    return BudgetContent(
        name=budget.name,
        limit=budget.limit,
        scope=budget.scope,
        target=target_of(budget),
        is_per_member=budget.is_per_member,
        measure=budget.measure,
        window=budget.window,
        is_hard=budget.is_hard,
        warn_at=tuple(budget.warn_at),
        is_enabled=budget.is_enabled,
    )


@configuration_write("name")
def create_budget(content: BudgetContent, *, actor: Membership) -> Budget:
    """Create a budget, which counts from the next model call on. Raises ChangeRefused for what is malformed, a name in
    use, and a target that is not there; ChangeForbidden for a member of higher access as its target."""
    require(actor, Right.BUDGETS)
    if Budget.objects.count() >= MAX_BUDGETS:
        raise ChangeRefused("name", f"An organisation has at most {MAX_BUDGETS} budgets.", code="conflict")
    content = _normal(content)
    _check(content)
    budget = Budget(
        organisation_id=actor.organisation_id,
        created_by=actor,
        **{name: getattr(content, name) for name in ("scope", "is_per_member", "measure", "window")},
    )
    _aim(budget, content, actor)
    _set(budget, content)
    budget.save()
    record("budget.create", budget, actor=actor, after=_recorded(budget))
    touch_registry(budget.organisation_id)
    return budget


@configuration_write("name")
def update_budget(budget: Budget, content: BudgetContent, *, actor: Membership) -> Budget:
    """Save the content; running windows have the new limit at once. Raises as `create_budget` does, and ChangeRefused
    where it would count something else than before."""
    require(actor, Right.BUDGETS)
    content = _normal(content)
    kept = budget_content(budget)
    for name in FIXED:
        if getattr(content, name) != getattr(kept, name):
            field = TARGETS.get(BudgetScope(budget.scope), "scope") if name == "target" else name
            raise ChangeRefused(field, "What a budget counts cannot be changed: make another budget.")
    _check_rank(budget, actor)
    _check(content)
    before = _recorded(budget)
    _set(budget, content)
    after = _recorded(budget)
    if before == after:
        return budget
    budget.save(update_fields=["name", "limit", "is_hard", "warn_at", "is_enabled"])
    changed = {name: getattr(budget, name) for name in ("limit", "is_hard") if before[name] != after[name]}
    if changed:
        if "limit" in changed:
            _check_room(open_periods(budget), budget.limit)
        held_in_order(open_periods(budget)).update(**changed, warned=0)
    record("budget.update", budget, actor=actor, before=before, after=after)
    touch_registry(budget.organisation_id)
    return budget


def switch_budget(budget: Budget, is_enabled: bool, *, actor: Membership) -> Budget:
    """Switch the budget on or off. Off, it neither counts nor stops anything; on again in the same window, it goes on
    with what was spent until then. Raises as `update_budget` does."""
    return update_budget(budget, replace(budget_content(budget), is_enabled=is_enabled), actor=actor)


@configuration_write("name")
def delete_budget(budget: Budget, *, actor: Membership) -> None:
    """Delete the budget with what is on record of its windows; usage by the hour stays. Raises PermissionDenied
    without the right `budgets`, and ChangeForbidden for the budget of a member of higher access."""
    require(actor, Right.BUDGETS)
    _check_rank(budget, actor)
    record("budget.delete", budget, actor=actor, before=_recorded(budget))
    Budget.objects.select_for_update().get(pk=budget.pk)  # nobody makes another period of it
    held_in_order(BudgetPeriod.objects.filter(budget=budget)).delete()
    budget.delete()
    touch_registry(actor.organisation_id)


# -- Running windows --------------------------------------------------------------------------------------------------


def open_periods(budget: Budget) -> QuerySet[BudgetPeriod]:
    """The budget's periods whose window has not ended. One query more for a budget of each turn."""
    periods = BudgetPeriod.objects.filter(Q(ends_at=None) | Q(ends_at__gt=timezone.now()), budget=budget)
    if budget.window == Window.TURN and budget.measure != Measure.TURNS:
        # A turn's period never ends by itself: those of turns that are over are many, and nobody asks them any more.
        oldest = Turn.objects.filter(UNENDED).aggregate(oldest=Min("created_at"))["oldest"]
        periods = periods.filter(starts_at__gte=oldest) if oldest else periods.none()
    return periods


@configuration_write("period")
def reset_period(period: BudgetPeriod, *, actor: Membership) -> BudgetPeriod:
    """Set the window's spending to 0; what is reserved stays so. Raises ChangeRefused for a window that has ended, and
    for what has nothing to reset."""
    budget = _of_open(period, actor)
    if budget.measure == Measure.TURNS:
        raise ChangeRefused("period", "A limit of turns at once has nothing to reset.", code="conflict")
    known = period.spent_before_reset
    row = BudgetPeriod.objects.filter(pk=period.pk)
    row.update(spent_before_reset=F("spent_before_reset") + F("spent"), spent=0, warned=0, reset_at=timezone.now())
    period.refresh_from_db()
    spent = amount_text(period.spent_before_reset - known, budget.measure)
    record("budget.reset", budget, actor=actor, before=_window(period) | {"spent": spent}, after={"spent": "0"})
    return period


@configuration_write("amount")
def top_up_period(period: BudgetPeriod, amount: int, *, actor: Membership) -> BudgetPeriod:
    """Add the amount to the limit of this window alone. Raises ChangeRefused as `reset_period` does, and for more than
    fits."""
    budget = _of_open(period, actor)
    check_amount(amount, budget.measure, "amount")
    row = BudgetPeriod.objects.filter(pk=period.pk)
    _check_room(row, budget.limit + amount, "amount")
    row.update(added=F("added") + amount, warned=0)
    period.refresh_from_db()
    added = amount_text(amount, budget.measure)
    after = _window(period) | {"added": amount_text(period.added, budget.measure)}
    record("budget.top_up", budget, actor=actor, before={"amount": added}, after=after)
    return period


def _of_open(period: BudgetPeriod, actor: Membership) -> Budget:
    """The period's budget. Raises ChangeRefused where its window has ended."""
    require(actor, Right.BUDGETS)
    budget = Budget.objects.get(pk=period.budget_id)
    _check_rank(budget, actor)
    if not open_periods(budget).filter(pk=period.pk).exists():
        raise ChangeRefused("period", "This window has ended: a new one began with its whole limit.", code="conflict")
    return budget


def _check_room(periods: QuerySet[BudgetPeriod], more: int, field: str = "limit") -> None:
    if periods.filter(added__gt=MOST_IN_A_WINDOW - more).exists():
        raise ChangeRefused(field, "That is more than one window can hold.")


def _window(period: BudgetPeriod) -> dict[str, str]:
    """Return begin and id of the window, for the audit."""
    return {"window": period.starts_at.isoformat(timespec="seconds"), "period": str(period.public_id)}


# -- What all budgets go by -------------------------------------------------------------------------------------------


@configuration_write("time_zone")
def set_spending_rules(time_zone: str, *, counts_unpriced_as_free: bool, actor: Membership) -> Organisation:
    """Set the time zone in which windows begin, and whether a model without a price costs nothing. Running windows keep
    what was spent, and end by the new zone. Raises ChangeRefused."""
    require(actor, Right.BUDGETS)
    organisation = Organisation.objects.get(pk=actor.organisation_id)
    if time_zone not in available_timezones():
        raise ChangeRefused("time_zone", "Give the name of a time zone, such as Europe/Berlin.", code="unknown")
    before = _rules(organisation)
    organisation.time_zone, organisation.counts_unpriced_as_free = time_zone, counts_unpriced_as_free
    after = _rules(organisation)
    if before == after:
        return organisation
    organisation.save(update_fields=["time_zone", "counts_unpriced_as_free"])
    if before["time_zone"] != time_zone:
        _move_windows(organisation.time_zone)
    target = Budget(organisation_id=organisation.pk, name="all budgets")
    record("budget.rules", target, actor=actor, before=before, after=after)
    touch_registry(organisation.pk)
    actor.organisation.time_zone, actor.organisation.counts_unpriced_as_free = time_zone, counts_unpriced_as_free
    return organisation


def set_time_zone(time_zone: str, *, actor: Membership) -> None:
    """The time zone in which windows begin; what else budgets go by stays. Raises ChangeRefused."""
    free = actor.organisation.counts_unpriced_as_free
    set_spending_rules(time_zone, counts_unpriced_as_free=free, actor=actor)


def _move_windows(time_zone: str) -> None:
    """Let the running hours, days and months be those of this zone. Without it a new zone would be a reset."""
    now = timezone.now()
    windows = (Window.HOUR, Window.DAY, Window.MONTH)
    found = Budget.objects.select_for_update().filter(window__in=windows).exclude(measure=Measure.TURNS)
    budgets = {budget.pk: budget.window for budget in found.order_by("pk")}
    periods = BudgetPeriod.objects.filter(budget__in=budgets)
    running = list(periods.filter(ends_at__gt=now).order_by("pk").select_for_update())
    kept = _one_of_each(running, now)
    for window in windows:
        span = span_of(window, time_zone, now)
        moved = [row for row in kept if budgets[row.budget_id] == window]
        for row in _in_the_way(periods, moved, span.starts_at):
            _set_aside(row, now)
        BudgetPeriod.objects.filter(pk__in=[row.pk for row in moved]).update(
            starts_at=span.starts_at, ends_at=span.ends_at
        )


def _one_of_each(periods: Collection[BudgetPeriod], now: datetime) -> list[BudgetPeriod]:
    """Keep one of these rows, which are held, for each budget and key, with what was spent of all. A worker that read
    the zone before it was changed makes a second window beside the running one."""
    kept: dict[tuple[int, str], BudgetPeriod] = {}
    for row in sorted(periods, key=lambda each: (-each.reserved, -each.spent, each.pk)):
        first = kept.setdefault((row.budget_id, row.key), row)
        if first is row:
            continue
        # What it holds for calls that are being made is settled there: their reservations name it.
        BudgetPeriod.objects.filter(pk=first.pk).update(
            spent=F("spent") + row.spent,
            spent_before_reset=F("spent_before_reset") + row.spent_before_reset,
            added=Greatest(F("added"), Value(row.added)),
        )
        BudgetPeriod.objects.filter(pk=row.pk).update(spent=0, spent_before_reset=0)
        _set_aside(row, now)
    return list(kept.values())


def _in_the_way(
    periods: QuerySet[BudgetPeriod], running: Collection[BudgetPeriod], starts_at: datetime
) -> list[BudgetPeriod]:
    """Windows that have ended and began when these are to begin: a day of 23 hours in the zone of before."""
    names = {(row.budget_id, row.key) for row in running}
    there = periods.filter(starts_at=starts_at).exclude(pk__in=[row.pk for row in running]).order_by("pk")
    return [row for row in there if (row.budget_id, row.key) in names]


def _set_aside(row: BudgetPeriod, now: datetime) -> None:
    """End a window, and let it begin a little earlier, where no other began: another takes its name."""
    same = BudgetPeriod.objects.filter(budget=row.budget_id, key=row.key)
    starts_at = row.starts_at - timedelta(microseconds=1)
    while same.filter(starts_at=starts_at).exists():
        starts_at -= timedelta(microseconds=1)
    ends_at = now if row.ends_at is None else min(row.ends_at, now)
    BudgetPeriod.objects.filter(pk=row.pk).update(starts_at=starts_at, ends_at=ends_at)


def _rules(organisation: Organisation) -> dict[str, Any]:
    return {
        "time_zone": organisation.time_zone,
        "counts_unpriced_as_free": organisation.counts_unpriced_as_free,
    }


# -- Checks -----------------------------------------------------------------------------------------------------------


def _normal(content: BudgetContent) -> BudgetContent:
    """Turns at once have no window, and always stop."""
    if content.measure != Measure.TURNS:
        return content
    return replace(content, window=Window.TOTAL, is_hard=True, warn_at=())


def _check(content: BudgetContent) -> None:
    if not 0 < len(content.name.strip()) <= MAX_NAME:
        raise ChangeRefused("name", f"Give it a name of at most {MAX_NAME} characters.")
    for field, choices in (("scope", BudgetScope), ("measure", Measure), ("window", Window)):
        if getattr(content, field) not in choices.values:
            raise ChangeRefused(field, f"Choose one of {', '.join(choices.values)}.")
    check_amount(content.limit, content.measure, "limit")
    _check_shares(content.warn_at)
    if content.is_per_member and content.scope != BudgetScope.ROLE:
        raise ChangeRefused("is_per_member", "Only a role's budget is shared or for each of its members.")


def _check_shares(shares: Collection[Any]) -> None:
    is_whole = all(isinstance(each, int) and not isinstance(each, bool) and 1 <= each <= 100 for each in shares)
    if not is_whole or len(shares) > MAX_SHARES or len(set(shares)) != len(shares):
        raise ChangeRefused("warn_at", f"Give up to {MAX_SHARES} different whole percentages from 1 to 100.")


def _aim(budget: Budget, content: BudgetContent, actor: Membership) -> None:
    """Set what a new budget is for."""
    scope = BudgetScope(content.scope)
    if scope == BudgetScope.ORGANISATION:
        if content.target:
            raise ChangeRefused("scope", "A budget of the whole organisation is for nothing else.")
    elif scope == BudgetScope.ROLE:
        if not content.target:
            raise ChangeRefused("role", "Choose the role that it is for.", code="required")
        budget.role = _found(Role.objects.filter(slug=content.target), "role", content.target)
    elif content.target and scope == BudgetScope.MEMBER:
        members = Membership.objects.select_related("user").filter(ended_at=None)
        budget.membership = _found(_by_id(members, "public_id", content.target), "member", content.target)
    elif content.target and scope == BudgetScope.AGENT:
        budget.agent = _found(Agent.objects.filter(slug=content.target), "agent", content.target)
    elif content.target:
        sessions = ChatSession.objects.filter(KEPT, BY_MEMBERS, visible_to(actor))
        budget.session = _found(_by_id(sessions, "pk", content.target), "session", content.target)
    _check_rank(budget, actor)


def _by_id(rows: QuerySet[Any], column: str, text: str) -> QuerySet[Any]:
    try:
        return rows.filter(**{column: UUID(text)})
    except ValueError:
        return rows.none()


def _found(rows: QuerySet[Any], field: str, name: str) -> Any:
    row = rows.first()
    if row is None:
        raise not_there(field, field, name)
    return row


def _check_rank(budget: Budget, actor: Membership) -> None:
    """Raise ChangeForbidden where it is for one member of higher access. One query for such a budget."""
    owner = budget.membership_id or (budget.session.membership_id if budget.session is not None else None)
    if owner is not None:
        check_rank(actor, Membership.objects.filter(pk=owner), TARGETS[BudgetScope(budget.scope)])


def _set(budget: Budget, content: BudgetContent) -> None:
    name = content.name.strip()
    if Budget.objects.filter(name=name).exclude(pk=budget.pk).exists():
        raise ChangeRefused("name", f"There is a budget {name} already.", code="taken")
    budget.name, budget.limit, budget.is_hard = name, content.limit, content.is_hard
    budget.warn_at, budget.is_enabled = sorted(content.warn_at), content.is_enabled


def _recorded(budget: Budget) -> dict[str, Any]:
    """Return the budget as the audit keeps it: amounts as people write them."""
    content = budget_content(budget)
    shown = {name: getattr(content, name) for name in ("name", *FIXED, "is_hard", "is_enabled")}
    return shown | {"limit": amount_text(budget.limit, budget.measure), "warn_at": list(content.warn_at)}
