"""The REST routes of sessions and turns."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from pytest_django.fixtures import DjangoAssertNumQueries

from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.models import Agent
from sessions.models import ChatSession, Step, Turn, TurnEvent, TurnStatus
from sessions.turns import ledger
from tests.cast import (
    make_agent,
    make_member,
    make_organisation,
    make_role,
    make_session,
    make_token,
    make_tool,
    make_turn,
)
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right, Scope
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def rest(bob: Membership) -> Rest:
    """Bob's."""
    return Rest(bob)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


def turns_of(session: ChatSession) -> list[tuple[int, str]]:
    with system_scope():
        return list(Turn.objects.filter(session=session).order_by("seq").values_list("seq", "message"))


# -- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_is_opened_with_an_agent(rest: Rest, bob: Membership) -> None:
    make_agent(bob.organisation)

    reply = rest.post("sessions", {"agent": "starter", "title": "Milk"})

    with system_scope():
        session = ChatSession.objects.get()
    assert reply.status == 201
    assert reply.headers["Location"] == f"/api/v1/sessions/{session.pk}"
    assert reply.json == {
        "id": str(session.pk),
        "agent": "starter",
        "title": "Milk",
        "member": str(bob.public_id),
        "created_at": session.created_at.isoformat().replace("+00:00", "Z"),
        "active_at": session.active_at.isoformat().replace("+00:00", "Z"),
        "client": "",
        "is_throwaway": False,
        "shares_loads": False,
        "tools_off": False,
        "is_untrusted": False,
        "parent_turn": None,
    }
    assert rest.get(reply.headers["Location"]).json == reply.json
    assert rest.get("sessions").json == {"results": [reply.json], "next": None}


@pytest.mark.parametrize("agent", ["no-agent", "off", "", "a b", "<x>", "STARTER"])
def test_a_session_needs_an_agent_that_is_there(rest: Rest, bob: Membership, agent: str) -> None:
    make_agent(bob.organisation)
    make_agent(bob.organisation, slug="off", is_enabled=False)

    status, code, field = rest.post("sessions", {"agent": agent}).error

    assert (status, field) == (400, "agent")
    assert code == ("blank" if not agent else "unknown")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "required", "agent"),
        ({"agent": None}, "null", "agent"),
        ({"agent": ["starter"]}, "invalid", "agent"),
        ({"agent": {"slug": "starter"}}, "invalid", "agent"),
        ({"agent": True}, "invalid", "agent"),
        ({"agent": "x" * 64}, "max_length", "agent"),
        ({"agent": "starter", "title": "x" * 201}, "max_length", "title"),
        ({"agent": "starter", "organisation": 1}, "unknown_field", "organisation"),
        ({"agent": "starter", "membership": 1}, "unknown_field", "membership"),
        ({"agent": "starter", "id": str(uuid4())}, "unknown_field", "id"),
    ],
)
def test_a_session_that_does_not_fit_is_refused(rest: Rest, bob: Membership, body: Any, code: str, field: str) -> None:
    make_agent(bob.organisation)

    assert rest.post("sessions", body).error == (400, code, field)
    with system_scope():
        assert not ChatSession.objects.exists()


def test_a_member_sees_own_sessions_and_with_the_right_everybodys(
    alice: Membership, bob: Membership, session: ChatSession
) -> None:
    hers = make_session(alice)

    assert [each["id"] for each in Rest(bob).get("sessions").json["results"]] == [str(session.pk)]
    assert [each["id"] for each in Rest(alice).get("sessions").json["results"]] == [str(hers.pk), str(session.pk)]
    assert Rest(bob).get(f"sessions/{hers.pk}").error == (404, "not_found", None)
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.SESSIONS)
    assert len(Rest(bob).get("sessions").json["results"]) == 2


def test_the_session_that_was_written_to_last_comes_first(rest: Rest, bob: Membership) -> None:
    first, second = make_session(bob), make_session(bob)

    rest.post(f"sessions/{first.pk}/turns", {"message": "hello"})

    assert [each["id"] for each in rest.get("sessions").json["results"]] == [str(first.pk), str(second.pk)]


@pytest.mark.parametrize("session_id", ["x", "1", "00000000-0000-0000-0000-00000000000g", "%00", "..%2F"])
def test_an_id_that_is_none_is_a_missing_page(rest: Rest, session_id: str) -> None:
    assert rest.get(f"sessions/{session_id}").error == (404, "not_found", None)


