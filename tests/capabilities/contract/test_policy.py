"""Table tests of every statement on policies (docs/requirements.md, Runtime contract), and what holds of any policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.contract.patterns import Patterns, matching_pattern
from capabilities.contract.policy import (
    PolicyLayer,
    PolicyRules,
    Profile,
    Rule,
    filtered,
    lists_without_tools,
    names_nothing,
    normalised,
    profile_from,
    rules_from,
    unknown_patterns,
)


@dataclass(frozen=True)
class Tool:
    name: str
    category: str = "other"
    effect: str = "read"


READ, GREP, WRITE = Tool("file_read", "file"), Tool("file_grep", "file"), Tool("file_write", "file", "write")
FETCH, SEARCH = Tool("web_read", "web"), Tool("web_search", "web")
RECALL, STORE = Tool("memory_search", "memory"), Tool("memory_store", "memory", "write")
KNOWLEDGE, ASK, SHELL = Tool("knowledge", "memory"), Tool("ask_user", "session"), Tool("shell_exec", "system", "write")
TOOLS = (READ, GREP, WRITE, FETCH, SEARCH, RECALL, STORE, KNOWLEDGE, ASK, SHELL)
MINIMAL = Profile(
    "minimal", ("read", "file_search", "web_fetch", "web_search", "memory", "knowledge", "ask_user"), reads_only=True
)


def kept(*layers: PolicyRules, tools: Any = TOOLS) -> list[str]:
    found = filtered(tools, [PolicyLayer(f"layer {number}", rules) for number, rules in enumerate(layers, start=1)])
    return [tool.name for tool in found.tools]


def names(*tools: Tool) -> list[str]:
    return [tool.name for tool in tools]


# -- One layer --------------------------------------------------------------------------------------------------------


def test_zs_23_it_takes_tools_and_a_policy_and_gives_tools_and_reasons() -> None:
    found = filtered([READ, SHELL], [PolicyLayer("the policy", PolicyRules(deny=("shell",)))])

    assert found.tools == (READ,)
    assert [(each.tool, each.reason) for each in found.rulings] == [
        ("file_read", "the policy does not deny it"),
        ("shell_exec", "the policy denies shell"),
    ]


def test_zs_24_the_providers_layer_gets_what_the_organisations_kept() -> None:
    full, grok = PolicyRules(deny=("shell",)), PolicyRules(profile=MINIMAL)

    claude, of_grok = kept(full), kept(full, grok)

    assert claude == names(READ, GREP, WRITE, FETCH, SEARCH, RECALL, STORE, KNOWLEDGE, ASK)
    assert of_grok == names(READ, GREP, FETCH, SEARCH, RECALL, KNOWLEDGE, ASK)
    assert kept(full, PolicyRules(allow=("*",), also_allow=("shell",))) == claude


def test_zs_25_a_policy_adds_nothing_that_is_not_there() -> None:
    assert kept(PolicyRules(allow=("file_read", "rocket"), also_allow=("moon",)), tools=[READ]) == ["file_read"]


ORDER = [
    (PolicyRules(), names(*TOOLS)),
    (PolicyRules(profile=MINIMAL), names(READ, GREP, FETCH, SEARCH, RECALL, KNOWLEDGE, ASK)),
    (PolicyRules(profile=MINIMAL, allow=("shell",)), ["shell_exec"]),
    (PolicyRules(profile=MINIMAL, also_allow=("shell",)), [*kept(PolicyRules(profile=MINIMAL)), "shell_exec"]),
    (PolicyRules(allow=("read",), also_allow=("shell",)), ["file_read", "shell_exec"]),
    (PolicyRules(profile=MINIMAL, allow=("group:file",), also_allow=("shell",), deny=("*_write",)),
     ["file_read", "file_grep", "shell_exec"]),
    (PolicyRules(also_allow=("shell",)), names(*TOOLS)),
    (PolicyRules(deny=("*",), also_allow=("*",), allow=("*",)), []),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "wanted"), ORDER)
def test_zs_26_the_order_is_profile_allow_also_allow_deny(rules: PolicyRules, wanted: list[str]) -> None:
    assert kept(rules) == wanted


def test_zs_27_allow_takes_the_place_of_the_profile() -> None:
    assert kept(PolicyRules(profile=MINIMAL, allow=("file_write",))) == ["file_write"]


def test_zs_28_also_allow_adds_to_the_profile_and_to_allow() -> None:
    assert "shell_exec" in kept(PolicyRules(profile=MINIMAL, also_allow=("shell",)))
    assert kept(PolicyRules(allow=("knowledge",), also_allow=("ask_user",))) == ["knowledge", "ask_user"]


def test_zs_29_deny_removes_what_also_allow_added() -> None:
    assert kept(PolicyRules(allow=("knowledge",), also_allow=("ask_user",), deny=("ASK_*",))) == ["knowledge"]


def test_zs_30_the_profile_minimal_keeps_its_seven() -> None:
    by_name = {pattern: kept(PolicyRules(profile=Profile("one", (pattern,), True))) for pattern in MINIMAL.patterns}

    assert by_name == {
        "read": ["file_read"],
        "file_search": ["file_grep"],
        "web_fetch": ["web_read"],
        "web_search": ["web_search"],
        "memory": ["memory_search"],
        "knowledge": ["knowledge"],
        "ask_user": ["ask_user"],
    }


def test_zs_31_nothing_that_minimal_keeps_changes_anything() -> None:
    found = filtered(TOOLS, [PolicyLayer("it", PolicyRules(profile=MINIMAL))])

    assert {tool.effect for tool in found.tools} == {"read"}
    (reason,) = (each.reason for each in found.rulings if each.tool == "memory_store")
    assert "profile minimal" in reason
    assert "only tools that read" in reason


def test_zs_33_the_same_policy_and_tools_give_the_same_again() -> None:
    layers = [
        PolicyLayer("one", PolicyRules(allow=("group:*",), deny=("*_write",))),
        PolicyLayer("two", PolicyRules(MINIMAL)),
    ]

    assert filtered(TOOLS, layers) == filtered(TOOLS, layers)


REASONS = [
    (PolicyRules(), "does not deny it", Rule.UNLIMITED, True),
    (PolicyRules(deny=("x", "file_*", "*")), "denies file_*", Rule.DENY, False),
    (PolicyRules(allow=("Read",)), "allows Read", Rule.ALLOW, True),
    (PolicyRules(allow=("web_*",)), "allows only listed tools, and not this one", Rule.ALLOW, False),
    (PolicyRules(allow=("web_*",), also_allow=("group:FILE",)), "also allows group:FILE", Rule.ALSO_ALLOW, True),
    (PolicyRules(MINIMAL), "begins with profile minimal, which names read", Rule.PROFILE, True),
    (PolicyRules(Profile("web", ("web_*",))), "begins with profile web, which does not name it", Rule.PROFILE, False),
    (PolicyRules(is_malformed=True), "cannot be read as it is stored, so it keeps nothing", Rule.MALFORMED, False),
]


@pytest.mark.parametrize(("rules", "reason", "rule", "is_kept"), REASONS)
def test_zs_34_each_tool_has_the_layer_and_the_rule_that_kept_or_dropped_it(
    rules: PolicyRules, reason: str, rule: Rule, is_kept: bool
) -> None:
    ruling = rules.ruling(READ)

    assert (ruling.reason, ruling.rule, ruling.kept) == (reason, rule, is_kept)


def test_zs_34_the_layer_that_dropped_it_is_named_and_later_ones_are_not_asked() -> None:
    found = filtered(
        [SHELL], [PolicyLayer("first", PolicyRules(deny=("shell",))), PolicyLayer("second", PolicyRules(deny=("*",)))]
    )

    assert [each.reason for each in found.rulings] == ["first denies shell"]


def test_zs_35_names_are_the_same_in_any_case_and_groups_are_categories() -> None:
    assert kept(PolicyRules(allow=("FILE_*", "Group:Web", "SHELL"))) == names(READ, GREP, WRITE, FETCH, SEARCH, SHELL)


def test_zs_35_a_list_that_names_only_unknown_tools_is_found() -> None:
    assert lists_without_tools(PolicyRules(allow=("rocket", "moon_*")), TOOLS) == (Rule.ALLOW,)
    assert lists_without_tools(PolicyRules(Profile("p", ("rocket",))), TOOLS) == (Rule.PROFILE,)
    assert lists_without_tools(PolicyRules(Profile("p", ("rocket",)), allow=("read",)), TOOLS) == ()
    assert lists_without_tools(PolicyRules(also_allow=("rocket",), deny=("rocket",)), TOOLS) == ()
    assert lists_without_tools(PolicyRules(Profile("p", ())), TOOLS) == (Rule.PROFILE,)
    assert names_nothing([], TOOLS) is False
    assert unknown_patterns(["read", "rocket", "group:web", "group:moon", "SHELL"], TOOLS) == ("rocket", "group:moon")


@pytest.mark.parametrize("stored", [None, "read", {"read": 1}, [1], [["read"]], ["read", None]])
def test_what_cannot_be_read_keeps_nothing_rather_than_too_much(stored: Any) -> None:
    assert (
        kept(rules_from(stored, [], [])) == kept(rules_from([], stored, [])) == kept(rules_from([], [], stored)) == []
    )
    assert kept(PolicyRules(profile_from("p", stored, False))) == []


def test_ten_thousand_tools_and_two_hundred_patterns_are_read_once() -> None:
    tools = [Tool(f"tool_{number}", f"cat{number % 50}") for number in range(10_000)]
    rules = PolicyRules(allow=tuple(f"*_{number}*" for number in range(200)))

    first = kept(rules, tools=tools)

    assert first == kept(rules, tools=tools) != []


# -- Of any policy ----------------------------------------------------------------------------------------------------

PATTERNS = st.one_of(
    st.sampled_from(["*", "read", "memory", "shell", "file_*", "*_search", "group:web", "GROUP:F*", "?eb_*", " read "]),
    st.sampled_from([tool.name for tool in TOOLS]),
    st.text("abfile_*?-[]:", max_size=8),
)
LISTS = st.lists(PATTERNS, max_size=6).map(normalised)
PROFILES = st.one_of(st.none(), st.builds(Profile, st.just("p"), LISTS, st.booleans()))
RULES = st.builds(PolicyRules, PROFILES, LISTS, LISTS, LISTS)
SOME_TOOLS = st.lists(st.sampled_from(TOOLS), unique=True)


@given(SOME_TOOLS, st.lists(RULES, max_size=3))
@settings(max_examples=200, deadline=None)
def test_filtered_tools_keep_their_order_and_filtering_again_changes_nothing(
    tools: list[Tool], rules: list[PolicyRules]
) -> None:
    layers = [PolicyLayer(str(number), each) for number, each in enumerate(rules)]

    found = filtered(tools, layers)

    assert list(found.tools) == [tool for tool in tools if tool in found.tools]
    assert (
        found
        == filtered(tools, layers)
        == filtered(tools, [PolicyLayer(each.title, again(each.rules)) for each in layers])
    )
    assert filtered(found.tools, layers).tools == found.tools
    asked = [each.tool for each in found.rulings if each.layer == "0"]
    assert not layers or asked == [tool.name for tool in tools]


@given(RULES)
@settings(max_examples=200, deadline=None)
def test_deny_always_wins(rules: PolicyRules) -> None:
    for tool in TOOLS:
        if matching_pattern(rules.deny, tool.name, tool.category) is not None:
            assert not rules.ruling(tool).kept


@given(st.lists(st.one_of(PATTERNS, st.text(max_size=5))))
@settings(max_examples=200, deadline=None)
def test_normalising_twice_is_once(patterns: list[str]) -> None:
    once = normalised(patterns)

    assert normalised(once) == once
    assert len({each.casefold() for each in once}) == len(once)


@given(st.lists(PATTERNS, max_size=8), st.sampled_from(TOOLS))
@settings(max_examples=300, deadline=None)
def test_patterns_that_are_read_once_say_what_they_say_one_by_one(patterns: list[str], tool: Tool) -> None:
    found = Patterns(patterns).first_for(tool.name, tool.category)

    assert found == matching_pattern(patterns, tool.name, tool.category)


def again(rules: PolicyRules) -> PolicyRules:
    """The same of its parts."""
    return PolicyRules(rules.profile, rules.allow, rules.also_allow, rules.deny, rules.is_malformed)


def test_zs_20_a_pattern_in_another_spelling_is_the_same_pattern() -> None:
    assert normalised([" Web_* ", "web_*", "WEB_*", "", "shell"]) == ("Web_*", "shell")
