"""Budgets as pure rules: on which of them a turn counts, and when their windows begin and end.

Windows are those of the clock on the wall in the organisation's time zone. A day lasts from its first moment to the
first moment of the next: 23 or 25 hours where the clock is changed. An hour that the clock shows twice is two hours.
All moments that come in and go out are in UTC, or know their zone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: Windows of a budget.
EACH_TURN, EACH_HOUR, EACH_DAY, EACH_MONTH, FOR_GOOD = "turn", "hour", "day", "month", "total"
#: Units that a budget counts.
TOKENS, MONEY, TURNS = "tokens", "money", "turns"
#: Scopes of a budget: the turns that count on it.
OF_ORGANISATION, OF_ROLE, OF_MEMBER, OF_AGENT, OF_SESSION = "organisation", "role", "member", "agent", "session"

# -- Windows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """Span from its start until before its end; `ends_at` is None where the window does not end by itself."""

    starts_at: datetime
    ends_at: datetime | None = None


@lru_cache(maxsize=1024)
def zone_named(name: str) -> tzinfo:
    """The time zone of this IANA name; UTC where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def span_of(window: str, zone: str, at: datetime) -> Span:
    """The hour, day or month that this moment is in, in this time zone. Raises ValueError for another window."""
    known = _last_spans.get((window, zone))
    if known is not None and known.ends_at is not None and known.starts_at <= at < known.ends_at:
        return known
    span = _read_span(window, zone_named(zone), at)
    if len(_last_spans) >= MOST_SPANS:
        _last_spans.clear()
    _last_spans[window, zone] = span
    return span


#: The span that was asked for last, by window and zone: the next moment that is asked for is in it, mostly.
_last_spans: dict[tuple[str, str], Span] = {}
MOST_SPANS = 1_024


def _read_span(window: str, zone: tzinfo, at: datetime) -> Span:
    if window == EACH_HOUR:
        return _hour(zone, at)
    if window == EACH_DAY:
        return _days(zone, at, lambda day: day, lambda day: day + timedelta(days=1))
    if window == EACH_MONTH:
        return _days(zone, at, lambda day: day.replace(day=1), _next_month)
    raise ValueError(f"No window of the clock: {window}")


def _days(zone: tzinfo, at: datetime, first: Callable[[date], date], after: Callable[[date], date]) -> Span:
    """The span of whole days around a moment: `first` gives the first day of one, `after` that of the next."""
    day = first(at.astimezone(zone).date())
    if first_moment(zone, after(day)) <= at:  # the clock was put back over midnight: the day had begun before
        day = after(day)
    return Span(first_moment(zone, day), first_moment(zone, after(day)))


def _next_month(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


def first_moment(zone: tzinfo, day: date) -> datetime:
    """Return the moment in UTC when this day begins in the zone: its first midnight, or, where the clock jumps over
    midnight, that jump."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    moment = midnight.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return moment
    # There is no midnight. Read by the offset of before, it lies at the jump or behind it.
    before = moment - timedelta(days=1)
    return _change(zone, before, moment)


def _hour(zone: tzinfo, at: datetime) -> Span:
    at = at.astimezone(UTC)
    local = at.astimezone(zone)
    into = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    start, end = at - into, at - into + timedelta(hours=1)
    if _offset(zone, start) != local.utcoffset():
        start = _change(zone, start, at)
    if _offset(zone, end - timedelta(microseconds=1)) != local.utcoffset():
        end = _change(zone, at, end)
    return Span(start, end)


def _offset(zone: tzinfo, at: datetime) -> timedelta | None:
    return at.astimezone(zone).utcoffset()


def _change(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The moment between these two from which on the clock is that of `after`, to the second."""
    offset = _offset(zone, after)
    while after - before > timedelta(seconds=1):
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if middle <= before:
            break
        if _offset(zone, middle) == offset:
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0)


