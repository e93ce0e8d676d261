from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.models import LanguageModel
from sessions.history import MAX_TURNS, NOT_RUN, OUTCOME_UNKNOWN, conversation, turn_messages
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnStatus
from tests.cast import make_agent, make_session, make_turn
from tests.scripted_openai import ScriptedOpenAI
from tests.sessions.turns import check_request, events_of, run
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope


def asked(round: int, *ids: str, text: str = "") -> Step:
    calls = [{"id": each, "name": "f", "arguments": "{}"} for each in ids]
    return Step(kind=StepKind.MODEL, status=StepStatus.DONE, round=round, text=text, tool_calls=calls)


def answered(round: int, call_index: int, status: StepStatus = StepStatus.DONE, result: str = "42") -> Step:
    return Step(kind=StepKind.TOOL, status=status, round=round, call_index=call_index, result_sent=result)


def ended(status: TurnStatus = TurnStatus.DONE, answer: str = "", error_code: str = "") -> Turn:
    return Turn(message="hello", status=status, answer=answer, error_code=error_code)


def result(messages: list[dict[str, Any]]) -> Any:
    return next(message["content"] for message in messages if message["role"] == "tool")


def test_an_answered_turn_is_told_as_it_was() -> None:
    steps = [asked(1, "a", "b", text="One moment."), answered(1, 1), answered(1, 0), asked(2, text="Done.")]

    messages = turn_messages(ended(answer="Done."), steps)

    assert [(message["role"], message["content"]) for message in messages] == [
        ("user", "hello"),
        ("assistant", "One moment."),
        ("tool", "42"),
        ("tool", "42"),
        ("assistant", "Done."),
    ]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (None, NOT_RUN),
        (answered(1, 0, StepStatus.STARTED, ""), OUTCOME_UNKNOWN),
        (answered(1, 0, StepStatus.UNKNOWN, ""), OUTCOME_UNKNOWN),
        (answered(1, 0, StepStatus.UNKNOWN, "who knows"), "who knows"),
        (answered(1, 0, StepStatus.DONE, ""), ""),
        (answered(1, 0, StepStatus.FAILED, "no"), "no"),
        (answered(1, 0, StepStatus.REFUSED, "denied"), "denied"),
    ],
)
def test_each_call_is_told_what_became_of_it(step: Step | None, told: str) -> None:
    steps = [asked(1, "a"), *([step] if step else [])]

    assert result(turn_messages(ended(answer="Well."), steps)) == told


@pytest.mark.parametrize(
    ("turn", "last"),
    [
        (ended(TurnStatus.FAILED, error_code="provider_auth"), "(This turn ended without an answer: provider_auth.)"),
        (ended(TurnStatus.CANCELLED, error_code="cancelled"), "(This turn ended without an answer: cancelled.)"),
        (ended(TurnStatus.EXPIRED), "(This turn ended without an answer: expired.)"),
        (ended(TurnStatus.DONE, answer="I stopped.", error_code="max_rounds"), "I stopped."),
    ],
)
@pytest.mark.parametrize("steps", [[], [asked(1, "a")], [asked(1, "a"), answered(1, 0)]])
def test_a_turn_without_a_last_word_of_the_model_gets_one(turn: Turn, last: str, steps: list[Step]) -> None:
    messages = turn_messages(turn, steps)

    assert messages[-1] == {"role": "assistant", "content": last}
    check_request(json.dumps({"messages": messages}).encode())


SHAPES = st.lists(
    st.tuples(
        st.sampled_from(["", "Hm."]),
        st.lists(st.none() | st.tuples(st.sampled_from(StepStatus.values), st.sampled_from(["", "x"])), max_size=4),
    ),
    max_size=4,
)


@given(SHAPES, st.sampled_from(TurnStatus.values), st.sampled_from(["", "Well."]))
def test_steps_of_any_shape_give_messages_that_a_provider_takes(shapes: Any, status: str, answer: str) -> None:
    steps: list[Step] = []
    for round, (text, calls) in enumerate(shapes, 1):
        steps.append(asked(round, *(uuid4().hex for _ in calls), text=text))
        steps += [answered(round, index, *each) for index, each in reversed(list(enumerate(calls))) if each]

    messages = turn_messages(ended(TurnStatus(status), answer), steps)

    check_request(json.dumps({"messages": messages}).encode())
    assert (messages[0]["role"], messages[-1]["role"]) == ("user", "assistant")


