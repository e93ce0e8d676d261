"""State of budgets: which of them a turn, a session or a member counts on, and what is spent, reserved and left.

Workers read it before a model call, and so do pages and the REST API.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from capabilities.common.memory import Memory
from capabilities.contract.budget_windows import (
    EACH_TURN,
    MONEY,
    OF_AGENT,
    OF_SESSION,
    TURNS,
    Amounts,
    BudgetTerms,
    Charged,
    PeriodName,
    periods_of,
    window_of,
    zone_named,
)
from capabilities.models import Agent, RoleMembership
from sessions.access import own_session
from sessions.models import Budget, BudgetPeriod, BudgetScope, ChatSession, Turn, TurnStatus
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.money import rounded_dollars

#: Statuses of a turn that takes a place under a limit of turns at once: one that waits for people takes none.
TAKES_A_PLACE = (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING_CHILD, TurnStatus.WAITING_TASK)
#: Periods of one budget that a page shows: those of which the most is used.
SHOWN = 20

# -- The budgets of an organisation ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrganisationBudgets:
    """The budgets of an organisation that are on, and what they go by."""

    terms: Sequence[BudgetTerms] = ()
    zone: str = "UTC"
    counts_unpriced_as_free: bool = False

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def by_id(self) -> Mapping[int, BudgetTerms]:
        return {each.id: each for each in self.terms}


_budgets: Memory[OrganisationBudgets] = Memory(256)
_roles: Memory[frozenset[int]] = Memory(4_096)


def budgets_of(organisation_id: int, version: int | None) -> OrganisationBudgets:
    """The organisation's budgets at this registry version. No query where they are known; else one or two.
    Without a version they are read."""
    if version is None:
        return _read_budgets(organisation_id)
    return _budgets.get((organisation_id, version), lambda: _read_budgets(organisation_id))


def _read_budgets(organisation_id: int) -> OrganisationBudgets:
    rows = list(Budget.objects.filter(organisation=organisation_id, is_enabled=True).order_by("pk"))
    if not rows:
        return OrganisationBudgets()
    organisation = Organisation.objects.only("time_zone", "counts_unpriced_as_free").get(pk=organisation_id)
    return OrganisationBudgets(
        tuple(terms_of(row) for row in rows), organisation.time_zone, organisation.counts_unpriced_as_free
    )


def terms_of(budget: Budget) -> BudgetTerms:
    """The row as a value. No query."""
    target: int | str | None = {
        BudgetScope.ROLE: budget.role_id,
        BudgetScope.MEMBER: budget.membership_id,
        BudgetScope.AGENT: budget.agent_id,
        BudgetScope.SESSION: None if budget.session_id is None else str(budget.session_id),
    }.get(BudgetScope(budget.scope))
    return BudgetTerms(
        id=budget.pk,
        name=budget.name,
        scope=str(budget.scope),
        measure=str(budget.measure),
        window=str(budget.window),
        limit=budget.limit,
        is_hard=budget.is_hard,
        warn_at=tuple(sorted(each for each in budget.warn_at if isinstance(each, int))),
        created_at=budget.created_at,
        target_id=target,
        is_per_member=budget.is_per_member,
    )


def roles_of(membership_id: int, organisation_id: int, version: int | None) -> frozenset[int]:
    """Keys of the member's roles. No query where they are known at this registry version; else one."""

    def read() -> frozenset[int]:
        return frozenset(RoleMembership.objects.filter(membership=membership_id).values_list("role_id", flat=True))

    return read() if version is None else _roles.get((organisation_id, version, membership_id), read)


# -- Who counts on them ------------------------------------------------------------------------------------------------


def charged_by(turn: Turn, version: int | None) -> Charged:
    """Return the member, agents, session and turn that a turn counts on: for a turn by delegation, all above it too. No
    query where the roles are known, or no budget asks for them."""
    above = turn.charged_above or {}
    began = above.get("began")
    return Charged(
        membership_id=turn.membership_id,
        agent_ids=(turn.agent_id, *above.get("agents", ())),
        session_id=str(above.get("session", turn.session_id)),
        turn_id=str(above.get("turn", turn.pk)),
        began_at=datetime.fromisoformat(began) if began else turn.created_at,
        read_roles=lambda: roles_of(turn.membership_id, turn.organisation_id, version),
    )


def charged_below(turn: Turn) -> dict[str, Any]:
    """Build the `charged_above` of a turn that this one gives to another agent. No query."""
    above = turn.charged_above or {}
    return {
        "turn": str(above.get("turn", turn.pk)),
        "session": str(above.get("session", turn.session_id)),
        "began": above.get("began", turn.created_at.isoformat()),
        "agents": list(dict.fromkeys((turn.agent_id, *above.get("agents", ())))),
    }


