"""A reply while it is written: whoever begins to watch, and whenever, reads all of it once; stopped, it is kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.doors.chats.live import ShownReply
from sessions.loop.conversation.history import CUT_OFF
from sessions.loop.model_calls import drafts
from sessions.loop.model_calls.drafts import Draft
from sessions.models import ChatSession, StepKind, Turn, TurnStatus
from sessions.turns import bell, ledger, reaping
from sessions.turns.events import Delta, Event, _Text, watch
from sessions.turns.held import Held
from sessions.worker.process import Housekeeper, watch_held, work_on
from tests.processes import wait_for
from tests.rest import Rest
from tests.scripted_openai import Raw, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.run_turns import accept, check_request, events_of, run, steps_of
from tests.sessions.steps import accepted, claimed, expire_lease, reread
from tests.valkey import valkey
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["valkey"]

WORDS = [f"wörd{number} " for number in range(60)]
TEXT = "".join(WORDS)
USAGE = {"prompt_tokens": 70, "completion_tokens": 60, "total_tokens": 130}
#: One word every 20 ms: 1.2 s in all.
SLOW = Raw(pieces=[*(sse(chunk({"content": word}), done=False) for word in WORDS), sse(chunk({}, "stop"))])

flows = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["with Valkey", "without"])
def hints(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether there is a broker; what is read must be the same."""
    monkeypatch.setattr(bell, "breaker", bell.Breaker())
    monkeypatch.setattr(bell, "ring", lambda turn_id: False)
    with_valkey = request.param == "with Valkey"
    settings.REDIS_URL = request.getfixturevalue("valkey").url if with_valkey else ""
    yield with_valkey
    if with_valkey:
        bell._publisher(settings.REDIS_URL).close()
        bell._publisher.cache_clear()


def working(turn: Turn) -> threading.Thread:
    thread = threading.Thread(target=work_on, args=(turn.pk,))
    thread.start()
    return thread


def draft_of(turn: Turn) -> str:
    return reread(turn).draft


def read(turn: Turn, *, after: int = 0, have: int = 0, until: int | None = None) -> list[Event | Delta]:
    """What a reader gets, to the end of the turn or until it has so many characters."""

    async def collect() -> list[Event | Delta]:
        items: list[Event | Delta] = []
        async for item in watch(turn.pk, turn.organisation_id, after=after, read=have, whole=True):
            if item is not None:
                items.append(item)
            if until is not None and isinstance(item, Delta) and item.end >= until:
                break
        return items

    return asyncio.run(asyncio.wait_for(collect(), 30))


def text_of(items: list[Event | Delta]) -> str:
    """The text that a client puts together, which finds each piece where the last one ended."""
    text = ""
    for item in items:
        if isinstance(item, Delta):
            assert item.at == len(text)
            text += item.text
        elif item.type == "attempt_restarted":
            text = ""
    return text


# -- Reading ----------------------------------------------------------------------------------------------------------


@flows
def test_who_comes_in_the_middle_reads_the_whole_text_once(
    session: ChatSession, provider: ScriptedOpenAI, hints: bool
) -> None:
    provider.enqueue(SLOW)
    turn = accept(session)
    worker = working(turn)
    wait_for(lambda: len(draft_of(turn)) > 50, 10)

    items = read(turn)

    worker.join()
    assert text_of(items) == TEXT
    assert len([item for item in items if isinstance(item, Delta)]) >= 2
    assert [item.type for item in items if isinstance(item, Event)] == ["accepted", "started", "model", "done"]
    assert (reread(turn).answer, draft_of(turn)) == (TEXT, "")


@flows
def test_a_reader_that_comes_back_again_and_again_gets_what_is_missing_and_nothing_twice(
    session: ChatSession, provider: ScriptedOpenAI, hints: bool
) -> None:
    provider.enqueue(SLOW)
    turn = accept(session)
    worker = working(turn)
    wait_for(lambda: draft_of(turn) != "", 10)
    items: list[Event | Delta] = []
    have = 0

    for until in (60, 120, 180, 240, None):
        after = max((item.number for item in items if isinstance(item, Event)), default=0)
        items += read(turn, after=after, have=have, until=until)
        have = max(item.end for item in items if isinstance(item, Delta))
    worker.join()

    assert text_of(items) == TEXT
    assert [item.type for item in items if isinstance(item, Event)] == ["accepted", "started", "model", "done"]


