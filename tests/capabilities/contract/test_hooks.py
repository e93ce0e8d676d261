"""What hooks are: their normal form, their conditions, and what is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.effective import Effective
from capabilities.contract.hook_entries import MalformedHook, hook_from, normalised
from capabilities.contract.hooks import (
    ACTIONS,
    ArgumentPattern,
    Conditions,
    Facts,
    HookSpec,
    OnError,
    Phase,
    default_on_error,
    drawn,
    in_order,
)

BLOCK = {"name": "freeze", "action": "block_tool", "settings": {"message": "Frozen."}}
FACTS = Facts(turn="t", agent="a", provider="p", member="m", tool="shell_exec", category="system")


def test_zs_36_there_are_four_phases() -> None:
    phases = ["before_model_resolve", "before_prompt_build", "before_tool_call", "after_tool_call"]

    assert list(Phase) == phases


@pytest.mark.parametrize(
    ("phase", "actions"),
    [
        ("before_model_resolve", ["set_provider", "set_model", "set_provider_and_model", "python"]),
        ("before_prompt_build", ["prepend_prompt", "append_prompt", "replace_in_prompt", "python"]),
        ("before_tool_call", ["block_tool", "merge_input", "inject_context", "ask", "python"]),
        ("after_tool_call", ["append_note", "set_field", "truncate", "python"]),
    ],
)
def test_zs_37_to_zs_45_each_phase_has_its_actions(phase: str, actions: list[str]) -> None:
    assert [each.name for each in ACTIONS.values() if phase in each.phases] == actions


def test_zs_21_an_entry_gets_every_field() -> None:
    assert normalised(BLOCK) == {
        "name": "freeze",
        "phase": "before_tool_call",
        "action": "block_tool",
        "settings": {"message": "Frozen."},
        "when": {},
        "priority": 100,
        "timeout": 5.0,
        "on_error": "deny",
        "disable_after": 5,
    }


@pytest.mark.parametrize(
    ("entry", "field", "why"),
    [
        ("truncat", "action", "Choose one of"),
        ("block_tool", "settings.message", "Give a text."),
        (None, "", "A hook is an object"),
        (["block_tool"], "", "A hook is an object"),
        ({}, "action", "Choose one of"),
        ({"action": ["block_tool"]}, "action", "Choose one of"),
        ({**BLOCK, "phase": "after_tool_call"}, "action", "no action of after_tool_call"),
        ({"action": "python", "settings": {"entry_point": "x"}}, "phase", "Choose one of"),
        ({**BLOCK, "phase": "during"}, "phase", "Choose one of"),
        ({**BLOCK, "colour": "red"}, "colour", "no such field"),
        ({**BLOCK, "settings": "Frozen."}, "settings", "are an object"),
        ({**BLOCK, "settings": {"message": "x", "tool": "y"}}, "settings.tool", "no such setting"),
        ({**BLOCK, "settings": {"message": "a\x00b"}}, "settings.message", "Give a text"),
        ({**BLOCK, "settings": {"message": 5}}, "settings.message", "Give a text"),
        ({**BLOCK, "when": ["shell"]}, "when", "are an object"),
        ({**BLOCK, "when": {"tool": "shell"}}, "when.tool", "no such condition"),
        ({**BLOCK, "when": {"tools": [5]}}, "when.tools", "Give a line"),
        ({**BLOCK, "when": {"tools": ["x" * 101]}}, "when.tools", "Give a line"),
        ({**BLOCK, "when": {"arguments": ["x"]}}, "when.arguments", "name and a pattern"),
        ({**BLOCK, "when": {"share": "half"}}, "when.share", "Give a number"),
        ({**BLOCK, "when": {"share": True}}, "when.share", "Give a number"),
        ({**BLOCK, "priority": float("nan")}, "priority", "Give a number"),
        ({**BLOCK, "priority": 1.5}, "priority", "whole number"),
        ({**BLOCK, "on_error": "allow"}, "on_error", "Choose one of"),
        ({**BLOCK, "name": ""}, "name", "Give a line"),
        ({"action": "merge_input", "settings": {"values": []}}, "settings.values", "JSON object"),
        ({"action": "merge_input", "settings": {"values": {"a": {1, 2}}}}, "settings.values", "Give JSON"),
        ({"action": "set_field", "settings": {"field": "a"}}, "settings.value", "Give a value"),
        (
            {"action": "append_prompt", "settings": {"text": "x"}, "when": {"tools": ["shell"]}},
            "when.tools",
            "about no tool",
        ),
    ],
)
def test_zs_21_a_malformed_entry_is_refused_with_a_reason(entry: Any, field: str, why: str) -> None:
    with pytest.raises(MalformedHook, match=why) as refused:
        normalised(entry)

    assert refused.value.field == field


def test_zs_21_a_bare_text_is_an_action_or_is_refused() -> None:
    with pytest.raises(MalformedHook) as refused:
        normalised("ask")

    assert refused.value.field == "settings.message"  # the action is known, and what it lacks is named


@pytest.mark.parametrize(
    ("field", "asked", "in_force"),
    [
        ("priority", -5, 0),
        ("priority", 5_000, 1_000),
        ("priority", float("inf"), 1_000),
        ("timeout", 0, 0.1),
        ("timeout", 3_600, 30.0),
        ("disable_after", 0, 1),
        ("disable_after", 10**9, 100),
    ],
)
def test_numbers_are_clamped(field: str, asked: float, in_force: float) -> None:
    assert normalised({**BLOCK, field: asked})[field] == in_force


def test_lists_are_without_duplicates_and_a_bare_text_is_a_list() -> None:
    when = {"tools": "shell", "agents": ["a", "b", "a", " "], "arguments": [{"name": "x", "pattern": "y"}] * 2}

    found = normalised({**BLOCK, "when": when})["when"]

    assert found == {"tools": ["shell"], "agents": ["a", "b"], "arguments": [{"name": "x", "pattern": "y"}]}


def test_what_is_normalised_stays_as_it_was() -> None:
    entry = {**BLOCK, "when": {"tools": ["a", "a"]}, "priority": -1}
    before = copy.deepcopy(entry)

    normalised(entry)

    assert entry == before


@given(
    st.fixed_dictionaries(
        {"action": st.sampled_from(["append_note", "block_tool", "truncate", "ask"])},
        optional={
            "priority": st.integers(-10, 2_000),
            "timeout": st.floats(allow_nan=False),
            "on_error": st.sampled_from(list(OnError)),
            "when": st.fixed_dictionaries(
                {}, optional={"tools": st.lists(st.text("ab*", min_size=1)), "share": st.integers(-5, 200)}
            ),
        },
    )
)
def test_normalising_twice_is_the_same_as_once(entry: dict[str, Any]) -> None:
    settings = {"truncate": {"chars": 5}, "append_note": {"text": "n"}}
    once = normalised({**entry, "settings": settings.get(entry["action"], {"message": "m"})})

    assert normalised(once) == once


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        (Conditions(), True),
        (Conditions(agents=("a", "b")), True),
        (Conditions(agents=("b",)), False),
        (Conditions(providers=("p",)), True),
        (Conditions(providers=("q",)), False),
        (Conditions(members=("m",)), True),
        (Conditions(members=("n",)), False),
        (Conditions(tools=("web_*", "SHELL_*")), True),
        (Conditions(tools=("group:system",)), True),
        (Conditions(tools=("shell",)), True),  # the alias
        (Conditions(tools=("web_*",)), False),
        (Conditions(arguments=(ArgumentPattern("command", "*rm -rf*"),)), True),
        (Conditions(arguments=(ArgumentPattern("command", "ls*"),)), False),
        (Conditions(arguments=(ArgumentPattern("missing", "*"),)), False),
        (Conditions(arguments=(ArgumentPattern("paths", '*"/etc"*'),)), True),
        (Conditions(agents=("a",), tools=("web_*",)), False),
    ],
)
def test_all_conditions_must_hold_and_of_each_list_one(when: Conditions, holds: bool) -> None:
    arguments = {"command": "cd /\nrm -rf x", "paths": ["/etc", "/tmp"]}

    assert when.hold(FACTS, Effective(arguments), "hook") is holds


def test_a_share_is_drawn_by_hook_and_turn_always_the_same() -> None:
    turns = [f"turn {number}" for number in range(2_000)]
    fifth = Conditions(share=20)

    hit = [turn for turn in turns if fifth.hold(replace(FACTS, turn=turn), Effective({}), "hook")]

    assert 300 < len(hit) < 500
    assert hit == [turn for turn in turns if fifth.hold(replace(FACTS, turn=turn), Effective({}), "hook")]
    assert hit != [turn for turn in turns if fifth.hold(replace(FACTS, turn=turn), Effective({}), "another hook")]
    assert all(0 <= drawn("hook", turn) < 100 for turn in turns)


def test_hooks_run_by_priority_then_by_name() -> None:
    hooks = [
        HookSpec(name, name, Phase.AFTER_TOOL_CALL, "append_note", priority=priority)
        for name, priority in (("c", 100), ("b", 100), ("z", 5))
    ]

    assert [each.name for each in in_order(hooks)] == ["z", "b", "c"]


@pytest.mark.parametrize(
    ("phase", "action", "on_error"),
    [
        ("before_tool_call", "block_tool", "deny"),
        ("before_tool_call", "ask", "deny"),
        ("before_tool_call", "python", "deny"),
        ("before_tool_call", "merge_input", "continue"),
        ("before_tool_call", "inject_context", "continue"),
        ("after_tool_call", "python", "continue"),
        ("before_model_resolve", "python", "continue"),
        ("before_prompt_build", "append_prompt", "continue"),
    ],
)
def test_zs_46_a_hook_that_blocks_fails_closed_and_all_others_are_non_fatal(
    phase: str, action: str, on_error: str
) -> None:
    assert default_on_error(phase, action) == on_error


@pytest.mark.parametrize(
    ("on_error", "action", "denies"),
    [
        (OnError.CONTINUE, "block_tool", False),
        (OnError.DENY, "append_note", True),
        (OnError.DISABLE, "block_tool", True),  # until it is switched off
        (OnError.DISABLE, "merge_input", False),
    ],
)
def test_what_a_failure_does_is_said_by_on_error(on_error: OnError, action: str, denies: bool) -> None:
    assert HookSpec("1", "h", Phase.BEFORE_TOOL_CALL, action, on_error=on_error).denies is denies


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "h", "phase": "before_tool_call", "action": "of_a_later_release"},
        {"name": "h", "phase": "before_tool_call", "action": "block_tool", "settings": None},
        {**BLOCK, "phase": "before_tool_call", "when": {"tools": 7}},
    ],
)
def test_a_stored_hook_that_cannot_be_read_is_broken_and_runs_everywhere(entry: dict[str, Any]) -> None:
    hook = hook_from("1", entry)

    assert hook.broken
    assert hook.when == Conditions()
    assert hook.denies is (entry["action"] == "block_tool")


def test_a_stored_hook_is_read_again() -> None:
    stored = normalised({**BLOCK, "when": {"tools": ["shell"], "arguments": [{"name": "x", "pattern": "y"}]}})

    assert hook_from("1", stored) == HookSpec(
        "1",
        "freeze",
        Phase.BEFORE_TOOL_CALL,
        "block_tool",
        {"message": "Frozen."},
        Conditions(tools=("shell",), arguments=(ArgumentPattern("x", "y"),)),
        on_error=OnError.DENY,
    )
