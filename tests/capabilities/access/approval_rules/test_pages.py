"""Approval rules on pages and over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.access.approval_rules.words import in_words
from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.models import ApprovalRule
from tests.cast import make_agent, make_category, make_tool
from tests.rest import Rest
from tests.sessions.doors.chats.test_views import delegate, text_of
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

RULES = "/o/acme/approval-rules/"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    make_tool(alice.organisation, "http_post", category=make_category(alice.organisation, "web_post"))
    make_tool(alice.organisation, "calculator")
    client.force_login(alice.user)
    return client


def form(**fields: Any) -> dict[str, Any]:
    plain = {"tool_pattern": "http_*", "when": "always", "expires_after": 24, "priority": 10, "name": "posts"}
    return plain | fields


def rules() -> list[str]:
    with system_scope():
        return list(ApprovalRule.objects.values_list("name", flat=True))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            RuleContent(),
            "Somebody is asked each time before any tool runs. The requester may answer, within 7 days.",
        ),
        (
            RuleContent(tool_pattern="http_*", when="first_in_session", needs_other_person=True, expires_after=1),
            ("Somebody is asked the first time in a session before a tool matching http_* runs."
            " Another person than the requester answers, within 1 hour."),
        ),
        (
            RuleContent(
                tool_pattern="group:web", when="never", agent="coder", role="everyday", toolkit="devops",
                argument="url", argument_pattern="*.example",
            ),
            ("Nobody is asked before a tool matching group:web of the toolkit devops runs for the agent coder"
            " for members with the role everyday with url like *.example."
            " Rules behind this one say nothing of such a call."),
        ),
    ],
)  # fmt: skip
def test_a_rule_in_words(content: RuleContent, words: str) -> None:
    assert in_words(content) == words


def test_a_rule_is_made_changed_and_removed(as_alice: Client) -> None:
    made = as_alice.post(f"{RULES}new/", form(), follow=True)
    assert "Saved: posts." in text_of(made.content)
    assert "each time before a tool matching http_*" in text_of(made.content)
    with system_scope():
        rule = ApprovalRule.objects.get()
    address = f"{RULES}{rule.public_id}/"
    assert b'value="http_*"' in as_alice.get(address).content

    as_alice.post(address, form(when="never"))
    with system_scope():
        rule.refresh_from_db()
    assert rule.when == "never"
    assert "Removed: posts." in text_of(as_alice.post(f"{address}delete/", follow=True).content)
    assert rules() == []


def test_the_preview_says_it_in_words_and_names_the_tools_and_saves_nothing(as_alice: Client) -> None:
    page = as_alice.post(f"{RULES}new/", form(preview="1")).content

    text = text_of(page)
    assert "each time before a tool matching http_*" in text
    assert "1 tool now: http_post " in text
    assert rules() == []


def test_a_pattern_that_means_nothing_says_so(as_alice: Client) -> None:
    page = as_alice.post(f"{RULES}new/", form(tool_pattern="nothing_*", preview="1")).content

    assert "No tool of the catalogue matches now." in text_of(page)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"argument": "url"}, "argument_pattern"),
        ({"name": "Not a name"}, "name"),
        ({"expires_after": 0}, "expires_after"),
        ({"when": "sometimes"}, "when"),
        ({"agent": "no-agent"}, "agent"),
    ],
)
def test_a_wrong_value_is_shown_beside_its_field(as_alice: Client, fields: dict[str, Any], field: str) -> None:
    answer = as_alice.post(f"{RULES}new/", form(**fields))

    assert answer.status_code == 422
    assert f"id_{field}".encode() in answer.content.partition(b'role="alert"')[2].partition(b"</div>")[0]
    assert rules() == []


def test_bob_needs_the_right_policies(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)
    assert client.get(RULES).status_code == 403
    assert client.post(f"{RULES}new/", form()).status_code == 403
    assert b"/approval-rules/" not in client.get("/o/acme/policies/").content

    delegate(bob, Right.POLICIES)

    assert client.get(RULES).status_code == 200
    assert b"/approval-rules/" in client.get("/o/acme/policies/").content


def test_the_list_costs_the_same_with_one_and_with_three(as_alice: Client, alice: Membership) -> None:
    agent = make_agent(alice.organisation)
    counts = []
    for names in (["a"], ["b", "c"]):
        for name in names:
            with organisation_scope(alice.organisation):
                create_rule(RuleContent(name=name, agent=agent.slug, tool_pattern=f"{name}_*"), actor=alice)
        as_alice.get(RULES)
        with CaptureQueriesContext(connection) as captured:
            assert as_alice.get(RULES).status_code == 200
        counts.append(len(captured))

    assert counts[0] == counts[1]


def test_rules_over_rest(as_alice: Client, alice: Membership) -> None:
    rest = Rest(alice)
    made = rest.post("approval-rules", {"tool_pattern": "http_*", "needs_other_person": True, "expires_after": 24})

    assert made.status == 201
    assert "each time before a tool matching http_*" in made.json["words"]
    address = f"approval-rules/{made.json['id']}"
    assert rest.get(address).json == made.json
    assert rest.get("approval-rules").json == {"results": [made.json], "next": None}
    changed = rest.patch(address, {"when": "first_in_session"}).json
    assert (changed["when"], changed["tool_pattern"]) == ("first_in_session", "http_*")
    assert rest.post("approval-rules", {"tool_pattern": "x", "argument": "a"}).error[0] == 400
    assert rest.delete(address).status == 204
    assert rest.get(address).error[0] == 404
