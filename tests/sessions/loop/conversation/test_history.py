from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.common.tokens import O200K
from capabilities.models import LanguageModel
from sessions.loop.conversation.history import OUTCOME_UNKNOWN, turn_messages
from sessions.loop.conversation.message_files import MessageFiles
from sessions.loop.conversation.next_call import conversation
from sessions.loop.conversation.prefix import Prefix, remembered
from sessions.loop.conversation.steps import steps_of
from sessions.loop.conversation.window import (
    LEAST,
    MAX_TURNS,
    SHORTENED,
    Conversation,
    TooLong,
    fit,
    room_for_messages,
    tokens_of_blocks,
)
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnEvent, TurnStatus
from sessions.turns.endings import NOT_RUN
from tests.cast import make_agent, make_session, make_turn
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import a_model, as_claimed, check_request, events_of, run, running
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope


def talk_of(turn: Turn, *, tool_tokens: int) -> Conversation:
    return conversation(running(turn, steps=steps_of(turn)), tool_tokens=tool_tokens)


def asked(round: int, *ids: str, text: str = "") -> Step:
    calls = [{"id": each, "name": "f", "arguments": "{}"} for each in ids]
    return Step(kind=StepKind.MODEL, status=StepStatus.DONE, round=round, text=text, tool_calls=calls)


def answered(round: int, call_index: int, status: StepStatus = StepStatus.DONE, result: str = "42") -> Step:
    return Step(kind=StepKind.TOOL, status=status, round=round, call_index=call_index, result_sent=result)


MODEL = a_model()
NO_FILES = MessageFiles(uuid4(), (), takes_images=False)


def ended(status: TurnStatus = TurnStatus.DONE, answer: str = "", error_code: str = "") -> Turn:
    return Turn(seq=1, message="hello", status=status, answer=answer, error_code=error_code)


def result(messages: list[dict[str, Any]]) -> Any:
    return next(message["content"] for message in messages if message["role"] == "tool")


def test_an_answered_turn_is_told_as_it_was() -> None:
    steps = [asked(1, "a", "b", text="One moment."), answered(1, 1), answered(1, 0), asked(2, text="Done.")]

    messages = turn_messages(ended(answer="Done."), steps, MODEL, NO_FILES)

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
        (answered(1, 0, StepStatus.PENDING, ""), NOT_RUN),
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

    assert result(turn_messages(ended(answer="Well."), steps, MODEL, NO_FILES)) == told


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
    messages = turn_messages(turn, steps, MODEL, NO_FILES)

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

    messages = turn_messages(ended(TurnStatus(status), answer), steps, MODEL, NO_FILES)

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
        (330, ["3", "now"], 2),
        (180, ["3", "now"], 2),
        (90, ["now"], 3),
    ],
)
def test_over_the_window_the_oldest_turns_are_left_out_whole(
    long_session: ChatSession, window: int, firsts: list[str], cut: int
) -> None:
    with organisation_scope(long_session.organisation_id):
        LanguageModel.objects.update(context_window=window)
        turn = Turn.objects.select_related("agent__model", "session").get(pk=make_turn(long_session, "now").pk)

        talk = talk_of(turn, tool_tokens=0)

    assert talk.turns_cut == cut
    assert [message["content"].split()[0] for message in talk.messages if message["role"] == "user"] == firsts
    assert talk.messages[0] == {"role": "system", "content": "Be brief."}
    check_request(json.dumps({"messages": talk.messages}).encode())


@pytest.mark.django_db
def test_tools_take_their_room_from_the_turns(long_session: ChatSession) -> None:
    with organisation_scope(long_session.organisation_id):
        LanguageModel.objects.update(context_window=10_000)
        turn = Turn.objects.select_related("agent__model", "session").get(pk=make_turn(long_session, "now").pk)

        assert talk_of(turn, tool_tokens=8_700).turns_cut == 3


