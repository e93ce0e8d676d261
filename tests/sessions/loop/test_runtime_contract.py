"""The runtime contract as a whole: a turn under a policy, hooks and settings, of which its tools know nothing."""

from __future__ import annotations

import ast

import pytest

from capabilities.access.policies.writes import PolicyContent, install_profiles, save_policy
from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.agents.runtime_config.writes import ORGANISATION, set_runtime_config
from capabilities.choosing.pipeline.specs import specs
from capabilities.contract.knobs import knobs_of
from capabilities.contract.runtime import envelope_for
from sessions.models import ChatSession, StepKind, StepStatus
from tests.cast import make_member, make_tool
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, steps_of, tool_steps_of, verdicts_of
from toolhub.tenants.models import Access
from toolhub.tenants.rows.scope import organisation_scope


@pytest.mark.django_db(transaction=True)
def test_zs_01_zs_02_one_configuration_says_which_tools_what_is_injected_and_how_much_is_read(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    alice = make_member(session.organisation, "alice", Access.ADMIN)
    with organisation_scope(session.organisation):
        install_profiles(session.organisation)
        save_policy(None, PolicyContent(deny=("task_*",)), actor=alice)
        set_runtime_config(ORGANISATION, {"tools": {"uuid": {"max_result_chars": 200}}}, actor=alice)
        for name, action, settings in (
            ("polite", "append_prompt", {"text": "Say please."}),
            ("sums", "append_note", {"text": "Checked."}),
        ):
            when = {"tools": ["calculator"]} if name == "sums" else {}
            create_hook(HookContent({"name": name, "action": action, "settings": settings, "when": when}), actor=alice)
    provider.enqueue(Say(calls=[call("calculator", {"expression": "6*7"}), call("uuid", {"count": 20})]), Say("Well."))

    turn = run(session)

    first = provider.requests[0]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["calculator", "uuid"]
    assert first["messages"][0]["content"] == "Be brief.\n\nSay please."
    (model, *_) = steps_of(turn, StepKind.MODEL)
    dropped = [each for each in verdicts_of(model) if not each["kept"]]
    assert [(each["tool"], each["stage"]) for each in dropped] == [("task_create", "policy")]
    added, capped = tool_steps_of(turn)
    assert (added.status, capped.status) == (StepStatus.DONE, StepStatus.DONE)
    assert "Checked." in added.result_sent
    assert "Checked." not in added.result
    assert len(capped.result_sent) <= 200 < len(capped.result)


@pytest.mark.django_db
def test_zs_57_a_new_tool_has_every_knob_without_a_line_of_code_for_it(session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        tool = make_tool(session.organisation, "launch_rocket")
        (spec,) = specs(type(tool).objects.filter(pk=tool.pk))

    resolved = envelope_for(spec, ())

    named = {each.knob.name for each in resolved.knobs}
    assert {each.name for each in knobs_of(spec.name, spec.category)} <= named
    assert {"timeout_sec", "max_result_chars", "yield_ms", "ask", "max_input_chars"} <= named


@pytest.mark.parametrize("name", ["runtime", "policy", "hooks"])
def test_zs_03_zs_62_settings_policy_and_hooks_are_modules_apart_from_each_other_and_from_the_loop(name: str) -> None:
    tree = ast.parse((ROOT / "capabilities" / "contract" / f"{name}.py").read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    others = {f"capabilities.contract.{each}" for each in ("runtime", "policy", "hooks")}
    assert modules & others == set()
    assert [each for each in modules if each.split(".")[0] in ("sessions", "django", "toolhub")] == []
