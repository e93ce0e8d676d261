"""A tool that is stopped for the whole organisation, with a message: on pages, over REST, and in turns that run."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from pytest_django import Settings

from capabilities.catalogue.tools.writes import MAX_OFF_MESSAGE, set_tool_enabled, set_tools_enabled
from capabilities.common.refused import ChangeRefused
from capabilities.models import Effect, Grant, Tool
from sessions.models import ChatSession, Step, StepStatus, TurnStatus
from sessions.selection.queries import selection_preview
from tests.cast import make_category, make_role, make_tool
from tests.rest import Rest
from tests.scripted_openai import Json, Reply, Say, ScriptedOpenAI, call
from tests.sessions.loop.test_loop import built_in
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

WHY = "It sends mail twice. Use the web form until Monday."
DENIED = "Access denied: the tool was switched off: It sends mail twice. Use the web form until Monday."


def stop(session: ChatSession, name: str, actor: Membership) -> None:
    with organisation_scope(session.organisation_id):
        set_tool_enabled(Tool.objects.get(name=name), False, actor=actor, message=WHY)


def error_of(step: Step) -> str:
    return str(json.loads(step.result_sent)["error"])


# -- In turns ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_running_turn_feels_it_at_its_next_call_and_the_model_reads_why(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    def stopped_meanwhile(request: Json) -> Reply:
        """An admin stops it while the model thinks."""
        stop(session, "calculator", alice)
        return Say(calls=[call("calculator", {"expression": "1+1"}, id="b"), call("uuid", id="c")])

    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"}, id="a")]), stopped_meanwhile, Say("No."))

    turn = run(session)

    ran, refused, other = tool_steps_of(turn)
    assert (ran.status, refused.status, other.status) == (StepStatus.DONE, StepStatus.REFUSED, StepStatus.DONE)
    assert error_of(refused) == DENIED
    assert turn.status == TurnStatus.DONE
    assert provider.requests[2]["messages"][-2]["content"] == refused.result_sent


@pytest.mark.django_db(transaction=True)
def test_calls_of_one_reply_feel_it_too(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership, settings: Settings
) -> None:
    """Of calls that run one behind the other, those behind the stop are refused."""
    settings.TOOLHUB_PARALLEL_CALLS = 1
    made = []

    def work(context: object) -> str:
        made.append(1)
        stop(session, "mailer", alice)
        return "sent"

    with built_in(session, "mailer", work):
        provider.enqueue(Say(calls=[call("mailer", id=f"m{number}") for number in range(3)]), Say("Sent."))
        steps = tool_steps_of(run(session))

    assert [step.status for step in steps] == [StepStatus.DONE, StepStatus.REFUSED, StepStatus.REFUSED]
    assert {error_of(step) for step in steps[1:]} == {DENIED}
    assert made == [1]


@pytest.mark.django_db(transaction=True)
def test_later_turns_are_not_sent_it_and_a_call_of_it_says_why(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    stop(session, "calculator", alice)
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"})]), Say("No."))

    (refused,) = tool_steps_of(run(session))

    assert "calculator" not in [tool["function"]["name"] for tool in provider.requests[0]["tools"]]
    assert error_of(refused) == DENIED
    with organisation_scope(session.organisation_id):
        verdicts = selection_preview(session).verdicts
    assert [each.reason for each in verdicts if each.tool == "calculator" and not each.kept] == [
        f"switched off in the catalogue: {WHY[:-1]}"
    ]


@pytest.mark.django_db(transaction=True)
def test_a_stop_without_a_message_is_told_as_a_stop(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    with organisation_scope(session.organisation_id):
        set_tool_enabled(Tool.objects.get(name="calculator"), False, actor=alice)
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"})]), Say("No."))

    (refused,) = tool_steps_of(run(session))

    told = json.loads(refused.result_sent)
    assert (told["success"], told["denied_tool"]) == (False, "calculator")
    assert told["error"].endswith(": the tool was switched off.")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["forbidden", "stopped", "nothing has it"])
def test_s_62_what_the_agent_does_not_have_is_answered_as_what_is_not_there(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership, what: str
) -> None:
    """Whether the organisation has a tool that the member may not use is not to be learned by calling it. Of one that
    the member may use, and no agent has, the answer names the next step."""
    if what != "nothing has it":
        aside = make_category(session.organisation, "aside", is_core=False)
        tool = make_tool(session.organisation, "hidden_tool", category=aside)
        with organisation_scope(session.organisation_id):
            if what == "stopped":
                set_tool_enabled(tool, False, actor=alice, message=WHY)
            if what == "forbidden":
                Grant.objects.create(
                    organisation=session.organisation, membership=session.membership, tool=tool, effect=Effect.DENY
                )
    provider.enqueue(Say(calls=[call("hidden_tool")]), Say("No."))

    (refused,) = tool_steps_of(run(session))

    assert json.loads(refused.result_sent) == {"success": False, "error": "Unknown or inactive tool: hidden_tool"}


@pytest.mark.django_db(transaction=True)
def test_whoever_reads_the_chat_reads_why(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership, client: Client
) -> None:
    stop(session, "calculator", alice)
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"})]), Say("No."))
    run(session)
    client.force_login(session.membership.user)

    page = client.get(f"/o/{session.organisation.slug}/sessions/{session.pk}/").content.decode()

    assert f'<p class="step-why">{DENIED}</p>' in page


# -- The write --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tool(in_acme: Organisation) -> Tool:
    return make_tool(in_acme, "uuid")


def audited() -> list[tuple[str, Json, Json]]:
    entries = AuditEntry.objects.filter(action__in=["tool.enable", "tool.disable"]).order_by("pk")
    return list(entries.values_list("action", "before", "after"))


def test_a_stop_and_its_message_are_on_record_once(tool: Tool, alice: Membership) -> None:
    set_tool_enabled(tool, False, actor=alice, message="  Broken.\n Wait. ")
    set_tool_enabled(tool, False, actor=alice, message="Broken. Wait.")
    set_tool_enabled(tool, False, actor=alice)
    set_tool_enabled(tool, False, actor=alice, message="Gone.")
    set_tool_enabled(tool, True, actor=alice)

    tool.refresh_from_db()
    assert (tool.is_enabled, tool.off_message) == (True, "")
    assert audited() == [
        (
            "tool.disable",
            {"is_enabled": True, "off_message": ""},
            {"is_enabled": False, "off_message": "Broken. Wait."},
        ),
        ("tool.disable", {"off_message": "Broken. Wait."}, {"off_message": "Gone."}),
        ("tool.enable", {"is_enabled": False, "off_message": "Gone."}, {"is_enabled": True, "off_message": ""}),
    ]


def test_a_message_that_is_too_long_changes_nothing(tool: Tool, alice: Membership) -> None:
    with pytest.raises(ChangeRefused, match="at most 300 characters"):
        set_tool_enabled(tool, False, actor=alice, message="x" * (MAX_OFF_MESSAGE + 1))

    assert Tool.objects.get().is_enabled is True


def test_many_are_stopped_with_one_message(tool: Tool, alice: Membership) -> None:
    set_tools_enabled(["uuid"], False, actor=alice, message=WHY)
    assert Tool.objects.get().off_message == WHY

    set_tools_enabled(["uuid"], True, actor=alice)
    assert Tool.objects.get().off_message == ""


# -- Pages and REST ---------------------------------------------------------------------------------------------------


def test_one_click_stops_it_though_others_lose_it(
    tool: Tool, alice: Membership, bob: Membership, client: Client
) -> None:
    make_role(tool.organisation, bob)
    client.force_login(alice.user)

    asked = client.post("/o/acme/tools/uuid/switch/", {"enabled": "0"})
    assert (Tool.objects.get().is_enabled, b"Switch off 1 tool" in asked.content) == (True, True)
    client.post("/o/acme/tools/uuid/switch/", {"enabled": "0", "now": "1", "message": WHY})

    stopped = Tool.objects.get()
    assert (stopped.is_enabled, stopped.off_message) == (False, WHY)
    page = client.get("/o/acme/tools/uuid/").content.decode()
    assert f"read: “{WHY}”" in " ".join(page.split())
    client.post("/o/acme/tools/uuid/switch/", {"enabled": "1"})
    assert Tool.objects.get().off_message == ""


def test_a_row_leads_to_the_ways_to_stop_it(tool: Tool, alice: Membership, client: Client) -> None:
    client.force_login(alice.user)
    ways = 'href="/o/acme/tools/uuid/#off"'

    row = client.get("/o/acme/tools/").content.decode()
    page = client.get("/o/acme/tools/uuid/").content.decode()
    answer = client.post("/o/acme/tools/uuid/switch/", {"enabled": "0", "now": "1"}, headers={"HX-Request": "true"})

    assert (ways in row, "btn-outline-danger" in row) == (True, False)
    assert ('id="off"' in page, 'name="now" value="1"' in page, "Stop now" in page) == (True, True, True)
    assert 'aria-checked="false"' in answer.content.decode()
    assert ways not in answer.content.decode()


def test_the_list_says_why_a_tool_is_off(tool: Tool, alice: Membership, client: Client) -> None:
    client.force_login(alice.user)
    assert WHY not in client.get("/o/acme/tools/").content.decode()

    set_tool_enabled(tool, False, actor=alice, message=WHY)

    assert f">Stopped: {WHY}<" in client.get("/o/acme/tools/").content.decode()


@pytest.mark.parametrize(("who", "status"), [("bob", 403), ("charlie", 404)])
def test_nobody_without_the_right_stops_it(
    tool: Tool, request: pytest.FixtureRequest, client: Client, who: str, status: int
) -> None:
    client.force_login(request.getfixturevalue(who).user)

    answer = client.post("/o/acme/tools/uuid/switch/", {"enabled": "0", "now": "1", "message": WHY})

    with system_scope():
        assert (answer.status_code, Tool.objects.get(name="uuid").off_message) == (status, "")


def test_over_rest(tool: Tool, alice: Membership) -> None:
    rest = Rest(alice)

    stopped = rest.patch("tools/uuid", {"is_enabled": False, "off_message": WHY})
    assert (stopped.status, stopped.json["is_enabled"], stopped.json["off_message"]) == (200, False, WHY)
    again = rest.patch("tools/uuid", {"is_enabled": False})
    assert again.json["off_message"] == WHY
    alone = rest.patch("tools/uuid", {"off_message": "x"})
    assert (alone.status, alone.json["error"]["field"]) == (400, "off_message")
    on = rest.patch("tools/uuid", {"is_enabled": True})
    assert (on.json["is_enabled"], on.json["off_message"]) == (True, "")
    bulk = rest.post("tools/bulk", {"names": ["uuid"], "is_enabled": False, "off_message": WHY})
    assert (bulk.json, Tool.objects.get().off_message) == ({"changed": 1, "waiting": []}, WHY)
