"""Hooks through whole turns: what reaches the model and the tool, what is on record, and what a failure does."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.assistant.models import Task
from capabilities.models import Agent, AskWhen, Hook, LanguageModel, Provider
from sessions.asking.approvals.writes import approve
from sessions.loop.tools.stored_results import number_of, stored_result
from sessions.models import Approval, ChatSession, Step, StepStatus, Turn, TurnEvent, TurnStatus
from tests.cast import make_agent, make_category, make_member, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.installed import install
from tests.sessions.loop.model_calls.test_fallback import NO_CREDIT
from tests.sessions.run_turns import accept, events_of, run, tool_steps_of, work
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

SUM = {"expression": "1+1"}


@pytest.fixture
def other_openai() -> Iterator[ScriptedOpenAI]:
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


def hook(session: ChatSession, action: str, name: str = "h", **fields: Any) -> Hook:
    """A hook of the session's organisation, made by an admin of it; what is no field of it is a setting."""
    known = ("phase", "when", "priority", "timeout", "on_error", "disable_after")
    entry = {"name": name, "action": action, **{each: fields.pop(each) for each in known if each in fields}}
    with organisation_scope(session.organisation_id):
        admin = Membership.objects.filter(access=Access.ADMIN).first() or make_member(
            session.organisation, "alice", Access.ADMIN
        )
        return create_hook(HookContent({**entry, "settings": fields}), actor=admin)


def other_provider(session: ChatSession, url: str, *models: str, slug: str = "second", **fields: Any) -> Provider:
    own = {"organisation": session.organisation}
    with organisation_scope(session.organisation_id):
        provider = Provider.objects.create(**own, slug=slug, name=slug.title(), base_url=url, **fields)
        for name in models:
            LanguageModel.objects.create(**own, provider=provider, name=name)
        return provider


def payloads(turn: Turn, type: str) -> list[Any]:
    with organisation_scope(turn.organisation_id):
        return list(TurnEvent.objects.filter(turn=turn, type=type).order_by("number").values_list("payload", flat=True))


def reread(hook: Hook) -> Hook:
    with organisation_scope(hook.organisation_id):
        return Hook.objects.get(pk=hook.pk)


def only_step(turn: Turn) -> Step:
    (step,) = tool_steps_of(turn)
    return step


# -- The model and the prompt -----------------------------------------------------------------------------------------


