"""Use of budgets by model calls, on which their turn counts: reserved before a call, settled or released after.

A reservation is taken by one UPDATE of all periods that the call counts on; each row compares its own columns, so no
two calls pass a limit together, on any database. It is settled in the transaction that stores the reply, released in
the one that ends or gives back a turn whose call brought none, and swept where its epoch is dead.

Rows are held in this order everywhere: turn, reservation, periods by their keys. So no two transactions wait for each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import BigIntegerField, Case, Exists, F, Min, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.contract.budget_windows import (
    MONEY,
    OF_AGENT,
    TURNS,
    Amounts,
    BudgetTerms,
    Charged,
    PeriodName,
    crossed,
)
from capabilities.contract.budget_windows import periods_of as names_of
from sessions.models import (
    UNENDED,
    Budget,
    BudgetPeriod,
    Measure,
    Reservation,
    ReservationStatus,
    Turn,
    TurnStatus,
    Window,
)
from sessions.turns.budget_states import (
    BudgetState,
    OrganisationBudgets,
    periods_named,
    states_for,
)
from sessions.turns.fencing import RETRY_AFTER, Claim, LeaseLost, OverBudget, owned
from sessions.turns.sweeping import Backoff, each_item
from toolhub.tenants.rows.money import rounded_dollars
from toolhub.tenants.rows.statements import Insert, Param, Update, param

#: Dead reservations that one sweep releases, and periods of ended turns that it removes.
AT_ONCE = 100
#: Times that a call is tried again while nothing says why it had no room.
MOST_TRIES = 3
#: Reservations that could not be released lately.
release_backoff = Backoff("release of a reservation")


@dataclass(frozen=True)
class Reserved:
    """Amounts that one model call holds until it has ended. Without a key it holds nothing: no budget counts it."""

    key: int
    tokens: int
    #: Billionths of a dollar.
    money: int
    #: Keys of the periods that hold it, in order.
    periods: tuple[int, ...]
    terms: Mapping[int, BudgetTerms]


# -- Reserve -----------------------------------------------------------------------------------------------------------

_AMOUNT = Case(
    When(measure=Measure.TOKENS, then=Param("tokens", BigIntegerField())),
    When(measure=Measure.MONEY, then=Param("money", BigIntegerField())),
    default=Value(0),
    output_field=BigIntegerField(),
)
_USED = Case(
    When(measure=Measure.TOKENS, then=Param("used_tokens", BigIntegerField())),
    When(measure=Measure.MONEY, then=Param("used_money", BigIntegerField())),
    default=Value(0),
    output_field=BigIntegerField(),
)


def held_in_order(rows: QuerySet[BudgetPeriod]) -> QuerySet[BudgetPeriod]:
    """The rows, for an outer UPDATE or DELETE, that holds them one after the other by their keys."""
    return BudgetPeriod.objects.filter(pk__in=rows.order_by("pk").select_for_update().values("pk"))


def _held_in_order(rows: QuerySet[BudgetPeriod], count: int) -> QuerySet[Any, Any]:
    """Return the rows, held one after the other by their keys where there are several; SQLite has one writer at a
    time."""
    return rows if count == 1 else held_in_order(rows)


@lru_cache(maxsize=64)
def _reserve_statement(count: int) -> Update:
    """Add the amounts to so many periods, of those that have room, while the claim owns its turn."""

    def rows() -> QuerySet[Any, Any]:
        named = Q()
        for number in range(count):
            named |= Q(
                budget=param(BudgetPeriod, "budget", f"budget {number}"),
                key=param(BudgetPeriod, "key", f"key {number}"),
                starts_at=param(BudgetPeriod, "starts_at", f"starts_at {number}"),
            )
        owned = Turn.objects.filter(pk=param(Turn, "id", "turn"), epoch=param(Turn, "epoch"), status=TurnStatus.RUNNING)
        room = F("limit") + F("added") - F("spent") - F("reserved") - _AMOUNT
        found: QuerySet[Any, Any] = _held_in_order(BudgetPeriod.objects.filter(named), count).annotate(room=room)
        return found.filter(Q(is_hard=False) | Q(room__gte=0), Exists(owned))

    return Update(rows, {"reserved": F("reserved") + _AMOUNT}, ("id", "measure"))


_RESERVATION = Insert(Reservation, dict.fromkeys(("organisation", "turn", "epoch", "step", "tokens", "money", "lines")))


class _NoRoomError(Exception):
    """Raised where not every period took its amount: what others took is taken back with the transaction."""


def reserve(
    claim: Claim,
    budgets: OrganisationBudgets,
    charged: Charged,
    *,
    step: int,
    tokens: int,
    money: int | None,
    at: datetime,
    names: Sequence[PeriodName] | None = None,
    answer: int = 0,
) -> Reserved | None:
    """Reserve what a model call may take at most, in the budgets' windows of this moment: all of it, or nothing. None
    where no budget counts it. Two statements where the periods are there; a first call in a window takes more.

    `money` is None for a call without a price: it counts as nothing, whoever let it through. `step` is the number of
    the call in its epoch, `names` is what `reserved_in` says, where it is at hand; `answer` are those of the tokens
    that are for the answer, which a refusal says. Raises OverBudget, and LeaseLost for
    a claim that does not own its turn.
    """
    names = reserved_in(budgets, charged, at) if names is None else names
    if not names:
        return None
    by_id = budgets.by_id
    with suppress(_NoRoomError):
        return _reserve(claim, names, by_id, step, tokens, money)
    for _ in range(MOST_TRIES):
        with transaction.atomic():  # the budgets are held: nobody moves what is made to another time zone
            names = make_missing(names)
            if not names:
                return None
            with suppress(_NoRoomError):
                return _reserve(claim, names, by_id, step, tokens, money)
        if not Turn.objects.filter(pk=claim.turn_id, epoch=claim.epoch, status=TurnStatus.RUNNING).exists():
            raise LeaseLost(str(claim.turn_id))
        states = states_for(budgets, charged, at)
        if any(_is_short(state, tokens, money or 0) for state in states):
            break  # else others gave back meanwhile what there was no room for
    raise _refusal(states, tokens, money or 0, at, answer)


def reserved_in(budgets: OrganisationBudgets, charged: Charged, at: datetime) -> list[PeriodName]:
    """The periods that a model call is counted on at this moment."""
    counted = (terms for terms in budgets.terms if terms.measure != TURNS)
    return [name for terms in counted for name in names_of(terms, charged, budgets.zone, at)]


@transaction.atomic
def _reserve(
    claim: Claim,
    names: Sequence[PeriodName],
    terms: Mapping[int, BudgetTerms],
    step: int,
    tokens: int,
    money: int | None,
) -> Reserved:
    values: dict[str, Any] = {}
    for number, name in enumerate(names):
        values |= {f"budget {number}": name.budget_id, f"key {number}": name.key, f"starts_at {number}": name.starts_at}
    rows = _reserve_statement(len(names)).rows(
        turn=claim.turn_id, epoch=claim.epoch, tokens=tokens, money=money or 0, **values
    )
    if len(rows) < len(names):
        raise _NoRoomError
    lines = [[row["id"], (money or 0) if row["measure"] == MONEY else tokens] for row in rows]
    lines.sort()
    (key,) = _RESERVATION.rows(
        {
            "organisation": claim.organisation_id,
            "turn": claim.turn_id,
            "epoch": claim.epoch,
            "step": step,
            "tokens": tokens,
            "money": money,
            "lines": lines,
        }
    )
    return Reserved(key, tokens, money or 0, tuple(period for period, _ in lines), terms)


@transaction.atomic
def make_missing(names: Sequence[PeriodName]) -> list[PeriodName]:
    """Make those of these periods that are not there, with the limits that their budgets have now. Returns the names
    of all whose budget is still there and on. The budgets are held: a limit that changes meanwhile reaches them too."""
    held = Budget.objects.select_for_update().filter(pk__in={name.budget_id for name in names}, is_enabled=True)
    budgets = {budget.pk: budget for budget in held.order_by("pk")}
    there = {(row.budget_id, row.key, row.starts_at) for row in periods_named(names)}
    left = [name for name in names if name.budget_id in budgets]
    BudgetPeriod.objects.bulk_create(
        (
            BudgetPeriod(
                organisation_id=budgets[name.budget_id].organisation_id,
                budget=budgets[name.budget_id],
                key=name.key,
                starts_at=name.starts_at,
                ends_at=name.ends_at,
                measure=budgets[name.budget_id].measure,
                is_hard=budgets[name.budget_id].is_hard,
                limit=budgets[name.budget_id].limit,
            )
            for name in left
            if (name.budget_id, name.key, name.starts_at) not in there
        ),
        ignore_conflicts=True,
    )
    return left


# -- Refuse ------------------------------------------------------------------------------------------------------------


def _refusal(states: Sequence[BudgetState], tokens: int, money: int, at: datetime, answer: int) -> OverBudget:
    """Build the refusal by the budget that has no room for a call of so much; among several, by the one that resets
    last."""
    short = [state for state in states if _is_short(state, tokens, money)]
    if not short:
        return OverBudget("Budgets were changed while this call was made ready. Try again.", RETRY_AFTER)
    state = max(short, key=_last_to_reset)
    amount = rounded_dollars(money) if state.terms.measure == MONEY else f"{tokens:,} tokens"
    unit = " tokens" if state.terms.measure == MONEY else ""
    of_answer = f", with an answer of up to {answer:,}{unit}" if answer else ""
    why = "" if state.left == 0 else f" The next model call may take up to {amount}{of_answer}."
    return OverBudget(f"{_used_up(state)}{why} {state.resets_text}", state.seconds_to_reset(at))


def _is_short(state: BudgetState, tokens: int, money: int) -> bool:
    """Return whether the budget stops a call of so much."""
    if not state.is_hard or state.terms.measure == TURNS:
        return False
    return state.left < (money if state.terms.measure == MONEY else tokens)


def _last_to_reset(state: BudgetState) -> tuple[bool, float, float]:
    """A key to sort by: what never resets comes last, then what resets later, then what has less left."""
    never = state.resets_at is None
    return never, 0.0 if state.resets_at is None else state.resets_at.timestamp(), -state.amounts.share_left


def _used_up(state: BudgetState) -> str:
    verb = "is used up" if state.amounts.is_spent else "is too small" if state.left == state.amounts.total else "has"
    if verb == "has":
        return f"The budget “{state.terms.name}” has {state.left_text} left."
    return f"The budget “{state.terms.name}” {verb}: {state.left_text} are left."


def check_room(budgets: OrganisationBudgets, charged: Charged, at: datetime) -> None:
    """Raise OverBudget for a new message that a hard budget has nothing left for, or where as many turns are open as
    may be at once. Inside the transaction that stores its turn. No query without budgets; else one; with limits
    of turns at once two more, under which their periods' rows are held, and one for each."""
    if not budgets:
        return
    at_once = [terms for terms in budgets.terms if terms.measure == TURNS and terms.is_hard]
    _hold_periods([name for terms in at_once for name in names_of(terms, charged, budgets.zone, at)])
    spent = [state for state in states_for(budgets, charged, at, with_turns=False) if state.is_spent]
    if not spent:
        return
    state = max(spent, key=lambda each: (each.terms.measure != TURNS, _last_to_reset(each)))
    if state.terms.measure == TURNS:
        raise OverBudget(
            f"The limit “{state.terms.name}” allows {state.amounts.total:,} turns at once, and as many are open. "
            f"{state.resets_text}",
            RETRY_AFTER,
            "too_many_turns_at_once",
        )
    raise OverBudget(f"{_used_up(state)} {state.resets_text}", state.seconds_to_reset(at))


