"""Turns that take the place of others: an answer that is asked for again, a message that is written anew."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from sessions.doors.gateway.requests import stored_words
from sessions.loop.conversation.history import Past, last_numbers
from sessions.loop.conversation.window import MAX_TURNS
from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import accepting, ledger
from tests.cast import make_agent, make_session, make_turn
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI
from tests.sessions.run_turns import a_model, accept, run, steps_of, work
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

DONE = {"status": TurnStatus.DONE, "answer": "Yes."}
FOLD = re.compile(r'<details class="replaced".*?</article>\s*</div>\s*</details>', re.DOTALL)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def replace(turn: Turn, message: str, *, is_behind: bool = False, **more: Any) -> Turn:
    with organisation_scope(turn.organisation_id):
        branch = accepting.Branch(turn, is_behind)
        return accepting.accept(turn.session, message, member=turn.session.membership, branch=branch, **more).turn


def end(turn: Turn) -> Turn:
    with organisation_scope(turn.organisation_id):
        Turn.objects.filter(pk=turn.pk).update(**DONE)
        turn.refresh_from_db()
    return turn


def front_of(turn: Turn) -> list[int]:
    return [number for numbers in turn.in_front() for number in numbers]


def page_of(session: ChatSession, more: str = "") -> str:
    return f"/o/acme/sessions/{session.pk}/{more}"


# -- The conversation -------------------------------------------------------------------------------------------------


def test_a_turn_goes_on_from_all_before_it_but_those_that_were_replaced(session: ChatSession) -> None:
    first, second, third = (make_turn(session, f"{number}", **DONE) for number in (1, 2, 3))

    edited = end(replace(second, "2 b"))
    following = end(accept(session, "3 b"))
    again = end(replace(following, "3 b"))
    once_more = end(replace(again, "3 b"))
    back = end(replace(third, "3 c"))
    behind = end(replace(edited, "5", is_behind=True))
    at_end = end(replace(behind, "6", is_behind=True))
    at_first = replace(first, "1 b")

    turns = (third, edited, following, again, once_more, back, behind, at_end, at_first)
    assert [(turn.seq, front_of(turn), turn.replaces) for turn in turns] == [
        (3, [1, 2], None),
        (4, [1], 2),
        (5, [1, 4], None),
        (6, [1, 4], 5),
        (7, [1, 4], 5),
        (8, [1, 2], 3),
        (9, [1, 4], 5),
        (10, [1, 4, 9], None),
        (11, [], 1),
    ]
    assert once_more.passed_over == [[2, 3], [5, 6]]


@pytest.mark.django_db(transaction=True)
def test_a_model_reads_what_stands_in_front_of_the_replaced_turn_byte_for_byte_and_no_more(
    bob: Membership, provider: ScriptedOpenAI
) -> None:
    session = make_session(bob, make_agent(bob.organisation, provider.url, prompt="Be brief."))
    provider.enqueue(*(Say(text) for text in ("One.", "Two.", "Three.", "Two, again.", "Four.")))
    run(session, "first")
    second = run(session, "second")
    run(session, "third")

    work(replace(second, "second, anew"))
    last = run(session, "fourth")

    said = [[message["content"] for message in request["messages"]] for request in provider.requests]
    assert said[3] == ["Be brief.", "first", "One.", "second, anew"]
    assert said[4] == ["Be brief.", "first", "One.", "second, anew", "Two, again.", "fourth"]
    assert provider.requests[3]["messages"][:-1] == provider.requests[1]["messages"][:-1]
    assert provider.requests[3].get("tools") == provider.requests[1].get("tools")
    assert last.status == TurnStatus.DONE


@pytest.mark.django_db(transaction=True)
def test_the_first_turn_is_replaced_without_a_word_on_messages_that_were_left_out(
    bob: Membership, provider: ScriptedOpenAI
) -> None:
    session = make_session(bob, make_agent(bob.organisation, provider.url, prompt="Be brief."))
    provider.enqueue(*(Say(text) for text in ("One.", "Two.", "One, again.", "Three.")))
    first = run(session, "first")
    run(session, "second")

    anew = work(replace(first, "first, anew"))
    run(session, "third")

    assert [step.kind for step in steps_of(anew)] == ["model"]
    said = [[message["content"] for message in request["messages"]] for request in provider.requests]
    assert said[2:] == [["Be brief.", "first, anew"], ["Be brief.", "first, anew", "One, again.", "third"]]


def test_what_stands_in_front_is_one_query_however_many_turns_were_replaced(
    session: ChatSession, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(1, 7):
        make_turn(session, f"{number}", **DONE)
    once, twice = (make_turn(session, "now", passed_over=each) for each in ([[2, 6]], [[2, 2], [4, 5], [7, 7]]))

    for turn, found in ((once, ["1"]), (twice, ["1", "3", "6"])):
        with organisation_scope(session.organisation_id), django_assert_num_queries(1):
            blocks = Past(turn, a_model()).blocks
        assert [block.messages[0]["content"] for block in blocks] == found


def test_replaced_turns_take_no_place_among_those_that_are_sent(session: ChatSession) -> None:
    for number in range(1, 4):
        make_turn(session, f"{number}", **DONE)
    late = make_turn(session, "late", seq=MAX_TURNS + 10, passed_over=[[2, MAX_TURNS + 9]])

    with organisation_scope(session.organisation_id):
        blocks = Past(late, a_model()).blocks

    assert [block.messages[0]["content"] for block in blocks] == ["1"]


def test_what_an_earlier_call_left_out_counts_anew_where_its_part_was_replaced(session: ChatSession) -> None:
    for number in range(1, 4):
        make_turn(session, f"{number}", **DONE)
    session.last_prompt = {str(session.agent_id): {"first_turn": 3}}

    with organisation_scope(session.organisation_id):
        found = [
            Past(make_turn(session, "now", **more), a_model()).blocks
            for more in ({"seq": 4}, {"seq": 5, "passed_over": [[3, 4]]})
        ]

    assert [[block.first for block in blocks] for blocks in found] == [[3], [1, 2]]


@pytest.mark.parametrize(
    ("most", "found"), [(9, [[1, 2], [5, 6, 7]]), (4, [[2], [5, 6, 7]]), (3, [[5, 6, 7]]), (2, [[6, 7]])]
)
def test_the_last_numbers_of_ranges(most: int, found: list[list[int]]) -> None:
    assert [list(each) for each in last_numbers([range(1, 3), range(5, 8)], most)] == found


def test_words_that_a_client_is_compared_with_are_those_of_the_conversation(session: ChatSession) -> None:
    first = make_turn(session, "old", **DONE)
    end(replace(first, "new"))

    with organisation_scope(session.organisation_id):
        words = stored_words(session)

    assert words is not None
    assert ("user", "new") in words
    assert ("user", "old") not in words


# -- Accepting --------------------------------------------------------------------------------------------------------


def test_a_turn_that_is_open_is_not_replaced(session: ChatSession) -> None:
    turn = make_turn(session)

    with pytest.raises(ledger.Conflict) as refused:
        replace(turn, "hello")

    assert refused.value.code == "turn_open"
    assert Rest(session.membership).post(
        f"sessions/{session.pk}/turns", {"message": "hello", "replaces": str(turn.pk)}
    ).error == (409, "turn_open", None)


def test_one_key_replaces_one_turn_once(session: ChatSession) -> None:
    first, second = (make_turn(session, "hello", **DONE) for _ in range(2))

    once, twice = (replace(second, "hello", idempotency_key="k") for _ in range(2))

    assert once.pk == twice.pk
    for other, is_behind in ((first, False), (second, True)):
        with pytest.raises(ledger.Conflict) as refused:
            replace(other, "hello", is_behind=is_behind, idempotency_key="k")
        assert refused.value.code == "idempotency_key_reused"
    with organisation_scope(session.organisation_id), pytest.raises(ledger.Conflict):
        accepting.accept(session, "hello", member=session.membership, idempotency_key="k")


# -- REST -------------------------------------------------------------------------------------------------------------


def test_rest_says_which_turn_was_replaced_and_which_are_out_of_the_conversation(session: ChatSession) -> None:
    first = make_turn(session, "one", **DONE)
    make_turn(session, "two", **DONE)

    reply = Rest(session.membership).post(
        f"sessions/{session.pk}/turns", {"message": "one, anew", "replaces": str(first.pk)}
    )

    assert reply.status == 202
    assert (reply.json["replaces"], reply.json["passed_over"]) == (1, [[1, 2]])


def test_rest_goes_on_from_a_turn_that_was_replaced(session: ChatSession) -> None:
    old = make_turn(session, "one", **DONE)
    end(replace(old, "one, anew"))

    reply = Rest(session.membership).post(f"sessions/{session.pk}/turns", {"message": "two", "follows": str(old.pk)})

    assert reply.status == 202
    assert (reply.json["replaces"], reply.json["passed_over"]) == (2, [[2, 2]])
    both = {"message": "two", "follows": str(old.pk), "replaces": str(old.pk)}
    assert Rest(session.membership).post(f"sessions/{session.pk}/turns", both).error == (400, "invalid", "follows")


def test_a_turn_of_another_session_or_organisation_is_not_there_to_be_replaced(
    session: ChatSession, as_bob: Client, charlie: Membership
) -> None:
    elsewhere = (make_turn(make_session(session.membership, session.agent), **DONE), make_turn(make_session(charlie)))
    for key in (*(str(turn.pk) for turn in elsewhere), str(uuid4())):
        for name in ("replaces", "follows"):
            body = {"message": "hello", name: key}
            reply = Rest(session.membership).post(f"sessions/{session.pk}/turns", body)
            assert reply.error == (404, "not_found", None)
            assert as_bob.post(page_of(session, "turns/"), body).status_code == 404
            assert as_bob.get(page_of(session, f"?{name}={key}")).status_code == 404
    assert as_bob.get(page_of(session, "?replaces=x")).status_code == 404
    with organisation_scope(session.organisation_id):
        assert session.turns.count() == 0


# -- The page ---------------------------------------------------------------------------------------------------------


def test_regenerate_asks_again_in_the_place_of_the_turn(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, "hello", **DONE)
    page = as_bob.get(page_of(session)).content.decode()
    (form,) = re.findall(r'<form method="post"\s+class="turn-again".*?</form>', page, re.DOTALL)

    answer = as_bob.post(page_of(session, "turns/"), dict(re.findall(r'name="(\w+)"\s+value="([^"]*)"', form)))

    with organisation_scope(session.organisation_id):
        new = session.turns.get(seq=2)
    assert answer["Location"] == page_of(session, f"#turn-{new.pk}")
    assert (new.message, new.agent_id, new.replaces) == ("hello", turn.agent_id, 1)


def test_a_message_is_written_anew_in_the_field_and_sent_in_its_place(as_bob: Client, session: ChatSession) -> None:
    other = make_agent(session.organisation, slug="other")
    turn = make_turn(session, "hello <b>", agent=other, **DONE)
    make_turn(session, "behind", **DONE)

    page = as_bob.get(page_of(session, f"?replaces={turn.pk}")).content.decode()
    sent = {"message": "hello again", "agent": session.agent.slug, "replaces": str(turn.pk)}
    answer = as_bob.post(page_of(session, "turns/"), sent, headers={"HX-Request": "true"})

    composer = page[page.index('id="composer"') :]
    assert f'name="replaces" value="{turn.pk}"' in composer
    assert "hello &lt;b&gt;</textarea>" in composer
    assert '<option value="other" selected' in composer
    with organisation_scope(session.organisation_id):
        new = session.turns.get(seq=3)
    assert answer["HX-Redirect"] == page_of(session, f"#turn-{new.pk}")
    assert (new.message, new.agent_id, new.passed_over) == ("hello again", session.agent_id, [[1, 2]])


def test_replaced_turns_are_folded_together_and_still_there(as_bob: Client, session: ChatSession) -> None:
    first, second = (make_turn(session, f"number {number}", **DONE) for number in (1, 2))
    end(replace(first, "anew"))

    for more in ("", "?before=3"):
        page = as_bob.get(page_of(session, more)).content.decode()

        (fold,) = FOLD.findall(page)
        assert "2 turns replaced" in fold
        assert [f'id="turn-{turn.pk}"' in fold for turn in (first, second)] == [True, True]
        assert ("Regenerate" in fold, fold.count("Go on from here"), page.count("Go on from here")) == (False, 2, 2)
        assert (">turn 1</a>" in page, "Regenerate" in page) == (more == "", more == "")


def test_a_message_goes_on_from_a_replaced_turn_which_is_in_the_conversation_again(
    as_bob: Client, session: ChatSession
) -> None:
    old = make_turn(session, "number 1", **DONE)
    end(replace(old, "anew"))

    page = as_bob.get(page_of(session, f"?follows={old.pk}")).content.decode()
    as_bob.post(page_of(session, "turns/"), {"message": "number 2", "follows": str(old.pk)})

    composer = page[page.index('id="composer"') :]
    assert f'name="follows" value="{old.pk}"' in composer
    assert "number 1</textarea>" not in composer
    with organisation_scope(session.organisation_id):
        assert front_of(session.turns.get(seq=3)) == [1]
    (fold,) = FOLD.findall(as_bob.get(page_of(session)).content.decode())
    assert "anew" in fold


def test_who_may_not_write_is_offered_neither(client: Client, alice: Membership, session: ChatSession) -> None:
    turn = make_turn(session, **DONE)
    client.force_login(alice.user)

    page = client.get(page_of(session)).content.decode()

    assert ("Regenerate" in page, "?replaces=" in page) == (False, False)
    assert 'name="replaces"' not in client.get(page_of(session, f"?replaces={turn.pk}")).content.decode()
    sent = {"message": "hello", "replaces": str(turn.pk)}
    assert client.post(page_of(session, "turns/"), sent).status_code == 403
    assert Rest(alice).post(f"sessions/{session.pk}/turns", sent).status == 403
