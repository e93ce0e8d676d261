"""The pages of a session with several agents: whom a message goes to, who works for whom, and who is waited for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from capabilities.models import Agent
from sessions.models import ChatSession, Notice, StepStatus, Turn, TurnStatus
from tests.cast import make_agent, make_session, make_turn
from tests.sessions.doors.chats.test_views import add_step, page_of, text_of, turn_url
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation, slug="boss"), title="Shop")


@pytest.fixture
def coder(session: ChatSession) -> Agent:
    return make_agent(session.organisation, slug="coder")


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def chosen(page: bytes) -> list[str]:
    return re.findall(r'<option value="([^"]+)" selected', page.decode())


def hand_over(turn: Turn, agent: Agent, **fields: Any) -> Turn:
    """A child turn, behind a call of this turn's."""
    step = add_step(turn, status=StepStatus.STARTED, tool_name="spawn_agent", display=f"Asking the agent {agent.slug}")
    child = make_session(turn.membership, agent, title="Write it", parent_turn=turn, depth=1, delegated_tools=[])
    return make_turn(child, "Write it", parent_step=step, agent=agent, **fields)


def post(client: Client, session: ChatSession, **fields: str) -> Any:
    return client.post(page_of(session, "turns/"), {"message": "hello", **fields}, headers=HTMX)


# -- Whom a message goes to -------------------------------------------------------------------------------------------


def test_a_session_with_one_agent_shows_no_choice_of_agents(as_bob: Client, session: ChatSession) -> None:
    assert b'name="agent"' not in as_bob.get(page_of(session)).content


def test_the_choice_begins_with_the_agent_of_the_last_turn_else_the_sessions_first(
    as_bob: Client, session: ChatSession, coder: Agent
) -> None:
    make_agent(session.organisation, slug="off", is_enabled=False)
    page = as_bob.get(page_of(session)).content
    assert (chosen(page), b'value="off"' in page) == (["boss"], False)

    make_turn(session, agent=coder, status=TurnStatus.DONE)
    assert chosen(as_bob.get(page_of(session)).content) == ["coder"]


def test_a_message_goes_to_the_chosen_agent_and_the_choice_stays(
    as_bob: Client, session: ChatSession, coder: Agent
) -> None:
    response = post(as_bob, session, agent="coder")

    with system_scope():
        turn = Turn.objects.get()
    assert (turn.agent_id, chosen(response.content)) == (coder.pk, ["coder"])


@pytest.mark.parametrize("agent", ["no-agent", "off", "globex-agent"])
def test_an_agent_that_is_not_there_takes_no_message_and_the_text_stays(
    as_bob: Client, session: ChatSession, coder: Agent, charlie: Membership, agent: str
) -> None:
    make_agent(session.organisation, slug="off", is_enabled=False)
    make_agent(charlie.organisation, slug="globex-agent")

    response = post(as_bob, session, agent=agent)

    assert (response.status_code, b">\nhello</textarea>" in response.content) == (422, True)
    assert "There is no such agent" in text_of(response.content)
    with system_scope():
        assert not Turn.objects.exists()


def test_a_failed_turn_is_sent_again_to_its_own_agent(as_bob: Client, session: ChatSession, coder: Agent) -> None:
    make_turn(session, agent=coder, status=TurnStatus.FAILED, error_code="x")

    assert b'<input type="hidden" name="agent" value="coder">' in as_bob.get(page_of(session)).content


def test_each_turn_says_its_agent_once_there_are_two(as_bob: Client, session: ChatSession, coder: Agent) -> None:
    make_turn(session, status=TurnStatus.DONE)
    make_turn(session, status=TurnStatus.DONE)
    assert b"turn-agent" not in as_bob.get(page_of(session)).content

    make_turn(session, agent=coder, status=TurnStatus.DONE)

    agents = re.findall(r'class="turn-agent">.*?</svg>(\w+)<', as_bob.get(page_of(session)).content.decode())
    assert agents == ["Boss", "Boss", "Coder"]


# -- Who works for whom -----------------------------------------------------------------------------------------------


def test_a_waiting_turn_says_whom_it_waits_for_leads_there_and_can_be_stopped(
    as_bob: Client, session: ChatSession, coder: Agent
) -> None:
    turn = make_turn(session, status=TurnStatus.WAITING_CHILD)
    child = hand_over(turn, coder)
    hand_over(turn, make_agent(session.organisation, slug="done"), status=TurnStatus.DONE)

    page = as_bob.get(page_of(session)).content

    assert " Waiting for Coder " in text_of(page)
    assert f'id="stop-{turn.pk}"'.encode() in page
    assert f'href="/o/acme/sessions/{child.session_id}/"'.encode() in page
    assert f'sse-connect="{turn_url(turn, "stream")}"'.encode() in page

    as_bob.post(turn_url(turn, "cancel/"))

    with system_scope():
        statuses = set(Turn.objects.exclude(agent__slug="done").values_list("status", flat=True))
    assert statuses == {TurnStatus.CANCELLED}
    assert "Stopped by Bob" in text_of(as_bob.get(page_of(session)).content)


def test_a_session_that_an_agent_opened_says_by_whom_and_where_and_takes_no_message(
    as_bob: Client, session: ChatSession, coder: Agent
) -> None:
    turn = make_turn(session, status=TurnStatus.WAITING_CHILD)
    child = hand_over(turn, coder, status=TurnStatus.FAILED, error_code="x")

    page = as_bob.get(page_of(child.session)).content

    assert "Started by Boss in Shop" in text_of(page)
    assert f'href="{turn_url(turn)}"'.encode() in page
    assert "Boss started this session with Coder." in text_of(page)
    assert b'id="composer"' not in page
    assert b"Send again" not in page
    assert as_bob.post(page_of(child.session, "turns/"), {"message": "x"}).status_code == 403


def test_the_list_shows_the_members_own_sessions_alone(as_bob: Client, session: ChatSession, coder: Agent) -> None:
    hand_over(make_turn(session), coder)

    page = as_bob.get("/o/acme/sessions/").content

    assert re.findall(r'class="row-main" href="/o/acme/sessions/([^/]+)/"', re.sub(r"\s+", " ", page.decode())) == [
        str(session.pk)
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_a_page_takes_the_same_queries_for_one_and_three_children(
    as_bob: Client, session: ChatSession, coder: Agent, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    turn = make_turn(session, status=TurnStatus.WAITING_CHILD)
    for _ in range(count):
        hand_over(turn, coder)

    with django_assert_num_queries(16):
        as_bob.get(page_of(session))


def test_a_notice_of_the_service_stays_on_the_page(as_bob: Client, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        Notice.objects.create(organisation=session.organisation, session=session, text="Stretch!")

    assert b"Stretch!" in as_bob.get(page_of(session)).content