@flows
def test_a_second_try_makes_the_first_one_s_text_void(
    session: ChatSession, provider: ScriptedOpenAI, hints: bool
) -> None:
    begun = [sse(chunk({"content": f"no {word}"}), done=False) for word in WORDS[:20]]
    provider.enqueue(Raw(pieces=begun), SLOW)
    turn = accept(session)
    worker = working(turn)

    items = read(turn)

    worker.join()
    assert text_of(items) == TEXT
    assert "attempt_restarted" in [item.type for item in items if isinstance(item, Event)]
    if hints:
        assert any(isinstance(item, Delta) and item.text.startswith("no ") for item in items)


@flows
def test_the_next_worker_drops_what_a_dead_one_s_model_wrote(session: ChatSession) -> None:
    turn = accepted(session)
    with organisation_scope(session.organisation_id):
        ledger.keep_draft(claimed(turn), "half of")
    assert (draft_of(turn), reread(turn).draft_event) == ("half of", 2)
    expire_lease(turn.pk)

    claimed(turn, "worker-2")

    assert (draft_of(turn), events_of(turn)[-1]) == ("", "attempt_restarted")


PIECES = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=12)


@settings(deadline=None)
@given(PIECES, st.data())
def test_pieces_lost_repeated_and_late_make_the_text_without_gap_or_repetition(pieces: list[str], data: Any) -> None:
    whole, text, got = "".join(pieces), _Text(1), ""
    ends = [sum(map(len, pieces[:number])) for number in range(len(pieces) + 1)]
    for number, piece in enumerate(pieces):
        came = [Delta(1, ends[number], piece)] if data.draw(st.booleans()) else []
        if data.draw(st.booleans()):
            came.append(Delta(1, 0, whole[: data.draw(st.integers(0, ends[number + 1]))]))  # the row, a little behind
        for each in data.draw(st.permutations(came)):
            if new := text.next(each):
                assert new.at == len(got)
                got += new.text
    if last := text.next(Delta(1, 0, whole)):
        got += last.text

    assert got == whole


def test_a_page_shows_no_piece_twice_and_goes_back_behind_nothing_that_it_shows() -> None:
    shown = ShownReply(3, "abc")

    pieces = [Delta(3, 0, "abcd"), Delta(3, 4, "ef"), Delta(2, 6, "old")]
    assert [shown.add(piece) for piece in pieces] == ["d", "ef", ""]
    turn = Turn(draft="abcd", draft_event=3)
    shown.draw(turn)
    assert turn.draft == "abcdef"
    assert shown.add(Delta(5, 0, "new")) == "new"
    turn = Turn(draft="", draft_event=3)
    shown.draw(turn)
    assert (turn.draft, shown.text) == ("", "")


# -- Writing ----------------------------------------------------------------------------------------------------------


@flows
def test_a_text_is_kept_twice_a_second_however_many_pieces_it_has(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    keep = ledger.keep_draft

    def note(claim: ledger.Claim, text: str) -> Any:
        kept.append(len(text))
        return keep(claim, text)

    monkeypatch.setattr(ledger, "keep_draft", note)
    provider.enqueue(SLOW)

    turn = run(session)

    assert turn.status == TurnStatus.DONE
    assert 2 <= len(kept) <= 5


@flows
def test_a_quick_reply_is_not_kept_on_its_way(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "keep_draft", None)
    provider.enqueue(Say(TEXT))

    assert run(session).status == TurnStatus.DONE


@flows
def test_a_text_that_stands_still_is_kept_as_well(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Raw(sse(chunk({"content": "Well,"}), done=False), linger=4))
    turn = accept(session)
    worker = working(turn)

    wait_for(lambda: draft_of(turn) != "", 2)

    assert draft_of(turn) == "Well,"
    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)
    watch_held()
    worker.join()


@flows
def test_a_database_that_refuses_does_not_cost_the_reply(
    session: ChatSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import OperationalError

    def refuse(claim: Any, text: str) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(ledger, "keep_draft", refuse)
    monkeypatch.setattr(drafts, "FIRST_AFTER", 0.0)
    draft = Draft(Held(claimed(accepted(session))))

    draft.add("Well,")

    assert draft.text == "Well,"
    assert "could not be kept" in caplog.text


def test_half_a_surrogate_pair_waits_for_its_other_half() -> None:
    draft = Draft(Held(ledger.Claim(Turn().pk, 1, 1)))

    draft.add("a\ud83d")
    draft.add("\ude00b\x00")

    assert draft.text == "a\U0001f600b\ufffd"


# -- Stopping ---------------------------------------------------------------------------------------------------------


def stop_when(turn: Turn, session: ChatSession, chars: int) -> float:
    """Runs the turn as a worker does, stops it when so much is written, and returns how long the end took."""
    housekeeper = Housekeeper()
    housekeeper.start()
    worker = working(turn)
    wait_for(lambda: len(draft_of(turn)) >= chars, 10)
    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)
    stopped_at = time.monotonic()
    worker.join(10)
    took = time.monotonic() - stopped_at
    housekeeper.stop()
    return took


