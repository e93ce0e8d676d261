"""Runtime settings as pages and the API show them: a layer's own document, and what is in force for one tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import Http404

from capabilities.agents.runtime_config.writes import ORGANISATION, LayerOf
from capabilities.choosing.pipeline.runtime_layers import layers_for
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.refused import not_there
from capabilities.contract.envelope import NO_OVERRIDES, overrides_of
from capabilities.contract.knobs import KNOBS, SHARED_KNOBS, Knob, Value, in_words
from capabilities.contract.runtime import Note, ResolvedEnvelope, envelope_for, normalise, specificity
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, Provider, RuntimeConfig, Tool, ToolkitTool

#: Agents, providers and toolkits that a page offers to choose from.
OFFERED = 200


def own_settings() -> QuerySet[RuntimeConfig]:
    """Layers that say anything, with their providers and agents at hand."""
    rows = RuntimeConfig.objects.select_related("provider", "agent")
    return rows.defer("provider__api_key", "agent__prompt")


def layer_or_404(kind: str, slug: str = "") -> LayerOf:
    """The layer of that name. One query; none for the organisation's. Raises Http404."""
    if kind == "organisation" and not slug:
        return ORGANISATION
    if kind == "provider":
        provider = Provider.objects.defer("api_key").filter(slug=slug).first()
        if provider is not None:
            return LayerOf(provider=provider)
    if kind == "agent":
        agent = Agent.objects.defer("prompt").filter(slug=slug).first()
        if agent is not None:
            return LayerOf(agent=agent)
    raise Http404("No such layer of runtime settings.")


@dataclass(frozen=True)
class ShownKnob:
    """A knob of one pattern, as it was asked for and as it counts."""

    knob: Knob
    asked: Any
    read: Value

    @property
    def asked_text(self) -> str:
        return in_words(self.asked, self.knob)

    @property
    def in_force_text(self) -> str:
        return "" if self.read.is_malformed else in_words(self.read.value, self.knob)


@dataclass(frozen=True)
class ShownPattern:
    """Knobs that a layer sets for the tools that one pattern means."""

    pattern: str
    knobs: Sequence[ShownKnob]


@dataclass(frozen=True)
class ShownLayer:
    """A layer's document, from the general patterns to the specific ones."""

    layer: LayerOf
    values: Mapping[str, Any]
    patterns: Sequence[ShownPattern]
    shared: Sequence[ShownKnob]
    notes: Sequence[Note]
    updated_at: datetime | None = None

    @property
    def profile(self) -> str:
        return str(normalise(self.values).document.get("profile", ""))


def shown_layer(layer: LayerOf) -> ShownLayer:
    """One query."""
    row = layer.stored()
    if row is None:
        return shown_values(layer, {})
    return replace(shown_values(layer, row.values), updated_at=row.updated_at)


def shown_values(layer: LayerOf, values: Any) -> ShownLayer:
    """Build the layer from values that were read already. Values that cannot be read are among the notes alone."""
    document = values if isinstance(values, Mapping) else {}
    tools = document.get("tools")
    knobs_by_pattern = tools if isinstance(tools, Mapping) else {}
    patterns = [
        ShownPattern(pattern, [_shown(KNOBS[name], value) for name, value in knobs.items() if name in KNOBS])
        for pattern, knobs in knobs_by_pattern.items()
        if isinstance(knobs, Mapping)
    ]
    shared = [_shown(knob, document[name]) for name, knob in SHARED_KNOBS.items() if name in document]
    patterns.sort(key=lambda each: specificity(each.pattern))
    return ShownLayer(layer, document, patterns, shared, normalise(values).notes)


def _shown(knob: Knob, asked: Any) -> ShownKnob:
    return ShownKnob(knob, asked, knob.read(asked))


@dataclass(frozen=True)
class Chosen:
    """Agent, provider and toolkit that a tool's settings are resolved for; None: for none in particular."""

    agent: Agent | None = None
    provider: Provider | None = None
    #: The toolkit that brings the tool.
    line: ToolkitTool | None = None


@dataclass(frozen=True)
class ResolvedTool:
    spec: ToolSpec
    chosen: Chosen
    resolved: ResolvedEnvelope


@dataclass(frozen=True)
class ShownLayerSetting:
    layer: str
    pattern: str
    asked: str
    note: str


@dataclass(frozen=True)
class ShownInForce:
    """A knob of one tool, in words."""

    knob: Knob
    asked: str
    in_force: str
    layer: str
    why: str
    layer_settings: Sequence[ShownLayerSetting]


def shown_in_force(tool: ResolvedTool) -> list[ShownInForce]:
    """Every knob that the tool has. No query."""
    return [
        ShownInForce(
            each.knob,
            in_words(each.asked, each.knob),
            in_words(each.in_force, each.knob),
            each.layer,
            each.why,
            [
                ShownLayerSetting(one.layer, one.pattern, in_words(one.asked, each.knob), one.read.note)
                for one in each.layer_settings
            ],
        )
        for each in tool.resolved.knobs
    ]


def chosen(agent: str = "", provider: str = "", toolkit: str = "", *, tool: str = "") -> Chosen:
    """Return the agent, provider and toolkit with these short names; the agent's own provider where none is named. A
    query for each name that is given. Raises ChangeRefused for one that is not there."""
    found_agent = _one(
        Agent.objects.select_related("model__provider").defer("model__provider__api_key"), "agent", agent
    )
    found_provider = _one(Provider.objects.defer("api_key"), "provider", provider)
    line = None
    if toolkit:
        line = ToolkitTool.objects.select_related("toolkit").filter(toolkit__name=toolkit, tool__name=tool).first()
        if line is None:
            raise not_there("toolkit", "toolkit with this tool", toolkit)
    if found_agent is not None and found_provider is None:
        found_provider = found_agent.model.provider
    return Chosen(found_agent, found_provider, line)


def _one(rows: QuerySet[Any], kind: str, slug: str) -> Any:
    if not slug:
        return None
    found = rows.filter(slug=slug).first()
    if found is None:
        raise not_there(kind, kind, slug)
    return found


def spec_or_404(name: str) -> ToolSpec:
    """One query. Raises Http404."""
    found = specs(Tool.objects.filter(name=name))
    if not found:
        raise Http404("No such tool.")
    return found[0]


def resolved_tool(spec: ToolSpec, chosen: Chosen) -> ResolvedTool:
    """A tool's envelope as a call would have it. One query."""
    line = chosen.line
    overrides = overrides_of(line.timeout, line.max_result_chars, line.knobs) if line is not None else NO_OVERRIDES
    spec = spec.overridden(overrides)
    layers = layers_for(
        0,  # nothing is kept, so nothing is kept apart
        provider_id=chosen.provider.public_id if chosen.provider else None,
        agent_id=chosen.agent.pk if chosen.agent else None,
    )
    return ResolvedTool(spec, chosen, envelope_for(spec, layers))
