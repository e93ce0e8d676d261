"""A tool run by hand, and what its page shows of turns."""

from __future__ import annotations

import json
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from capabilities.assistant.models import Task
from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.contract.argument_fields import ArgumentField, argument_fields
from capabilities.contract.spec import ToolSpec
from capabilities.models import Category, RoleMembership, Tool
from sessions.insight.trial import runs as trial_runs
from sessions.insight.trial import writes as trying
from sessions.insight.trial.forms import TrialForm
from sessions.loop.conversation.history import OUTCOME_UNKNOWN
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import Step, TrialRun, TrialStatus, TurnStatus
from sessions.worker import process as worker
from tests.cast import make_agent, make_member, make_role, make_session, make_tool, make_turn
from tests.sessions.trials import last_trial, run_trial
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

ACME = "/o/acme/tools/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def as_bob(client: Client, bob: Membership, acme: Organisation) -> Client:
    make_role(acme, bob)
    client.force_login(bob.user)
    return client


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def tries(organisation: Organisation) -> list[Any]:
    with organisation_scope(organisation):
        return list(AuditEntry.objects.filter(action="tool.try").order_by("pk").values_list("actor_label", "after"))


# -- From a schema to a form ------------------------------------------------------------------------------------------


def test_a_schema_becomes_fields() -> None:
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 100, "description": "What"},
            "notes": {"type": "string"},
            "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            "ratio": {"type": "number"},
            "force": {"type": "boolean"},
            "size": {"enum": ["s", 5, None]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "due": {"anyOf": [{"type": "string", "maxLength": 10}, {"type": "null"}], "default": None},
            "where": {"type": "object"},
            "which": {"$ref": "#/$defs/Which"},
        },
        "required": ["title"],
        "$defs": {"Which": {"enum": ["a", "b"]}},
    }

    assert argument_fields(schema) == [
        ArgumentField("title", "string", True, "What", max_length=100),
        ArgumentField("notes", "text", False),
        ArgumentField("count", "integer", False, default="3", minimum=1, maximum=9),
        ArgumentField("ratio", "number", False),
        ArgumentField("force", "boolean", False),
        ArgumentField("size", "choice", False, choices=('"s"', "5", "null")),
        ArgumentField("tags", "lines", False),
        ArgumentField("due", "string", False, max_length=10),
        ArgumentField("where", "json", False),
        ArgumentField("which", "choice", False, choices=('"a"', '"b"')),
    ]


def test_empty_fields_of_a_trial_are_not_sent() -> None:
    properties = {
        "title": {"type": "string", "maxLength": 100},
        "count": {"type": "integer"},
        "force": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "size": {"enum": [1, 2]},
        "where": {"type": "object"},
        "note": {"type": "string"},
    }
    data = {
        "arg-title": "A “title”",
        "arg-count": "0",
        "arg-force": "false",
        "arg-tags": "one\n\n two \n",
        "arg-size": "2",
        "arg-where": '{"x": [1]}',
        "arg-note": "",
    }

    form = TrialForm(data, schema={"type": "object", "properties": properties}, effect="read")

    assert form.is_valid(), form.errors
    assert json.loads(form.arguments_text()) == {
        "title": "A “title”",
        "count": 0,
        "force": False,
        "tags": ["one", "two"],
        "size": 2,
        "where": {"x": [1]},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(41)}},
        {"type": "object", "oneOf": [{"required": ["a"]}]},
        {"type": "object", "properties": []},
    ],
)
def test_a_schema_without_a_form_is_asked_for_as_json(schema: dict[str, Any]) -> None:
    form = TrialForm({"arg-": '{"a": 1}'}, schema=schema, effect="read")

    assert form.is_valid()
    assert form.arguments_text() == '{"a": 1}'
    assert not TrialForm({"arg-": "{"}, schema=schema, effect="read").is_valid()