@pytest.mark.django_db
@pytest.mark.parametrize("turns", [1, 3])
def test_a_conversation_is_one_query(bob: Membership, turns: int, django_assert_num_queries: Any) -> None:
    session = make_session(bob, make_agent(bob.organisation))
    for _ in range(turns):
        make_turn(session, status=TurnStatus.FAILED)
    with organisation_scope(session.organisation_id):
        turn = as_claimed(make_turn(session, "now"))

        with django_assert_num_queries(1):
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

        talk = talk_of(Turn.objects.select_related("agent__model", "session").get(pk=turn.pk), tool_tokens=0)

    users = [message["content"] for message in talk.messages if message["role"] == "user"]
    assert (len(users), users[0], users[-1]) == (MAX_TURNS // 2 + 1, "105", "now")


@pytest.mark.django_db(transaction=True)
def test_a_cut_is_told_in_an_event(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=700)
    run(session, "word " * 400)

    turn = run(session, "now")

    assert events_of(turn) == ["accepted", "started", "history_cut", "model", "done"]
    assert payloads_of(turn) == [{"turns": 1, "parts": 0}]
    assert [message["content"] for message in provider.requests[-1]["messages"]] == ["Be brief.", "now"]


# -- The turn's own messages ------------------------------------------------------------------------------------------


def payloads_of(turn: Turn) -> list[Any]:
    with organisation_scope(turn.organisation_id):
        events = TurnEvent.objects.filter(turn=turn, type="history_cut").order_by("number")
        return list(events.values_list("payload", flat=True))


def calling(*ids: str, arguments: str = "{}", text: str = "") -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": arguments}} for each in ids]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def resulting(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


ASKED = {"role": "user", "content": "Read it all."}
WORDS = "lorem ipsum dolor sit amet "


def test_the_oldest_results_of_a_turn_are_cut_first_and_the_newest_last() -> None:
    own = [ASKED, calling("a"), resulting("a", WORDS * 100), calling("b"), resulting("b", WORDS * 100)]

    talk = fit([], [], own, 800)

    assert (talk.parts_cut, talk.turns_cut) == (1, 0)
    kept, note = talk.messages[2]["content"].split("\n")
    assert kept == (WORDS * 100)[:LEAST]
    assert "the first 200 of 2,700 characters]" in note
    assert [*talk.messages[:2], *talk.messages[3:]] == [*own[:2], *own[3:]]


def test_where_only_the_newest_results_are_there_each_is_cut_alike() -> None:
    own = [ASKED, calling("a", "b"), resulting("a", WORDS * 200), resulting("b", WORDS * 200)]

    talk = fit([], [], own, 800)

    lengths = [len(message["content"]) for message in talk.messages if message["role"] == "tool"]
    assert 1_000 < lengths[0] <= len(WORDS) * 200
    assert abs(lengths[0] - lengths[1]) < 1_500
    assert tokens_of_blocks([talk.messages])[0] <= 800


def test_arguments_of_an_older_round_make_room_before_the_newest_result_does() -> None:
    own = [ASKED, calling("a", arguments=json.dumps({"text": WORDS * 200})), resulting("a", "ok"), calling("b")]
    own.append(resulting("b", WORDS * 60))

    talk = fit([], [], own, 600)

    assert talk.messages[1]["tool_calls"][0]["function"]["arguments"] == (
        '{"cut_to_fit_the_window": "5,412 characters of arguments"}'
    )
    assert talk.messages[-1] == own[-1]


def test_a_result_that_is_cut_again_says_how_long_it_was_at_first() -> None:
    own = [ASKED, calling("a"), resulting("a", WORDS * 2_000)]

    content = fit([], [], own, 300).messages[-1]["content"]

    found = SHORTENED.search(content)
    assert found is not None
    assert found["whole"] == "54,000"
    assert content.count("[cut to fit") == 1


def test_what_would_go_back_unread_is_left_out_before_nothing_is_sent() -> None:
    own: list[dict[str, Any]] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Well.", "extras": {"message": {"reasoning_content": "word " * 3_000}}},
    ]

    assert "extras" in fit([], [], own, 10_000).messages[1]
    assert fit([], [], own, 1_000).messages[1] == {"role": "assistant", "content": "Well."}


def test_where_not_even_the_least_fits_nothing_is_sent() -> None:
    with pytest.raises(TooLong, match="the model's window leaves 100: shorten the message"):
        fit([], [], [{"role": "user", "content": WORDS * 100}], 100)


