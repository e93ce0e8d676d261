"""An organisation at a glance: a week in numbers, turns that are open, what fails, what changed today."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.urls import reverse
from django.utils import timezone

from capabilities.access.policies.queries import policies_with_warnings
from capabilities.agents.hooks.queries import hook_numbers
from capabilities.language_models.providers.environment import agents_left_behind
from capabilities.language_models.providers.queries import missing_models
from capabilities.models import GrantRequest, McpServer, RequestStatus
from sessions.access import visible_to
from sessions.budgets.queries import BudgetLine, fullest_budget
from sessions.models import UNENDED, ToolUsageHour, Turn
from sessions.usage.queries import GROUPINGS, UsageSums, rows_of, sees_all, sums_by_period
from sessions.usage.spans import range_of
from toolhub.tenants.audit.queries import AuditFilter, ShownEntry, trail_page
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.money import rounded_dollars

#: Rows of each list.
SHOWN = 5
#: How long a failure is shown.
FAILED_WITHIN = timedelta(hours=24)


@dataclass(frozen=True)
class Card:
    """A number of the last seven days: with a word about it, its value on each day, and the page with its rows."""

    title: str
    value: str
    detail: str
    points: tuple[float, ...]
    url: str


@dataclass(frozen=True)
class Trouble:
    """Something that fails, in a sentence, and the page where it is mended."""

    sentence: str
    url: str


# -- A week in numbers ------------------------------------------------------------------------------------------------


def week_of(member: Membership, now: datetime) -> list[Card]:
    """Return turns, cost, failures and savings of the last seven days: everybody's with the right `budgets`, else one's
    own. One query, two more with the right."""
    grouping = GROUPINGS["agent"]
    span = range_of("7d", member.organisation.time_zone, now)
    rows = rows_of(member, grouping, span.starts_at, span.ends_at)
    columns = ("turns", "failed_turns", "cost", "unpriced_rounds", "saved_tokens", "tool_tokens", "all_tool_tokens")
    days: list[UsageSums] = sums_by_period(rows, grouping, span, columns)
    usage = reverse("usage", args=[member.organisation.slug])

    def total(value: Callable[[UsageSums], int]) -> int:
        return sum(value(day) for day in days)

    def card(title: str, value: str, detail: str, of_day: Callable[[UsageSums], int], query: str = "") -> Card:
        return Card(title, value, detail, tuple(of_day(day) for day in days), f"{usage}?range=7d{query}")

    turns, failed = total(lambda day: day.turns), total(lambda day: day.failed_turns)
    left_out, every = total(lambda day: day.left_out_tokens), total(lambda day: day.all_tool_tokens)
    budget = fullest_budget(member) if sees_all(member) else None
    return [
        card("Turns", f"{turns:,}", "last 7 days", lambda day: day.turns),
        card(
            "Cost",
            rounded_dollars(total(lambda day: day.cost)),
            _budget_words(budget) if budget else _unpriced_words(total(lambda day: day.unpriced_rounds)),
            lambda day: day.cost,
            "&show=money",
        ),
        card(
            "Failed turns",
            f"{failed:,}",
            f"{_percent(failed, turns)} of turns",
            lambda day: day.failed_turns,
        ),
        card(
            "Tool tokens left out",
            f"{left_out:,} tok",
            f"{_percent(left_out, every)} of all definitions",
            lambda day: day.left_out_tokens,
            "&show=definitions",
        ),
    ]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _unpriced_words(rounds: int) -> str:
    return f"{rounds:,} model call{'' if rounds == 1 else 's'} without a price" if rounds else "last 7 days"


def _budget_words(line: BudgetLine) -> str:
    return f"{line.budget.name}: {line.percent} % used"


# -- Now --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenTurns:
    """Turns that have not ended, the oldest first, and whether there are more than are shown."""

    turns: Sequence[Turn]
    has_more: bool


def open_turns(member: Membership) -> OpenTurns:
    """Return open turns of sessions that the member may see. One query."""
    rows = Turn.objects.filter(UNENDED, visible_to(member, "session__"), parent_step=None)
    rows = rows.select_related("agent", "session__membership__user").defer("agent__prompt", "session__last_prompt")
    found = list(rows.order_by("created_at", "pk")[: SHOWN + 1])
    return OpenTurns(found[:SHOWN], len(found) > SHOWN)


def own_requests(member: Membership) -> list[GrantRequest]:
    """Return the member's requests for access that nobody has decided. One query."""
    rows = GrantRequest.objects.filter(membership=member, status=RequestStatus.WAITING)
    return list(rows.select_related("tool", "category").order_by("pk")[:SHOWN])


def changes_today(member: Membership, now: datetime) -> Sequence[ShownEntry]:
    """Return the last entries of the audit of today. One query, and one for each kind of thing among them."""
    return trail_page(AuditFilter(since=timezone.localdate(now)), member, limit=SHOWN).rows


# -- What fails -------------------------------------------------------------------------------------------------------


def troubles_of(member: Membership, now: datetime) -> list[Trouble]:
    """Return what fails among the things that the member looks after. Five queries at most where all is well."""
    return [Trouble(sentence, url) for sentence, url in _troubles(member, now)]


def _troubles(member: Membership, now: datetime) -> Iterator[tuple[str, str]]:
    slug = member.organisation.slug

    def page(view: str, *args: Any) -> str:
        return reverse(view, args=[slug, *args])

    if member.has_right(Right.CATALOGUE):
        for server in McpServer.objects.exclude(failing_since=None).order_by("failing_since")[:SHOWN]:
            yield f"MCP server {server.title} cannot be reached", page("server_detail", server.name)
    if member.has_right(Right.BUDGETS):
        for name, failed, calls in _failing_tools(now):
            yield f"{name}: {failed:,} of {calls:,} calls failed in 24 hours", page("tool_detail", name)
    if member.has_right(Right.PROVIDERS):
        for missing in missing_models():
            used_by = ", ".join(missing.agent_names)
            yield (
                f"{missing.provider} no longer lists {missing.name}, the model of {used_by}",
                page("provider_update", missing.provider.slug),
            )
    if member.has_right(Right.PROVIDERS) or member.has_right(Right.AGENTS):
        left = agents_left_behind()
        if left:
            view = "provider_list" if member.has_right(Right.PROVIDERS) else "agent_list"
            yield f"{_count(len(left), 'agent')} still with the provider of an earlier start", page(view)
    if member.has_right(Right.HOOKS):
        numbers = hook_numbers()
        if numbers.failing:
            yield f"{_count(numbers.failing, 'hook')} failed at the last run", page("hook_list")
        if numbers.switched_off:
            yield f"{_count(numbers.switched_off, 'hook')} switched off after failing", page("hook_list")
    if member.has_right(Right.POLICIES):
        for policy in policies_with_warnings(member.organisation):
            where = ("policy_provider_update", policy.provider.slug) if policy.provider else ("policy_update",)
            yield f"{policy}: {policy.warnings[0]}", page(*where)  # type: ignore[attr-defined]


def _failing_tools(now: datetime) -> list[tuple[str, int, int]]:
    """Return name, failed calls and calls of the tools that failed most. One query."""
    rows = ToolUsageHour.objects.filter(hour__gt=now - FAILED_WITHIN, failed_calls__gt=0)
    sums = rows.values_list("tool_name").annotate(failed=Sum("failed_calls"), every=Sum("calls"))
    return list(sums.order_by("-failed", "tool_name")[:SHOWN])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