# -- Running it -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_tool_is_run_by_a_worker_as_the_member_and_told_to_the_audit(
    as_bob: Client, bob: Membership, acme: Organisation
) -> None:
    make_tool(acme, "calculator")

    form = as_bob.get(f"{ACME}calculator/try/").content.decode()
    asked = as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"}, headers=HTMX).content.decode()
    address = f"{ACME}calculator/try/{last_trial(bob).public_id}/"
    waiting = as_bob.get(address, headers=HTMX).content.decode()
    run = run_trial(bob)
    ended = as_bob.get(address, headers=HTMX).content.decode()

    assert 'name="arg-expression"' in form
    assert "<html" not in asked
    assert ("42" in text_of(asked.encode()), "6*7</textarea>" in asked) == (False, True)
    for page in (asked, waiting):
        assert f'hx-get="{address}" hx-trigger="load delay:400ms, every 1s"' in page
        assert "Waiting for a worker" in page
    assert run.status == TrialStatus.DONE
    assert "42" in text_of(ended.encode())
    assert "hx-get" not in ended
    assert tries(acme) == [("bob@example.com", {"arguments": '{"expression": "6*7"}', "effect": "read"})]


@pytest.mark.django_db(transaction=True)
def test_without_script_a_page_of_its_own_follows_the_run(as_bob: Client, bob: Membership, acme: Organisation) -> None:
    make_tool(acme, "calculator")

    asked = as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})
    address = f"{ACME}calculator/try/{last_trial(bob).public_id}/"
    waiting = as_bob.get(address).content.decode()
    run_trial(bob)
    ended = as_bob.get(address).content.decode()

    assert (asked.status_code, asked["Location"]) == (302, address)
    assert f'<a href="{address}">reload this page</a>' in waiting
    assert "6*7</textarea>" in ended
    assert "42" in text_of(ended.encode())


def test_web_never_runs_the_tool_itself(as_bob: Client, acme: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tool(acme, "calculator")
    monkeypatch.setattr(execution, "run_tool", lambda *_: pytest.fail("A request ran the tool."))

    assert as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "1"}).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_a_trial_of_a_tool_that_writes_needs_a_confirmation(
    as_bob: Client, bob: Membership, acme: Organisation
) -> None:
    make_tool(acme, "task_create")
    body = {"arg-title": "<b>Buy</b> milk"}

    unticked = as_bob.post(f"{ACME}task_create/try/", body)
    assert (unticked.status_code, tries(acme)) == (422, [])
    ticked = as_bob.post(f"{ACME}task_create/try/", body | {"confirm": "on"}, follow=True)
    run = run_trial(bob)
    page = as_bob.get(ticked.request["PATH_INFO"])

    assert run.status == TrialStatus.DONE
    with organisation_scope(acme):
        assert [task.title for task in Task.objects.all()] == ["<b>Buy</b> milk"]
    assert "Done" in text_of(page.content)
    assert "<b>Buy</b>" not in page.content.decode()
    assert len(tries(acme)) == 1


# -- The run, from the row to its end ---------------------------------------------------------------------------------


@pytest.fixture
def asked(as_bob: Client, bob: Membership, acme: Organisation) -> TrialRun:
    """Bob's run of the calculator, waiting for a worker."""
    make_tool(acme, "calculator")
    as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})
    return last_trial(bob)


