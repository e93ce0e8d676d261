"""The page of keywords: a message that is tried, the table, and the turns in which routing was wrong."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.models import Agent, Category, RoutingMode, Tool
from sessions.insight.explain.why import Subject
from sessions.insight.keywords.queries import findings_page, try_message
from sessions.models import FindingKind, RoutingFinding
from sessions.selection.queries import starting_selection
from tests.capabilities.test_pages import give_right
from tests.cast import give_tool, make_agent, make_category, make_role, make_session, make_tool, make_turn
from toolhub.tenants.models import AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

PAGE = "/o/acme/keywords/"
LIGHTS = ("ha_get_state", "ha_get_states", "ha_call_service")


@pytest.fixture
def agent(in_acme: Organisation, alice: Membership, bob: Membership) -> Agent:
    """It has three tools of the home and twenty others, and everybody may use all. Messages decide what is sent."""
    home = make_category(in_acme, "ha", title="Home", keywords=["light", "kitchen", "turn off"])
    other = make_category(in_acme, "other", title="Other", keywords=["job"])
    agent = make_agent(in_acme, slug="clerk", routing_mode=RoutingMode.KEYWORDS)
    for name in LIGHTS:
        give_tool(agent, make_tool(in_acme, name, category=home, description="Lights of the house."))
    for number in range(20):
        give_tool(agent, make_tool(in_acme, f"stamp_{number:02}", category=other, description="Print a stamp."))
    make_role(in_acme, alice, slug="all")
    make_role(in_acme, bob, slug="everything")
    return Agent.objects.select_related("model__provider").get(pk=agent.pk)


@pytest.fixture
def as_alice(alice: Membership) -> Client:
    client = Client()
    client.force_login(alice.user)
    return client


def shown(client: Client, **query: Any) -> str:
    answer = client.get(PAGE, query)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


# -- Try a message ----------------------------------------------------------------------------------------------------


def test_cx_25_a_message_that_is_tried_shows_words_categories_tools_and_tokens(
    agent: Agent, alice: Membership, as_alice: Client
) -> None:
    message = "Turn off the kitchen lights"
    tried = try_message(Subject(alice, agent, None), message)
    selection = starting_selection(alice, agent, message)

    assert [(each.name, each.title, sorted(each.words), each.sent) for each in tried.categories] == [
        ("ha", "Home", ["kitchen", "light", "turn off"], 3)
    ]
    assert {each.spec.name for each in tried.sent} - {"search_tools", "read_result"} == set(LIGHTS)
    assert [each.spec.name for each in tried.sent] == [tool.name for tool in selection.tools], "as a turn sends them"
    assert (tried.tokens, tried.all_tokens > tried.tokens) == (selection.tokens, True)
    page = shown(as_alice, message=message, agent="clerk")
    assert f"{tried.tokens:,} tok" in page
    assert "kitchen" in page
    assert "ha_call_service" in page


def test_cx_25_cx_24_small_talk_and_parts_of_words_send_nothing_but_the_search(
    agent: Agent, alice: Membership, as_alice: Client
) -> None:
    for message in ("Good morning", "highlight the vegetable"):
        tried = try_message(Subject(alice, agent, None), message)
        assert ({each.spec.name for each in tried.sent} <= {"search_tools"}, tried.is_empty) == (True, True)
    assert "The message calls for no tool." in shown(as_alice, message="Good morning", agent="clerk")


def test_another_routing_is_tried_and_never_saved(agent: Agent, alice: Membership, as_alice: Client) -> None:
    page = shown(as_alice, message="print a stamp", agent="clerk", mode="hybrid")

    assert "stamp_00" in page
    assert "ranked 1st" in page
    assert "every message gets the same tools" in shown(as_alice, message="x", agent="clerk", mode="off")
    with organisation_scope(agent.organisation):
        assert Agent.objects.get(slug="clerk").routing_mode == RoutingMode.KEYWORDS


def test_where_routing_is_off_the_page_still_shows_the_words_that_match(agent: Agent, alice: Membership) -> None:
    tried = try_message(Subject(alice, agent, None), "Light the kitchen", "off")

    assert (tried.is_routed, len(tried.sent) >= 23, tried.tokens) == (False, True, tried.all_tokens)
    assert [each.name for each in tried.categories] == ["ha"]


def test_where_a_matched_category_sends_nothing_it_says_why(agent: Agent, alice: Membership) -> None:
    make_category(agent.organisation, "garden", title="Garden", keywords=["hose"])
    Tool.objects.filter(name__in=LIGHTS).update(is_enabled=False)

    found = try_message(Subject(alice, agent, None), "Turn off the garden hose").categories

    why = {each.name: each.why_none for each in found}
    assert sorted(why) == ["garden", "ha"]
    assert why["ha"].startswith("ha_call_service: switched off")
    assert why["garden"] == "the agent has none of its tools"


def test_a_message_is_tried_for_somebody_else_with_the_right_roles_alone(
    agent: Agent, alice: Membership, bob: Membership, as_alice: Client
) -> None:
    with organisation_scope(agent.organisation):
        give_right(bob, Right.CATALOGUE)
    as_bob = Client()
    as_bob.force_login(bob.user)
    query = {"message": "lights", "agent": "clerk"}

    assert as_alice.get(PAGE, query | {"member": bob.user.email}).status_code == 200
    assert as_bob.get(PAGE, query).status_code == 200
    assert as_bob.get(PAGE, query | {"member": alice.user.email}).status_code == 403
    assert as_alice.get(PAGE, query | {"member": "nobody@example.com"}).status_code == 422
    assert as_alice.get(PAGE, query | {"agent": "nobody"}).status_code == 422
    assert as_alice.get(PAGE, query | {"message": "x" * 2_001}).status_code == 422
    assert as_alice.get(PAGE, query | {"mode": "magic"}).status_code == 422


def test_a_member_a_session_and_an_agent_of_another_organisation_are_as_missing_ones(
    agent: Agent, charlie: Membership, as_alice: Client
) -> None:
    with organisation_scope(charlie.organisation):
        theirs = make_agent(charlie.organisation, slug="theirs")
        session = make_session(charlie, theirs)

    for field, real, missing in (
        ("member", charlie.user.email, "nobody@example.com"),
        ("session", str(session.pk), "6f0d9c1e-3b52-4a57-9d0e-2f4f1c1f7a10"),
        ("agent", "theirs", "nobody"),
    ):
        pages = [as_alice.get(PAGE, {"message": "x", field: value}) for value in (real, missing)]
        assert [page.status_code for page in pages] == [422, 422]
        first, second = (page.content.decode().split('id="tried"')[1].split("</section>")[0] for page in pages)
        assert first.replace(real, "…") == second.replace(missing, "…")


def test_a_follow_up_is_tried_in_the_session_that_it_follows_in(agent: Agent, alice: Membership) -> None:
    session = make_session(alice, agent)
    sent = [Tool.objects.get(name=name).pk for name in LIGHTS]
    left = {"turn": 1, "messages": ["Turn off the lights"], "answer": "Shall I?", "sent": sent, "unfinished": True}
    session.last_prompt = {str(agent.pk): {"routing": left}}
    session.save(update_fields=["last_prompt"])

    tried = try_message(Subject(alice, agent, session), "yes, do it")

    assert (tried.is_follow_up, {each.spec.name for each in tried.sent} >= set(LIGHTS)) == (True, True)


def test_htmx_gets_the_part_that_was_tried(agent: Agent, as_alice: Client) -> None:
    headers = {"HX-Request": "true", "HX-Target": "tried"}

    part = as_alice.get(PAGE, {"message": "lights", "agent": "clerk"}, headers=headers).content.decode()
    wrong = as_alice.get(PAGE, {"message": "lights", "agent": "nobody"}, headers=headers)

    assert part.strip().startswith('<div id="tried">')
    assert "<html" not in part
    assert (wrong.status_code, b"nobody" in wrong.content) == (422, True)


# -- The table --------------------------------------------------------------------------------------------------------


def test_cx_25_keywords_are_edited_in_place_on_record_and_count_at_once(
    agent: Agent, alice: Membership, as_alice: Client
) -> None:
    path = f"{PAGE}of/ha/"
    row = as_alice.get(path, headers={"HX-Request": "true"}).content.decode()
    saved = as_alice.post(path, {"keywords": "lamp, chandelier\n lamp \nLAMP"}, headers={"HX-Request": "true"})

    assert (row.strip()[:3], "<html" in row) == ("<tr", False)
    assert "Saved" in saved.content.decode()
    with organisation_scope(agent.organisation):
        category = Category.objects.get(name="ha")
        assert sorted(category.keywords) == ["LAMP", "chandelier"]
        entry = AuditEntry.objects.filter(action="category.update").latest("number")
        assert (entry.actor_id, entry.after["keywords"]) == (alice.pk, category.keywords)
        assert [each.name for each in try_message(Subject(alice, agent, None), "The lamps").categories] == ["ha"]


def test_without_script_a_form_of_its_own_saves_and_leads_back_to_the_row(agent: Agent, as_alice: Client) -> None:
    path = f"{PAGE}of/ha/"

    assert b"Save the keywords" in as_alice.get(path).content
    answer = as_alice.post(path, {"keywords": ""})

    assert (answer.status_code, answer["Location"]) == (302, f"{PAGE}#keywords-ha")
    assert "only the ranking finds its tools" in shown(as_alice)


def test_too_many_or_too_long_keywords_are_refused_beside_the_field(agent: Agent, as_alice: Client) -> None:
    path = f"{PAGE}of/ha/"
    for keywords in ("x" * 61, "\n".join(str(number) for number in range(201)), "y" * 20_000):
        for headers in ({}, {"HX-Request": "true"}):
            assert as_alice.post(path, {"keywords": keywords}, headers=headers).status_code == 422
    with organisation_scope(agent.organisation):
        assert Category.objects.get(name="ha").keywords == ["light", "kitchen", "turn off"]


def test_a_right_for_one_category_edits_that_one(agent: Agent, bob: Membership, charlie: Membership) -> None:
    client = Client()
    client.force_login(bob.user)
    assert client.get(PAGE).status_code == 403
    with organisation_scope(agent.organisation):
        give_right(bob, Right.CATALOGUE, "ha")

    page = shown(client)

    assert ("Edit the keywords of Home" in page, "Edit the keywords of Other" in page) == (True, False)
    assert client.post(f"{PAGE}of/ha/", {"keywords": "lamp"}).status_code == 302
    assert client.post(f"{PAGE}of/other/", {"keywords": "lamp"}).status_code == 403
    client.force_login(charlie.user)
    assert [client.get(path).status_code for path in (PAGE, f"{PAGE}of/ha/", f"{PAGE}findings/")] == [404] * 3


def test_the_table_is_found_by_category_and_by_keyword(agent: Agent, as_alice: Client) -> None:
    assert 'id="keywords-ha"' in shown(as_alice, q="kitch")
    assert 'id="keywords-other"' not in shown(as_alice, q="kitch")
    assert "Nothing here" in shown(as_alice, q="zzz")


# -- Misses and misfires ----------------------------------------------------------------------------------------------


def add_finding(member: Membership, agent: Agent, kind: FindingKind, name: str, *words: str) -> RoutingFinding:
    turn = make_turn(make_session(member, agent), message=f"{member.user.first_name} wrote {name}")
    how = "not_called" if kind == FindingKind.MISFIRE else "found_by_search"
    return RoutingFinding.objects.create(
        organisation=agent.organisation, turn=turn, kind=kind, name=name, words=list(words), how=how
    )


def test_misses_and_misfires_are_listed_with_the_turns_that_the_reader_may_see(
    agent: Agent, alice: Membership, bob: Membership, as_alice: Client
) -> None:
    add_finding(alice, agent, FindingKind.MISFIRE, "other", "job")
    add_finding(bob, agent, FindingKind.MISS, "stamp_00")
    with organisation_scope(agent.organisation):
        give_right(bob, Right.CATALOGUE)
    as_bob = Client()
    as_bob.force_login(bob.user)

    hers, his = shown(as_alice), shown(as_bob)

    assert "“job” matched" in hers
    assert "found it with search_tools" in hers
    assert ("Alice wrote other" in his, "Bob wrote stamp_00" in his) == (False, True)
    assert "In a session of somebody else" in his
    assert "“job” 1" in hers, "counted in the table"
    only = " ".join(as_alice.get(f"{PAGE}findings/", {"kind": "miss"}).content.decode().split())
    assert ("stamp_00" in only, "“job”" in only) == (True, False)


def test_findings_page_by_page_newest_first(agent: Agent, alice: Membership) -> None:
    keys = [add_finding(alice, agent, FindingKind.MISFIRE, "other", "job").pk for _ in range(5)]
    found, page = [], findings_page(alice, limit=2)
    while True:
        found += [line.finding.pk for line in page.rows]
        if not page.after:
            break
        page = findings_page(alice, limit=2, after=page.after)

    assert found == keys[::-1]


def test_the_page_sends_the_same_queries_for_one_row_and_for_many(
    agent: Agent, alice: Membership, as_alice: Client
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as sent:
            shown(as_alice, message="print a stamp", agent="clerk", mode="hybrid")
        return len(sent)

    add_finding(alice, agent, FindingKind.MISFIRE, "other", "job")
    count()
    one = count()
    for number in range(4):
        make_category(agent.organisation, f"more_{number}", keywords=["word"] * 3)
        add_finding(alice, agent, FindingKind.MISS, f"stamp_{number:02}")

    assert count() == one


def test_a_stored_message_is_text(agent: Agent, alice: Membership, as_alice: Client) -> None:
    finding = add_finding(alice, agent, FindingKind.MISFIRE, "other", "<b>job</b>")
    finding.turn.message = "<script>alert(1)</script>"
    finding.turn.save(update_fields=["message"])

    page = shown(as_alice, message="<script>alert(2)</script> light", agent="clerk")

    assert "<script>alert" not in page
    assert "<b>job</b>" not in page


def test_a_tool_that_is_gone_leaves_the_finding(agent: Agent, alice: Membership, as_alice: Client) -> None:
    add_finding(alice, agent, FindingKind.MISS, "gone_tool")
    add_finding(alice, agent, FindingKind.MISFIRE, "gone_category", "job")

    page = shown(as_alice)

    assert "gone_tool" in page
    assert "gone_category" in page
    assert not Tool.objects.filter(name="gone_tool").exists()