# -- Viewers ----------------------------------------------------------------------------------------------------------


def test_a_viewer_reads_and_does_not_write(acme: Organisation) -> None:
    viewer = make_member(acme, "vera", Access.VIEWER)
    session = make_session(viewer)
    turn = make_turn(session)
    rest = Rest(viewer)

    assert rest.post("sessions", {"agent": "starter"}).error == (403, "forbidden", None)
    assert rest.post(f"sessions/{session.pk}/turns", {"message": "x"}).error == (403, "forbidden", None)
    assert rest.post(f"turns/{turn.pk}/cancel").error == (403, "forbidden", None)
    assert rest.get(f"sessions/{session.pk}/turns").json["results"][0]["status"] == "queued"


def test_who_may_read_every_session_still_writes_in_none_but_the_own(alice: Membership, session: ChatSession) -> None:
    reply = Rest(alice).post(f"sessions/{session.pk}/turns", {"message": "act as Bob"})

    assert reply.error == (403, "not_yours", None)
    assert turns_of(session) == []


# -- Turns ------------------------------------------------------------------------------------------------------------


def test_a_message_is_accepted_and_on_record(rest: Rest, session: ChatSession) -> None:
    reply = rest.post(f"sessions/{session.pk}/turns", {"message": " Buy\nmilk "})

    with system_scope():
        turn = Turn.objects.get()
        events = list(TurnEvent.objects.values_list("number", "type", "payload"))
        title = ChatSession.objects.get().title
    assert reply.status == 202
    assert reply.headers["Location"] == f"/api/v1/turns/{turn.pk}"
    assert reply.json == {
        "id": str(turn.pk),
        "session": str(session.pk),
        "seq": 1,
        "replaces": None,
        "passed_over": [],
        "agent": "starter",
        "door": "",
        "parent_turn": None,
        "status": "queued",
        "message": " Buy\nmilk ",
        "attached": 0,
        "without_tools": False,
        "tools_off": False,
        "answer": "",
        "draft": "",
        "error_code": "",
        "error_message": "",
        "cut_by": "",
        "retry_after": None,
        "untrusted_since": None,
        "untrusted_tool": "",
        "waiting_for": [],
        "usage": {
            "rounds": 0,
            "input_tokens": 0,
            "cached_tokens": 0,
            "cache_write_tokens": 0,
            "output_tokens": 0,
            "reasoning_tokens": 0,
            "estimated": False,
            "cost": "0.00",
            "unpriced": False,
        },
        "created_at": turn.created_at.isoformat().replace("+00:00", "Z"),
        "started_at": None,
        "ended_at": None,
    }
    assert (events, title) == ([(1, "accepted", {"seq": 1})], "Buy")
    assert rest.get(reply.headers["Location"]).json == reply.json
    assert rest.get(f"sessions/{session.pk}/turns").json == {"results": [reply.json], "next": None}


def test_turns_of_a_session_count_from_one(rest: Rest, session: ChatSession) -> None:
    for message in ("a", "b", "c"):
        rest.post(f"sessions/{session.pk}/turns", {"message": message})

    assert turns_of(session) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_switched_off_agent_takes_no_message(rest: Rest, session: ChatSession) -> None:
    with system_scope():
        Agent.objects.update(is_enabled=False)

    assert rest.post(f"sessions/{session.pk}/turns", {"message": "x"}).error == (409, "agent_disabled", None)
    assert turns_of(session) == []


@pytest.mark.parametrize("access", [Access.MEMBER, Access.OPERATOR, Access.ADMIN])
@pytest.mark.parametrize("key", ["", "a-key"])
def test_post_to_202_takes_at_most_8_queries(
    acme: Organisation, access: Access, key: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    member = make_member(acme, "dana", access)
    session = make_session(member)
    rest = Rest(member)
    rest.get("registry")  # the token's use of this minute is noted

    with django_assert_max_num_queries(8) as captured:
        reply = rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, {"Idempotency-Key": key} if key else {})

    assert reply.status == 202
    assert len(captured.captured_queries) <= 8


# -- Several agents ---------------------------------------------------------------------------------------------------


def agents_of(session: ChatSession) -> list[str]:
    with system_scope():
        return list(Turn.objects.filter(session=session).order_by("seq").values_list("agent__slug", flat=True))