def set_trial(run: TrialRun, **fields: Any) -> None:
    with organisation_scope(run.organisation_id):
        TrialRun.objects.filter(pk=run.pk).update(**fields)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("switched off", "the tool was switched off"),
        ("another version", "the tool was changed since"),
        ("no role", "no role"),
        ("a viewer now", "your access no longer allows it"),
        ("left", "Access denied"),
    ],
)
def test_rights_are_asked_for_again_where_it_runs(asked: TrialRun, bob: Membership, change: str, says: str) -> None:
    with organisation_scope(asked.organisation_id):
        tool = Tool.objects.get()
        match change:
            case "switched off":
                Tool.objects.update(is_enabled=False)
            case "another version":
                definition = Definition("calculator", "Counts otherwise.", {"type": "object", "properties": {}})
                update_tool(tool, definition, actor=None)
            case "no role":
                RoleMembership.objects.all().delete()
            case "a viewer now":
                Membership.objects.filter(pk=bob.pk).update(access=Access.VIEWER)
            case "left":
                Membership.objects.filter(pk=bob.pk).update(ended_at=timezone.now())

    run = run_trial(bob)

    assert (run.status, "42" in run.result) == (TrialStatus.REFUSED, False)
    assert says in run.result


@pytest.mark.django_db(transaction=True)
def test_it_runs_once_however_often_workers_are_called(
    asked: TrialRun, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    real = execution.run_tool

    def counted(spec: ToolSpec, *rest: Any) -> Outcome:
        runs.append(spec.name)
        return real(spec, *rest)

    monkeypatch.setattr(execution, "run_tool", counted)
    threads = [threading.Thread(target=worker.work_on_trial, args=(asked.public_id,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_trial(bob)

    assert runs == ["calculator"]


def test_a_run_whose_worker_died_is_unknown_and_never_run_again(asked: TrialRun, bob: Membership) -> None:
    set_trial(asked, status=TrialStatus.RUNNING, deadline_at=timezone.now() - timedelta(seconds=1))

    trial_runs.sweep()
    run = run_trial(bob)

    assert (run.status, run.result) == (TrialStatus.UNKNOWN, OUTCOME_UNKNOWN)


def test_a_run_that_no_worker_takes_expires_and_is_not_run_later(asked: TrialRun, bob: Membership) -> None:
    set_trial(asked, deadline_at=timezone.now() - timedelta(seconds=1))

    before = run_trial(bob).status
    trial_runs.sweep()
    run = run_trial(bob)

    assert before == TrialStatus.QUEUED
    assert (run.status, run.result) == (TrialStatus.EXPIRED, trial_runs.NOT_TAKEN)


def test_what_ended_a_day_ago_is_forgotten(asked: TrialRun) -> None:
    set_trial(asked, status=TrialStatus.DONE, ended_at=timezone.now() - timedelta(hours=23))
    trial_runs.sweep()
    with organisation_scope(asked.organisation_id):
        assert TrialRun.objects.count() == 1

    set_trial(asked, ended_at=timezone.now() - timedelta(hours=25))
    trial_runs.sweep()

    with organisation_scope(asked.organisation_id):
        assert TrialRun.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_a_sweep_runs_it(asked: TrialRun, bob: Membership) -> None:
    set_trial(asked, rang_at=timezone.now() - timedelta(seconds=10))
    keeper = worker.Housekeeper()

    keeper.call_workers_for_trials()
    keeper._own.shutdown()

    assert last_trial(bob).status == TrialStatus.DONE
    assert trial_runs.unrung(2.0) == []


def test_nobody_else_sees_the_run(client: Client, asked: TrialRun, alice: Membership) -> None:
    address = f"{ACME}calculator/try/{asked.public_id}/"
    with organisation_scope(asked.organisation_id):
        category = Category.objects.get()
    make_tool(alice.organisation, "uuid", category=category)

    assert client.get(address.replace("calculator", "uuid")).status_code == 404
    client.force_login(alice.user)
    assert client.get(address).status_code == 404


def test_a_member_has_a_few_open_runs_at_once(as_bob: Client, asked: TrialRun, acme: Organisation) -> None:
    for _ in range(trying.MAX_OPEN - 1):
        as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})

    refused = as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})

    assert trying.TOO_MANY in text_of(refused.content)
    assert len(tries(acme)) == trying.MAX_OPEN