@pytest.mark.parametrize("room", [100_000, 900, 400])
def test_a_conversation_says_the_tokens_of_its_results_and_of_the_rest(room: int) -> None:
    head = [{"role": "system", "content": "Be brief."}]
    blocks = [[ASKED, {"role": "assistant", "content": "word " * size}] for size in (300, 200)]
    own: list[dict[str, Any]] = [ASKED]
    for number in (1, 2):
        own += [
            {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "function": {"arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "sunny " * 50},
        ]

    talk = fit(head, blocks, own, room)

    sent_own = talk.messages[-len(own) :]
    results = [message for message in sent_own if message["role"] == "tool"]
    assert talk.result_tokens == sum(tokens_of_blocks([[each] for each in results], O200K))
    assert talk.tokens <= room
    # Blocks are counted as one text each, so that each message but the first of a block is off by its brackets.
    alone = sum(tokens_of_blocks([[each] for each in talk.messages], O200K))
    assert abs(talk.tokens - alone) <= len(talk.messages)


@pytest.mark.django_db(transaction=True)
def test_older_turns_are_counted_once_a_turn(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def count(texts: list[str], *_: Any, **__: Any) -> list[int]:
        counted.extend(texts)
        return [len(text) // 4 for text in texts]

    monkeypatch.setattr("capabilities.common.tokens.toktok.batch_count", count)
    provider.enqueue(Say("Good day."), Say(calls=[call("uuid")]), Say("There it is."))

    turns = [run(session, "hello"), run(session, "an id please")]

    assert [turn.status for turn in turns] == [TurnStatus.DONE, TurnStatus.DONE]
    assert [text.count("Good day.") for text in counted if "hello" in text] == [0, 1]


def test_less_of_the_window_is_filled_where_the_provider_counts_more_than_we_do() -> None:
    rooms = [room_for_messages(a_model(token_factor=factor), 1_000) for factor in (0.8, 1.0, 1.25)]

    assert rooms[0] == rooms[1] == 128_000 * 7 // 8 - 1_000
    assert rooms[2] == 128_000 * 7 // 8 * 4 // 5 - 1_000


ROUNDS = st.lists(st.tuples(st.integers(0, 3_000), st.lists(st.integers(0, 8_000), min_size=1, max_size=4)), max_size=5)


@settings(deadline=None)
@given(ROUNDS, st.integers(0, 4_000), st.integers(0, 4_000), st.lists(st.integers(1, 2_000), max_size=4))
def test_no_request_is_larger_than_the_window_less_the_answer_s_reserve(
    rounds: Any, window: int, tool_tokens: int, earlier: list[int]
) -> None:
    head = [{"role": "system", "content": "Be brief."}]
    blocks = [[ASKED, {"role": "assistant", "content": "x " * size}] for size in earlier]
    own = [ASKED]
    for number, (arguments, results) in enumerate(rounds):
        ids = [f"c{number}_{index}" for index in range(len(results))]
        own.append(calling(*ids, arguments=json.dumps({"text": "y " * arguments}), text="z " * (arguments % 500)))
        own += [resulting(id, "word " * size) for id, size in zip(ids, results, strict=True)]
    room = room_for_messages(a_model(context_window=window, max_output_tokens=0), tool_tokens)

    try:
        talk = fit(head, blocks, own, room)
    except TooLong:
        least = [ASKED, *(message for message in own[1:])]
        assert room < tokens_of_blocks([head])[0] + sum(
            tokens_of_blocks([[message]])[0]
            if message["role"] == "user"
            else 250 * (1 + len(message.get("tool_calls", ())))
            for message in least
        )
        return

    assert tokens_of_blocks([talk.messages])[0] + tool_tokens <= window * 0.875
    check_request(json.dumps({"messages": talk.messages}).encode())
    answered_ids = [message["tool_call_id"] for message in talk.messages if message["role"] == "tool"]
    assert answered_ids == [message["tool_call_id"] for message in own if message["role"] == "tool"]
    assert talk.messages[0] == head[0]


@pytest.mark.django_db(transaction=True)
def test_a_turn_of_many_long_results_never_sends_more_than_its_window(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=2_000)
    for number in range(4):
        provider.enqueue(Say("word " * 900, calls=[call("uuid", id=f"c{number}")]))

    turn = run(session, "go on")

    assert (turn.status, turn.rounds, turn.error_message) == (TurnStatus.DONE, 5, "")
    for body in provider.bodies:
        messages = check_request(body)
        assert tokens_of_blocks([messages])[0] <= 2_000 * 0.875
    assert len(payloads_of(turn)) == len({json.dumps(payload) for payload in payloads_of(turn)}) >= 1


@pytest.mark.django_db(transaction=True)
def test_the_same_cut_is_told_once_a_turn(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=1_400)
    run(session, "word " * 900)
    provider.enqueue(Say(calls=[call("uuid", id="u1")]), Say(calls=[call("uuid", id="u2")]))

    turn = run(session, "now")

    assert (turn.status, turn.rounds) == (TurnStatus.DONE, 3)
    assert payloads_of(turn) == [{"turns": 1, "parts": 0}]


@pytest.mark.django_db(transaction=True)
def test_a_message_that_does_not_fit_ends_its_turn_and_is_not_sent(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(context_window=500)

    turn = run(session, "word " * 2_000)

    assert (turn.status, turn.error_code, provider.requests) == (TurnStatus.FAILED, "context_length", [])
    assert "choose a model with a larger window" in turn.error_message


# -- Where the history begins ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.django_db
def test_a_cut_frees_half_so_that_the_same_turns_stand_in_front_for_long(bob: Membership) -> None:
    """From turn 201 on, and from the turn on that fills the window: one cut, then none for many turns, each told."""
    session = make_session(bob, make_agent(bob.organisation))
    first = make_turn(session, "1", status=TurnStatus.DONE, answer="ok")
    fields = {"organisation_id": first.organisation_id, "session": session, "membership": bob, "agent": first.agent}
    with organisation_scope(bob.organisation_id):
        rows = [
            Turn(seq=seq, message=str(seq), answer="ok", status="done", deadline_at=first.deadline_at, **fields)
            for seq in range(2, 2 * MAX_TURNS + 1)
        ]
        Turn.objects.bulk_create(rows)
        cuts, begins = [], []
        for row in Turn.objects.filter(session=session).select_related("agent__model__provider").order_by("seq"):
            row.session = session
            turn = running(row)
            talk = conversation(turn, tool_tokens=0)
            remembered(row, Prefix(0, 0, {"first_turn": turn.past.first}), None)
            begins.append(talk.messages[0]["content"])
            assert len(talk.messages) <= 2 * MAX_TURNS + 1
            if talk.turns_cut:
                cuts.append((row.seq, talk.turns_cut))

    assert cuts == [(MAX_TURNS + 2, 101), (MAX_TURNS + 103, 101)]
    assert sorted(set(begins), key=int) == ["1", "102", "203"]