# -- How they stand ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BudgetState:
    """One budget as it stands in its window, for one of those that it is for."""

    terms: BudgetTerms
    #: Owner of the period, as `BudgetPeriod.key`.
    key: str
    amounts: Amounts
    starts_at: datetime
    #: When it begins anew; None where it does not by itself.
    resets_at: datetime | None
    #: The organisation's time zone, in which `resets_at` is shown.
    zone: str
    #: Id of the period's row; None while nothing was counted on it.
    period_id: UUID | None = None
    is_hard: bool = True
    reset_at: datetime | None = None
    spent_before_reset: int = 0

    @property
    def left(self) -> int:
        return self.amounts.left

    @property
    def is_spent(self) -> bool:
        """True where a new turn is refused because of this budget."""
        return self.is_hard and self.amounts.is_spent

    @property
    def left_text(self) -> str:
        """Rest of the budget in words: "1,200 of 100,000 tokens", "$0.12 of $5.00", "0 of 3 turns at once"."""
        measure, left, total = self.terms.measure, self.left, self.amounts.total
        if measure == MONEY:
            return f"{rounded_dollars(left)} of {rounded_dollars(total)}"
        return f"{left:,} of {total:,} {'turns at once' if measure == TURNS else 'tokens'}"

    @property
    def resets_text(self) -> str:
        """A sentence that says when it begins anew, in the organisation's time zone, which it names."""
        if self.resets_at is not None:
            local = self.resets_at.astimezone(zone_named(self.zone))
            return f"It resets on {local.day} {local:%B %Y at %H:%M} ({self.zone})."
        if self.terms.measure == TURNS:
            return "There is room again when one of them ends."
        if self.terms.window == EACH_TURN:
            return "The next message has one of its own."
        return "It does not reset by itself."

    def seconds_to_reset(self, at: datetime) -> int | None:
        """Whole seconds from this moment until it begins anew, at least 1; None where it does not by itself."""
        if self.resets_at is None:
            return None
        left = self.resets_at - at
        return max(1, left.days * 86_400 + left.seconds + bool(left.microseconds))


def tightest(states: Iterable[BudgetState]) -> BudgetState | None:
    """Return the budget with the smallest share left, and of equal shares the one with the least left; hard ones come
    first. None where there are none."""

    def order(state: BudgetState) -> tuple[object, ...]:
        return not state.is_hard, state.amounts.share_left, state.terms.measure == MONEY, state.left, state.terms.id

    return min(states, key=order, default=None)


def budgets_for_turn(turn: Turn, *, version: int | None = None, at: datetime | None = None) -> list[BudgetState]:
    """The budgets that a turn counts on, as they stand. One query where budgets and roles are known at this registry
    version, none where there are no budgets; else up to three more."""
    budgets = budgets_of(turn.organisation_id, version)
    return states_for(budgets, charged_by(turn, version), at or timezone.now())


def budgets_for_session(
    session: ChatSession, agent: Agent | None = None, *, version: int | None = None, at: datetime | None = None
) -> list[BudgetState]:
    """Return the budgets that a new message in the session counts on, as they stand, to this agent or else to its
    first. A query or two more for each level that the session is below the member's own."""
    agent_id = session.agent_id if agent is None else agent.pk
    charged = charged_for(own_session(session), session.membership_id, agent_id, version)
    return states_for(budgets_of(session.organisation_id, version), charged, at or timezone.now(), with_turns=False)


def charged_for(session: ChatSession, membership_id: int, agent_id: int, version: int | None) -> Charged:
    """Return the member, agent and session that a new message counts on, before it is a turn. No query but for the
    roles."""
    return Charged(
        membership_id=membership_id,
        agent_ids=(agent_id,),
        session_id=str(session.pk),
        turn_id="",
        began_at=session.created_at,
        read_roles=lambda: roles_of(membership_id, session.organisation_id, version),
    )


def budgets_for_member(
    member: Membership, *, version: int | None = None, at: datetime | None = None
) -> list[BudgetState]:
    """The budgets that bind a member whatever the session and the agent. Queries as `budgets_for_turn`."""
    budgets, at = budgets_of(member.organisation_id, version), at or timezone.now()
    charged = Charged(
        membership_id=member.pk,
        agent_ids=(),
        session_id="",
        turn_id="",
        began_at=at,
        read_roles=lambda: roles_of(member.pk, member.organisation_id, version),
    )
    general = [each for each in budgets.terms if each.scope not in (OF_AGENT, OF_SESSION)]
    known = OrganisationBudgets(general, budgets.zone, budgets.counts_unpriced_as_free)
    return states_for(known, charged, at, with_turns=False)


