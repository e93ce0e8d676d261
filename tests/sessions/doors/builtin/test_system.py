from __future__ import annotations

import pytest

from capabilities.choosing.pipeline.specs import current_specs
from capabilities.running.registry import registry
from sessions.loop.tools import execution
from sessions.models import ChatSession, StepStatus, TurnEvent
from tests.cast import make_agent, make_member, make_role, make_session, make_tool, make_turn
from tests.sessions.doors.builtin.conftest import Use
from toolhub.tenants.models import AuditEntry, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_status_counts_this_organisation_s_turns_only(session: ChatSession, use: Use, charlie: Membership) -> None:
    make_turn(make_session(charlie, make_agent(charlie.organisation)))

    status = use("cortex_status")

    assert status["database"] == "up"
    assert status["turns"] == {"waiting": 1, "running": 0}


def test_logs_show_a_member_the_own_turns_only(session: ChatSession, use: Use) -> None:
    dora = make_member(session.organisation, "dora")
    make_role(session.organisation, dora)
    hers = make_turn(make_session(dora))
    with organisation_scope(session.organisation_id):
        mine = session.turns.get()
        for turn in (mine, hers):
            TurnEvent.objects.create(organisation=session.organisation, turn=turn, number=1, type="accepted")

    assert [event["turn"] for event in use("cortex_logs")["events"]] == [str(mine.pk)]
    assert [event["turn"] for event in use("cortex_logs", of=hers)["events"]] == [str(hers.pk)]


@pytest.mark.parametrize("name", ["cortex_restart", "cortex_update"])
def test_restart_and_update_do_nothing_without_an_approval(session: ChatSession, use: Use, name: str) -> None:
    assert use(name, reason="It is slow.")["status"] == StepStatus.FAILED

    with organisation_scope(session.organisation_id):
        assert not AuditEntry.objects.filter(action__startswith="service.").exists()


def test_what_this_installation_does_not_have_says_so_and_does_not_run(session: ChatSession) -> None:
    name = "shell_exec"
    tool = make_tool(session.organisation, name)
    with organisation_scope(session.organisation_id):
        type(tool).objects.filter(pk=tool.pk).update(service=registry.tools[name].service)
        (spec,) = current_specs([tool.current_version_id or 0])
        outcome = execution.refusal_to(make_turn(session).membership_id, spec)

    assert outcome is not None
    assert "configure Sandbox for commands first" in outcome.result