def test_a_turn_names_its_agent_else_it_is_the_sessions_first(rest: Rest, session: ChatSession) -> None:
    make_agent(session.organisation, slug="coder")

    first = rest.post(f"sessions/{session.pk}/turns", {"message": "x", "agent": "coder"})
    second = rest.post(f"sessions/{session.pk}/turns", {"message": "y"})

    assert [reply.json["agent"] for reply in (first, second)] == ["coder", "starter"]
    assert [turn["agent"] for turn in rest.get(f"sessions/{session.pk}/turns").json["results"]] == ["coder", "starter"]
    assert agents_of(session) == ["coder", "starter"]


@pytest.mark.parametrize(
    ("agent", "error"),
    [
        ("no-agent", (400, "unknown", "agent")),
        ("globex-agent", (400, "unknown", "agent")),
        ("off", (409, "agent_disabled", None)),
        ("", (400, "blank", "agent")),
        (None, (400, "null", "agent")),
        (["starter"], (400, "invalid", "agent")),
    ],
)
def test_a_turn_needs_an_agent_that_is_there_and_on(
    rest: Rest, session: ChatSession, globex: Organisation, agent: Any, error: Any
) -> None:
    make_agent(globex, slug="globex-agent")
    make_agent(session.organisation, slug="off", is_enabled=False)

    assert rest.post(f"sessions/{session.pk}/turns", {"message": "x", "agent": agent}).error == error
    assert turns_of(session) == []


def test_a_turn_to_an_agent_that_is_on_is_taken_where_the_sessions_first_is_off(
    rest: Rest, session: ChatSession
) -> None:
    with system_scope():
        Agent.objects.update(is_enabled=False)
    make_agent(session.organisation, slug="coder")

    assert rest.post(f"sessions/{session.pk}/turns", {"message": "x", "agent": "coder"}).status == 202
    assert rest.post(f"sessions/{session.pk}/turns", {"message": "x"}).error == (409, "agent_disabled", None)


def test_the_same_key_for_another_agent_is_another_request(rest: Rest, session: ChatSession) -> None:
    make_agent(session.organisation, slug="coder")
    path, key = f"sessions/{session.pk}/turns", {"Idempotency-Key": "order-1"}

    assert rest.post(path, {"message": "x", "agent": "coder"}, key).status == 202
    assert rest.post(path, {"message": "x", "agent": "coder"}, key).status == 200
    assert rest.post(path, {"message": "x"}, key).error == (422, "idempotency_key_reused", None)
    assert rest.post(path, {"message": "x", "agent": "starter"}, key).error == (422, "idempotency_key_reused", None)


def test_naming_the_agent_takes_one_query_more(
    rest: Rest, session: ChatSession, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_agent(session.organisation, slug="coder")
    rest.get("registry")

    with django_assert_max_num_queries(9):
        assert rest.post(f"sessions/{session.pk}/turns", {"message": "x", "agent": "coder"}).status == 202


def child_of(session: ChatSession) -> ChatSession:
    """A session that a turn of this one's agent opened."""
    return make_session(session.membership, session.agent, parent_turn=make_turn(session), depth=1, delegated_tools=[])


def test_a_session_that_an_agent_opened_says_so_and_takes_no_turn(rest: Rest, session: ChatSession) -> None:
    child = child_of(session)
    turn = make_turn(child)

    assert rest.get(f"sessions/{child.pk}").json["parent_turn"] == str(child.parent_turn_id)
    assert rest.get(f"turns/{turn.pk}").json["parent_turn"] == str(child.parent_turn_id)
    assert [each["id"] for each in rest.get("sessions").json["results"]] == [str(session.pk)]
    assert rest.post(f"sessions/{child.pk}/turns", {"message": "x"}).error == (409, "child_session", None)


# -- Changes ----------------------------------------------------------------------------------------------------------


def patch(rest: Rest, session: ChatSession, body: Any) -> Any:
    return rest.ask("PATCH", f"sessions/{session.pk}", json.dumps(body).encode())


def test_a_session_is_named_and_its_agents_share_what_they_load(rest: Rest, session: ChatSession) -> None:
    named = patch(rest, session, {"title": "Milk"})
    shared = patch(rest, session, {"shares_loads": True})

    assert (named.status, named.json["title"], named.json["shares_loads"]) == (200, "Milk", False)
    assert (shared.status, shared.json["title"], shared.json["shares_loads"]) == (200, "Milk", True)
    assert rest.get(f"sessions/{session.pk}").json == shared.json
    assert patch(rest, session, {}).json == shared.json
    with system_scope():
        session.refresh_from_db()
    assert session.load_count == 1  # the turns of its agents select anew


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"title": "x" * 201}, "max_length", "title"),
        ({"title": None}, "null", "title"),
        ({"title": 1}, "invalid", "title"),
        ({"shares_loads": "perhaps"}, "invalid", "shares_loads"),
        ({"agent": "starter"}, "unknown_field", "agent"),
        ({"depth": 0}, "unknown_field", "depth"),
        ({"delegated_tools": None}, "unknown_field", "delegated_tools"),
    ],
)
def test_a_change_of_a_session_that_does_not_fit_is_refused(
    rest: Rest, session: ChatSession, body: Any, code: str, field: str
) -> None:
    assert patch(rest, session, body).error == (400, code, field)


