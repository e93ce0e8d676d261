"""Sessions that clients of the gateway opened: found in the list, and as their page shows them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from sessions.doors.chats.client_requests import ON_PAGE
from sessions.doors.chats.queries import sessions_page
from sessions.models import ChatSession, ClientRequest, Door, SessionClient, StepKind, StepStatus, Turn
from sessions.turns import accepting
from sessions.turns.fencing import Conflict
from tests.cast import make_session, make_token, make_turn
from tests.sessions.doors.chats.test_views import HTMX, add_step, delegate, page_of, text_of, turn_url
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import ApiToken, Membership, Right, Scope
from toolhub.tenants.rows.scope import organisation_scope

LIST = "/o/acme/sessions/"


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def opened_by(member: Membership, kind: SessionClient, title: str, *, is_throwaway: bool = True) -> ChatSession:
    return make_session(member, title=title, client=kind, is_throwaway=is_throwaway)


def asked_by_client(session: ChatSession, message: str = "And now?", **fields: object) -> Turn:
    turn = make_turn(session, message, door=Door.CHAT)
    with organisation_scope(session.organisation):
        ClientRequest.objects.create(organisation=session.organisation, turn=turn, digest="d", **fields)
    return turn


def titles(member: Membership, **which: object) -> list[str]:
    with organisation_scope(member.organisation):
        return [row.title for row in sessions_page(member, **which).rows]  # type: ignore[arg-type]


def test_a_list_shows_conversations_or_what_one_kind_of_client_opened(bob: Membership, alice: Membership) -> None:
    make_session(bob, title="talk")
    opened_by(bob, SessionClient.OPENAI, "one request")
    opened_by(bob, SessionClient.OPENAI, "named", is_throwaway=False)
    opened_by(bob, SessionClient.MCP, "MCP: helper")
    opened_by(alice, SessionClient.MCP, "MCP: hers")

    assert titles(bob) == ["named", "talk"]
    assert titles(bob, client="openai") == ["named", "one request"]
    assert titles(bob, client="mcp") == ["MCP: helper"]
    assert titles(alice, client="mcp", everyone=True) == ["MCP: hers", "MCP: helper"]
    assert titles(bob, client="mcp", everyone=True) == ["MCP: helper"]


def test_pages_of_such_a_list_go_on_where_the_last_ended(bob: Membership) -> None:
    for number in range(5):
        opened_by(bob, SessionClient.MCP, f"MCP: {number}")
    with organisation_scope(bob.organisation):
        first = sessions_page(bob, client="mcp", limit=3)
        second = sessions_page(bob, client="mcp", limit=3, after=first.after)

    assert [row.title for row in [*first.rows, *second.rows]] == [f"MCP: {number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize("kind", SessionClient)
def test_the_list_takes_the_same_queries_for_one_and_three(as_bob: Client, bob: Membership, kind: str) -> None:
    counts = []
    for number in (1, 2):
        for place in range(number):
            asked_by_client(opened_by(bob, SessionClient(kind), f"asked {number} {place}"))
        as_bob.get(LIST, {"client": kind})
        with CaptureQueriesContext(connection) as queries:
            as_bob.get(LIST, {"client": kind})
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_the_page_of_the_list_says_what_it_shows(as_bob: Client, bob: Membership) -> None:
    opened_by(bob, SessionClient.OPENAI, "one request")

    assert "one request" in text_of(as_bob.get(LIST, {"client": "openai"}).content)
    assert "one request" not in text_of(as_bob.get(LIST).content)
    assert "No MCP client has called a tool yet" in text_of(as_bob.get(LIST, {"client": "mcp"}).content)
    assert "one request" not in text_of(as_bob.get(LIST, {"client": "other"}).content)


def test_rest_lists_them_too_and_says_what_opened_a_session(client: Client, bob: Membership) -> None:
    opened_by(bob, SessionClient.OPENAI, "one request")
    make_session(bob, title="talk")
    headers = {"Authorization": f"Bearer {make_token(bob)}"}

    def told(query: str = "") -> list[tuple[str, str, bool]]:
        rows = client.get(f"/api/v1/sessions{query}", headers=headers).json()["results"]
        return [(row["title"], row["client"], row["is_throwaway"]) for row in rows]

    assert told() == [("talk", "", False)]
    assert told("?client=openai") == [("one request", "openai", True)]
    assert told("?client=mcp") == []
    refused = client.get("/api/v1/sessions?client=other", headers=headers)
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "client")


def test_the_page_of_a_session_says_what_opened_it(as_bob: Client, bob: Membership) -> None:
    session = opened_by(bob, SessionClient.OPENAI, "one request")
    asked_by_client(session)

    page = text_of(as_bob.get(page_of(session)).content)

    assert "Client of OpenAI’s API" in page
    assert "Chat completions, by a client" in page
    assert "what it sent" in page
    assert 'name="message"' in as_bob.get(page_of(session)).content.decode()


def test_the_page_of_a_session_names_the_token_that_asked_last_and_when_it_is_removed(
    as_bob: Client, bob: Membership, settings: Settings
) -> None:
    settings.TOOLHUB_THROWAWAY_DAYS = 3
    make_token(bob)
    kept, once = (
        opened_by(bob, SessionClient.OPENAI, f"throwaway {each}", is_throwaway=each) for each in (False, True)
    )
    with organisation_scope(bob.organisation):
        token = ApiToken.objects.get()
    for session in (kept, once):
        asked_by_client(session)
        asked_by_client(session, token=token)

    pages = [text_of(as_bob.get(page_of(session)).content) for session in (kept, once)]

    assert all(f"Token Test {token.prefix}…" in page for page in pages)
    assert ["Removed 3 days from now" in page for page in pages] == [False, True]
    assert "Token" not in text_of(as_bob.get(page_of(make_session(bob))).content)


def test_calls_of_an_mcp_client_are_not_told_as_rounds_of_a_model(as_bob: Client, bob: Membership) -> None:
    session = opened_by(bob, SessionClient.MCP, "MCP: helper")
    turn = make_turn(session, "", door=Door.MCP)
    add_step(turn, kind=StepKind.CLIENT, tool_name="")
    add_step(turn)

    page = text_of(as_bob.get(page_of(session)).content)

    assert "MCP, by a client: no model was asked" in page
    assert "task_add" in page
    assert "Model call" not in page
    assert "Provider" not in page


def test_nobody_writes_among_the_calls_of_an_mcp_client(as_bob: Client, bob: Membership) -> None:
    session = opened_by(bob, SessionClient.MCP, "MCP: helper")

    page = as_bob.get(page_of(session)).content
    posted = as_bob.post(page_of(session, "turns/"), {"message": "hello"}, headers=HTMX)
    with organisation_scope(bob.organisation), pytest.raises(Conflict) as refused:
        accepting.accept(session, "hello", member=bob)

    assert b'name="message"' not in page
    assert "Calls of an MCP client stand here" in text_of(page)
    assert refused.value.code == "client_session"
    assert posted.status_code >= 400
    with organisation_scope(bob.organisation):
        assert not Turn.objects.filter(session=session).exists()


def test_what_a_client_sent_is_shown_as_it_was_stored(as_bob: Client, bob: Membership) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Ulm"}'}}]
    turn = asked_by_client(
        opened_by(bob, SessionClient.OPENAI, "one request"),
        earlier=[
            {"role": "user", "content": "<b>Hi</b>"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c", "content": "Rain."},
        ],
        instructions="Answer in German.",
        tools=[{"type": "function", "function": {"name": "weather", "description": "Weather of a town."}}],
        parameters={"temperature": 0.5},
    )

    whole, part = (as_bob.get(turn_url(turn, "request/"), headers=each).content.decode() for each in ({}, HTMX))

    assert "<h1>What the client sent</h1>" in whole
    assert "<html" not in part
    for text in (
        *("Answer in German.", "&lt;b&gt;Hi&lt;/b&gt;", "weather {&quot;town&quot;: &quot;Ulm&quot;}", "Rain."),
        *("Weather of a town.", "temperature"),
    ):
        assert text in whole
        assert text in part


@pytest.mark.parametrize(
    ("result", "told"), [("", "it has not sent a result"), ("Rain.", "The client ran this tool, and sent this: Rain.")]
)
def test_a_call_of_a_client_s_own_tool_says_whether_its_result_came(
    as_bob: Client, bob: Membership, result: str, told: str
) -> None:
    session = opened_by(bob, SessionClient.OPENAI, "one request")
    add_step(asked_by_client(session), status=StepStatus.RETURNED, tool_name="weather", result=result)

    page = text_of(as_bob.get(page_of(session)).content)

    assert told in page
    assert "Left to the client" in page


def test_in_front_of_a_message_stand_the_earlier_turns_where_there_are_any(as_bob: Client, bob: Membership) -> None:
    session = opened_by(bob, SessionClient.OPENAI, "named", is_throwaway=False)
    first, second = asked_by_client(session), asked_by_client(session)

    pages = [text_of(as_bob.get(turn_url(turn, "request/")).content) for turn in (first, second)]

    assert "the message begins the conversation" in pages[0]
    assert "stored turns stand in front" in pages[1]


def test_of_a_long_request_the_last_messages_are_shown(as_bob: Client, bob: Membership) -> None:
    most = ON_PAGE.messages or 0
    earlier = [{"role": "user", "content": f"message {number}."} for number in range(most + 1)]
    turn = asked_by_client(opened_by(bob, SessionClient.OPENAI, "long"), earlier=earlier, instructions="x" * 5_000)

    page = text_of(as_bob.get(turn_url(turn, "request/")).content)

    assert f"The last {most} of {most + 1}." in page
    assert "message 0." not in page
    assert "message 1." in page
    assert "x" * 4_001 not in page
    assert "the first 4,000 characters are shown" in page


def test_a_turn_that_no_client_sent_and_one_of_another_member_have_no_such_page(
    as_bob: Client, bob: Membership, alice: Membership
) -> None:
    own = make_turn(make_session(bob))
    hers = asked_by_client(opened_by(alice, SessionClient.OPENAI, "hers"))

    assert as_bob.get(turn_url(own, "request/")).status_code == 404
    assert as_bob.get(turn_url(hers, "request/")).status_code == 404
    delegate(bob, Right.SESSIONS)
    assert as_bob.get(turn_url(hers, "request/")).status_code == 200


# -- The same over REST -----------------------------------------------------------------------------------------------


def told(client: Client, member: Membership, turn: Turn) -> Any:
    return client.get(f"/api/v1/turns/{turn.pk}/request", headers={"Authorization": f"Bearer {make_token(member)}"})


def test_rest_tells_what_a_client_sent_whole(client: Client, bob: Membership) -> None:
    with organisation_scope(bob.organisation):
        token, _ = issue_token(bob, "Laptop", actor=None)
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turn = asked_by_client(
        opened_by(bob, SessionClient.OPENAI, "one request"),
        token=token,
        earlier=[
            {"role": "user", "content": "x" * 5_000},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        ],
        instructions="y" * 5_000,
        tools=[{"type": "function", "function": {"name": "weather", "description": "z" * 200}}],
        parameters={"temperature": 0.5},
        is_stored=False,
    )

    answer = told(client, bob, turn)

    assert answer.json() == {
        "turn": str(turn.pk),
        "door": "chat",
        "token": {"id": str(token.public_id), "name": "Laptop", "prefix": token.prefix},
        "instructions": "y" * 5_000,
        "earlier": [{"role": "user", "text": "x" * 5_000}, {"role": "assistant", "text": "I look.\nweather {}"}],
        "tools": [{"name": "weather", "description": "z" * 200}],
        "parameters": {"temperature": 0.5},
        "is_stored": False,
    }


def test_rest_says_where_stored_turns_stand_in_front_and_by_which_door_a_turn_came(
    client: Client, bob: Membership
) -> None:
    turn = asked_by_client(opened_by(bob, SessionClient.OPENAI, "named", is_throwaway=False))
    headers = {"Authorization": f"Bearer {make_token(bob)}"}

    answer = told(client, bob, turn).json()

    assert (answer["token"], answer["earlier"], answer["tools"]) == (None, None, [])
    assert client.get(f"/api/v1/turns/{turn.pk}", headers=headers).json()["door"] == "chat"


def test_rest_tells_it_to_whom_the_page_shows_it(
    client: Client, bob: Membership, alice: Membership, charlie: Membership
) -> None:
    own = make_turn(make_session(bob))
    hers = asked_by_client(opened_by(alice, SessionClient.OPENAI, "hers"))

    assert [told(client, member, hers).status_code for member in (alice, bob, charlie)] == [200, 404, 404]
    assert told(client, bob, own).status_code == 404
    assert told(client, bob, hers).json() == told(client, bob, own).json()
    delegate(bob, Right.SESSIONS)
    assert told(client, bob, hers).status_code == 200
    chats = make_token(bob, scopes=[Scope.CHAT])
    answer = client.get(f"/api/v1/turns/{hers.pk}/request", headers={"Authorization": f"Bearer {chats}"})
    assert answer.status_code == 403


def test_rest_takes_the_same_queries_for_any_length(client: Client, bob: Membership) -> None:
    headers, counts = {"Authorization": f"Bearer {make_token(bob)}"}, []
    for number in (1, 1, 3):
        earlier = [{"role": "user", "content": "Hi"}] * number
        turn = asked_by_client(opened_by(bob, SessionClient.OPENAI, "asked"), earlier=earlier)
        with CaptureQueriesContext(connection) as queries:
            client.get(f"/api/v1/turns/{turn.pk}/request", headers=headers)
        counts.append(len(queries))

    assert counts[1] == counts[2]
