"""Tools of every kind go the same way through a turn, and through a run by hand."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.context import (
    CallWaits,
    Credential,
    InputNeeded,
    LinkNeeded,
    TaskStarted,
    ToolContext,
    ToolError,
)
from capabilities.contract.results import MAX_FILE, MOST_FILES, ResultFile, ToolResult, fitting, plain_media_type
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, AgentTool, Tool, ToolKind
from capabilities.running.kinds import RUNNERS
from capabilities.running.kinds.lines import display
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import ChatSession, StepStatus, TrialStatus
from tests.capabilities.catalogue.servers.servers import make_server
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.far_sides import FarSide, book_with, make_booking
from tests.sessions.run_turns import run, tool_steps_of
from tests.sessions.trials import run_trial
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


def spec_of_booking(organisation: Organisation, **fields: Any) -> ToolSpec:
    tool = make_booking(organisation, **fields)
    with organisation_scope(organisation):
        (spec,) = current_specs([tool.current_version_id or 0])
    return spec


def outcome_with(spec: ToolSpec, *secrets: str) -> Outcome:
    context = execution.context_of(spec, 1, 1)
    return execution.run_tool(spec, Credential(secrets=secrets), context, {"seat": "4a"}, threading.Event())


# -- One line for people ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "arguments", "shown"),
    [
        ("Booking {seat}", {"seat": "4a"}, "Booking 4a"),
        ("Booking {seat} in {rows} rows", {"seat": "4a"}, "Booking 4a in 1 rows"),
        ("Booking {{{seat}}}", {"seat": "4a"}, "Booking {4a}"),
        ("Booking {seat}", {"seat": "\u202e4a\u2066  now"}, "Booking 4a now"),
        ("Booking {seat}", {"seat": ["4a", {"b": None}]}, 'Booking ["4a", {"b": null}]'),
        ("Booking {seat}", {}, "book_seat"),
        ("Booking {seat.__class__}", {"seat": "4a"}, "book_seat"),
        ("Booking {seat[0]}", {"seat": "4a"}, "book_seat"),
        ("Booking {seat!r}", {"seat": "4a"}, "book_seat"),
        ("Booking {rows:>999999999}", {"rows": 1}, "book_seat"),
        ("Booking {", {"seat": "4a"}, "Booking {"),
        ("", {"seat": "4a"}, "book_seat"),
        ("   ", {"seat": "4a"}, "book_seat"),
        ("{seat}", {"seat": "x" * 2_000_000}, "x" * 300),
    ],
)
def test_tx27_a_line_of_a_tenants_tool_holds_its_arguments_and_does_nothing_else(
    acme: Organisation, line: str, arguments: dict[str, Any], shown: str
) -> None:
    assert display("book_seat", replace(spec_of_booking(acme), human_format=line), arguments) == shown


def test_tx_04_tx_10_tx_11_tx_24_an_agent_names_tools_of_all_kinds_and_a_turn_calls_them_in_one_way(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    organisation = session.organisation
    far_sides = {kind: FarSide({"seat": kind.value}) for kind in (ToolKind.HTTP, ToolKind.MCP, ToolKind.PYTHON)}
    names = {ToolKind.HTTP: "http_seat", ToolKind.MCP: "mcp__travel__seat", ToolKind.PYTHON: "agent_starter__seat"}
    for kind, far_side in far_sides.items():
        monkeypatch.setitem(RUNNERS, kind, far_side.run)
        tool = make_booking(organisation, names[kind])
        server = make_server(alice) if kind == ToolKind.MCP else None
        with organisation_scope(organisation):
            Tool.objects.filter(pk=tool.pk).update(kind=kind, server=server)
    with organisation_scope(organisation):
        agent = Agent.objects.get()
        Agent.objects.update(starts_with_core=False)
        for position, name in enumerate(("calculator", *names.values())):
            AgentTool.objects.create(
                organisation=organisation, agent=agent, tool=Tool.objects.get(name=name), position=position
            )
    calls = [call("calculator", {"expression": "6 * 7"}), *(call(name, {"seat": "4a"}) for name in names.values())]
    provider.enqueue(Say(calls=calls), Say("Booked."))

    turn = run(session)

    steps = tool_steps_of(turn)
    sent = [each["function"]["name"] for each in provider.requests[0]["tools"]]
    assert sent == ["calculator", *names.values()]
    assert [step.status for step in steps] == [StepStatus.DONE] * 4
    assert [step.display for step in steps[1:]] == ["Booking 4a"] * 3
    for far_side, step in zip(far_sides.values(), steps[1:], strict=True):
        (context,) = far_side.calls
        assert (context.turn_id, context.step_id, context.organisation_id) == (turn.pk, step.pk, organisation.pk)


def test_a_tool_of_another_kind_is_told_in_its_line_and_run(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_booking(session.organisation)
    far_side = book_with(monkeypatch, FarSide({"booked": "4a"}))
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "4a"}), call("book_seat", {"seat": 4})]), Say("Booked."))

    turn = run(session)

    done, refused = tool_steps_of(turn)
    assert turn.answer == "Booked."
    assert (done.status, done.display, done.result) == (StepStatus.DONE, "Booking 4a", '{"booked": "4a"}')
    assert (refused.status, refused.is_malformed, refused.display) == (StepStatus.FAILED, True, "Booking 4")
    (context,) = far_side.calls
    assert (context.turn_id, context.step_id, bool(context.idempotency_key)) == (turn.pk, done.pk, True)


# -- What comes back --------------------------------------------------------------------------------------------------


def test_a_result_that_is_more_than_text_is_read_whole(acme: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ResultFile("plan.png", "image/png", b"png t0p")
    book_with(monkeypatch, FarSide(ToolResult("Seat t0p", structured={"seat": "t0p"}, files=(file,))))

    outcome = outcome_with(spec_of_booking(acme), "t0p", "")

    assert (outcome.status, outcome.result, outcome.result_sent) == (StepStatus.DONE, "Seat ••••", "Seat ••••")
    assert outcome.structured == {"seat": "••••"}
    assert [(each.name, each.content) for each in outcome.files] == [("plan.png", "png ••••".encode())]
    assert outcome.untrusted


def test_what_a_far_side_calls_an_error_is_one(acme: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    book_with(monkeypatch, FarSide(ToolResult("No seat t0p.", is_error=True)))

    outcome = outcome_with(spec_of_booking(acme), "t0p")

    assert (outcome.status, json.loads(outcome.result)) == (
        StepStatus.FAILED,
        {"success": False, "error": "No seat ••••."},
    )
    assert outcome.untrusted


@pytest.mark.parametrize("structured", [["no", "object"], {"text": "x" * 1_000_001}, {"text": object()}])
def test_data_that_is_no_object_or_too_long_is_not_kept(
    acme: Organisation, monkeypatch: pytest.MonkeyPatch, structured: Any
) -> None:
    book_with(monkeypatch, FarSide(ToolResult("Seat \x00", structured=structured)))

    outcome = outcome_with(spec_of_booking(acme))

    assert (outcome.status, outcome.result) == (StepStatus.DONE, "Seat \ufffd")
    assert outcome.structured is None or isinstance(outcome.structured["text"], str)


def test_files_beyond_what_may_be_kept_are_named_in_the_text() -> None:
    small, large = ResultFile("a.txt", "text/plain", b"a"), ResultFile("b.bin", "x/y", bytes(MAX_FILE + 1))

    kept, left_out = fitting([small, large, *[small] * MOST_FILES])

    assert [each.name for each in kept] == ["a.txt"] * MOST_FILES
    assert "b.bin of 5,000,001 bytes was not kept" in left_out[0]
    assert len(left_out) == 2


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("image/PNG; charset=x", "image/png"),
        ("text/html\r\nSet-Cookie: a=b", "application/octet-stream"),
        ("image/png\n", "image/png"),
        ("", "application/octet-stream"),
        ("image", "application/octet-stream"),
    ],
)
def test_a_media_type_is_one_or_that_of_unknown_bytes(given: str, plain: str) -> None:
    assert plain_media_type(given) == plain


# -- By hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "link"),
    [
        (InputNeeded("Which seat?", schema={}, state="s"), ""),
        (LinkNeeded("Connect your account.", url="/o/acme/accounts/", is_own=True), "/o/acme/accounts/"),
        (LinkNeeded("Agree there.", url="https://far.example/agree"), ""),
        (LinkNeeded("Agree there.", url="//far.example/agree"), ""),
        (TaskStarted("It takes an hour.", seconds=60, state="s"), ""),
    ],
)
def test_a_call_by_hand_that_would_wait_says_so_with_its_link(
    client: Client, session: ChatSession, monkeypatch: pytest.MonkeyPatch, waits: CallWaits, link: str
) -> None:
    make_booking(session.organisation)
    book_with(monkeypatch, FarSide(waits))
    client.force_login(session.membership.user)
    client.post("/o/acme/tools/book_seat/try/", {"arg-seat": "4a", "confirm": "on"})

    trial = run_trial(session.membership)

    page = client.get(f"/o/acme/tools/book_seat/try/{trial.public_id}/").content.decode()
    assert (trial.status, trial.link) == (TrialStatus.REFUSED, link)
    assert json.loads(trial.result)["error"].startswith(str(waits))
    assert ("Open the page that it waits for" in page) == bool(link)


def test_a_tool_cannot_make_a_run_by_hand_show_a_link(
    client: Client, session: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(context: ToolContext, arguments: dict[str, Any]) -> Any:
        raise ToolError(json.dumps({"link": "/o/acme/members/"}))

    make_booking(session.organisation)
    book_with(monkeypatch, FarSide({"link": "/o/acme/members/"}, refuse))
    client.force_login(session.membership.user)
    for status in (TrialStatus.DONE, TrialStatus.FAILED):
        client.post("/o/acme/tools/book_seat/try/", {"arg-seat": "4a", "confirm": "on"})
        trial = run_trial(session.membership)
        assert (trial.status, trial.link) == (status, "")