def check_room_for_child(budgets: OrganisationBudgets, charged: Charged, at: datetime) -> None:
    """Raise OverBudget where as many turns of a child's agent are open as may be at once. Queries as `check_room`, none
    where no agent has such a limit. Its other budgets are asked before its model calls."""
    limits = [terms for terms in budgets.terms if terms.measure == TURNS and terms.scope == OF_AGENT]
    if limits:
        check_room(replace(budgets, terms=limits), charged, at)


def _hold_periods(names: Sequence[PeriodName]) -> None:
    """Keep others from counting on these periods until the commit. Two queries, none for none; more where one is
    missing. Nothing is held before what is missing is made: its budget is held first, as those do who change it."""
    rows = periods_named(names)
    if len(rows) < len(names):
        make_missing(names)
        rows = periods_named(names)
    if rows:
        found = BudgetPeriod.objects.filter(pk__in=[row.pk for row in rows])
        held_in_order(found).update(warned=F("warned"))


# -- Settle and release ------------------------------------------------------------------------------------------------

_SETTLED = Update(
    lambda: Reservation.objects.filter(pk=param(Reservation, "id", "reservation"), ended_at=None),
    {"status": ReservationStatus.SETTLED, "used_tokens": None, "used_money": None, "ended_at": Now()},
    ("id",),
)
_RELEASED = Update(
    lambda: Reservation.objects.filter(pk=param(Reservation, "id", "reservation"), ended_at=None),
    {"status": ReservationStatus.RELEASED, "ended_at": Now()},
    ("lines",),
)


