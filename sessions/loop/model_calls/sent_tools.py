"""The tools that a turn's next model call carries: frozen with its first, unless it may load others on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from capabilities.choosing.pipeline.counts import counted_for
from capabilities.choosing.pipeline.policies import policies_at
from capabilities.choosing.pipeline.routing import Decided, integers, unneeded_loaders
from capabilities.choosing.pipeline.specs import current_specs, remember_specs
from capabilities.contract.loading import CREATE_TOOL
from capabilities.language_models.providers.resolve import provider_of
from capabilities.models import LoadingMode, Tool
from sessions.loop.conversation.added_tools import ShownTools, line_for, note_unsearched
from sessions.loop.conversation.continuations import changes_in
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.wanted_tools import wanted_in
from sessions.loop.model_calls.client_requests import check_choice, check_client_tools, client_tools
from sessions.models import Step, StepKind, ToolSet, VerdictSet
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import settle
from sessions.selection.queries import Selection, searches_in, select_tools
from sessions.selection.tool_sets import keep_tool_set, keep_verdicts
from sessions.turns import ledger
from sessions.turns.fencing import Claim

CONTINUATIONS_USED = (
    "Tools were loaded {times} times in this turn, as often as a turn goes on with other ones. "
    "What is loaded now comes with the next message."
)


@dataclass(frozen=True)
class Carried:
    """A stored set of tools; the session's count of loads that it was selected at; the verdicts, and what routing did,
    where they are new; whether the agent offers no tool at all, to whomever."""

    tool_set: ToolSet
    load_count: int
    tool_ids: tuple[int, ...] | None = None
    verdict_set: VerdictSet | None = None
    is_pure_chat: bool = False
    routing: Mapping[str, Any] = field(default_factory=dict)
    #: Keys of the tools that the turn's messages called for so far; and tokens of all tools, had none been left out.
    routed: tuple[int, ...] = ()
    all_tool_tokens: int = 0
    #: Names of what loads others and was left out, for nothing matched the message.
    left_loaders: frozenset[str] = frozenset()
    #: Where the agent adds tools to the conversation: what of the set stands in `tools`, and what was added.
    line: ShownTools | None = None

    @property
    def declared(self) -> ToolSet:
        """Tool set that stands in `tools`."""
        return self.line.base if self.line is not None else self.tool_set

    @property
    def tool_sets(self) -> list[ToolSet]:
        """Tool sets whose definitions go out."""
        return [self.tool_set, *(self.line.tool_sets if self.line is not None else ())]

    @property
    def tokens(self) -> int:
        """Tokens of all definitions that go out."""
        return self.line.tokens if self.line is not None else self.tool_set.tokens


def carried_by(turn: RunningTurn) -> Carried:
    """Return the tools that the next call carries. One query for a frozen set; a selection's for a new one."""
    model_steps, calls = turn.steps.replies, turn.steps.calls
    last = model_steps[-1] if model_steps else None
    decided = _decided(model_steps, calls)
    if last is None or last.tool_set is None:
        return _selected(turn, decided)
    if len(last.tool_set.version_ids) > turn.model.tool_limit:  # another model took over, which takes fewer
        return _selected(turn, decided)
    if _is_other_now(turn, last):
        return _selected(turn, decided)
    if _has_other_policy(turn, last) or bool(last.tool_set.searched_ids) > searches_in(turn.row, turn.model):
        return _selected(turn, decided)
    if decided is not None and decided.wanted:
        return _selected(turn, decided)
    routed = _routed_ids(decided)
    frozen = Carried(
        last.tool_set,
        last.load_count,
        routed=routed,
        left_loaders=_left_loaders(decided),
        all_tool_tokens=last.all_tool_tokens,
    )
    if not LoadingMode(turn.row.agent.loading_mode).is_in_turn:
        return frozen
    turn.row.session.refresh_from_db(fields=["load_count", "shares_loads", "tool_order", "last_prompt"])
    if turn.row.session.load_count == last.load_count and not _has_new_own_tool(turn, last.tool_set, calls):
        return replace(frozen, line=line_for(turn, last.tool_set))
    if changes_in([step.tool_set_id for step in model_steps]) >= settings.TOOLHUB_MAX_CONTINUATIONS:
        _note_once(turn, CONTINUATIONS_USED.format(times=settings.TOOLHUB_MAX_CONTINUATIONS))
        return replace(frozen, line=line_for(turn, last.tool_set))
    turn.has_loads = True
    return _selected(turn, decided)


def _has_new_own_tool(turn: RunningTurn, tool_set: ToolSet, calls: Sequence[Step]) -> bool:
    """Return whether a tool that the agent made was approved, in a turn that makes some. One query in such a turn
    alone."""
    if not any(call.tool_name == CREATE_TOOL for call in calls):
        return False
    own = Tool.objects.filter(made_by_agent=turn.row.agent_id, current_version__isnull=False)
    return own.exclude(current_version__in=tool_set.version_ids).exists()


