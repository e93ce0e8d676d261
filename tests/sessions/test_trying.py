"""A tool run by hand, and what its page shows of turns."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from capabilities.contract.argument_fields import ArgumentField, argument_fields
from capabilities.models import Tool
from sessions.models import Step, TurnStatus
from sessions.trial_form import TrialForm
from tests.cast import make_agent, make_member, make_role, make_session, make_tool, make_turn
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.scope import organisation_scope

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


def test_what_was_left_empty_is_not_given() -> None:
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
def test_what_makes_no_form_is_asked_for_as_json(schema: dict[str, Any]) -> None:
    form = TrialForm({"arg-": '{"a": 1}'}, schema=schema, effect="read")

    assert form.is_valid()
    assert form.arguments_text() == '{"a": 1}'
    assert not TrialForm({"arg-": "{"}, schema=schema, effect="read").is_valid()


# -- Running it -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_tool_is_run_as_the_member_and_told_to_the_audit(as_bob: Client, acme: Organisation) -> None:
    make_tool(acme, "calculator")

    form = as_bob.get(f"{ACME}calculator/try/").content.decode()
    page = as_bob.post(f"{ACME}calculator/try/", {"arg-expression": "6*7"}, headers=HTMX).content.decode()

    assert 'name="arg-expression"' in form
    assert "<html" not in page
    assert "42" in text_of(page.encode())
    assert tries(acme) == [("bob@example.com", {"arguments": '{"expression": "6*7"}', "effect": "read"})]


@pytest.mark.django_db(transaction=True)
def test_what_changes_something_wants_a_tick(as_bob: Client, acme: Organisation) -> None:
    make_tool(acme, "task_create")
    body = {"arg-title": "<b>Buy</b> milk"}

    unticked = as_bob.post(f"{ACME}task_create/try/", body)
    assert (unticked.status_code, tries(acme)) == (422, [])
    ticked = as_bob.post(f"{ACME}task_create/try/", body | {"confirm": "on"})

    assert ticked.status_code == 200
    assert "Done" in text_of(ticked.content)
    assert "<b>Buy</b>" not in ticked.content.decode()
    assert len(tries(acme)) == 1


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