@lru_cache(maxsize=64)
def _settle_statement(count: int) -> Update:
    """Take the amounts of a reservation from so many periods, and add what was used."""

    def rows() -> QuerySet[Any, Any]:
        keys = [param(BudgetPeriod, "id", f"period {number}") for number in range(count)]
        named = Q()
        for key in keys:
            named |= Q(pk=key)
        return _held_in_order(BudgetPeriod.objects.filter(named), count)

    changes = {"reserved": F("reserved") - _AMOUNT, "spent": F("spent") + _USED}
    return Update(rows, changes, ("id", "budget_id", "limit", "added", "spent", "warned"))


def settle(reserved: Reserved | None, *, tokens: int, money: int | None) -> list[tuple[str, dict[str, Any]]]:
    """Count what a call used, in place of what was reserved for it. Inside the transaction that stores its reply, in
    which the turn is held. Two queries, none for nothing reserved.

    Returns events for the turn, each a type and a payload: the shares of budgets that are reached now, and are warned
    of once a window; one more query for each.
    """
    if reserved is None or not _SETTLED.rows(reservation=reserved.key, used_tokens=tokens, used_money=money or 0):
        return []
    rows = _settle_statement(len(reserved.periods)).rows(
        tokens=reserved.tokens,
        money=reserved.money,
        used_tokens=tokens,
        used_money=money or 0,
        **{f"period {number}": key for number, key in enumerate(reserved.periods)},
    )
    return [
        event
        for row in sorted(rows, key=lambda each: each["id"])
        if (event := _warning(row, reserved.terms[row["budget_id"]])) is not None
    ]