def test_an_organisation_has_so_many_open_runs_at_once(
    as_bob: Client, asked: TrialRun, acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a thread of a worker for as long as its far side takes, and an organisation may have many members."""
    monkeypatch.setattr(trying, "MAX_OPEN_OF_ORGANISATION", 2)
    as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})

    refused = as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})

    assert trying.TOO_MANY_OF_ORGANISATION in text_of(refused.content)
    assert len(tries(acme)) == 2


def test_the_fields_begin_with_what_was_given() -> None:
    properties = {
        "title": {"type": "string", "maxLength": 100},
        "force": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "size": {"enum": ["é", 2]},
        "where": {"type": "object"},
    }
    given = {"title": "A “title”", "force": False, "tags": ["one", "two"], "size": "é", "where": {"x": [1]}}
    schema = {"type": "object", "properties": properties}

    first = TrialForm(schema=schema, effect="read", given=given)
    second = TrialForm(first.initial, schema=schema, effect="read")

    assert second.is_valid(), second.errors
    assert json.loads(second.arguments_text()) == given


def test_the_schema_has_the_last_word(as_bob: Client, acme: Organisation) -> None:
    parameters = {"type": "object", "properties": {"word": {"type": "string", "pattern": "^a"}}, "required": ["word"]}
    make_tool(acme, "calculator", parameters=parameters)

    page = text_of(as_bob.post(f"{ACME}calculator/try/", {"arg-word": "b"}).content)

    assert "does not match" in page
    assert tries(acme) == []


@pytest.mark.parametrize("why", ["no role", "off", "not set up"])
def test_what_a_turn_may_not_call_is_not_run_by_hand_either(
    client: Client, bob: Membership, acme: Organisation, why: str
) -> None:
    tool = make_tool(acme, "calculator")
    client.force_login(bob.user)
    sentence = {"no role": "no role", "off": "switched off", "not set up": "needs set-up"}[why]
    if why != "no role":
        make_role(acme, bob)
        with organisation_scope(acme):
            Tool.objects.filter(pk=tool.pk).update(**{"is_enabled": False} if why == "off" else {"service": "searxng"})

    form = client.get(f"{ACME}calculator/try/")
    run = client.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"})

    assert sentence in text_of(form.content)
    assert "<form method" not in form.content.decode().partition('id="try"')[2]
    assert sentence in text_of(run.content)
    assert "42" not in text_of(run.content)
    assert tries(acme) == []


def test_a_viewer_runs_nothing(client: Client, acme: Organisation) -> None:
    make_tool(acme, "calculator")
    viewer = make_member(acme, "vera", Access.VIEWER)
    make_role(acme, viewer)
    client.force_login(viewer.user)

    assert client.post(f"{ACME}calculator/try/", {"arg-expression": "1"}).status_code == 403
    assert f"{ACME}calculator/try/" not in client.get(f"{ACME}calculator/").content.decode()


# -- The last calls ---------------------------------------------------------------------------------------------------


def make_call(member: Membership, display: str) -> None:
    turn = make_turn(make_session(member), status=TurnStatus.DONE)
    with organisation_scope(member.organisation):
        Step.objects.create(
            organisation=member.organisation,
            turn=turn,
            index=1,
            kind="tool",
            status="done",
            tool_name="calculator",
            display=display,
        )


def test_calls_are_shown_to_their_member_and_to_who_has_the_right(
    as_bob: Client, bob: Membership, alice: Membership, acme: Organisation
) -> None:
    make_tool(acme, "calculator")
    make_agent(acme)
    make_call(bob, "Bob counts")
    make_call(alice, "Alice counts")

    own = text_of(as_bob.get(f"{ACME}calculator/calls/", headers=HTMX).content)
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=bob, right=Right.SESSIONS)
    every = text_of(as_bob.get(f"{ACME}calculator/calls/").content)

    assert ("Bob counts" in own, "Alice counts" in own) == (True, False)
    assert ("Bob counts" in every, "Alice counts" in every) == (True, True)