@pytest.fixture
def long_session(bob: Membership) -> ChatSession:
    """Three ended turns, the second with a call; a question of 50 words each."""
    session = make_session(bob, make_agent(bob.organisation, prompt="Be brief."))
    for number in range(1, 4):
        turn = make_turn(session, f"{number} " + "word " * 50, status=TurnStatus.DONE, answer=f"Answer {number}.")
        if number == 2:
            with organisation_scope(session.organisation_id):
                for index, step in enumerate([asked(1, "a"), answered(1, 0), asked(2, text="Answer 2.")], 1):
                    step.turn, step.organisation_id, step.index = turn, session.organisation_id, index
                    step.save()
    return session


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("window", "firsts", "cut"),
    [
        (10_000, ["1", "2", "3", "now"], 0),
        (330, ["2", "3", "now"], 1),
        (180, ["3", "now"], 2),
        (90, ["now"], 3),
        (1, ["now"], 3),
    ],
)
def test_over_the_window_the_oldest_turns_are_left_out_whole(
    long_session: ChatSession, window: int, firsts: list[str], cut: int
) -> None:
    with organisation_scope(long_session.organisation_id):
        LanguageModel.objects.update(context_window=window)
        turn = Turn.objects.select_related("agent__model").get(pk=make_turn(long_session, "now").pk)

        talk = conversation(turn, tool_tokens=0)

    assert talk.turns_cut == cut
    assert [message["content"].split()[0] for message in talk.messages if message["role"] == "user"] == firsts
    assert talk.messages[0] == {"role": "system", "content": "Be brief."}
    check_request(json.dumps({"messages": talk.messages}).encode())


@pytest.mark.django_db
def test_tools_take_their_room_from_the_turns(long_session: ChatSession) -> None:
    with organisation_scope(long_session.organisation_id):
        LanguageModel.objects.update(context_window=10_000)
        turn = Turn.objects.select_related("agent__model").get(pk=make_turn(long_session, "now").pk)

        assert conversation(turn, tool_tokens=9_000).turns_cut == 3


@pytest.mark.django_db
@pytest.mark.parametrize("turns", [1, 3])
def test_a_conversation_is_two_queries(bob: Membership, turns: int, django_assert_num_queries: Any) -> None:
    session = make_session(bob, make_agent(bob.organisation))
    for _ in range(turns):
        make_turn(session, status=TurnStatus.FAILED)
    with organisation_scope(session.organisation_id):
        turn = Turn.objects.select_related("agent__model").get(pk=make_turn(session, "now").pk)

        with django_assert_num_queries(2):
            conversation(turn, tool_tokens=0)


@pytest.mark.django_db
def test_very_old_turns_are_not_even_read(bob: Membership) -> None:
    session = make_session(bob, make_agent(bob.organisation))
    first = make_turn(session, "first", status=TurnStatus.DONE, answer="ok")
    turn = make_turn(session, "now", seq=MAX_TURNS + 5)
    with organisation_scope(session.organisation_id):
        fields = {"organisation_id": first.organisation_id, "session": session, "membership": bob, "agent": first.agent}
        rows = [
            Turn(seq=seq, message=str(seq), answer="ok", status="done", deadline_at=first.deadline_at, **fields)
            for seq in range(2, MAX_TURNS + 5)
        ]
        Turn.objects.bulk_create(rows)

        talk = conversation(Turn.objects.select_related("agent__model").get(pk=turn.pk), tool_tokens=0)

    users = [message["content"] for message in talk.messages if message["role"] == "user"]
    assert (len(users), users[0], users[-1]) == (MAX_TURNS + 1, "5", "now")


@pytest.mark.django_db(transaction=True)
def test_a_cut_is_told_in_an_event(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=700)
    run(session, "word " * 400)

    turn = run(session, "now")

    assert events_of(turn) == ["accepted", "started", "history_cut", "model", "done"]
    assert [message["content"] for message in provider.requests[-1]["messages"]] == ["Be brief.", "now"]
