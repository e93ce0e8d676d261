"""The audited writes of runtime settings: what the organisation, a provider or an agent says of the knobs of tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.common.refused import ChangedMeanwhile, ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.contract.knobs import KNOBS, PROGRAM_LIST, SHARED_KNOBS, plain
from capabilities.contract.patterns import ALIASES, GROUP
from capabilities.contract.runtime import Note, normalise, pattern_of
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import Agent, Provider, RuntimeConfig, RuntimeLayer
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation, Right

#: Kinds of notes that are no reason to refuse a document: they are shown beside the value.
HARMLESS = frozenset({"clamped", "repeated"})


@dataclass(frozen=True)
class LayerOf:
    """Layer of runtime settings: a provider's, an agent's, or the organisation's where neither is given."""

    provider: Provider | None = None
    agent: Agent | None = None

    @property
    def kind(self) -> RuntimeLayer:
        if self.provider is not None:
            return RuntimeLayer.PROVIDER
        return RuntimeLayer.ORGANISATION if self.agent is None else RuntimeLayer.AGENT

    def __str__(self) -> str:
        if self.kind == RuntimeLayer.ORGANISATION:
            return "organisation"
        return f"{self.kind} {self.provider or self.agent}"

    def stored(self) -> RuntimeConfig | None:
        """Its row in the organisation in scope. One query."""
        rows = RuntimeConfig.objects.filter(layer=self.kind, provider=self.provider, agent=self.agent)
        return rows.select_related("provider", "agent").first()


ORGANISATION = LayerOf()


@configuration_write()
def set_runtime_config(
    layer: LayerOf, values: Any, *, actor: Membership, stamp: str | None = None
) -> RuntimeConfig | None:
    """Store the layer's whole document; an empty one goes back to what the layers around it say, and None is returned.

    What is out of range is stored as it was asked, and clamped where it is used. Raises ChangeRefused, with the place
    as its field, for what cannot be read, and ChangedMeanwhile where the document is not as `stamp` says.
    """
    row = _locked(layer, actor)
    if stamp is not None and stamp_of(row) != stamp:
        raise ChangedMeanwhile("The settings have been changed in the meantime.")
    return _store(layer, row, values, actor)


@configuration_write()
def set_tool_knobs(
    layer: LayerOf, pattern: str, knobs: Mapping[str, Any], *, actor: Membership, instead_of: str = ""
) -> RuntimeConfig | None:
    """Store what the layer says of the tools that a pattern means, in place of another pattern where one is given; no
    knobs take the pattern out. Raises ChangeRefused."""
    row = _locked(layer, actor)
    key = pattern_of(pattern)
    if not key:
        raise ChangeRefused("pattern", "Name a tool, a pattern of names, or group: and a category.")
    stored = document_of(row)
    tools = {name: values for name, values in stored.get("tools", {}).items() if name not in (key, instead_of)}
    if knobs:
        tools[key] = dict(knobs)
    return _store(layer, row, {**stored, "tools": tools}, actor)


@configuration_write("names")
def set_knobs_of(names: Collection[str], knobs: Mapping[str, Any], *, actor: Membership) -> RuntimeConfig | None:
    """Store these knobs of each of the tools in the organisation's layer, beside what it says of them already. Raises
    ChangeRefused. One audit row."""
    row = _locked(ORGANISATION, actor)
    stored = document_of(row)
    tools = dict(stored.get("tools", {}))
    for name in names:
        key = pattern_of(name)
        tools[key] = {**tools.get(key, {}), **knobs}
    return _store(ORGANISATION, row, {**stored, "tools": tools}, actor)


@configuration_write()
def set_shared_knobs(
    layer: LayerOf, profile: str, shared: Mapping[str, Any], *, actor: Membership
) -> RuntimeConfig | None:
    """Store the layer's profile and what it says of all tools together; what is None says nothing."""
    row = _locked(layer, actor)
    tools = document_of(row).get("tools", {})
    values = {name: value for name, value in shared.items() if value is not None}
    return _store(layer, row, {"profile": profile, **values, "tools": tools}, actor)