def test_only_its_own_member_changes_a_session(
    alice: Membership, charlie: Membership, acme: Organisation, session: ChatSession
) -> None:
    viewer = make_member(acme, "vera", Access.VIEWER)

    assert patch(Rest(alice), session, {"title": "Hers"}).error == (403, "not_yours", None)
    assert patch(Rest(charlie), session, {"title": "His"}).error == (404, "not_found", None)
    assert patch(Rest(viewer), make_session(viewer), {"title": "X"}).error == (403, "forbidden", None)
    with system_scope():
        session.refresh_from_db()
    assert session.title == ""


# -- Idempotency ------------------------------------------------------------------------------------------------------

KEY = {"Idempotency-Key": "order-1"}


def test_the_same_key_and_message_give_the_same_turn(rest: Rest, session: ChatSession) -> None:
    first = rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, KEY)
    again = rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, KEY)

    assert (first.status, again.status) == (202, 200)
    assert (again.json, again.headers["Location"]) == (first.json, first.headers["Location"])
    assert turns_of(session) == [(1, "x")]


def test_the_same_key_gives_the_turn_as_it_stands_by_then(rest: Rest, session: ChatSession) -> None:
    rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, KEY)
    with system_scope():
        Turn.objects.update(status=TurnStatus.DONE, answer="Done.")

    again = rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, KEY)

    assert (again.status, again.json["status"], again.json["answer"]) == (200, "done", "Done.")


def test_the_same_key_with_something_else_is_refused(rest: Rest, bob: Membership, session: ChatSession) -> None:
    other = make_session(bob)
    rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, KEY)

    for path, message in ((session, "y"), (session, "x "), (other, "x")):
        reply = rest.post(f"sessions/{path.pk}/turns", {"message": message}, KEY)
        assert reply.error == (422, "idempotency_key_reused", None)
    assert turns_of(session) == [(1, "x")]
    assert turns_of(other) == []


def test_keys_of_two_members_do_not_meet(alice: Membership, bob: Membership, charlie: Membership) -> None:
    statuses = [
        Rest(member).post(f"sessions/{make_session(member).pk}/turns", {"message": "x"}, KEY).status
        for member in (alice, bob, charlie)
    ]

    assert statuses == [202, 202, 202]


def test_without_a_key_each_message_is_a_turn(rest: Rest, session: ChatSession) -> None:
    statuses = [rest.post(f"sessions/{session.pk}/turns", {"message": "x"}).status for _ in range(2)]

    assert statuses == [202, 202]
    assert turns_of(session) == [(1, "x"), (2, "x")]


@pytest.mark.parametrize("key", ["x" * 256, "a\tb", "sch\xf6n", "\x7f", "a\x00b", "a b\n"])
def test_a_key_is_printable_ascii_of_at_most_255(rest: Rest, session: ChatSession, key: str) -> None:
    reply = rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, {"Idempotency-Key": key})

    assert reply.error == (400, "invalid", "Idempotency-Key")
    assert turns_of(session) == []


def test_a_key_of_255_characters_is_taken(rest: Rest, session: ChatSession) -> None:
    headers = {"Idempotency-Key": "k" * 255}

    assert rest.post(f"sessions/{session.pk}/turns", {"message": "x"}, headers).status == 202