def _decided(replies: Sequence[Step], calls: Sequence[Step]) -> Decided | None:
    """Return the routing of the turn's first call, and the names that calls asked for since the last selection; None
    where no call was routed."""
    last = next((step for step in reversed(replies) if step.routing), None)
    if last is None:
        return None
    since = [call for call in calls if call.round >= last.round]
    return Decided(last.routing, wanted_in(since))


def _routed_ids(decided: Decided | None) -> tuple[int, ...]:
    if decided is None:
        return ()
    return (*integers(decided.record.get("kept")), *integers(decided.record.get("wanted")))


def _left_loaders(decided: Decided | None) -> frozenset[str]:
    return unneeded_loaders(decided.record)[0] if decided is not None else frozenset()


def _has_other_policy(turn: RunningTurn, last: Step) -> bool:
    """Return whether a model of another provider took over, and one of the two providers has a policy of its own. No
    query where the provider is the same."""
    provider = turn.model.provider.public_id
    before = provider_of(last.origin)
    if before in (None, provider) or turn.registry_version is None:
        return False
    of_providers = policies_at(turn.registry_version).providers
    return before in of_providers or provider in of_providers


def _is_other_now(turn: RunningTurn, last: Step) -> bool:
    """Return whether the set holds tools that the model's provider refused since, or would go out otherwise to a model
    that took over. One query at most, where another model did."""
    tool_set, model = last.tool_set, turn.model
    assert tool_set is not None
    refused = {each.version_id for each in model.refused_now.values()}
    if not refused.isdisjoint(tool_set.callable_ids) or not turn.refused_tools.isdisjoint(tool_set.client_tools):
        return True
    if last.origin == model.origin:
        return False
    specs = current_specs(tool_set.version_ids, organisation_id=turn.row.organisation_id, at=turn.registry_version)
    return model.refuses_tools or any(each.sent not in tool_set.wire for each in counted_for(specs, model))


def _selected(turn: RunningTurn, decided: Decided | None) -> Carried:
    selection = select_tools(turn.row, turn.model, decided, at=turn.registry_version, has_loads=turn.has_loads)
    if selection.stale or selection.new_initial:
        settle(LoadTarget(turn.row.session, turn.row.agent), selection)
    _note_dropped(turn.claim, selection)
    check_client_tools(turn, (tool.name for tool in selection.tools))
    if not turn.steps.calls:  # it counts for the first reply alone
        check_choice(turn, (tool.name for tool in selection.tools))
    tool_set = keep_tool_set(selection, turn.row.organisation_id, client_tools(turn))
    if selection.routing and turn.registry_version is not None:  # a message's tools are seldom those of another
        remember_specs(selection.tools, organisation_id=turn.row.organisation_id, at=turn.registry_version)
    if turn.row.without_tools:  # the order of the session's tools, and what is said of them, stay as they were
        return Carried(tool_set, selection.load_count)
    note_unsearched(turn)
    return Carried(
        tool_set,
        selection.load_count,
        tuple(tool.tool_id for tool in selection.tools),
        keep_verdicts(selection.lasting_verdicts, turn.row.organisation_id),
        is_pure_chat=not (selection.verdicts or selection.namespaces or tool_set.client_tools),
        routing=selection.routing,
        routed=_routed_ids(Decided(selection.routing)),
        left_loaders=_left_loaders(Decided(selection.routing)),
        all_tool_tokens=selection.all_tokens,
        line=line_for(turn, tool_set, selection),
    )


def _note_dropped(claim: Claim, selection: Selection) -> None:
    """Write events, for whoever watches, about loads that fell and tools that were left out."""
    if selection.stale:
        fallen = [{"name": load.bundle.name, "reason": str(reason)} for load, reason in selection.stale]
        ledger.write_event(claim, "loads_dropped", {"loads": fallen})
    if too_large := selection.routing.get("too_large"):
        ledger.write_event(claim, "tools_over_budget", {"tools": dict(list(too_large.items())[:20])})
    if too_large := [each for each in selection.verdicts if each.stage == "size"]:
        ledger.write_event(claim, "tools_too_large", {"tools": {each.tool: each.reason for each in too_large[:20]}})
    if selection.over_limit:
        over = selection.over_limit
        ledger.write_event(claim, "tools_over_limit", {"count": len(over), "tools": over[:20]})


def _note_once(turn: RunningTurn, text: str) -> None:
    if not Step.objects.filter(turn=turn.row, kind=StepKind.NOTE, text=text).exists():
        ledger.add_note(turn.claim, text)
