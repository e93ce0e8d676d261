"""Runtime settings over REST: each layer as it was asked for, and what is in force for one tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.models import Agent, RuntimeConfig
from tests.cast import make_agent, make_tool
from tests.rest import Reply, Rest
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

ORGANISATION = "runtime-config/organisation"
DOCUMENT = {"profile": "zeus", "tools": {"shell": {"timeout_sec": 9_999, "ask": "always"}}}


@pytest.fixture
def agent(alice: Membership) -> Agent:
    return make_agent(alice.organisation, slug="coder", name="Coder")


@pytest.fixture
def rest(alice: Membership) -> Rest:
    return Rest(alice)


def put(rest: Rest, path: str, body: Any) -> Reply:
    return rest.ask("PUT", path, json.dumps(body).encode())


def test_a_layer_is_set_read_changed_and_removed(rest: Rest) -> None:
    assert rest.get(ORGANISATION).json == {"layer": "organisation", "slug": "", "values": {}, "notes": []}

    answer = put(rest, ORGANISATION, DOCUMENT)
    assert answer.status == 200
    assert answer.json["values"] == DOCUMENT
    assert answer.json["notes"] == [
        {"where": "tools.shell.timeout_sec", "text": "9,999 is above the maximum of 600.", "kind": "clamped"}
    ]

    part = {"profile": None, "result_min_chars": 700, "tools": {"shell": {"ask": None}, "web_read": {"ask": "off"}}}
    assert rest.patch(ORGANISATION, part).json["values"] == {
        "result_min_chars": 700,
        "tools": {"shell": {"timeout_sec": 9_999}, "web_read": {"ask": "off"}},
    }

    assert rest.delete(ORGANISATION).status == 204
    assert rest.get(ORGANISATION).json["values"] == {}


@pytest.mark.parametrize("path", ["runtime-config/agents/coder", "runtime-config/providers/scripted"])
def test_an_agent_and_a_provider_have_their_own(rest: Rest, agent: Agent, path: str) -> None:
    put(rest, path, {"tools": {"*": {"timeout_sec": 9}}})

    (row,) = rest.get("runtime-config").json["results"]
    assert (row["slug"], row["values"]) == (path.rpartition("/")[2], {"tools": {"*": {"timeout_sec": 9}}})
    assert rest.get(ORGANISATION).json["values"] == {}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"tools": {"shell": {"ask": "yes"}}}, "tools.shell.ask", "'yes' is none of always, first_time, off."),
        ({"tools": [1]}, "tools", "It is no object of patterns and knobs."),
        ({"result_min_chars": "7"}, "result_min_chars", "'7' is not a whole number."),
        ({"result_context_share_ratio": True}, "result_context_share_ratio", "True is not a number."),
        ({"profile": "gone"}, "profile", "There is no profile 'gone'; there are: zeus."),
        ({"colour": 1}, "colour", "There is no such field here."),
    ],
)
def test_malformed_settings_are_refused_with_their_path(rest: Rest, body: Any, field: str, message: str) -> None:
    for method in ("PUT", "PATCH"):
        answer = rest.ask(method, ORGANISATION, json.dumps(body).encode())

        assert (answer.status, answer.json["error"]["field"], answer.json["error"]["message"]) == (400, field, message)
    assert rest.get(ORGANISATION).json["values"] == {}


def test_zs_22_a_tool_says_what_was_asked_what_is_in_force_whose_it_is_and_why(
    rest: Rest, alice: Membership, agent: Agent
) -> None:
    make_tool(alice.organisation, "shell_exec")
    put(rest, ORGANISATION, DOCUMENT)
    put(rest, "runtime-config/agents/coder", {"tools": {"shell": {"safe_bins": ["ls", "ls"]}}})

    answer = rest.get("runtime-config/tools/shell_exec", agent="coder").json
    knobs = {each["name"]: each for each in answer["knobs"]}

    assert (answer["tool"], answer["agent"], answer["provider"], answer["toolkit"]) == (
        "shell_exec",
        "coder",
        "scripted",
        None,
    )
    assert [knobs["timeout_sec"][each] for each in ("asked", "in_force", "layer", "why")] == [
        9_999,
        600.0,
        "organisation",
        "9,999 is above the maximum of 600",
    ]
    assert (knobs["security"]["in_force"], knobs["security"]["layer"]) == ("full", "profile zeus of organisation")
    assert (knobs["safe_bins"]["in_force"], knobs["safe_bins"]["layer"]) == (["ls"], "agent Coder")
    assert [each["layer"] for each in knobs["ask"]["layers"]] == [
        "default",
        "default",
        "profile zeus of organisation",
        "organisation",
    ]


def test_bob_and_charlie_get_nothing(alice: Membership, bob: Membership, charlie: Membership, agent: Agent) -> None:
    put(Rest(alice), "runtime-config/agents/coder", DOCUMENT)

    for path in ("runtime-config", ORGANISATION, "runtime-config/agents/coder", "runtime-config/tools/uuid"):
        assert Rest(bob).get(path).status == 403
    assert put(Rest(bob), ORGANISATION, DOCUMENT).status == 403
    assert Rest(charlie).get("runtime-config").json["results"] == []
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert Rest(charlie).ask(method, "runtime-config/agents/coder", b"{}").status == 404
    with organisation_scope(alice.organisation_id):
        assert RuntimeConfig.objects.get().values == DOCUMENT
