"""Ended turns as the hourly sums need them: some turns of one organisation, read together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Subquery

from capabilities.language_models.providers.resolve import ResolvedModel, provider_of, resolve_model
from capabilities.models import LanguageModel, Provider, Tool, ToolVersion
from sessions.models import NOT_ROLLED_UP, Step, StepKind, StepStatus, ToolSet, Turn, VerdictSet

_MODEL_COLUMNS = (
    *(
        "turn_id",
        "organisation_id",
        "index",
        "kind",
        "status",
        "round",
        "started_at",
        "ended_at",
        "origin",
        "usage_estimated",
    ),
    *("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "cost"),
    *("tool_tokens", "all_tool_tokens", "result_tokens", "history_tokens", "routing", "tool_set_id", "verdict_set_id"),
)
_COLUMNS = (*_MODEL_COLUMNS, "tool_name", "called_through", "tool_version_id", "result_sent")


@dataclass(frozen=True)
class SentTool:
    """A version of a tool, as a round carried it."""

    tool_id: int
    name: str
    category: str
    tokens: int
    kind: str


@dataclass(frozen=True)
class SentTools:
    """The tools of a round, by the keys of their versions, and the tokens of their definitions."""

    version_ids: Sequence[int]
    tokens: int


@dataclass(frozen=True)
class Batch:
    """Ended turns of one organisation whose usage is to be added, and what they point to."""

    turns: Sequence[Turn]
    #: The steps of each turn in their order.
    steps: Mapping[UUID, Sequence[Step]]
    #: By turn: the last model call of the turn before it, with the same agent in the same session.
    before: Mapping[UUID, Step]
    tool_sets: Mapping[int, SentTools]
    tools: Mapping[int, SentTool]
    #: By its key: the verdicts of a selection of a routed turn in which a call was refused.
    verdicts: Mapping[int, Sequence[Mapping[str, Any]]]
    #: By name: tools that were called in a routed turn and refused.
    refused: Mapping[str, SentTool]
    #: Names by public id.
    providers: Mapping[UUID, str]
    #: By the public id of the provider and by name.
    models: Mapping[tuple[UUID, str], ResolvedModel]
    registry_version: int | None = None
    #: The agent's own model, for steps of before there was an origin.
    own_models: Mapping[int, tuple[str, str]] = field(default_factory=dict)


def read_batch(turn_ids: Iterable[UUID]) -> Batch:
    """Read those of the turns that are not added yet. In the scope of their organisation; 8 queries at most, whatever
    their number, and two more where a call of a routed turn was refused."""
    previous = Turn.objects.filter(
        session=OuterRef("session"), agent=OuterRef("agent"), seq__lt=OuterRef("seq"), rounds__gt=0
    )
    turns = list(
        Turn.objects.filter(NOT_ROLLED_UP, pk__in=list(turn_ids))
        .select_related("agent__model__provider", "membership__user", "organisation")
        .defer("agent__model__provider__api_key", "agent__prompt", "message", "answer", "draft")
        .annotate(previous=Subquery(previous.order_by("-seq").values("pk")[:1]))
        .order_by("pk")
    )
    steps = _steps_of(turns)
    tool_sets = _tool_sets(steps)
    versions = {key for each in tool_sets.values() for key in each.version_ids}
    versions |= {step.tool_version_id for each in steps.values() for step in each if step.tool_version_id}
    refused = [
        step for each in steps.values() if any(step.routing for step in each) for step in each if _is_refused(step)
    ]
    providers, models = _models_of(steps)
    return Batch(
        turns=turns,
        steps=steps,
        before=_calls_before(turns, steps),
        tool_sets=tool_sets,
        tools=_tools(versions),
        verdicts=_verdicts({step.turn_id for step in refused}, steps),
        refused=_tools_named({step.tool_name for step in refused}),
        providers=providers,
        models=models,
        registry_version=turns[0].organisation.registry_version if turns else None,
        own_models={each.agent_id: (each.agent.model.provider.name, each.agent.model.name) for each in turns},
    )


def _steps_of(turns: Sequence[Turn]) -> dict[UUID, list[Step]]:
    found: dict[UUID, list[Step]] = {each.pk: [] for each in turns}
    rows = Step.objects.filter(turn__in=list(found)).exclude(kind__in=(StepKind.NOTE, StepKind.TOOLS)).only(*_COLUMNS)
    for step in rows.order_by("turn", "index"):
        found[step.turn_id].append(step)
    return found


def _calls_before(turns: Sequence[Turn], steps: Mapping[UUID, Sequence[Step]]) -> dict[UUID, Step]:
    previous = {each.pk: vars(each)["previous"] for each in turns if vars(each)["previous"] is not None}
    others = {key for key in previous.values() if key not in steps}
    last: dict[UUID, Step] = {}
    if others:
        rows = Step.objects.filter(turn__in=others, kind=StepKind.MODEL).only(*_MODEL_COLUMNS)
        last = {step.turn_id: step for step in rows.order_by("turn", "index")}
    for turn_id, each in steps.items():
        calls = [step for step in each if step.kind == StepKind.MODEL]
        if calls:
            last[turn_id] = calls[-1]
    return {turn_id: last[key] for turn_id, key in previous.items() if key in last}


def _tool_sets(steps: Mapping[UUID, Sequence[Step]]) -> dict[int, SentTools]:
    keys = {step.tool_set_id for each in steps.values() for step in each if step.tool_set_id}
    rows = ToolSet.objects.filter(pk__in=keys).values_list("pk", "version_ids", "tokens")
    return {key: SentTools(tuple(version_ids), tokens) for key, version_ids, tokens in rows}


def _tools(versions: Iterable[int]) -> dict[int, SentTool]:
    columns = ("pk", "tool_id", "tool__name", "tool__category__name", "tokens", "tool__kind")
    rows = ToolVersion.objects.filter(pk__in=list(versions)).values_list(*columns)
    return {key: SentTool(*tool) for key, *tool in rows}


def _is_refused(step: Step) -> bool:
    return step.kind == StepKind.TOOL and step.status == StepStatus.REFUSED


def _verdicts(turns: set[UUID], steps: Mapping[UUID, Sequence[Step]]) -> dict[int, Sequence[Mapping[str, Any]]]:
    """Read the verdicts of the selections of these turns, by the key of their set."""
    keys = {step.verdict_set_id for key in turns for step in steps[key] if step.verdict_set_id and step.routing}
    return dict(VerdictSet.objects.filter(pk__in=keys).values_list("pk", "verdicts")) if keys else {}


def _tools_named(names: set[str]) -> dict[str, SentTool]:
    if not names:
        return {}
    columns = ("pk", "name", "category__name", "current_version__tokens", "kind")
    rows = Tool.objects.filter(name__in=names).values_list(*columns)
    return {name: SentTool(key, name, category, tokens or 0, kind) for key, name, category, tokens, kind in rows}


def _models_of(
    steps: Mapping[UUID, Sequence[Step]],
) -> tuple[dict[UUID, str], dict[tuple[UUID, str], ResolvedModel]]:
    """The providers and models that answered, as far as they are still there."""
    calls = [step for each in steps.values() for step in each if step.origin]
    keys = {key for step in calls if (key := provider_of(step.origin)) is not None}
    names = {step.model_name for step in calls}
    providers = dict(Provider.objects.filter(public_id__in=keys).values_list("public_id", "name"))
    rows = LanguageModel.objects.filter(provider__public_id__in=keys, name__in=names)
    rows = rows.select_related("provider").defer("provider__api_key")
    return providers, {(row.provider.public_id, row.name): resolve_model(row) for row in rows}