def states_for(
    budgets: OrganisationBudgets, charged: Charged, at: datetime, *, with_turns: bool = True
) -> list[BudgetState]:
    """The budgets that such a turn counts on, as they stand at this moment: one query for their periods, none where
    there are none, and one for each limit of turns at once. Without those of each turn, if not `with_turns`."""
    wanted = [
        (terms, name)
        for terms in budgets.terms
        if with_turns or terms.measure == TURNS or terms.window != EACH_TURN
        for name in periods_of(terms, charged, budgets.zone, at)
    ]
    rows = {(row.budget_id, row.key, row.starts_at): row for row in periods_named([name for _, name in wanted])}
    found = []
    for terms, name in wanted:
        row = rows.get((name.budget_id, name.key, name.starts_at))
        state = _state(terms, name, row, budgets.zone)
        found.append(_with_turns(state) if terms.measure == TURNS else state)
    return found


def periods_named(names: Sequence[PeriodName]) -> list[BudgetPeriod]:
    """The periods of these names that are there. One query, none for none."""
    if not names:
        return []
    wanted = Q()
    for name in names:
        wanted |= Q(budget=name.budget_id, key=name.key, starts_at=name.starts_at)
    return list(BudgetPeriod.objects.filter(wanted))


def _state(terms: BudgetTerms, name: PeriodName, row: BudgetPeriod | None, zone: str) -> BudgetState:
    if row is None:
        return BudgetState(
            terms, name.key, Amounts(terms.limit), name.starts_at, name.ends_at, zone, is_hard=terms.is_hard
        )
    return BudgetState(
        terms,
        name.key,
        Amounts(row.limit, row.added, row.spent, row.reserved),
        row.starts_at,
        name.ends_at,
        zone,
        row.public_id,
        row.is_hard,
        row.reset_at,
        row.spent_before_reset,
    )


def _with_turns(state: BudgetState) -> BudgetState:
    """A limit of turns at once, with those that take a place now as spent. One query."""
    now = Amounts(state.amounts.limit, state.amounts.added, turns_at_once(state.terms, state.key).count())
    return BudgetState(state.terms, state.key, now, state.starts_at, None, state.zone, state.period_id, state.is_hard)


def turns_at_once(terms: BudgetTerms, key: str) -> Any:
    """The open turns that take a place under this limit; those by delegation only under an agent's."""
    kind, _, named = key.partition(":")
    target: Any = named if kind else terms.target_id
    turns = Turn.objects.filter(ended_at=None, status__in=TAKES_A_PLACE).order_by()
    if terms.scope == OF_AGENT:
        return turns.filter(agent=target)
    turns = turns.filter(parent_step=None)
    if kind == "member" or terms.scope == BudgetScope.MEMBER:
        return turns.filter(membership=target)
    if terms.scope == BudgetScope.ROLE:
        return turns.filter(membership__in=RoleMembership.objects.filter(role=target).values("membership"))
    return turns.filter(session=target) if terms.scope == BudgetScope.SESSION else turns


# -- Those of one budget, for pages ------------------------------------------------------------------------------------


def states_of(
    budgets: Collection[Budget], zone: str, *, at: datetime | None = None, most: int = SHOWN
) -> dict[int, list[BudgetState]]:
    """Return, for each budget, by its key, its current periods: the one of all even where nothing was counted on it
    yet, else those of which the most is used, at most so many. One query for each budget of each member, agent or
    session, one for all others, and one for each limit of turns at once."""
    at, found = at or timezone.now(), dict[int, list[BudgetState]]()
    single: list[tuple[BudgetTerms, PeriodName]] = []
    for budget in budgets:
        terms = terms_of(budget)
        span = window_of(terms, zone, at)
        if has_one_period(terms):
            single.append((terms, PeriodName(terms.id, "", span.starts_at, span.ends_at)))
            continue
        periods = BudgetPeriod.objects.filter(budget=budget)
        if terms.window != EACH_TURN or terms.measure == TURNS:
            periods = periods.filter(starts_at=span.starts_at)
        rows = periods.order_by("-spent", "-pk")[:most]
        found[budget.pk] = [
            _state(terms, PeriodName(terms.id, row.key, row.starts_at, row.ends_at), row, zone) for row in rows
        ]
    rows_by_budget: dict[int, list[BudgetPeriod]] = defaultdict(list)
    for row in periods_named([name for _, name in single]):
        rows_by_budget[row.budget_id].append(row)
    for terms, name in single:
        found[terms.id] = [_state(terms, name, next(iter(rows_by_budget[terms.id]), None), zone)]
    return {
        key: [_with_turns(state) if state.terms.measure == TURNS else state for state in states]
        for key, states in found.items()
    }


def has_one_period(terms: BudgetTerms) -> bool:
    """Return whether a budget has one period at a time: no other for each member, agent, session or turn."""
    if terms.window == EACH_TURN and terms.measure != TURNS:
        return False
    if terms.scope == BudgetScope.ROLE:
        return not terms.is_per_member
    return terms.scope == BudgetScope.ORGANISATION or terms.target_id is not None
