"""Runtime settings: the values that each layer around a tool sets for its knobs, normalised, and their envelope.

A layer's document, `{"profile", "result_context_share_ratio", "result_min_chars", "tools": {pattern: {knob: value}}}`,
may say any part of that. Layers are merged from the outermost to the innermost: the defaults of the tool, what
its version says, the organisation, the provider, the agent, the toolkit. Within a document the more specific pattern
counts. What cannot be read says nothing: the layer around it counts, and the reader gets to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from capabilities.contract.envelope import FIELDS, NO_OVERRIDES, Envelope
from capabilities.contract.knobs import ALL_KNOBS, KNOBS, SHARED_KNOBS, Knob, Value, knobs_of, plain, shown
from capabilities.contract.patterns import ALIASES, GROUP, MAX_PATTERN, pattern_matches
from capabilities.contract.spec import ToolSpec

#: Patterns of one document.
MAX_PATTERNS = 500

#: Defaults where nobody says anything: every knob for every tool, whatever its kind, then what single tools have
#: otherwise. The numbers of shell are those of docs/requirements.md (Runtime contract); no command runs before an
#: operator wants it.
DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "profile": "",
        **{name: knob.default for name, knob in SHARED_KNOBS.items()},
        "tools": {
            "*": {knob.name: plain(knob.default) for knob in ALL_KNOBS},
            "shell": {
                "max_result_chars": 40_000,
                "timeout_sec": 20.0,
                "security": "deny",
                "ask": "off",
                "yield_ms": 10_000,
                "safe_bins": [],
            },
            "web_fetch": {"timeout_sec": 30.0, "max_redirects": 3, "cache_ttl_sec": 300, "readability": True},
            "read": {"max_input_chars": 1_000_000},
            "apply_patch": {"max_input_chars": 200_000},
        },
    }
)
#: Documents that come with the service; a layer names one and says beside it what it wants otherwise.
PROFILES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "zeus": {
            "result_context_share_ratio": 0.22,
            "result_min_chars": 1_200,
            "tools": {
                "shell": {
                    "max_result_chars": 40_000,
                    "timeout_sec": 20.0,
                    "security": "full",
                    "ask": "off",
                    "yield_ms": 10_000,
                    "safe_bins": [],
                }
            },
        }
    }
)


# -- One document -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Note:
    """Note on a part of a document that does not count as it was written."""

    #: Such as `tools.shell.timeout_sec`.
    where: str
    text: str
    #: `malformed` (it says nothing), `clamped`, `dropped` (a part of it says nothing), `repeated` or `unknown`.
    kind: str


@dataclass(frozen=True)
class Normalised:
    """A document in order: its own copy of what can be read of it, and a note for all that counts otherwise."""

    document: dict[str, Any]
    notes: tuple[Note, ...]


def normalise(written: Any) -> Normalised:
    """Normalise a document. Nothing raises, what was written is not changed, and a second time changes nothing."""
    notes: list[Note] = []
    if written is None:
        return Normalised({}, ())
    if not isinstance(written, Mapping):
        return Normalised({}, (Note("", "The settings are no object.", "malformed"),))
    document: dict[str, Any] = {}
    for name in written:
        if name == "profile":
            _read_profile(written[name], document, notes)
        elif name == "tools":
            document["tools"] = _read_tools(written[name], notes)
        elif name in SHARED_KNOBS:
            document |= _read_knobs({name: written[name]}, SHARED_KNOBS, "", notes)
        else:
            notes.append(Note(_named(name), "There is no such setting.", "unknown"))
    return Normalised(document, tuple(notes))


def _read_profile(written: Any, document: dict[str, Any], notes: list[Note]) -> None:
    if isinstance(written, str) and (not written or written in PROFILES):
        document["profile"] = written
    else:
        known = ", ".join(PROFILES)
        notes.append(Note("profile", f"There is no profile {shown(written)}; there are: {known}.", "malformed"))


def _read_tools(written: Any, notes: list[Note]) -> dict[str, dict[str, Any]]:
    """Return the knobs by pattern that can be read, as they are stored; notes say what cannot."""
    if not isinstance(written, Mapping):
        notes.append(Note("tools", "It is no object of patterns and knobs.", "malformed"))
        return {}
    found: dict[str, dict[str, Any]] = {}
    for key, knobs in written.items():
        pattern = pattern_of(key)
        where = f"tools.{_named(key)}"
        if not pattern:
            notes.append(Note(where, f"A pattern has 1 to {MAX_PATTERN} characters.", "malformed"))
        elif not isinstance(knobs, Mapping):
            notes.append(Note(where, "It is no object of knobs.", "malformed"))
        elif pattern not in found and len(found) == MAX_PATTERNS:
            notes.append(Note("tools", f"Only the first {MAX_PATTERNS} patterns count.", "malformed"))
            break
        else:
            if pattern in found:
                notes.append(Note(where, "The pattern is there twice; the later one counts.", "dropped"))
            found[pattern] = found.get(pattern, {}) | _read_knobs(knobs, KNOBS, f"{where}.", notes)
    return found


def _read_knobs(written: Mapping[Any, Any], table: Mapping[str, Knob], where: str, notes: list[Note]) -> dict[str, Any]:
    found = {}
    for name, value in written.items():
        knob = table.get(name) if isinstance(name, str) else None
        if knob is None:
            notes.append(Note(f"{where}{_named(name)}", "There is no such knob.", "unknown"))
            continue
        read = knob.read(value)
        if read.note:
            notes.append(Note(f"{where}{name}", read.note + ".", read.kind))
        if not read.is_malformed:
            found[name] = plain(read.value)
    return found


def _named(key: Any) -> str:
    return key[:MAX_PATTERN] if isinstance(key, str) else shown(key)


def pattern_of(key: Any) -> str:
    """A pattern as documents keep it, or empty for what is none."""
    pattern = key.strip().casefold() if isinstance(key, str) else ""
    return pattern if len(pattern) <= MAX_PATTERN and pattern.isprintable() else ""


def complete(written: Any) -> dict[str, Any]:
    """A copy of the defaults with what can be read of a document merged into it. Neither of the two is changed."""
    merged: dict[str, Any] = deepcopy(dict(DEFAULTS))
    document = normalise(written).document
    for pattern, knobs in document.pop("tools", {}).items():
        merged["tools"].setdefault(pattern, {}).update(knobs)
    return merged | document


def specificity(pattern: str) -> tuple[int, int, str]:
    """Sort key of a pattern by its specificity: `*`, then groups, patterns with `*` or `?`, aliases, and a tool's name.

    Of two of the same kind the one with more plain characters is the more specific, then the one later in the alphabet.
    """
    plain_characters = sum(character not in "*?[]" for character in pattern.removeprefix(GROUP))
    if pattern == "*":
        return 0, 0, pattern
    if pattern.startswith(GROUP):
        return 1, plain_characters, pattern
    if any(character in pattern for character in "*?["):
        return 2, plain_characters, pattern
    return (3 if pattern in ALIASES else 4), plain_characters, pattern


# -- Layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layer:
    """Settings of one layer, as they are stored; a part that cannot be read says nothing. Compared by identity."""

    #: For people: `organisation`, `provider OpenAI`, `agent Coder`, `toolkit devops`.
    title: str
    written: Any = field(repr=False)

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        return normalise(self.written).notes

    @cached_property
    def profile(self) -> str:
        """The profile that it names, or empty."""
        return str(normalise(self.written).document.get("profile", ""))

    @cached_property
    def _patterns(self) -> list[tuple[str, Mapping[Any, Any]]]:
        """Patterns of the layer as written, each with its knobs, the most specific one last."""
        tools = self.written.get("tools") if isinstance(self.written, Mapping) else None
        found: list[tuple[str, Mapping[Any, Any]]] = []
        for key, knobs in tools.items() if isinstance(tools, Mapping) else ():
            if (pattern := pattern_of(key)) and isinstance(knobs, Mapping):
                found.append((pattern, knobs))
        return sorted(found[:MAX_PATTERNS], key=lambda each: specificity(each[0]))

    def layer_settings(self, name: str, category: str) -> Iterable[LayerSetting]:
        """Settings of the layer for the knobs of the tool of this name, its profile first, then general to specific."""
        if self.profile:
            title = f"profile {self.profile} of {self.title}"
            yield from Layer(title, PROFILES[self.profile]).layer_settings(name, category)
        if isinstance(self.written, Mapping):
            for knob in SHARED_KNOBS.values():
                if knob.name in self.written:
                    yield _layer_setting(self.title, "", knob, self.written[knob.name])
        for pattern, knobs in self._patterns:
            if pattern_matches(pattern, name, category):
                for each, value in knobs.items():
                    if each in KNOBS and KNOBS[each].is_of(name, category):
                        yield _layer_setting(self.title, pattern, KNOBS[each], value)


@dataclass(frozen=True)
class LayerSetting:
    """Setting of one knob of one tool by one layer: as it was asked, and as it is read."""

    layer: str
    #: The pattern under which it is set; empty where it is set for all tools, or for the tool itself.
    pattern: str
    knob: Knob
    asked: Any
    read: Value


def _layer_setting(layer: str, pattern: str, knob: Knob, asked: Any) -> LayerSetting:
    return LayerSetting(layer, pattern, knob, asked, knob.read(asked))


@dataclass(frozen=True)
class KnobInForce:
    """One knob of one tool: what the innermost layer asked for, what is in force, whose it is, and why it differs."""

    knob: Knob
    asked: Any
    in_force: Any
    #: The layer whose value is in force.
    layer: str
    #: Empty where what is in force is what was asked for.
    why: str
    #: All that was said, from the outermost layer to the innermost.
    layer_settings: tuple[LayerSetting, ...]


@dataclass(frozen=True)
class ResolvedEnvelope:
    """A tool's envelope in force, and how each of its knobs came to its value."""

    envelope: Envelope
    knobs: tuple[KnobInForce, ...]


