"""Runtime settings: complete defaults, documents that are survived whatever is in them, and layers in their order."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.envelope import FIELDS, Envelope, Overrides
from capabilities.contract.knobs import ALL_KNOBS, KNOBS, SHARED_KNOBS
from capabilities.contract.runtime import (
    DEFAULTS,
    PROFILES,
    KnobInForce,
    Layer,
    complete,
    envelope_for,
    normalise,
    specificity,
)
from capabilities.contract.spec import ToolSpec

OWN = Envelope("never", 20.0, 40_000)


def spec_of(name: str, category: str = "system", own: Envelope = OWN) -> ToolSpec:
    return ToolSpec(1, 1, name, "builtin", category, 1, True, "{}", "", 1, "read", own)


SHELL, WEB, READ, PATCH = (
    spec_of("shell_exec"),
    spec_of("web_read", "web", replace(OWN, timeout=30.0)),
    spec_of("file_read", "file"),
    spec_of("apply_patch", "file"),
)
OTHER = spec_of("weather_now", "weather")


def layer(title: str = "organisation", /, **tools: Any) -> Layer:
    profile = {"profile": tools.pop("profile")} if "profile" in tools else {}
    return Layer(title, {**profile, "tools": tools})


def knob(spec: ToolSpec, name: str, *layers: Layer) -> KnobInForce:
    return next(each for each in envelope_for(spec, layers).knobs if each.knob.name == name)


def value(spec: ToolSpec, name: str, *layers: Layer) -> Any:
    return knob(spec, name, *layers).in_force


# -- Defaults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [SHELL, WEB, READ, PATCH, OTHER], ids=lambda spec: spec.name)
def test_zs_04_zs_07_every_tool_has_a_complete_envelope(spec: ToolSpec) -> None:
    resolved = envelope_for(spec, [])

    assert {each.knob.name for each in resolved.knobs} >= {
        *(knob.name for knob in ALL_KNOBS if not knob.tools),
        *SHARED_KNOBS,
    }
    assert all(each.in_force is not None for each in resolved.knobs)


def test_zs_04_the_default_document_is_complete_and_in_order() -> None:
    assert set(DEFAULTS["tools"]["*"]) == set(KNOBS)
    assert normalise(DEFAULTS).notes == ()
    assert normalise(DEFAULTS).document == dict(DEFAULTS)


def test_each_knob_has_a_field_in_the_envelope() -> None:
    names = {FIELDS.get(name, name) for name in (*KNOBS, *SHARED_KNOBS)}

    assert names == {each.name for each in fields(Envelope)} - {"on_crash"}


@pytest.mark.parametrize("written", [None, {}, {"tools": {}}, {"tools": {"shell": {}}}])
def test_zs_05_missing_settings_are_the_defaults(written: Any) -> None:
    assert envelope_for(SHELL, [Layer("organisation", written)]).envelope == envelope_for(SHELL, []).envelope


MALFORMED: list[Any] = [
    "",
    "zeus",
    7,
    True,
    [],
    [["tools", {}]],
    {"tools": "shell"},
    {"tools": ["shell"]},
    {"tools": {"shell": None}},
    {"tools": {"shell": [["security", "full"]]}},
    {"tools": {"shell": {"security": "Full", "timeout_sec": "900", "max_result_chars": None, "ask": False}}},
    {"tools": {"shell": {"timeout_sec": float("nan"), "yield_ms": float("inf"), "max_result_chars": True}}},
    {"tools": {"shell": {"safe_bins": "ls", "max_result_chars": 1.5, "timeout_sec": [900]}}},
    {"tools": {"shell": {"untrusted_output": "false", "in_untrusted": "no", "readability": 0}}},
    {"tools": {7: {"security": "full"}, "": {"security": "full"}, "s" * 200: {"security": "full"}}},
    {"tools": {"shell\n": "x", None: {"security": "full"}}},
    {"profile": "zeuss", "result_context_share_ratio": "1", "result_min_chars": [1]},
    {"profile": {"zeus": 1}, "unknown": 1, 7: 8},
    {"profile": [10**6_000], "tools": {"shell": {"security": 10**6_000, 10**6_000: 1}}},
]


@pytest.mark.parametrize("written", MALFORMED)
def test_zs_06_malformed_settings_snap_back_and_never_raise(written: Any) -> None:
    broken = Layer("organisation", written)

    assert envelope_for(SHELL, [broken]).envelope == envelope_for(SHELL, []).envelope
    assert broken.notes


@pytest.mark.parametrize("written", MALFORMED)
def test_zs_06_a_malformed_value_is_the_enclosing_layers_never_a_looser_one(written: Any) -> None:
    strict = layer(
        shell={"security": "deny", "ask": "always", "timeout_sec": 5, "max_result_chars": 300, "in_untrusted": "refuse"}
    )

    assert (
        envelope_for(SHELL, [strict, Layer("agent Coder", written)]).envelope == envelope_for(SHELL, [strict]).envelope
    )


def test_a_malformed_value_says_whose_value_counts() -> None:
    found = knob(SHELL, "ask", layer(shell={"ask": "always"}), layer("agent Coder", shell={"ask": "offf"}))

    assert (found.asked, found.in_force, found.layer) == ("offf", "always", "organisation")
    assert "'offf' is none of" in found.why
    assert found.why.endswith("the value of organisation")


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("zs_08", "max_result_chars", 40_000),
        ("zs_09", "timeout_sec", 20),
        ("zs_10", "security", "deny"),  # Zeus says full: the profile zeus
        ("zs_11", "ask", "off"),
        ("zs_12", "yield_ms", 10_000),
        ("zs_13", "safe_bins", ()),
    ],
)
def test_zs_08_zs_09_zs_10_zs_11_zs_12_zs_13_the_numbers_of_the_shell(line: str, name: str, expected: Any) -> None:
    assert value(SHELL, name) == expected


def test_zs_10_the_profile_zeus_has_the_numbers_of_zeus() -> None:
    zeus = layer(profile="zeus")
    names = ("max_result_chars", "timeout_sec", "security", "ask", "yield_ms", "safe_bins")

    assert [value(SHELL, name, zeus) for name in names] == [40_000, 20, "full", "off", 10_000, ()]
    assert knob(SHELL, "security", zeus).layer == "profile zeus of organisation"
    assert [value(OTHER, name, zeus) for name in SHARED_KNOBS] == [0.22, 1_200]


def test_what_stands_beside_a_profile_counts_more() -> None:
    assert value(SHELL, "security", layer(profile="zeus", shell={"security": "allow-list"})) == "allow-list"


def test_zs_14_web_fetch_has_timeout_redirects_cache_and_readability() -> None:
    names = ("timeout_sec", "max_redirects", "cache_ttl_sec", "readability")

    assert [value(WEB, name) for name in names] == [30, 3, 300, True]


@pytest.mark.parametrize(("spec", "chars"), [(READ, 1_000_000), (PATCH, 200_000), (OTHER, 2_000_000)])
def test_zs_15_zs_16_read_and_apply_patch_have_input_limits(spec: ToolSpec, chars: int) -> None:
    assert value(spec, "max_input_chars") == chars


def test_zs_51_zs_52_the_share_and_the_least_of_a_result() -> None:
    envelope = envelope_for(OTHER, []).envelope

    assert (envelope.result_context_share_ratio, envelope.result_min_chars) == (0.22, 1_200)


TUNED = {
    "timeout_sec": 44.0,
    "yield_ms": 2_000,
    "max_result_chars": 555,
    "max_input_chars": 666,
    "max_definition_tokens": 5_555,
    "ask": "first_time",
    "untrusted_output": True,
    "in_untrusted": "ask",
    "security": "full",
    "safe_bins": ("ls",),
    "max_redirects": 1,
    "cache_ttl_sec": 0,
    "readability": False,
}


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_zs_17_every_number_is_a_default_that_can_be_set(name: str) -> None:
    spec = SHELL if KNOBS[name].is_of("shell_exec", "system") else WEB

    assert value(spec, name) != TUNED[name]
    assert value(spec, name, layer(**{"*": {name: TUNED[name]}})) == TUNED[name]
    assert envelope_for(spec, [layer(**{"*": {name: TUNED[name]}})]).envelope.knob(name) == TUNED[name]


def test_zs_17_zs_51_zs_52_what_is_the_same_for_all_tools_can_be_set() -> None:
    tuned = Layer("organisation", {"result_context_share_ratio": 0.5, "result_min_chars": 700})

    envelope = envelope_for(OTHER, [tuned]).envelope

    assert (envelope.result_context_share_ratio, envelope.result_min_chars) == (0.5, 700)


# -- Normalising ------------------------------------------------------------------------------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KNOB_VALUES = JSON | st.sampled_from(
    ["off", "always", "first_time", "deny", "full", "allow-list", "refuse", ["ls", "ls", " cat ", "/x"], 3, 10**9, -1.5]
)
PATTERNS = st.sampled_from(["*", "shell", "SHELL ", "shell_exec", "group:system", "web_*", "web_read"]) | st.text(
    max_size=6
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "profile": JSON | st.sampled_from(["", "zeus"]),
        "result_context_share_ratio": JSON,
        "result_min_chars": JSON,
        "tools": JSON
        | st.dictionaries(
            PATTERNS, st.dictionaries(st.sampled_from([*KNOBS, "what"]), KNOB_VALUES, max_size=5) | JSON, max_size=4
        ),
        "more": JSON,
    },
)


@given(DOCUMENTS | JSON)
def test_normalising_twice_equals_once(written: Any) -> None:
    once = normalise(written)
    again = normalise(once.document)

    assert again.document == once.document
    assert again.notes == ()


@given(DOCUMENTS | JSON)
def test_zs_18_neither_the_defaults_nor_what_was_written_is_changed(written: Any) -> None:
    before, defaults = repr(written), json.dumps(dict(DEFAULTS))

    merged = complete(written)
    merged["tools"]["*"].clear()
    merged["tools"]["shell"]["safe_bins"].append("rm")

    assert repr(written) == before
    assert json.dumps(dict(DEFAULTS)) == defaults


def test_zs_18_overrides_are_merged_into_a_copy_of_the_defaults() -> None:
    written = {"tools": {"shell": {"timeout_sec": 5}, "mail_*": {"ask": "always"}}, "result_min_chars": 300}
    expected = deepcopy(dict(DEFAULTS))
    expected["tools"]["shell"]["timeout_sec"] = 5.0
    expected["tools"]["mail_*"] = {"ask": "always"}
    expected["result_min_chars"] = 300

    assert complete(written) == expected


def test_zs_18_what_is_kept_shares_no_list_with_what_was_written() -> None:
    programs = ["ls"]
    found = normalise({"tools": {"shell": {"safe_bins": programs}}}).document

    programs.append("rm")

    assert found["tools"]["shell"]["safe_bins"] == ["ls"]


@given(DOCUMENTS | JSON)
def test_a_document_and_its_normal_form_make_the_same_envelope(written: Any) -> None:
    as_written, in_order = Layer("organisation", written), Layer("organisation", normalise(written).document)

    for spec in (SHELL, WEB):
        assert envelope_for(spec, [as_written]).envelope == envelope_for(spec, [in_order]).envelope


@pytest.mark.parametrize(
    ("name", "asked", "in_force", "why"),
    [
        ("timeout_sec", 0, 1, "0 is below the minimum of 1"),
        ("timeout_sec", -5.5, 1, "-5.5 is below the minimum of 1"),
        ("timeout_sec", 9_999, 600, "9,999 is above the maximum of 600"),
        ("timeout_sec", 10**400, 600, f"{10**400:,}"[:59] + "… is above the maximum of 600"),
        ("timeout_sec", 0.5, 1, "0.5 is below the minimum of 1"),
        ("timeout_sec", 600, 600, ""),
        ("yield_ms", 5, 1_000, "5 is below the minimum of 1,000"),
        ("max_result_chars", 10, 200, "10 is below the minimum of 200"),
        ("max_result_chars", 10**7, 1_000_000, "10,000,000 is above the maximum of 1,000,000"),
        ("max_result_chars", 300.0, 300, ""),
        ("max_input_chars", 1, 100, "1 is below the minimum of 100"),
    ],
)
def test_zs_19_numbers_are_held_in_their_range(name: str, asked: Any, in_force: Any, why: str) -> None:
    found = knob(SHELL, name, layer(shell={name: asked}))

    assert (found.asked, found.in_force, found.why) == (asked, in_force, why)


@pytest.mark.parametrize(
    ("asked", "in_force"),
    [
        (["ls", "cat", "ls"], ("ls", "cat")),
        ([" ls ", "ls"], ("ls",)),
        (["ls", "/bin/rm", "", None, 7, "a b", "rm;", "../x", "-x"], ("ls",)),
        (["sh", "env", "xargs", "ls"], ("ls",)),
        ([f"p{number}" for number in range(200)], tuple(f"p{number}" for number in range(100))),
        ([], ()),
    ],
)
def test_zs_20_a_list_has_each_name_once_and_only_names(asked: list[Any], in_force: tuple[str, ...]) -> None:
    assert value(SHELL, "safe_bins", layer(shell={"safe_bins": asked})) == in_force


def test_zs_22_a_knob_says_what_was_asked_what_is_in_force_whose_it_is_and_why() -> None:
    found = knob(
        SHELL,
        "timeout_sec",
        layer(shell={"timeout_sec": 60}),
        layer("provider OpenAI", shell={"timeout_sec": 10_000}),
    )

    assert (found.asked, found.in_force, found.layer) == (10_000, 600, "provider OpenAI")
    assert found.why == "10,000 is above the maximum of 600"
    assert [(each.layer, each.pattern, each.read.value) for each in found.layer_settings] == [
        ("default", "*", 20),
        ("default", "shell", 20),
        ("tool", "", 20),
        ("organisation", "shell", 60),
        ("provider OpenAI", "shell", 600),
    ]


# -- Layers -----------------------------------------------------------------------------------------------------------


def test_layers_count_from_the_outermost_to_the_innermost() -> None:
    layers = [
        layer("organisation", **{"*": {"timeout_sec": 11, "yield_ms": 1_111, "ask": "always", "max_input_chars": 111}}),
        layer("provider OpenAI", shell={"timeout_sec": 12, "yield_ms": 1_222, "ask": "first_time"}),
        layer("agent Coder", shell_exec={"timeout_sec": 13, "yield_ms": 1_333}),
    ]
    spec = SHELL.overridden(Overrides(14.0))

    envelope = envelope_for(spec, layers).envelope

    assert (envelope.timeout, envelope.yield_ms, envelope.ask, envelope.max_input_chars) == (
        14,
        1_333,
        "first_time",
        111,
    )


def test_an_inner_layer_counts_more_however_general_its_pattern() -> None:
    layers = [layer("organisation", shell_exec={"timeout_sec": 11}), layer("agent Coder", **{"*": {"timeout_sec": 12}})]

    assert value(SHELL, "timeout_sec", *layers) == 12


@pytest.mark.parametrize("is_reversed", [False, True])
def test_within_a_layer_the_more_specific_pattern_counts(is_reversed: bool) -> None:
    patterns = ["*", "group:system", "sh*", "shell*", "shell", "shell_exec"]

    assert sorted(patterns, key=specificity) == patterns
    for number in range(1, len(patterns) + 1):
        said = [(pattern, {"timeout_sec": 10 + place}) for place, pattern in enumerate(patterns[:number])]
        found = knob(SHELL, "timeout_sec", layer(**dict(reversed(said) if is_reversed else said)))
        assert (found.in_force, found.layer_settings[-1].pattern) == (9 + number, patterns[number - 1])


@pytest.mark.parametrize("pattern", ["SHELL", "Shell_Exec", "group:SYSTEM", "shell"])
def test_patterns_are_read_as_everywhere(pattern: str) -> None:
    assert value(SHELL, "timeout_sec", layer(**{pattern: {"timeout_sec": 7}})) == 7


def test_what_is_said_of_one_tool_is_not_said_of_another() -> None:
    said = layer(shell={"timeout_sec": 7}, **{"group:system": {"yield_ms": 2_000}})

    assert envelope_for(OTHER, [said]).envelope == envelope_for(OTHER, []).envelope


def test_a_tool_has_only_its_own_knobs() -> None:
    said = layer(**{"*": {"security": "full", "cache_ttl_sec": 9}})

    assert "security" not in {each.knob.name for each in envelope_for(WEB, [said]).knobs}
    assert envelope_for(WEB, [said]).envelope.security == "deny"
    assert envelope_for(SHELL, [said]).envelope.cache_ttl_sec == 300


def test_the_version_counts_more_than_a_default_and_is_taken_as_it_is() -> None:
    own = Envelope("retry", 0.25, 90_000, untrusted_output=True, in_untrusted="ask")

    resolved = envelope_for(spec_of("shell_exec", own=own), [])

    assert resolved.envelope == replace(own, yield_ms=10_000)
    assert {each.knob.name: each.layer for each in resolved.knobs}["timeout_sec"] == "tool"


def test_a_toolkit_says_further_knobs_too() -> None:
    spec = SHELL.overridden(Overrides(None, 900, (("ask", "always"), ("safe_bins", ("ls",)))))

    found = envelope_for(spec, [layer(shell={"ask": "off", "timeout_sec": 9})]).envelope

    assert (found.ask, found.safe_bins, found.max_result_chars, found.timeout) == ("always", ("ls",), 900, 9)


def test_a_profile_names_only_what_can_be() -> None:
    for document in PROFILES.values():
        assert normalise(document).notes == ()
