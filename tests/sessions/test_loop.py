"""Whole turns, run in this process by the code that a worker runs, against a scripted provider."""

from __future__ import annotations

import json

import pytest

from capabilities.models import Task
from sessions import ledger
from sessions.models import ChatSession, Step, StepStatus, Turn, TurnStatus
from sessions.worker import work_on
from tests.cast import make_agent, make_category, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use every tool of an agent with `task_create` and `calculator`."""
    organisation = bob.organisation
    make_tool(organisation, "task_create", category=make_category(organisation, "tasks"))
    make_tool(organisation, "calculator")
    make_role(organisation, bob)
    return make_session(bob, make_agent(organisation, provider.url, prompt="Be brief."))


def run(session: ChatSession, message: str) -> Turn:
    """Accept a message, run it as a worker does, and return the turn as it stands."""
    with organisation_scope(session.organisation_id):
        turn = ledger.accept(session, message, member=session.membership).turn
    work_on(turn.pk)
    with organisation_scope(session.organisation_id):
        turn.refresh_from_db()
    return turn


def test_a_turn_calls_a_tool_that_changes_the_database_and_answers(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]), Say("Added."))

    turn = run(session, "Add a task: buy milk")

    assert (turn.status, turn.error_message, turn.answer, turn.rounds) == (TurnStatus.DONE, "", "Added.", 2)
    with organisation_scope(session.organisation_id):
        assert [task.title for task in Task.objects.filter(membership=session.membership)] == ["buy milk"]
        steps = list(Step.objects.filter(turn=turn).order_by("index").values_list("kind", "status", "tool_name"))
    assert steps == [
        ("model", StepStatus.DONE, ""),
        ("tool", StepStatus.DONE, "task_create"),
        ("model", StepStatus.DONE, ""),
    ]
    first, second = provider.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["task_create", "calculator"]
    assert first["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add a task: buy milk"},
    ]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert json.loads(second["messages"][3]["content"])["task"]["title"] == "buy milk"
