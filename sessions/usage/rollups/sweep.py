"""The hourly sums: each ended turn is added to them once, by whichever worker comes first.

A turn is read and summed outside any transaction: nothing changes it any more. One short transaction takes the turns
that no other worker took meanwhile, adds their sums, and marks them. Turns of one organisation are added together;
where that fails, each by itself, and one that cannot be added stops nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from django.db import transaction

from sessions.models import NOT_ROLLED_UP, RoutingFinding, ToolUsageHour, Turn, UsageHour
from sessions.turns.sweeping import Backoff, each_item, raise_if_disconnected
from sessions.usage.rollups.learning import learn_from
from sessions.usage.rollups.reading import Batch, read_batch
from sessions.usage.rollups.summing import MAX_MEMBER_NAME, HourKey, ToolKey, TurnSums, merged, sums_of
from toolhub.tenants.rows.scope import organisation_scope, system_scope
from toolhub.tenants.rows.sums import add_to_sums

#: Turns that one sweep adds, and turns of one organisation that are added together.
AT_ONCE = 200
TOGETHER = 25
#: Turns whose sums failed lately.
rollups_backoff = Backoff("usage of turn")

HOUR_SUMS = (
    *(
        "turns",
        "failed_turns",
        "rounds",
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
    ),
    *("cost", "unpriced_rounds", "estimated_rounds", "tool_tokens", "all_tool_tokens", "saved_tokens", "saved_cost"),
    *("routed_turns", "empty_turns", "missed_turns"),
)
TOOL_SUMS = ("sent_rounds", "sent_tokens", "calls", "failed_calls", "result_tokens", "missed_turns")


def roll_up() -> None:
    """Add the usage of turns that ended since the last sweep, those that ended last first; what ended before there were
    sums follows bit by bit. Safe in any number of workers at once."""
    with system_scope():
        found = Turn.objects.filter(NOT_ROLLED_UP).exclude(pk__in=rollups_backoff.paused())
        rows = list(found.order_by("-ended_at", "-pk").values_list("organisation_id", "pk")[:AT_ONCE])
    for organisation_id, group in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0)):
        turn_ids = [turn_id for _, turn_id in group]
        for begin in range(0, len(turn_ids), TOGETHER):
            _add_together(organisation_id, turn_ids[begin : begin + TOGETHER])


def _add_together(organisation_id: int, turn_ids: Sequence[UUID]) -> None:
    """Add these turns in one transaction, or each by itself where that fails."""
    try:
        with organisation_scope(organisation_id):
            add_turns(turn_ids)
    except Exception as error:
        raise_if_disconnected(error)
        each_item(rollups_backoff, [(turn_id, organisation_id) for turn_id in turn_ids], lambda key: add_turns([key]))


def add_turns(turn_ids: Iterable[UUID]) -> int:
    """Add these turns' usage to the sums of the organisation in scope, as far as it is not there; returns how many."""
    batch = read_batch(turn_ids)
    sums = {turn.pk: sums_of(turn, batch) for turn in batch.turns}
    added = _write(sums, batch) if sums else []
    if added:
        learn_from([turn for turn in batch.turns if turn.pk in added], batch)
    return len(added)


@transaction.atomic
def _write(sums: Mapping[UUID, TurnSums], batch: Batch) -> Sequence[UUID]:
    """Write the sums of the turns that no other worker has added; returns these. At most nine statements."""
    free = Turn.objects.select_for_update(skip_locked=True).filter(NOT_ROLLED_UP, pk__in=list(sums))
    won = list(free.order_by("pk").values_list("pk", flat=True))
    if not won:
        return []
    total = merged({key: sums[key] for key in won})
    members = {turn.membership_id: str(turn.membership)[:MAX_MEMBER_NAME] for turn in batch.turns}
    agents = {turn.agent_id: turn.agent.name for turn in batch.turns}
    add_to_sums(
        UsageHour,
        [_hour_row(key, amounts, members, agents) for key, amounts in total.hours.items()],
        found_by=("hour", "membership_key", "agent_key", "provider_name", "model_name"),
        sums=HOUR_SUMS,
        newest=("member_name", "agent_name"),
    )
    add_to_sums(
        ToolUsageHour,
        [_tool_row(key, amounts, agents, total) for key, amounts in total.tools.items()],
        found_by=("hour", "agent_key", "tool_key"),
        sums=TOOL_SUMS,
        newest=("agent_name", "tool_name", "category_name"),
    )
    by_key = {turn.pk: turn for turn in batch.turns}
    total.totals.write()
    findings = [
        RoutingFinding(
            organisation_id=by_key[key].organisation_id,
            turn=by_key[key],
            kind=each.kind,
            name=each.name,
            words=list(each.words),
            how=each.how,
        )
        for key in won
        for each in sums[key].findings
    ]
    RoutingFinding.objects.bulk_create(findings, ignore_conflicts=True)
    Turn.objects.filter(pk__in=won).update(is_rolled_up=True)
    return won


def _hour_row(
    key: HourKey, amounts: Mapping[str, int], members: Mapping[int, str], agents: Mapping[int, str]
) -> dict[str, object]:
    return {
        **vars(key),
        **{name: amounts.get(name, 0) for name in HOUR_SUMS},
        "member_name": members[key.membership_key],
        "agent_name": agents[key.agent_key],
    }


def _tool_row(
    key: ToolKey, amounts: Mapping[str, int], agents: Mapping[int, str], total: TurnSums
) -> dict[str, object]:
    name, category = total.tool_names[key.tool_key]
    return {
        **vars(key),
        **{each: amounts.get(each, 0) for each in TOOL_SUMS},
        "agent_name": agents[key.agent_key],
        "tool_name": name,
        "category_name": category,
    }
