"""Sums that one ended turn adds to the hourly ones, and its findings about routing. Reads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from capabilities.choosing.pipeline.routing import integers, router_verdicts
from capabilities.common.tokens import count_each
from capabilities.language_models.providers.resolve import ResolvedModel, provider_of
from sessions.models import FindingKind, Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.usage.rollups.pricing import CallPrice, price_of_call
from sessions.usage.rollups.reading import Batch, SentTool
from sessions.usage.rollups.rules import Before, InputUse, SentRound, savings
from sessions.usage.rollups.totals import Totals

#: After so long without a call, a provider's cache has forgotten a prompt.
CACHE_FORGETS_AFTER = timedelta(hours=1)
#: Characters of a name, as the columns take them.
MAX_MEMBER_NAME = 254


@dataclass(frozen=True, order=True)
class HourKey:
    """The row of `UsageHour` that usage is added to."""

    hour: datetime
    membership_key: int
    agent_key: int
    provider_name: str
    model_name: str


@dataclass(frozen=True, order=True)
class ToolKey:
    """The row of `ToolUsageHour` that usage is added to."""

    hour: datetime
    agent_key: int
    tool_key: int


@dataclass(frozen=True)
class Finding:
    """A row of `RoutingFinding`, without its turn."""

    kind: FindingKind
    name: str
    how: str
    words: tuple[str, ...] = ()


@dataclass
class TurnSums:
    """Sums that one turn adds, and the names of those that it is about."""

    hours: dict[HourKey, Counter[str]] = field(default_factory=dict)
    tools: dict[ToolKey, Counter[str]] = field(default_factory=dict)
    tool_names: dict[int, tuple[str, str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    def of_hour(self, key: HourKey) -> Counter[str]:
        return self.hours.setdefault(key, Counter())

    def of_tool(self, hour: datetime, agent: int, tool: SentTool) -> Counter[str]:
        self.tool_names[tool.tool_id] = (tool.name, tool.category)
        return self.tools.setdefault(ToolKey(hour, agent, tool.tool_id), Counter())


def hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def sums_of(turn: Turn, batch: Batch) -> TurnSums:
    """Return what the turn adds to the sums of its organisation."""
    steps = batch.steps[turn.pk]
    calls = [step for step in steps if step.kind == StepKind.MODEL]
    uses = [step for step in steps if step.kind == StepKind.TOOL]
    found = TurnSums()
    _add_rounds(turn, calls, batch, found)
    _add_tools(turn, calls, uses, batch, found)
    _add_totals(turn, calls, uses, batch, found.totals)
    missed = _missing_tools(calls, uses, batch)
    if calls:
        first = found.of_hour(_hour_key(turn, calls[0], batch))
        _add_routing(turn, calls, uses, batch, found, first)
        first["missed_turns"] += bool(missed)
        for tool, how in missed.items():
            found.findings.append(Finding(FindingKind.MISS, tool.name[:64], how))
            found.of_tool(hour_of(calls[0].started_at), turn.agent_id, tool)["missed_turns"] += 1
    else:
        provider, model = batch.own_models[turn.agent_id]
        hour = hour_of(turn.ended_at or turn.created_at)
        first = found.of_hour(HourKey(hour, turn.membership_id, turn.agent_id, provider, model))
    first["turns"] += 1
    first["failed_turns"] += turn.status == TurnStatus.FAILED
    return found


# -- Rounds -----------------------------------------------------------------------------------------------------------


def _hour_key(turn: Turn, call: Step, batch: Batch) -> HourKey:
    """Return the key of the hour when the round began, and of the model that answered it."""
    provider, model = batch.own_models[turn.agent_id]
    if call.origin:
        key = provider_of(call.origin)
        provider, model = (batch.providers.get(key, "") if key else ""), call.model_name
    return HourKey(hour_of(call.started_at), turn.membership_id, turn.agent_id, provider, model)


def _add_rounds(turn: Turn, calls: Sequence[Step], batch: Batch, found: TurnSums) -> None:
    saved = _savings(turn, calls, batch)
    for call, (saved_tokens, saved_cost) in zip(calls, saved, strict=True):
        found.of_hour(_hour_key(turn, call, batch)).update(
            rounds=1,
            input_tokens=call.input_tokens,
            cached_tokens=call.cached_tokens,
            cache_write_tokens=call.cache_write_tokens,
            output_tokens=call.output_tokens,
            reasoning_tokens=call.reasoning_tokens,
            cost=call.cost or 0,
            unpriced_rounds=int(call.cost is None),
            estimated_rounds=int(call.usage_estimated),
            tool_tokens=_sent_tokens(call, batch),
            all_tool_tokens=max(_sent_tokens(call, batch), call.all_tool_tokens),
            saved_tokens=saved_tokens,
            saved_cost=saved_cost,
        )


def _sent_tokens(call: Step, batch: Batch) -> int:
    """Return the tokens of the definitions; steps of before that was stored have their tool set."""
    if call.tool_tokens or not call.tool_set_id:
        return call.tool_tokens
    tool_set = batch.tool_sets.get(call.tool_set_id)
    return tool_set.tokens if tool_set is not None else 0


def _savings(turn: Turn, calls: Sequence[Step], batch: Batch) -> Iterator[tuple[int, int]]:
    """Tokens and billionths of a dollar of each round. Rounds of another model have another cache."""
    known = batch.before.get(turn.pk)
    runs: list[list[Step]] = []
    for call in calls:
        if runs and runs[-1][-1].origin == call.origin:
            runs[-1].append(call)
        else:
            runs.append([call])
    for run in runs:
        price = price_of_call(_model_of(run[0], batch), run[0].started_at, batch.registry_version)
        rounds = [_sent_round(call, batch) for call in run]
        found = savings(rounds, _before(run[0], known, batch), price.rates if price else None)
        for call, saving in zip(run, found, strict=True):
            yield saving.tokens, _saved_cost(call, saving.instead, price)
        known = run[-1]


def _model_of(call: Step, batch: Batch) -> ResolvedModel | None:
    key = provider_of(call.origin) if call.origin else None
    return batch.models.get((key, call.model_name)) if key else None


def _sent_round(call: Step, batch: Batch) -> SentRound:
    use = InputUse(call.input_tokens, call.cached_tokens, call.cache_write_tokens)
    return SentRound(use, _sent_tokens(call, batch), call.all_tool_tokens, call.usage_estimated)


def _before(call: Step, known: Step | None, batch: Batch) -> Before:
    """The call before, where a cache may still know it."""
    if known is None or known.origin != call.origin or call.started_at - known.started_at > CACHE_FORGETS_AFTER:
        return Before()
    sent = _sent_round(known, batch)
    return Before(sent.use.input + sent.left_out, had_all=not sent.left_out)


def _saved_cost(call: Step, instead: InputUse, price: CallPrice | None) -> int:
    """Return the cost saved; 0 where the round has no price, or its price is not known any more."""
    if call.cost is None or price is None:
        return 0
    asked = InputUse(call.input_tokens, call.cached_tokens, call.cache_write_tokens)
    output, reasoning = call.output_tokens, call.reasoning_tokens
    return price.cost(instead, output, reasoning) - price.cost(asked, output, reasoning)


# -- Tools ------------------------------------------------------------------------------------------------------------


def _add_tools(turn: Turn, calls: Sequence[Step], uses: Sequence[Step], batch: Batch, found: TurnSums) -> None:
    hours = {call.round: hour_of(call.started_at) for call in calls}
    for call in calls:
        for sent in _tools_of(call, batch):
            found.of_tool(hours[call.round], turn.agent_id, sent).update(sent_rounds=1, sent_tokens=sent.tokens)
    called = [(use, tool) for use in uses if (tool := _tool_of(use, batch)) is not None]
    for (use, tool), tokens in zip(called, count_each(use.result_sent for use, _ in called), strict=True):
        hour = hours.get(use.round) or hour_of(use.started_at)
        failed = int(use.status != StepStatus.DONE)
        found.of_tool(hour, turn.agent_id, tool).update(calls=1, failed_calls=failed, result_tokens=tokens)


def _tool_of(use: Step, batch: Batch) -> SentTool | None:
    return batch.tools.get(use.tool_version_id) if use.tool_version_id else None


# -- Totals of all time -----------------------------------------------------------------------------------------------


def _add_totals(turn: Turn, calls: Sequence[Step], uses: Sequence[Step], batch: Batch, totals: Totals) -> None:
    totals.add_turn(turn)
    for call in calls:
        totals.add_call(call, _model_of(call, batch))
    for use in uses:
        totals.add_use(use, _tool_of(use, batch))


# -- Routing ----------------------------------------------------------------------------------------------------------


def _routings(calls: Sequence[Step]) -> list[Mapping[str, Any]]:
    """Return the records of routing at each selection of the turn, where it was on."""
    found = [call.routing for call in calls if isinstance(call.routing, dict)]
    return [each for each in found if each.get("mode", "off") != "off"]


def _missing_tools(calls: Sequence[Step], uses: Sequence[Step], batch: Batch) -> dict[SentTool, str]:
    """Tools that routing had left out and that were needed: found by a search and then called, or called unseen."""
    routings = _routings(calls)
    wanted = {key for each in routings for key in integers(each.get("wanted"))}
    left_out = {name for call in calls if call.routing for name in _left_out(call, batch)}
    found: dict[SentTool, str] = {}
    for use in uses:
        needed = _tool_of(use, batch) or batch.refused.get(use.tool_name)
        if not routings or needed is None:
            continue
        if use.status == StepStatus.REFUSED and use.tool_name in left_out:
            found.setdefault(needed, "asked_for_again")
        elif needed.tool_id in wanted:
            found.setdefault(needed, "found_by_search")
    return found


def _left_out(call: Step, batch: Batch) -> list[str]:
    """Names of the tools that routing alone kept back."""
    if not isinstance(call.routing, dict):
        return []
    verdicts = batch.verdicts.get(call.verdict_set_id or 0, ())
    return [each["tool"] for each in router_verdicts(call.routing, verdicts) if not each["kept"]]


def _tools_of(call: Step, batch: Batch) -> list[SentTool]:
    """Return the tools that the round carried, but for versions that are gone."""
    tool_set = batch.tool_sets.get(call.tool_set_id or 0)
    keys = tool_set.version_ids if tool_set is not None else ()
    return [batch.tools[key] for key in keys if key in batch.tools]


def _add_routing(
    turn: Turn, calls: Sequence[Step], uses: Sequence[Step], batch: Batch, found: TurnSums, first: Counter[str]
) -> None:
    """Add whether the turn was routed, whether it got no tool, and keywords that matched for nothing."""
    routings = _routings(calls)
    if not routings:
        return
    first["routed_turns"] += 1
    first["empty_turns"] += bool(routings[0].get("empty"))
    if turn.status != TurnStatus.DONE or routings[0].get("follow_up"):
        return
    sent = {tool.category for call in calls for tool in _tools_of(call, batch)}
    used = {tool.category for use in uses if (tool := _tool_of(use, batch)) is not None}
    matched = routings[0].get("categories")
    for category, words in matched.items() if isinstance(matched, dict) else ():
        if category in sent - used:
            listed = tuple(str(word)[:100] for word in words)[:20] if isinstance(words, list) else ()
            found.findings.append(Finding(FindingKind.MISFIRE, str(category)[:64], "not_called", listed))


# -- Together ---------------------------------------------------------------------------------------------------------


def merged(sums: Mapping[UUID, TurnSums]) -> TurnSums:
    """The sums of some turns, without their findings."""
    found = TurnSums()
    found.totals.add(each.totals for each in sums.values())
    for each in sums.values():
        found.tool_names |= each.tool_names
        for hour, amounts in each.hours.items():
            found.of_hour(hour).update(amounts)
        for tool, amounts in each.tools.items():
            found.tools.setdefault(tool, Counter()).update(amounts)
    return found