@flows
@pytest.mark.parametrize("tools", [False, True], ids=["first round", "behind a call"])
def test_what_was_written_is_kept_on_stop_with_what_it_cost(
    session: ChatSession, provider: ScriptedOpenAI, tools: bool
) -> None:
    if tools:
        provider.enqueue(Say(calls=[call("uuid")]))
    provider.enqueue(SLOW)
    turn = accept(session)

    took = stop_when(turn, session, 100)

    turn = reread(turn)
    assert (turn.status, turn.error_code, turn.draft) == (TurnStatus.CANCELLED, "cancelled", "")
    assert TEXT.startswith(turn.answer)
    assert 100 <= len(turn.answer) < len(TEXT)
    assert took < 2  # a second where the machine is not busy
    step = steps_of(turn, StepKind.MODEL)[-1]
    assert (step.text, step.finish_reason, step.usage_estimated) == (turn.answer, "stopped", True)
    assert step.input_tokens > 10
    assert len(turn.answer.split()) <= step.output_tokens <= len(turn.answer)
    reply = Rest(session.membership).get(f"turns/{turn.pk}").json
    assert (reply["status"], reply["answer"], reply["draft"]) == ("cancelled", turn.answer, "")
    assert reply["usage"] == turn.usage
    assert reply["usage"]["estimated"] is True
    assert text_of(read(turn)) == turn.answer


@flows
def test_the_provider_s_own_count_is_taken_where_it_came_before_the_stop(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    body = sse(chunk({"content": "Well, "}), {**chunk({}), "choices": [], "usage": USAGE}, done=False)
    provider.enqueue(Raw(body, linger=3))
    turn = accept(session)

    stop_when(turn, session, 5)

    turn = reread(turn)
    assert (turn.answer, turn.input_tokens, turn.output_tokens, turn.usage_estimated) == ("Well, ", 70, 60, False)


@flows
def test_calls_of_a_reply_that_was_stopped_are_not_run(session: ChatSession, provider: ScriptedOpenAI) -> None:
    begun = {"tool_calls": [{"index": 0, **call("task_create", {"title": "half"})}]}
    provider.enqueue(Raw(sse(chunk({"content": "I add it."}), chunk(begun), done=False), linger=3))
    turn = accept(session)

    stop_when(turn, session, 5)

    assert [(step.kind, step.text, step.tool_calls) for step in steps_of(turn)] == [("model", "I add it.", [])]


@flows
def test_the_next_message_reads_that_the_answer_was_stopped(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(SLOW)
    turn = accept(session, "first")
    stop_when(turn, session, 100)

    run(session, "second")

    messages = check_request(provider.bodies[-1])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == f"{reread(turn).answer}\n\n{CUT_OFF}"


@flows
def test_a_turn_that_runs_out_of_time_keeps_what_was_written(
    session: ChatSession, provider: ScriptedOpenAI, settings: Any
) -> None:
    settings.TOOLHUB_TURN_SECONDS = 1
    provider.enqueue(Raw(sse(chunk({"content": "Well,"}), done=False), linger=4))

    turn = run(session)

    assert (turn.status, turn.answer, turn.usage_estimated) == (TurnStatus.EXPIRED, "Well,", True)


@flows
def test_what_a_dead_worker_s_model_wrote_is_kept_on_stop(session: ChatSession) -> None:
    turn = accepted(session)
    with organisation_scope(session.organisation_id):
        ledger.keep_draft(claimed(turn), "half of")
        ledger.cancel(turn, actor=session.membership)
    expire_lease(turn.pk)

    reaping.reap()

    turn = reread(turn)
    assert (turn.status, turn.answer, turn.draft) == (TurnStatus.CANCELLED, "half of", "")


@flows
def test_a_worker_on_its_way_down_gives_a_reply_back_unwritten(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(SLOW)
    turn = accept(session)
    claim = claimed(turn)
    held = Held(claim)
    from sessions.loop.run.turn import run_turn

    def work() -> None:
        from django.db import connection

        with organisation_scope(session.organisation_id):
            run_turn(held)
        connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    wait_for(lambda: draft_of(turn) != "", 10)
    held.stop("draining")
    worker.join()

    assert (reread(turn).status, draft_of(turn), steps_of(turn)) == (TurnStatus.QUEUED, "", [])
