"""Rules and hooks on an argument that a call leaves out: what takes effect is decided on, on every way to a tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.contract.masking import MASK
from capabilities.models import AskWhen, Tool
from sessions.asking.approvals import queries, writes
from sessions.insight.trial import writes as trying
from sessions.models import Approval, ApprovalStatus, ChatSession, StepStatus, Turn, TurnStatus
from tests.capabilities.catalogue.http_tools.rows import make_credential
from tests.cast import make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_asking import admin_of, answer, titles
from tests.sessions.loop.test_http_tools import SECRET, make_http, server  # noqa: F401 -- a fixture
from tests.sessions.run_turns import run, tool_steps_of
from tests.sessions.trials import run_trial
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)
LEFT_OUT = {"title": "buy milk"}


def on_argument(session: ChatSession, tool: str, argument: str, pattern: str, **fields: Any) -> None:
    rule = RuleContent("asks", tool_pattern=tool, argument=argument, argument_pattern=pattern, **fields)
    with organisation_scope(session.organisation):
        create_rule(rule, actor=admin_of(session))


def blocks(session: ChatSession, tool: str, argument: str, pattern: str, **entry: Any) -> None:
    when = {"tools": [tool], "arguments": [{"name": argument, "pattern": pattern}]}
    whole = {"action": "block_tool", "settings": {"message": "Not with this."}, **entry, "when": when}
    with organisation_scope(session.organisation):
        create_hook(HookContent(whole), actor=admin_of(session))


def asked(turn: Turn) -> Approval:
    with organisation_scope(turn.organisation_id):
        (approval,) = queries.approvals_of_turn(turn)
        return approval


def far_tool(session: ChatSession, **priority: Any) -> Tool:
    """A tool from outside with an optional argument of this schema."""
    properties = {"title": {"type": "string"}, "priority": {"type": "string", **priority}}
    return make_tool(session.organisation, "far_away", parameters={"type": "object", "properties": properties})


def test_mr_42_a_default_that_is_left_out_is_asked_for_and_shown(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    on_argument(session, "task_create", "priority", "normal", needs_other_person=True)
    provider.enqueue(Say(calls=[call("task_create", LEFT_OUT)]), Say("Done."))

    turn = run(session)

    approval = asked(turn)
    assert (turn.status, titles(session)) == (TurnStatus.WAITING_APPROVAL, [])
    assert json.loads(approval.arguments)["priority"] == "normal"
    done = answer(approval, writes.approve, admin_of(session))
    assert (done.status, titles(session)) == (TurnStatus.DONE, ["buy milk"])


def test_another_value_than_the_rules_is_not_asked_for(session: ChatSession, provider: ScriptedOpenAI) -> None:
    on_argument(session, "task_create", "priority", "normal")
    provider.enqueue(Say(calls=[call("task_create", {**LEFT_OUT, "priority": "high"})]), Say("Done."))

    assert run(session).status == TurnStatus.DONE


@pytest.mark.parametrize(
    ("schema", "waits"),
    [({"default": "normal"}, True), ({"default": "low"}, False), ({}, True), ({"default": None}, True)],
    ids=["its default is meant", "its default is another", "no default", "null"],
)
def test_a_tool_from_outside_is_asked_for_where_the_argument_may_be_meant(
    session: ChatSession, provider: ScriptedOpenAI, schema: dict[str, Any], waits: bool
) -> None:
    far_tool(session, **schema)
    on_argument(session, "far_away", "priority", "normal")
    provider.enqueue(Say(calls=[call("far_away", {"title": "x"})]), Say("Done."))

    assert (run(session).status == TurnStatus.WAITING_APPROVAL) is waits


def test_a_rule_that_does_not_ask_needs_the_argument(session: ChatSession, provider: ScriptedOpenAI) -> None:
    far_tool(session)
    on_argument(session, "far_away", "priority", "*", when=AskWhen.NEVER, priority=1)
    with organisation_scope(session.organisation):
        create_rule(RuleContent("all", tool_pattern="far_away"), actor=admin_of(session))
    provider.enqueue(Say(calls=[call("far_away", {"title": "x"})]), Say("Done."))

    assert run(session).status == TurnStatus.WAITING_APPROVAL


def test_a_hook_that_blocks_an_argument_blocks_its_default(session: ChatSession, provider: ScriptedOpenAI) -> None:
    blocks(session, "task_create", "priority", "normal")
    provider.enqueue(Say(calls=[call("task_create", LEFT_OUT)]), Say("Done."))

    turn = run(session)

    assert (tool_steps_of(turn)[0].status, titles(session)) == (StepStatus.REFUSED, [])


def test_a_hook_that_only_changes_a_call_needs_to_know_the_argument(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    far_tool(session)
    change = {"action": "merge_input", "settings": {"mode": "set", "values": {"title": "changed"}}}
    blocks(session, "far_away", "priority", "normal", **change)
    provider.enqueue(Say(calls=[call("far_away", {"title": "x"})]), Say("Done."))

    assert json.loads(tool_steps_of(run(session))[0].arguments) == {"title": "x"}


def test_a_run_by_hand_is_refused_for_a_default_too(session: ChatSession) -> None:
    on_argument(session, "task_create", "priority", "normal", needs_other_person=True)
    member = session.membership
    with organisation_scope(session.organisation):
        trying.request_trial(trying.trial_or_404(member, "task_create"), json.dumps(LEFT_OUT), actor=member)

    assert "another person" in run_trial(member).result
    assert titles(session) == []


def test_mr_42_a_secret_among_the_arguments_is_masked_for_approvers_and_the_call_has_it(
    session: ChatSession,
    provider: ScriptedOpenAI,
    server: Any,  # noqa: F811
) -> None:
    credential = make_credential(session.membership, origins=[server.url])
    properties = {"id": {"type": "string"}, "verbose": {"type": "boolean"}}
    make_http(session, server, credential, parameters={"type": "object", "properties": properties, "required": ["id"]})
    on_argument(session, "read_user", "id", "*")
    provider.enqueue(Say(calls=[call("read_user", {"id": f"x-{SECRET}"})]), Say("Read."))

    approval = asked(run(session))
    done = answer(approval, writes.approve, admin_of(session))

    assert SECRET not in approval.arguments
    assert MASK in approval.arguments
    assert done.status == TurnStatus.DONE
    assert [path for _, path, *_ in server.requests] == [f"/users/x-{SECRET}"]


def test_a_default_is_not_sent_to_a_tool_from_outside(
    session: ChatSession,
    provider: ScriptedOpenAI,
    server: Any,  # noqa: F811
) -> None:
    properties = {"id": {"type": "integer"}, "verbose": {"type": "boolean", "default": True}}
    make_http(session, server, parameters={"type": "object", "properties": properties, "required": ["id"]})
    on_argument(session, "read_user", "verbose", "true")
    provider.enqueue(Say(calls=[call("read_user", {"id": 7})]), Say("Read."))

    turn = run(session)
    approval = asked(turn)
    answer(approval, writes.approve, admin_of(session))

    assert json.loads(approval.arguments) == {"id": 7, "verbose": True}
    assert approval.status == ApprovalStatus.APPROVED
    assert [path for _, path, *_ in server.requests] == ["/users/7"]
