"""What the hooks of a phase make of a value, one after the other, and what becomes of it where one fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from capabilities.contract.decisions import Verb
from capabilities.contract.hook_entries import hook_from, normalised
from capabilities.contract.hook_phases import (
    Forced,
    Outside,
    PhaseResult,
    deep_merged,
    run_after_call,
    run_before_call,
    run_prompt,
    run_resolve,
)
from capabilities.contract.hooks import Facts, Failure, HookFailed, HookSpec, OnError, Phase, in_order

FACTS = Facts(turn="t", agent="a", provider="p", member="m", tool="shell_exec", category="system")


def hook(action: str, name: str = "h", *, phase: str = "", when: Any = None, **settings: Any) -> HookSpec:
    entry: dict[str, Any] = {"name": name, "action": action, "settings": settings, "when": when or {}}
    return hook_from(name, normalised(entry | ({"phase": phase} if phase else {})))


def python(phase: str, on_error: str = "", name: str = "h", timeout: float = 5.0) -> HookSpec:
    entry = {"name": name, "phase": phase, "action": "python", "settings": {"entry_point": "x"}, "on_error": on_error}
    return hook_from(name, normalised(entry | {"timeout": timeout}))


def answering(answer: Any) -> Outside:
    """Every Python hook answers this, or fails with it."""

    def call(hook: HookSpec, given: Mapping[str, Any], seconds: float) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Outside(call)


def before(
    *hooks: HookSpec, arguments: Any = None, outside: Outside | None = None, check: Any = lambda arguments: ""
) -> PhaseResult[Any]:
    return run_before_call(in_order(hooks), arguments or {}, FACTS, check, outside or Outside())


def after(*hooks: HookSpec, result: str = "{}", outside: Outside | None = None) -> PhaseResult[str]:
    return run_after_call(in_order(hooks), result, FACTS, {}, outside or Outside())


# -- before_model_resolve ---------------------------------------------------------------------------------------------


def resolve(*hooks: HookSpec, outside: Outside | None = None) -> PhaseResult[tuple[str, str]]:
    def force(model: tuple[str, str], to: Forced) -> tuple[tuple[str, str], str]:
        if to.provider == "off":
            raise HookFailed(Failure.MISSING, "The provider is switched off.")
        made = (to.provider or model[0], to.model or model[1])
        return made, " ".join(made)

    def facts_of(model: tuple[str, str]) -> Facts:
        return Facts("t", "a", model[0])

    return run_resolve(in_order(hooks), ("p", "m"), facts_of, force, outside or Outside())


@pytest.mark.parametrize(
    ("forcing", "model"),
    [
        (hook("set_provider", provider="q"), ("q", "m")),
        (hook("set_model", model="n"), ("p", "n")),
        (hook("set_provider_and_model", provider="q", model="n"), ("q", "n")),
    ],
)
def test_zs_37_provider_and_model_are_set(forcing: HookSpec, model: tuple[str, str]) -> None:
    result = resolve(forcing)

    assert result.value == model
    assert [each.did for each in result.traces] == [f"set the model {' '.join(model)}"]


def test_zs_37_a_later_hook_sees_the_provider_that_an_earlier_one_set() -> None:
    first = hook("set_provider", "a", provider="q")
    second = hook("set_model", "b", when={"providers": ["q"]}, model="n")
    third = hook("set_model", "c", when={"providers": ["p"]}, model="never")

    assert resolve(first, second, third).value == ("q", "n")


def test_a_provider_that_is_not_there_is_a_failure_and_the_model_stays() -> None:
    result = resolve(hook("set_provider", provider="off"))

    assert result.value == ("p", "m")
    assert [(each.failure, each.stopped) for each in result.traces] == [(Failure.MISSING, False)]


def test_a_python_hook_sets_the_model() -> None:
    result = resolve(python("before_model_resolve"), outside=answering({"provider": "q", "model": "n"}))

    assert result.value == ("q", "n")


# -- before_prompt_build ----------------------------------------------------------------------------------------------


def test_zs_38_the_prompt_is_patched_in_series() -> None:
    hooks = (
        hook("append_prompt", "a", text="Be brief."),
        hook("prepend_prompt", "b", text="You are in a test."),
        hook("replace_in_prompt", "c", find="brief", text="short"),
        hook("replace_in_prompt", "d", find="nowhere", text="x"),
    )

    result = run_prompt(in_order(hooks), "You help.", FACTS, Outside())

    assert result.value == "You are in a test.\n\nYou help.\n\nBe short."
    assert [each.hook.name for each in result.traces] == ["a", "b", "c"]  # d did nothing


def test_zs_60_a_prompt_is_patched_where_there_was_none() -> None:
    assert run_prompt([hook("append_prompt", text="Be brief.")], "", FACTS, Outside()).value == "Be brief."


# -- before_tool_call -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "blocked"),
    [({}, True), ({"tools": ["shell_exec"]}, True), ({"tools": ["shell_*"]}, True), ({"tools": ["web_*"]}, False)],
)
def test_zs_40_one_tool_a_pattern_or_all_are_blocked_with_a_message(when: Any, blocked: bool) -> None:
    result = before(hook("block_tool", when=when, message="Frozen."))

    assert [(each.verb, each.source, each.for_model) for each in result.value.decisions] == (
        [(Verb.DENY, "hook h", "Frozen.")] if blocked else []
    )


@pytest.mark.parametrize(
    ("mode", "values", "merged"),
    [
        ("deep", {"timeout": 5}, {"timeout": 5, "options": {"safe": False, "depth": 2}}),
        ("deep", {"options": {"safe": True}}, {"timeout": 90, "options": {"safe": True, "depth": 2}}),
        ("set", {"options": {"safe": True}}, {"timeout": 90, "options": {"safe": True}}),
    ],
)
def test_zs_42_input_is_merged(mode: str, values: dict[str, Any], merged: dict[str, Any]) -> None:
    arguments = {"timeout": 90, "options": {"safe": False, "depth": 2}}

    result = before(hook("merge_input", mode=mode, values=values), arguments=arguments)

    assert result.value.arguments == merged
    assert arguments == {"timeout": 90, "options": {"safe": False, "depth": 2}}
    assert [each.did for each in result.traces] == [f"changed {next(iter(values))}"]


def test_true_is_not_one_in_merged_input() -> None:
    assert before(hook("merge_input", values={"all": True}), arguments={"all": 1}).value.arguments["all"] is True


@pytest.mark.parametrize("mode", ["deep", "set"])
@pytest.mark.parametrize(
    ("arguments", "values"),
    [({"all": 1}, {"all": True}), ({"at": {"all": 1}}, {"at": {"all": True}}), ({"at": [0]}, {"at": [False]})],
)
def test_merged_input_that_only_python_takes_for_the_same_is_merged_and_checked(
    mode: str, arguments: dict[str, Any], values: dict[str, Any]
) -> None:
    merging, checked = hook("merge_input", mode=mode, values=values), list[Any]()

    def check(changed: Mapping[str, Any]) -> str:
        checked.append(changed)
        return "" if len(checked) == 1 else "not of the type"

    made = run_before_call([merging], arguments, FACTS, check, Outside())
    refused = run_before_call([merging], arguments, FACTS, check, Outside())

    assert json.dumps(made.value.arguments) == json.dumps(values)
    assert json.dumps(checked) == json.dumps([values, values])
    assert (refused.value.arguments, len(refused.failed)) == (arguments, 1)


def test_an_argument_that_no_hook_touches_is_not_looked_at() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"in": deep}
    merging = hook("merge_input", values={"timeout": 10})

    made = before(merging, arguments={"deep": deep, "timeout": 90})

    assert made.value.arguments["timeout"] == 10
    assert made.failed == []


def test_merged_input_that_does_not_fit_the_schema_is_a_failure_and_does_not_count() -> None:
    result = before(
        hook("merge_input", "a", values={"timeout": "soon"}),
        hook("merge_input", "b", values={"limit": 3}),
        check=lambda arguments: "timeout: not a number" if arguments.get("timeout") == "soon" else "",
    )

    assert result.value.arguments == {"limit": 3}
    assert [(each.hook.name, each.failure) for each in result.traces] == [("a", Failure.MALFORMED), ("b", None)]


def test_a_later_hook_sees_the_arguments_that_an_earlier_one_made() -> None:
    first = hook("merge_input", "a", values={"command": "ls"})
    second = hook("block_tool", "b", when={"arguments": [{"name": "command", "pattern": "rm*"}]}, message="No.")

    assert not before(first, second, arguments={"command": "rm x"}).value.is_denied
    assert before(second, arguments={"command": "rm x"}).value.is_denied


def test_zs_39_context_is_kept_for_the_model() -> None:
    assert before(hook("inject_context", text="Prices are net.")).value.context == ("Prices are net.",)


def test_nothing_runs_behind_a_hook_that_blocks() -> None:
    result = before(
        hook("ask", "a", message="Sure?"), hook("block_tool", "b", message="No."), hook("ask", "c", message="?")
    )

    assert [each.verb for each in result.value.decisions] == [Verb.ASK, Verb.DENY]


@pytest.mark.parametrize(
    ("answer", "verbs", "arguments"),
    [
        (None, [], {"x": 1}),
        ({}, [], {"x": 1}),
        ({"decision": "allow"}, [], {"x": 1}),
        ({"decision": "deny", "reason_for_model": "No."}, [Verb.DENY], {"x": 1}),
        ({"decision": "ask"}, [Verb.ASK], {"x": 1}),
        ({"decision": "modify", "arguments": {"x": 2}}, [], {"x": 2}),
        ({"arguments": {"x": 2}}, [], {"x": 2}),
        ({"arguments": {"x": 2}, "decision": "ask"}, [Verb.ASK], {"x": 2}),
    ],
)
def test_a_python_hook_answers_allow_ask_deny_or_modify(answer: Any, verbs: list[Verb], arguments: Any) -> None:
    result = before(python("before_tool_call"), arguments={"x": 1}, outside=answering(answer))

    assert [each.verb for each in result.value.decisions] == verbs
    assert result.value.arguments == arguments
    assert result.failed == []


# -- after_tool_call --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "made"),
    [
        ("42", "42\n\nNet."),
        ('{"price": 5}', '{"price": 5, "note": "Net."}'),
        ('{"note": "Old."}', '{"note": "Old.\\nNet."}'),
        ("{broken", "{broken\n\nNet."),
    ],
)
def test_zs_43_a_note_is_appended_and_json_stays_json(result: str, made: str) -> None:
    assert after(hook("append_note", text="Net."), result=result).value == made


@pytest.mark.parametrize(
    ("field", "result", "made"),
    [
        ("a", '{"a": 1, "b": 2}', '{"a": null, "b": 2}'),
        ("a.b", '{"a": {"b": 1}}', '{"a": {"b": null}}'),
        ("a.b", "{}", '{"a": {"b": null}}'),
    ],
)
def test_zs_44_a_field_is_set(field: str, result: str, made: str) -> None:
    assert after(hook("set_field", field=field, value=None), result=result).value == made


@pytest.mark.parametrize("result", ["plain", "[1]", '{"a": 1}', "{" * 5_000])
def test_zs_44_a_field_of_what_has_none_is_a_failure(result: str) -> None:
    made = after(hook("set_field", field="a.b", value=1), result=result)

    assert made.value == result
    assert [each.failure for each in made.traces] == [Failure.MALFORMED]


def test_zs_45_a_result_is_truncated() -> None:
    made = after(hook("truncate", chars=100), result="x" * 5_000)

    assert len(made.value) <= 100
    assert [each.did for each in made.traces] == ["cut the result to 100 characters"]
    assert after(hook("truncate", chars=100), result="short").traces == ()


def test_a_later_hook_sees_the_result_that_an_earlier_one_made() -> None:
    hooks = (hook("set_field", "a", field="secret", value="hidden"), hook("append_note", "b", text="Net."))

    assert json.loads(after(*hooks, result='{"secret": "s3"}').value) == {"secret": "hidden", "note": "Net."}


# -- Failures ---------------------------------------------------------------------------------------------------------

FAILURES = {
    "timeout": HookFailed(Failure.TIMEOUT, "It took longer than 5 seconds."),
    "exception": HookFailed(Failure.EXCEPTION, "ValueError"),
    "missing": HookFailed(Failure.MISSING, "No installed package has it."),
    "malformed": ["not", "an", "object"],
}
#: Phase, on_error ("": the default), and whether a failure lets the call, result or turn go on.
TABLE = [
    ("before_model_resolve", "", True),
    ("before_model_resolve", "continue", True),
    ("before_model_resolve", "deny", False),
    ("before_model_resolve", "disable", True),
    ("before_prompt_build", "", True),
    ("before_prompt_build", "continue", True),
    ("before_prompt_build", "deny", False),
    ("before_prompt_build", "disable", True),
    ("before_tool_call", "", False),
    ("before_tool_call", "continue", True),
    ("before_tool_call", "deny", False),
    ("before_tool_call", "disable", False),
    ("after_tool_call", "", True),
    ("after_tool_call", "continue", True),
    ("after_tool_call", "deny", False),
    ("after_tool_call", "disable", True),
]


@pytest.mark.parametrize("failure", list(FAILURES))
@pytest.mark.parametrize(("phase", "on_error", "goes_on"), TABLE)
def test_zs_46_and_zs_48_what_each_failure_does_under_each_on_error(
    phase: str, on_error: str, goes_on: bool, failure: str
) -> None:
    failing, outside = python(phase, on_error), answering(FAILURES[failure])
    result: PhaseResult[Any]
    match phase:
        case "before_model_resolve":
            result = resolve(failing, outside=outside)
            assert result.value == ("p", "m")
        case "before_prompt_build":
            result = run_prompt([failing], "You help.", FACTS, outside)
            assert result.value == "You help."
        case "before_tool_call":
            result = before(failing, arguments={"x": 1}, outside=outside)
            assert result.value.is_denied is not goes_on
            assert result.value.arguments == {"x": 1}
        case _:
            result = after(failing, result="secret", outside=outside)
            assert ("secret" in result.value) is goes_on

    (trace,) = result.failed
    assert (str(trace.failure), bool(trace.error)) == (failure, True)
    assert (result.stopped_by is None) is goes_on


@pytest.mark.parametrize(
    ("phase", "answer"),
    [
        ("before_model_resolve", {"model": 5}),
        ("before_model_resolve", {"arguments": {}}),
        ("before_prompt_build", {"prompt": None}),
        ("before_tool_call", {"decision": "sure"}),
        ("before_tool_call", {"arguments": []}),
        ("before_tool_call", {"decision": "deny", "reason": "x"}),
        ("before_tool_call", {1: 2}),
        ("after_tool_call", {"result": {"a": 1}}),
    ],
)
def test_an_answer_of_another_form_is_malformed(phase: str, answer: Any) -> None:
    failing, outside = python(phase), answering(answer)
    match phase:
        case "before_model_resolve":
            result: PhaseResult[Any] = resolve(failing, outside=outside)
        case "before_prompt_build":
            result = run_prompt([failing], "p", FACTS, outside)
        case "before_tool_call":
            result = before(failing, outside=outside)
        case _:
            result = after(failing, outside=outside)

    assert [each.failure for each in result.traces] == [Failure.MALFORMED]


def test_zs_48_a_broken_hook_that_blocks_denies_the_call_and_says_which() -> None:
    broken = hook_from("1", {"name": "freeze", "phase": "before_tool_call", "action": "block_tool", "settings": 5})

    result = before(broken)

    (decision,) = result.value.decisions
    assert decision.verb == Verb.DENY
    assert decision.for_model.startswith("Not run: the hook freeze failed")


@pytest.mark.parametrize(("phase", "action"), [("before_model_resolve", "set_provider"), ("before_tool_call", "ask")])
def test_zs_48_a_broken_hook_says_what_is_wrong_with_it(phase: str, action: str) -> None:
    broken = hook_from("1", {"name": "h", "phase": phase, "action": action, "settings": 5})

    result = resolve(broken) if phase == "before_model_resolve" else before(broken)

    assert [(each.failure, each.error) for each in result.traces] == [
        (Failure.MALFORMED, "The settings of an action are an object.")
    ]


def test_nothing_runs_behind_a_hook_that_failed_and_lets_nothing_through() -> None:
    failing = hook("set_field", "a", field="x", value=1)
    failing = hook_from(
        "a", {"name": "a", "action": "set_field", "settings": dict(failing.settings), "on_error": "deny"}
    )

    result = after(failing, hook("append_note", "b", text="Net."), result="plain")

    assert [each.hook.name for each in result.traces] == ["a"]
    assert json.loads(result.value)["error"].startswith("The tool ran, but its result is withheld")


def test_a_broken_hook_that_does_not_block_is_a_warning_and_does_nothing() -> None:
    broken = hook_from("1", {"name": "h", "phase": "before_prompt_build", "action": "append_prompt", "settings": 5})

    result = run_prompt([broken], "You help.", FACTS, Outside())

    assert result.value == "You help."
    assert [(each.failure, each.stopped) for each in result.traces] == [(Failure.MALFORMED, False)]


def test_behind_a_failure_that_does_not_deny_the_next_hook_runs() -> None:
    first, second = python("before_tool_call", "continue", "a"), hook("inject_context", "b", text="c")

    assert before(first, second, outside=answering(FAILURES["timeout"])).value.context == ("c",)


def test_a_phase_has_a_bound_on_its_time() -> None:
    now = [0.0]
    asked = []

    def slow(hook: HookSpec, given: Mapping[str, Any], seconds: float) -> Any:
        asked.append((hook.name, seconds))
        now[0] += 20.0

    hooks = [python("after_tool_call", name=name, timeout=25.0) for name in "abc"]
    note = hook("append_note", "d", text="n")
    outside = Outside(slow, clock=lambda: now[0], seconds=30.0)

    result = after(*hooks, note, result="r", outside=outside)

    assert asked == [("a", 25.0), ("b", 10.0)]
    assert [(each.hook.name, each.failure) for each in result.traces] == [("c", Failure.TIMEOUT), ("d", None)]
    assert result.value == "r\n\nn"


def test_a_python_hook_is_given_plain_data() -> None:
    given: list[Any] = []

    def keep(hook: HookSpec, data: Mapping[str, Any], seconds: float) -> Any:
        given.append(data)

    before(python("before_tool_call"), arguments={"x": 1}, outside=Outside(keep, about={"agent": "helper"}))

    assert given == [
        {
            "phase": "before_tool_call",
            "hook": "h",
            "config": {},
            "agent": "helper",
            "arguments": {"x": 1},
            "tool": "shell_exec",
            "category": "system",
        }
    ]
    assert json.loads(json.dumps(given[0])) == given[0]


def test_zs_42_objects_are_merged_and_anything_else_is_replaced() -> None:
    below = {"a": {"b": 1, "c": [1]}, "d": 1}

    assert deep_merged(below, {"a": {"c": [2]}, "d": {"e": 1}}) == {"a": {"b": 1, "c": [2]}, "d": {"e": 1}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 1}


def test_a_hook_of_another_phase_does_not_run() -> None:
    assert after(hook("block_tool", message="No.")).traces == ()
    assert HookSpec("1", "h", Phase.AFTER_TOOL_CALL, "append_note", on_error=OnError.DENY).denies