@configuration_write()
def clear_runtime_config(layer: LayerOf, *, actor: Membership) -> None:
    """Back to what the layers around this one say."""
    _store(layer, _locked(layer, actor), {}, actor)


def _locked(layer: LayerOf, actor: Membership) -> RuntimeConfig | None:
    """The layer's row, while no other write of the organisation's settings runs. Raises PermissionDenied."""
    require(actor, Right.POLICIES)
    list(Organisation.objects.select_for_update().filter(pk=actor.organisation_id).values_list("pk"))
    return layer.stored()


def _store(layer: LayerOf, row: RuntimeConfig | None, values: Any, actor: Membership) -> RuntimeConfig | None:
    """Store the document of a layer in its row, or delete the row where it is empty, with an audit row. Raises
    ChangeRefused."""
    document, before = checked(values), _audited(row, layer)
    if row is None and not document:
        return None
    if row is None:
        row = RuntimeConfig(
            organisation_id=actor.organisation_id, layer=layer.kind, provider=layer.provider, agent=layer.agent
        )
    elif row.values == document:
        return row
    verb = "delete" if not document else "update" if row.pk else "create"
    row.values = document
    if document:
        row.save()
    record(f"runtime_config.{verb}", row, actor=actor, before=before, after=_audited(row, layer) if document else None)
    if not document:
        row.delete()
    touch_registry(actor.organisation_id)
    return row if document else None


def document_of(row: RuntimeConfig | None) -> dict[str, Any]:
    """Return the document that a change of a part begins with: the stored one, or what can be read of one that no write
    made."""
    if row is None:
        return {}
    found = normalise(row.values)
    return found.document if any(note.kind not in HARMLESS for note in found.notes) else dict(row.values)


def stamp_of(row: RuntimeConfig | None) -> str:
    """Return a hash of a layer's document; it differs after any change."""
    return sha256_hex(canonical_json(row.values if row is not None else {}))


def _audited(row: RuntimeConfig | None, layer: LayerOf) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"layer": str(layer), **(row.values if isinstance(row.values, dict) else {"values": row.values})}


def checked(values: Any) -> dict[str, Any]:
    """The document as it is stored: patterns and lists in order, empty parts left out, numbers as they were asked.

    Raises ChangeRefused for the first thing in it that cannot be read, or that no tool of its pattern has.
    """
    values = {} if values is None else values
    for note in normalise(values).notes:
        if note.kind not in HARMLESS:
            raise ChangeRefused(_field(note), note.text)
    document = {name: values[name] for name in ("profile", *SHARED_KNOBS) if values.get(name) not in (None, "")}
    tools: dict[str, dict[str, Any]] = {}
    for pattern, knobs in (values.get("tools") or {}).items():
        stored = {name: _as_stored(name, value) for name, value in knobs.items()}
        if stored:
            tools[pattern_of(pattern)] = stored
    for pattern, stored in tools.items():
        _check_pattern(pattern, stored)
    return {**document, "tools": tools} if tools else document


def _as_stored(name: str, value: Any) -> Any:
    return plain(KNOBS[name].read(value).value) if KNOBS[name].type == PROGRAM_LIST else value


def _check_pattern(pattern: str, knobs: Mapping[str, Any]) -> None:
    if pattern.startswith(GROUP) or any(character in pattern for character in "*?["):
        return
    for name in knobs:
        if not KNOBS[name].is_of(pattern, ""):
            others = ", ".join(sorted({each for tool in KNOBS[name].tools for each in (tool, *ALIASES.get(tool, ()))}))
            raise ChangeRefused(f"tools.{pattern}.{name}", f"{pattern} has no {name}; it is a knob of {others}.")


def _field(note: Note) -> str:
    return note.where or "values"