# -- Who counts on what ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BudgetTerms:
    """A budget as it is stored, by keys. What it is for is None where each member, agent or session has its own."""

    id: int
    name: str
    scope: str
    measure: str
    window: str
    limit: int
    is_hard: bool
    warn_at: tuple[int, ...]
    created_at: datetime
    target_id: int | str | None = None
    #: For a role: whether each of its members has one of their own.
    is_per_member: bool = False


@dataclass(frozen=True)
class Charged:
    """Member, agents, session and turn that a turn counts on. `read_roles` is called at most once, where a budget is
    for a role.

    For a turn by delegation, session and turn are those of the person's message at the top, and the agents are its own
    and all above it.
    """

    membership_id: int
    agent_ids: tuple[int, ...]
    session_id: str
    turn_id: str
    began_at: datetime
    read_roles: Callable[[], Collection[int]]

    @cached_property
    def role_ids(self) -> Collection[int]:
        return self.read_roles()


@dataclass(frozen=True)
class PeriodName:
    """Name of a budget's period (its budget, key and start), and the moment of its end."""

    budget_id: int
    key: str
    starts_at: datetime
    ends_at: datetime | None = None


def periods_of(terms: BudgetTerms, charged: Charged, zone: str, at: datetime) -> Iterator[PeriodName]:
    """The periods of a budget that a turn counts on at this moment: none, one, or with an agent's budget one for each
    of its agents."""
    for key in keys_of(terms, charged):
        if terms.window == EACH_TURN and terms.measure != TURNS:
            yield PeriodName(terms.id, f"{key} turn:{charged.turn_id}".strip(), charged.began_at)
        else:
            span = window_of(terms, zone, at)
            yield PeriodName(terms.id, key, span.starts_at, span.ends_at)


def window_of(terms: BudgetTerms, zone: str, at: datetime) -> Span:
    """The window of a budget that this moment is in. One that counts turns at once, and one for good, never ends."""
    if terms.measure == TURNS or terms.window in (FOR_GOOD, EACH_TURN):
        return Span(terms.created_at)
    return span_of(terms.window, zone, at)


def keys_of(terms: BudgetTerms, charged: Charged) -> list[str]:
    """Keys of the periods of a budget that a turn counts on: "" for the one of all, "member:12", "agent:3",
    "session:..."."""
    if terms.scope == OF_ORGANISATION:
        return [""]
    if terms.scope == OF_ROLE:
        if terms.target_id not in charged.role_ids:
            return []
        return [f"member:{charged.membership_id}" if terms.is_per_member else ""]
    found = {
        OF_MEMBER: (("member", charged.membership_id),),
        OF_AGENT: tuple(("agent", key) for key in dict.fromkeys(charged.agent_ids)),
        OF_SESSION: (("session", charged.session_id),),
    }[terms.scope]
    if terms.target_id is None:
        return [f"{kind}:{key}" for kind, key in found]
    return [""] if any(key == terms.target_id for _, key in found) else []


# -- How much is left --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Amounts:
    """Amounts of a period: all of them in tokens, billionths of a dollar, or turns."""

    limit: int
    added: int = 0
    spent: int = 0
    reserved: int = 0

    @property
    def total(self) -> int:
        """The limit, with what somebody added for this window."""
        return self.limit + self.added

    @property
    def left(self) -> int:
        return max(0, self.total - self.spent - self.reserved)

    @property
    def is_spent(self) -> bool:
        """True where all is spent, without regard to reserved amounts."""
        return self.spent >= self.total

    @property
    def percent(self) -> int:
        """Percentage of the total that is spent; 100 and more where all of it is."""
        return 100 * self.spent // self.total if self.total else 100

    @property
    def share_left(self) -> float:
        return self.left / self.total if self.total else 0.0


def crossed(warn_at: Collection[int], percent: int, warned: int) -> int:
    """The highest of these shares that is reached and was not warned of; 0 where there is none."""
    return max((share for share in warn_at if warned < share <= percent), default=0)