# -- Steps ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def turn(session: ChatSession) -> Turn:
    """A finished one, with three steps and five events."""
    turn = make_turn(session, status=TurnStatus.DONE, answer="4", last_step=3, last_event=5)
    own = {"organisation": session.organisation, "turn": turn, "status": "done"}
    with organisation_scope(session.organisation):
        Step.objects.create(**own, index=1, kind="model", round=1, input_tokens=10, output_tokens=2)
        Step.objects.create(
            **own, index=2, kind="tool", round=1, tool_name="calculator", tool_call_id="c1",
            arguments='{"expression": "2+2"}', result="whole", result_sent="4", display="2+2",
        )  # fmt: skip
        Step.objects.create(**own, index=3, kind="model", round=2, text="4")
        for number, type in enumerate(["accepted", "started", "model", "tool_done", "done"], 1):
            TurnEvent.objects.create(
                organisation=session.organisation, turn=turn, number=number, type=type, payload={"n": number}
            )
    return turn


def test_the_steps_of_a_turn_are_told_in_order(rest: Rest, turn: Turn) -> None:
    reply = rest.get(f"turns/{turn.pk}/steps")

    assert [step["index"] for step in reply.json["results"]] == [1, 2, 3]
    assert reply.json["next"] is None
    second = reply.json["results"][1]
    del second["started_at"]
    assert second == {
        "index": 2,
        "kind": "tool",
        "status": "done",
        "round": 1,
        "text": "",
        "model": "",
        "tool": "calculator",
        "tool_call_id": "c1",
        "display": "2+2",
        "arguments": '{"expression": "2+2"}',
        "hooks": [],
        "result": "4",
        "structured": None,
        "input_tokens": 0,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 0,
        "reasoning_tokens": 0,
        "usage_estimated": False,
        "cost": None,
        "price_source": "",
        "tool_tokens": 0,
        "all_tool_tokens": 0,
        "result_tokens": 0,
        "history_tokens": 0,
        "answer_tokens": 0,
        "finish_reason": "",
        "ended_at": None,
    }


def test_steps_after_one_go_on_behind_it(rest: Rest, turn: Turn) -> None:
    first = rest.get(f"turns/{turn.pk}/steps", limit=2).json
    second = rest.get(f"turns/{turn.pk}/steps", limit=2, after=first["next"]).json

    assert [[step["index"] for step in page["results"]] for page in (first, second)] == [[1, 2], [3]]
    assert (first["next"], second["next"]) == ("2", None)
    assert rest.get(f"turns/{turn.pk}/steps", after=3).json == {"results": [], "next": None}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"after": "-1"}, "after"),
        ({"after": "x"}, "after"),
        ({"after": "1.0"}, "after"),
        ({"after": ""}, "after"),
        ({"after": "9" * 30}, "after"),
        ({"after": "٣"}, "after"),
        ({"after": "--1"}, "after"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1000000000"}, "limit"),
        ({"limit": "1-"}, "limit"),
        ({"limit": "-"}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"page": "2"}, "page"),
        ({"turn__session__organisation": "1"}, "turn__session__organisation"),
    ],
)
def test_steps_after_something_that_is_no_number_are_refused(
    rest: Rest, turn: Turn, query: dict[str, str], field: str
) -> None:
    assert rest.get(f"turns/{turn.pk}/steps", **query).error == (400, "invalid", field)


# -- Cancel -----------------------------------------------------------------------------------------------------------


def test_a_queued_turn_ends_when_it_is_cancelled_and_twice_is_harmless(rest: Rest, session: ChatSession) -> None:
    turn_id = rest.post(f"sessions/{session.pk}/turns", {"message": "x"}).json["id"]

    first, second = rest.post(f"turns/{turn_id}/cancel"), rest.post(f"turns/{turn_id}/cancel")

    assert (first.status, first.json["status"], first.json["error_code"]) == (200, "cancelled", "cancelled")
    assert first.json == second.json == rest.get(f"turns/{turn_id}").json


def test_a_running_turn_is_told_to_stop(rest: Rest, session: ChatSession) -> None:
    turn_id = UUID(rest.post(f"sessions/{session.pk}/turns", {"message": "x"}).json["id"])
    assert ledger.claim(turn_id, "worker") is not None

    reply = rest.post(f"turns/{turn_id}/cancel")

    with system_scope():
        assert Turn.objects.get().cancel_requested_at is not None
    assert (reply.status, reply.json["status"]) == (200, "running")