def test_zs_47_a_provider_and_model_are_forced_from_configuration(
    session: ChatSession, provider: ScriptedOpenAI, other_openai: ScriptedOpenAI
) -> None:
    other_provider(session, other_openai.url, "large", "small")
    forcing = hook(session, "set_provider_and_model", provider="second", model="small")
    other_openai.enqueue(Say("From the second."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "From the second.")
    assert provider.requests == []
    assert other_openai.requests[0]["model"] == "small"
    did = {"hook": "h", "action": "set_provider_and_model", "did": "set the model small of Second"}
    assert payloads(turn, "model_forced") == [{"hooks": [did]}]
    assert (reread(forcing).fired, reread(forcing).last_fired_at is not None) == (1, True)


def test_zs_37_a_provider_alone_brings_its_model_of_the_same_name_or_its_only_one(
    session: ChatSession, other_openai: ScriptedOpenAI
) -> None:
    other_provider(session, other_openai.url, "large", "scripted")
    hook(session, "set_provider", provider="second")
    other_openai.enqueue(Say("One."))

    run(session)

    assert other_openai.requests[0]["model"] == "scripted"


@pytest.mark.parametrize("kind", ["off", "gone", "ambiguous"])
def test_a_model_that_cannot_be_had_is_a_failure_of_the_hook_and_the_turn_goes_on(
    session: ChatSession, provider: ScriptedOpenAI, kind: str
) -> None:
    second = other_provider(session, "https://second.example.org/v1", "a", "b", is_enabled=kind != "off")
    settings = {"provider": "second"} if kind == "ambiguous" else {"provider": "second", "model": "a"}
    forcing = hook(session, "set_provider" if kind == "ambiguous" else "set_provider_and_model", **settings)
    if kind == "gone":
        with organisation_scope(session.organisation_id):
            second.delete()
    provider.enqueue(Say("As always."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "As always.")
    failed = {"hook": "h", "action": forcing.action, "failure": "missing", "stopped": False}
    assert payloads(turn, "hook_warning") == [{"phase": "before_model_resolve", "hooks": [failed]}]
    assert (reread(forcing).failed, reread(forcing).fired) == (1, 0)


def test_a_failed_hook_that_must_not_let_turns_run_fails_the_turn(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    second = other_provider(session, "https://second.example.org/v1", "a")
    hook(session, "set_provider", provider="second", on_error="deny")
    with organisation_scope(session.organisation_id):
        second.delete()

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "hook_failed")
    assert turn.error_message.startswith("The hook h failed")
    assert provider.requests == []


def test_the_second_model_takes_over_from_a_forced_one(
    session: ChatSession, provider: ScriptedOpenAI, other_openai: ScriptedOpenAI
) -> None:
    other_provider(session, other_openai.url, "forced")
    hook(session, "set_provider", provider="second")
    with organisation_scope(session.organisation_id):
        spare = LanguageModel.objects.create(
            organisation=session.organisation, provider=session.agent.model.provider, name="spare"
        )
        Agent.objects.filter(pk=session.agent_id).update(fallback_model=spare)
    other_openai.enqueue(NO_CREDIT)
    provider.enqueue(Say("From the spare."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "From the spare.")
    assert provider.requests[0]["model"] == "spare"


def test_zs_60_the_prompt_is_patched_and_stays_the_same_in_all_rounds(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "append_prompt", "a", text="Answer in French.")
    hook(session, "replace_in_prompt", "b", find="brief", text="long")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Deux."))

    turn = run(session)

    first, second = provider.requests
    system = {"role": "system", "content": "Be long.\n\nAnswer in French."}
    assert first["messages"][0] == second["messages"][0] == system
    assert [line["hook"] for line in payloads(turn, "prompt_patched")[0]["hooks"]] == ["a", "b"]
    assert len(payloads(turn, "prompt_patched")) == 1
    with organisation_scope(session.organisation_id):
        steps = Step.objects.filter(turn=turn, kind="model").order_by("index")
        assert steps[1].prefix_bytes == steps[0].prompt_bytes  # what a provider's cache can know is all of the first


def test_a_hook_for_another_agent_or_member_does_nothing(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    make_agent(session.organisation, slug="other")
    hook(session, "append_prompt", "a", text="A", when={"agents": ["other"]})
    hook(session, "append_prompt", "b", text="B", when={"members": [str(alice.public_id)]})
    hook(session, "append_prompt", "c", text="C", when={"members": [str(session.membership.public_id)]})
    provider.enqueue(Say("Well."))

    run(session)

    assert provider.requests[0]["messages"][0]["content"] == "Be brief.\n\nC"


# -- Before a call ----------------------------------------------------------------------------------------------------


def test_zs_41_a_blocked_tool_leaves_the_rest_of_the_agent_working(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    blocking = hook(session, "block_tool", when={"tools": ["task_*"]}, message="Tasks are frozen until Monday.")
    provider.enqueue(
        Say(calls=[call("task_create", {"title": "milk"}), call("calculator", SUM)]), Say("I could not add it.")
    )

    turn = run(session)

    refused, done = tool_steps_of(turn)
    assert (turn.status, refused.status, done.status) == (TurnStatus.DONE, StepStatus.REFUSED, StepStatus.DONE)
    assert json.loads(provider.requests[1]["messages"][3]["content"]) == {
        "success": False,
        "error": "Tasks are frozen until Monday.",
        "denied_tool": "task_create",
    }
    assert refused.hooks == [{"hook": "h", "action": "block_tool", "did": "blocked the call"}]
    assert done.hooks == []
    with organisation_scope(session.organisation_id):
        assert Task.objects.count() == 0
    assert reread(blocking).fired == 1


def test_zs_40_all_tools_are_blocked_those_behind_call_tool_too(session: ChatSession, provider: ScriptedOpenAI) -> None:
    hook(session, "block_tool", message="Everything is frozen.")
    provider.enqueue(Say(calls=[call("calculator", SUM), call("uuid")]), Say("Well."))

    turn = run(session)

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED] * 2


def test_zs_42_the_tool_runs_with_merged_input_and_the_step_shows_it(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "merge_input", when={"tools": ["calculator"]}, values={"expression": "2+3"})
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Five."))

    step = only_step(run(session))

    assert "5" in step.result
    assert json.loads(step.arguments) == {"expression": "2+3"}
    assert step.hooks == [{"hook": "h", "action": "merge_input", "did": "changed expression"}]
    asked = provider.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(asked) == SUM  # what the model wrote stays what it wrote


def test_merged_input_that_does_not_fit_the_schema_fails_the_hook_and_the_call_runs_as_it_was(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    failing = hook(session, "merge_input", values={"expression": ["no text"]})
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two."))

    turn = run(session)

    step = only_step(turn)
    assert (step.status, json.loads(step.arguments)) == (StepStatus.DONE, SUM)
    (warning,) = payloads(turn, "hook_warning")
    assert (warning["step"], warning["hooks"][0]["failure"]) == (step.index, "malformed")
    assert "do not fit the tool" in reread(failing).last_error


def test_a_hook_does_not_let_a_call_run_that_the_member_may_not_make(
    session: ChatSession, provider: ScriptedOpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it asked: the right comes first."""
    install(
        tmp_path / "site", monkeypatch, "allowing_all", "def allow(given): return {'decision': 'allow'}", allow="allow"
    )
    allowing = hook(session, "python", phase="before_tool_call", entry_point="allow")
    with organisation_scope(session.organisation_id):
        session.membership.role_memberships.all().delete()
        make_tool(session.organisation, "hash_text")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Well."))

    step = only_step(run(session))

    assert step.status == StepStatus.REFUSED
    assert reread(allowing).fired == reread(allowing).failed == 0


def test_zs_39_context_comes_with_the_result_and_json_stays_json(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "inject_context", text="Sums are in euros.", when={"tools": ["calculator"]})
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two euros."))

    step = only_step(run(session))

    assert json.loads(step.result_sent)["note"] == "Sums are in euros."
    assert "euros" not in step.result


def test_a_call_that_a_hook_asks_for_waits_and_runs_with_the_arguments_that_were_shown(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "merge_input", "a", values={"priority": "high"}, when={"tools": ["task_create"]})
    hook(session, "ask", "b", message="Sure?", when={"tools": ["task_create"]})
    provider.enqueue(Say(calls=[call("task_create", {"title": "milk"})]), Say("Added."))

    turn = run(session)

    with organisation_scope(session.organisation_id):
        assert Task.objects.count() == 0
        assert turn.status == TurnStatus.WAITING_APPROVAL
        approval = Approval.objects.get()
        assert json.loads(approval.arguments) == {"title": "milk", "priority": "high"}
        assert (approval.source, approval.for_people) == ("hook b", "Sure?")
        approve(approval, actor=session.membership)
    done = work(turn)
    assert (done.status, only_step(done).status) == (TurnStatus.DONE, StepStatus.DONE)
    with organisation_scope(session.organisation_id):
        assert Task.objects.get().priority == "high"


# -- After a call -----------------------------------------------------------------------------------------------------


def test_zs_44_the_model_reads_what_hooks_made_of_the_result_and_the_operator_both(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "set_field", "a", field="result", value="hidden", when={"tools": ["calculator"]})
    hook(session, "append_note", "b", text="Rounded.")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two."))

    step = only_step(run(session))

    read = json.loads(provider.requests[1]["messages"][3]["content"])
    assert (read["result"], read["note"]) == ("hidden", "Rounded.")
    assert json.loads(step.result)["result"] != "hidden"
    assert json.loads(step.hooked_result) == read
    assert step.result_for_model == step.hooked_result
    assert [each["hook"] for each in step.hooks] == ["a", "b"]


def test_what_a_hook_took_out_of_a_result_is_not_read_on_either(session: ChatSession, provider: ScriptedOpenAI) -> None:
    hook(session, "set_field", field="result", value="hidden", when={"tools": ["calculator"]})
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two."))
    turn = run(session)

    with organisation_scope(session.organisation_id):
        number = number_of(turn, only_step(turn))
        read = stored_result(number, session_id=session.pk, membership_id=session.membership_id)

    assert json.loads(read)["result"] == "hidden"


def test_a_result_that_a_failed_hook_must_not_let_through_is_withheld(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "set_field", field="result.inside", value="hidden", on_error="deny", when={"tools": ["calc*"]})
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Well."))

    step = only_step(run(session))

    assert step.status == StepStatus.DONE  # it ran, and says so
    assert "withheld" in step.result_sent
    assert json.loads(step.result)["result"] == 2
    assert "1+1" not in step.result_sent


# -- Python hooks -----------------------------------------------------------------------------------------------------

SOURCE = """
import json, time
def upper(given):
    assert json.loads(json.dumps(given)) == given
    return {"prompt": given["prompt"].upper() + " " + given["config"]["word"] + " " + given["agent"]}
def slow(given):
    time.sleep(30)
def broken(given):
    raise ValueError("the token is s3cret")
def listed(given):
    return ["no object"]
def strange(given):
    return {"decision": object()}
def guard(given):
    if "rm" in given["arguments"].get("expression", ""):
        return {"decision": "deny", "reason_for_model": "No rm.", "reason_for_people": "rm is not for " + given["tool"]}
def script(given):
    if given["arguments"].get("priority") == given["config"]["priority"]:
        return {"decision": given["config"]["decision"], "reason_for_people": "By script."}
def ends(given):
    raise SystemExit
def halves(given):
    half = "half \\ud800 and \\x00"
    if given["config"].get("raises"):
        raise ValueError(half)
    return {"decision": "ask", "context": half} | {f"reason_for_{who}": half for who in ("model", "people", "log")}
"""


@pytest.fixture
def python_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = ("upper", "slow", "broken", "listed", "strange", "guard", "script", "ends", "halves")
    install(tmp_path / "site", monkeypatch, "acme_hooks", SOURCE, **{f"acme-{name}": name for name in functions})


@pytest.mark.usefixtures("python_hooks")
def test_a_python_hook_of_an_installed_package_patches_the_prompt(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "python", phase="before_prompt_build", entry_point="acme-upper", config={"word": "Always."})
    provider.enqueue(Say("Well."))

    run(session)

    assert provider.requests[0]["messages"][0]["content"] == "BE BRIEF. Always. starter"


@pytest.mark.usefixtures("python_hooks")
@pytest.mark.parametrize(
    ("decision", "rule", "status", "called"),
    [
        ("ask", None, TurnStatus.WAITING_APPROVAL, None),
        ("ask", AskWhen.NEVER, TurnStatus.WAITING_APPROVAL, None),
        ("allow", AskWhen.ALWAYS, TurnStatus.WAITING_APPROVAL, None),
        ("allow", None, TurnStatus.DONE, StepStatus.DONE),
        ("deny", AskWhen.ALWAYS, TurnStatus.DONE, StepStatus.REFUSED),
        ("deny", AskWhen.NEVER, TurnStatus.DONE, StepStatus.REFUSED),
    ],
)
def test_mr_42_a_script_rule_decides_on_what_takes_effect_and_together_with_the_rules(
    session: ChatSession,
    provider: ScriptedOpenAI,
    alice: Membership,
    decision: str,
    rule: AskWhen | None,
    status: TurnStatus,
    called: StepStatus | None,
) -> None:
    """The model leaves the priority out: its default is what the script sees."""
    config = {"priority": "normal", "decision": decision}
    hook(session, "python", phase="before_tool_call", entry_point="acme-script", config=config)
    if rule is not None:
        with organisation_scope(session.organisation_id):
            create_rule(RuleContent("tasks", 1, "task_*", when=rule), actor=alice)
    provider.enqueue(Say(calls=[call("task_create", {"title": "milk"})]), Say("Well."))

    turn = run(session)

    assert turn.status == status
    if called is not None:
        assert only_step(turn).status == called
    with organisation_scope(session.organisation_id):
        assert Task.objects.count() == (1 if called == StepStatus.DONE else 0)
        if decision == "ask":
            assert Approval.objects.get().for_people == "By script."


@pytest.mark.usefixtures("python_hooks")
def test_a_python_hook_denies_a_call(session: ChatSession, provider: ScriptedOpenAI) -> None:
    hook(session, "python", phase="before_tool_call", entry_point="acme-guard")
    provider.enqueue(
        Say(calls=[call("calculator", {"expression": "rm -rf"}), call("calculator", SUM)]),
        Say("Well."),
    )

    refused, done = tool_steps_of(run(session))

    assert (refused.status, done.status) == (StepStatus.REFUSED, StepStatus.DONE)
    assert json.loads(refused.result_sent)["error"] == "No rm."


@pytest.mark.usefixtures("python_hooks")
def test_what_no_database_takes_in_a_python_hook_s_answer_is_replaced(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    hook(session, "python", phase="before_tool_call", entry_point="acme-halves")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Well."))
    turn = run(session)
    with organisation_scope(session.organisation_id):
        approval = Approval.objects.select_related("requester__user", "session", "tool__category").get()
        assert (approval.for_people, approval.for_model) == ("half � and �", "half � and �")
        approve(approval, actor=approval.requester)

    turn = work(turn)

    assert (turn.status, only_step(turn).status) == (TurnStatus.DONE, StepStatus.DONE)
    assert "half � and �" in only_step(turn).result_sent


@pytest.mark.usefixtures("python_hooks")
def test_what_no_database_takes_in_a_python_hook_s_failure_is_replaced(
    session: ChatSession, provider: ScriptedOpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "sessions")  # a report of half a character cannot be sent between processes
    config, phase = {"raises": True}, "before_tool_call"
    failing = hook(session, "python", phase=phase, entry_point="acme-halves", config=config, on_error="continue")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Well."))

    turn = run(session)

    assert (turn.status, only_step(turn).status) == (TurnStatus.DONE, StepStatus.DONE)
    assert reread(failing).last_error == "exception: ValueError: half � and �"


#: How each Python hook fails, and what stands in its row.
FAILURES = {
    "slow": ("timeout", "It did not answer within 0.3 s."),
    "broken": ("exception", "ValueError: the token is s3cret"),
    "listed": ("malformed", "It must return an object"),
    "strange": ("malformed", "Its answer is no plain data"),
    "ends": ("exception", "SystemExit"),
    "gone": ("missing", "No installed package has a Python hook"),
}


@pytest.mark.parametrize("on_error", ["", "continue", "deny", "disable"])
@pytest.mark.parametrize("name", list(FAILURES))
@pytest.mark.usefixtures("python_hooks")
def test_zs_46_and_zs_48_a_python_hook_before_a_call_that_fails(
    session: ChatSession, provider: ScriptedOpenAI, name: str, on_error: str
) -> None:
    failing = hook(
        session,
        "python",
        phase="before_tool_call",
        entry_point="acme-slow",
        timeout=0.3,
        on_error=on_error,
        disable_after=1,
    )
    with organisation_scope(session.organisation_id):
        Hook.objects.update(settings={"entry_point": f"acme-{name}"})
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Well."))

    turn = run(session)

    failure, error = FAILURES[name]
    stopped = on_error != "continue"
    step, stored = only_step(turn), reread(failing)
    assert turn.status == TurnStatus.DONE
    assert step.status == (StepStatus.REFUSED if stopped else StepStatus.DONE)
    line = {"hook": "h", "action": "python", "failure": failure, "stopped": stopped}
    assert step.hooks == [line]
    assert payloads(turn, "hook_warning") == [{"phase": "before_tool_call", "step": step.index, "hooks": [line]}]
    assert "s3cret" not in json.dumps([step.hooks, step.result_sent, payloads(turn, "hook_warning")])
    assert stored.last_error.startswith(f"{failure}: {error}")
    assert (stored.failed, stored.is_enabled) == (1, on_error != "disable")


@pytest.mark.usefixtures("python_hooks")
def test_a_hook_that_its_failures_switched_off_is_not_asked_any_more_in_the_same_turn(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    failing = hook(
        session, "python", phase="before_tool_call", entry_point="acme-broken", on_error="disable", disable_after=2
    )
    provider.enqueue(*(Say(calls=[call("calculator", {"expression": f"{n}+1"})]) for n in range(3)), Say("Well."))

    turn = run(session)

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED] * 2 + [StepStatus.DONE]
    assert (reread(failing).failed, reread(failing).switched_off_at is not None) == (2, True)


def test_a_python_hook_has_no_scope_and_ends_with_the_stop_of_its_turn(
    session: ChatSession, provider: ScriptedOpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "def peek(given):\n    from capabilities.models import Hook\n    return {'result': str(Hook.objects.count())}\n"
    )
    install(tmp_path / "site", monkeypatch, "peeking", source, peek="peek")
    peeking = hook(session, "python", phase="after_tool_call", entry_point="peek")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Well."))

    step = only_step(run(session))

    assert step.hooked_result == ""
    assert "ScopeError" in reread(peeking).last_error


# -- What it costs ----------------------------------------------------------------------------------------------------


def statements(session: ChatSession, provider: ScriptedOpenAI) -> list[str]:
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two."))
    turn = accept(session)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        work(turn)
    return [each["sql"] for each in asked.captured_queries]


def test_a_turn_without_hooks_asks_for_none_and_counts_nothing(session: ChatSession, provider: ScriptedOpenAI) -> None:
    hook(session, "block_tool", "off", message="x")
    with organisation_scope(session.organisation_id):
        Hook.objects.update(is_enabled=False)
    run(session)
    warm = statements(session, provider)

    assert [sql for sql in warm if "capabilities_hook" in sql] == []


def test_what_hooks_did_is_counted_by_one_statement(session: ChatSession, provider: ScriptedOpenAI) -> None:
    for name in "ab":
        hook(session, "append_note", name, text="n")
    provider.enqueue(Say("Well."))
    run(session)

    warm = [sql for sql in statements(session, provider) if "capabilities_hook" in sql]

    assert [sql.split()[0] for sql in warm] == ["UPDATE"]


def test_hooks_of_calls_side_by_side_are_all_counted(session: ChatSession, provider: ScriptedOpenAI) -> None:
    noting = hook(session, "append_note", text="n")
    provider.enqueue(Say(calls=[call("calculator", {"expression": f"{n}+1"}) for n in range(4)]), Say("Well."))

    run(session)

    assert reread(noting).fired == 4
    assert threading.active_count() < 50


def test_events_of_a_turn_without_hooks_are_as_before(session: ChatSession, provider: ScriptedOpenAI) -> None:
    make_category(session.organisation, "spare")
    provider.enqueue(Say(calls=[call("calculator", SUM)]), Say("Two."))

    assert events_of(run(session)) == ["accepted", "started", "model", "tool_started", "tool_done", "model", "done"]