def _warning(row: Mapping[str, Any], terms: BudgetTerms) -> tuple[str, dict[str, Any]] | None:
    """The event that a share of a budget is used, and that it is said; None where there is none to say."""
    percent = Amounts(row["limit"], row["added"], row["spent"]).percent
    share = crossed(terms.warn_at, percent, row["warned"])
    if not share:
        return None
    BudgetPeriod.objects.filter(pk=row["id"]).update(warned=share)
    return "budget_warning", {"budget": terms.name, "share": share, "percent": percent}


#: Column in which a statement that ends a turn, or gives it back, says whether it has reservations.
HAS_RESERVATION = "has_reservation"


def has_reservation() -> Exists:
    """Build the condition that a turn has a reservation that is held, for an outer query over turns."""
    return Exists(Reservation.objects.filter(turn=OuterRef("pk"), ended_at=None))


def owned_with_reservation() -> QuerySet[Any, Any]:
    """`owned`, with whether the turn has a reservation that is held."""
    turns: QuerySet[Any, Any] = owned().annotate(**{HAS_RESERVATION: has_reservation()})
    return turns


def release_held(turn_id: UUID) -> None:
    """Give back what is reserved for calls of this turn that brought nothing: nothing of it is spent. Inside the
    transaction that holds the turn. One query where nothing is held; else two for each reservation, and one more."""
    for key in list(Reservation.objects.filter(turn=turn_id, ended_at=None).values_list("pk", flat=True)):
        _release(key)


def release_of_session(session_id: UUID) -> None:
    """Give back the reservations of all turns of a session, whose rows are about to go. Inside a transaction."""
    held = Reservation.objects.filter(turn__session=session_id, ended_at=None)
    for key in list(held.values_list("pk", flat=True)):
        _release(key)


def _release(key: int) -> None:
    for row in _RELEASED.rows(reservation=key):
        amounts = dict(row["lines"])
        held = BudgetPeriod.objects.select_for_update().filter(pk__in=amounts).order_by("pk")
        for period in list(held.values_list("pk", flat=True)):
            BudgetPeriod.objects.filter(pk=period).update(reserved=F("reserved") - amounts[period])


# -- Sweep -------------------------------------------------------------------------------------------------------------


def dead_reservations() -> QuerySet[Reservation]:
    """Query the reservations that are held, and whose turn nobody runs in their epoch."""
    alive = Turn.objects.filter(pk=OuterRef("turn"), epoch=OuterRef("epoch"), status=TurnStatus.RUNNING)
    return Reservation.objects.filter(~Exists(alive), ended_at=None)


def sweep_reservations() -> None:
    """Release what belongs to dead epochs and ended turns, each by itself. In the system's scope, in any worker."""
    dead = dead_reservations().exclude(pk__in=release_backoff.paused()).order_by("turn", "pk")
    each_item(release_backoff, list(dead.values_list("pk", "organisation_id")[:AT_ONCE]), _release_dead)


#: Days after which the periods of ended turns are removed: a budget of each turn has one for every turn.
KEPT_DAYS = 7


def remove_turn_periods() -> None:
    """Remove old periods of budgets of each turn, some at a time; none that a turn which is open still counts on. In
    the system's scope, in any worker."""
    oldest = Turn.objects.filter(UNENDED).aggregate(oldest=Min("created_at"))["oldest"]
    until = timezone.now() - timedelta(days=KEPT_DAYS)
    for budget in Budget.objects.filter(window=Window.TURN).exclude(measure=Measure.TURNS).values_list("pk", flat=True):
        old = BudgetPeriod.objects.filter(budget=budget, starts_at__lt=min(oldest or until, until), reserved=0)
        BudgetPeriod.objects.filter(
            pk__in=list(old.order_by("starts_at").values_list("pk", flat=True)[:AT_ONCE])
        ).delete()


@transaction.atomic
def _release_dead(key: int) -> None:
    """An epoch that is dead never lives again, so nobody settles it meanwhile."""
    _release(key)