def test_a_turn_that_has_ended_stays_as_it_is(rest: Rest, turn: Turn) -> None:
    before = rest.get(f"turns/{turn.pk}").json

    assert rest.post(f"turns/{turn.pk}/cancel").json == before
    assert rest.get(f"turns/{turn.pk}").json == before


def test_who_may_read_every_session_may_stop_its_turns(alice: Membership, session: ChatSession) -> None:
    turn = make_turn(session)

    assert Rest(alice).post(f"turns/{turn.pk}/cancel").json["status"] == "cancelled"


def test_a_token_for_chatting_stops_its_own_members_turns_alone(alice: Membership, session: ChatSession) -> None:
    own, other = make_turn(make_session(alice)), make_turn(session)
    headers = {"Authorization": f"Bearer {make_token(alice, scopes=[Scope.READ, Scope.CHAT])}"}

    assert Rest(None).post(f"turns/{own.pk}/cancel", headers=headers).json["status"] == "cancelled"
    assert Rest(None).post(f"turns/{other.pk}/cancel", headers=headers).error == (403, "forbidden", None)
    assert Rest(alice).get(f"turns/{other.pk}").json["status"] == "queued"


# -- Events -----------------------------------------------------------------------------------------------------------


def events_in(text: str) -> list[tuple[int, str, Any]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "id" in fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


ALL_EVENTS = [
    (1, "accepted", {"n": 1}),
    (2, "started", {"n": 2}),
    (3, "model", {"n": 3}),
    (4, "tool_done", {"n": 4}),
    (5, "done", {"n": 5}),
]


def test_the_stream_of_a_finished_turn_tells_every_event_and_ends(rest: Rest, turn: Turn) -> None:
    reply = rest.get(f"turns/{turn.pk}/events")

    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream")
    assert (reply.headers["Cache-Control"], reply.headers["X-Accel-Buffering"]) == ("no-store", "no")
    assert events_in(reply.text) == ALL_EVENTS


@pytest.mark.parametrize("seen", range(7))
def test_a_stream_goes_on_behind_the_last_event_that_was_seen(rest: Rest, turn: Turn, seen: int) -> None:
    reply = rest.get(f"turns/{turn.pk}/events", headers={"Last-Event-ID": str(seen)})

    assert events_in(reply.text) == ALL_EVENTS[seen:]


@pytest.mark.parametrize("seen", ["-1", "x", "1.", "1.0.0", "1,5", "9" * 10, "", "٣", "1\x00", "' OR 1=1"])
def test_an_event_id_that_is_none_is_refused(rest: Rest, turn: Turn, seen: str) -> None:
    reply = rest.get(f"turns/{turn.pk}/events", headers={"Last-Event-ID": seen})

    assert reply.error == (400, "invalid", "Last-Event-ID")


def test_text_in_events_cannot_forge_another_event(rest: Rest, session: ChatSession, turn: Turn) -> None:
    with system_scope():
        TurnEvent.objects.filter(number=3).update(payload={"text": "a\n\nid: 9\nevent: done\ndata: {}\n\n\r\rid: 9"})

    events = events_in(rest.get(f"turns/{turn.pk}/events").text)

    assert [number for number, _, _ in events] == [1, 2, 3, 4, 5]
    assert events[2][2] == {"text": "a\n\nid: 9\nevent: done\ndata: {}\n\n\r\rid: 9"}


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", "text/html", "application/json", "garbage", ""])
def test_a_stream_is_told_whatever_is_asked_for(rest: Rest, turn: Turn, accept: str) -> None:
    assert rest.get(f"turns/{turn.pk}/events", headers={"Accept": accept}).status == 200


# -- Tools ------------------------------------------------------------------------------------------------------------


def test_the_tools_of_a_session_are_told_as_the_model_gets_them_and_why(
    rest: Rest, alice: Membership, bob: Membership
) -> None:
    make_tool(bob.organisation, "calculator")
    off = make_tool(bob.organisation, "off")
    with organisation_scope(bob.organisation):
        set_tool_enabled(off, False, actor=alice)
    make_role(bob.organisation, bob)
    session = make_session(bob)

    reply = rest.get(f"sessions/{session.pk}/tools")

    assert reply.status == 200
    assert [tool["type"] for tool in reply.json["tools"]] == ["function"]
    function = reply.json["tools"][0]["function"]
    assert set(function) == {"name", "description", "parameters"}
    assert (function["name"], function["parameters"]["type"]) == ("calculator", "object")
    assert reply.json["tokens"] > 10
    assert len(reply.json["sha256"]) == 64
    assert reply.json["verdicts"] == [
        {"tool": "calculator", "stage": "gather", "kept": True, "reason": "core category utility"},
        {"tool": "off", "stage": "gather", "kept": True, "reason": "core category utility"},
        {"tool": "off", "stage": "enabled", "kept": False, "reason": "switched off in the catalogue"},
        {"tool": "calculator", "stage": "role", "kept": True, "reason": reply.json["verdicts"][3]["reason"]},
    ]


def test_a_member_without_a_role_gets_no_tools(rest: Rest, session: ChatSession) -> None:
    make_tool(session.organisation, "calculator")

    reply = rest.get(f"sessions/{session.pk}/tools")

    assert (reply.json["tools"], reply.json["tokens"]) == ([], 0)
    assert [(verdict["tool"], verdict["kept"]) for verdict in reply.json["verdicts"]] == [
        ("calculator", True),
        ("calculator", False),
    ]


def test_the_tools_are_those_of_the_sessions_member_not_of_the_reader(alice: Membership, session: ChatSession) -> None:
    make_tool(session.organisation, "calculator")
    make_role(session.organisation, alice)

    assert Rest(alice).get(f"sessions/{session.pk}/tools").json["tools"] == []


# -- Another organisation ---------------------------------------------------------------------------------------------


def test_an_agent_of_another_organisation_is_no_agent_even_under_the_same_name(
    charlie: Membership, bob: Membership
) -> None:
    make_agent(bob.organisation, slug="starter")
    rest = Rest(charlie)

    assert rest.post("sessions", {"agent": "starter"}).error == (400, "unknown", "agent")
    make_agent(charlie.organisation, slug="starter")
    reply = rest.post("sessions", {"agent": "starter"})
    with system_scope():
        session = ChatSession.objects.select_related("agent").get(pk=reply.json["id"])
    assert session.agent.organisation_id == charlie.organisation_id


def test_a_cursor_of_another_organisation_shows_nothing_of_it(alice: Membership, charlie: Membership) -> None:
    for member in (alice, charlie):
        make_session(member)
        make_session(member)
    cursor = Rest(alice).get("sessions", limit=1).json["next"]

    reply = Rest(charlie).get("sessions", cursor=cursor)

    assert reply.status == 200
    assert {each["member"] for each in reply.json["results"]} <= {str(charlie.public_id)}


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "_",
        "2026-01-01_x",
        "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00_00000000-0000-4000-8000-000000000000",
        "0000-01-01T00:00:00+00:00_00000000-0000-4000-8000-000000000000",
        "2026-01-01T00:00:00+00:00_" + "0" * 500,
        "\x00",
        "' OR 1=1 --",
    ],
)
def test_a_forged_cursor_of_sessions_is_refused(rest: Rest, cursor: str) -> None:
    assert rest.get("sessions", cursor=cursor).error == (400, "invalid", "cursor")


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"])
def test_a_cursor_at_the_ends_of_time_is_no_fault(rest: Rest, session: ChatSession, moment: str) -> None:
    assert rest.get("sessions", cursor=f"{moment}_{uuid4()}").status in (200, 400)


def test_two_organisations_of_one_user_are_two_members(bob: Membership) -> None:
    twin = make_member(make_organisation("initech"), "bob")
    session = make_session(bob)

    assert Rest(twin).get(f"sessions/{session.pk}").error == (404, "not_found", None)
    assert Rest(twin).get("sessions").json == {"results": [], "next": None}


# -- Quick questions --------------------------------------------------------------------------------------------------


def test_a_quick_question_is_a_field_of_the_turn(rest: Rest, session: ChatSession) -> None:
    path = f"sessions/{session.pk}/turns"

    quick = rest.post(path, {"message": "What is a pipe?", "without_tools": True})
    usual = rest.post(path, {"message": "Add a task"})
    wrong = rest.post(path, {"message": "Hm", "without_tools": "perhaps"})

    assert (quick.status, quick.json["without_tools"]) == (202, True)
    assert (usual.status, usual.json["without_tools"]) == (202, False)
    assert wrong.error == (400, "invalid", "without_tools")
    with system_scope():
        assert list(Turn.objects.order_by("seq").values_list("without_tools", flat=True)) == [True, False]