_DEFAULT_LAYER = Layer("default", DEFAULTS)
VERSION_LAYER = "tool"
#: Knobs that a tool's version sets itself.
VERSION_KNOBS = ("timeout_sec", "max_result_chars", "untrusted_output", "in_untrusted")


def envelope_for(spec: ToolSpec, layers: Sequence[Layer]) -> ResolvedEnvelope:
    """The envelope of a call of this tool under these layers, from the outermost to the innermost.

    The overrides of the toolkit that brought the tool (`spec.overrides`) count last. The one way to an envelope, for
    the worker and for pages. No query.
    """
    return _resolved(spec.name, spec.category, spec.own_envelope, spec.overrides, tuple(layers))


def knob_for(knob: str, name: str, category: str, layers: Sequence[Layer]) -> Any:
    """Return the value of a knob under these layers for a tool of which only name and category are known yet; no knob
    of a version. No query."""
    nothing = Envelope(on_crash="never", timeout=0.0, max_result_chars=0)
    return _resolved(name, category, nothing, NO_OVERRIDES, tuple(layers)).envelope.knob(knob)


@lru_cache(maxsize=4_000)
def _resolved(name: str, category: str, own: Envelope, overrides: Any, layers: tuple[Layer, ...]) -> ResolvedEnvelope:
    """Collect the settings of each knob over the layers, and build the envelope that is in force."""
    toolkit = [Layer("toolkit", {"tools": {name: overrides.knobs}})] if overrides.values else []
    settings: dict[str, list[LayerSetting]] = {}
    for each in _DEFAULT_LAYER.layer_settings(name, category):
        settings.setdefault(each.knob.name, []).append(each)
    for knob in VERSION_KNOBS:  # as they are: the range is for what people set
        value = own.knob(knob)
        settings[knob].append(LayerSetting(VERSION_LAYER, "", KNOBS[knob], value, Value(value)))
    for layer in (*layers, *toolkit):
        for each in layer.layer_settings(name, category):
            settings[each.knob.name].append(each)
    knobs_there = [*knobs_of(name, category), *SHARED_KNOBS.values()]
    knobs = tuple(_in_force(settings[knob.name]) for knob in knobs_there)
    values = {FIELDS.get(each.knob.name, each.knob.name): each.in_force for each in knobs}
    return ResolvedEnvelope(Envelope(on_crash=own.on_crash, **values), knobs)


def _in_force(layer_settings: Sequence[LayerSetting]) -> KnobInForce:
    """Return the last of the settings that can be read; the default always can."""
    last = layer_settings[-1]
    counts = next(each for each in reversed(layer_settings) if not each.read.is_malformed)
    why = last.read.note
    if counts is not last:
        why += f"; what counts is the value of {counts.layer}" + (f": {counts.read.note}" if counts.read.note else "")
    return KnobInForce(last.knob, last.asked, counts.read.value, counts.layer, why, tuple(layer_settings))
