"""Secrets that a model writes among the arguments of its calls: the call has them, nothing that is kept does."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from capabilities.contract.masking import MASK
from sessions.asking.approvals import writes
from sessions.loop.calls import batch
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnEvent, TurnStatus
from sessions.turns import ledger
from tests.capabilities.catalogue.http_tools.rows import make_credential
from tests.capabilities.running.egress.servers import Server
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_asking import admin_of, answer
from tests.sessions.asking.approvals.test_effective import asked, on_argument
from tests.sessions.loop.test_http_tools import SECRET, make_http, server  # noqa: F401 -- a fixture
from tests.sessions.run_turns import accept, run, tool_steps_of, work
from tests.sessions.steps import expire_lease
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

PARAMETERS = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "verbose": {"type": "boolean"}},
    "required": ["id"],
}


@pytest.fixture
def signed(session: ChatSession, server: Server) -> ChatSession:  # noqa: F811
    """Its agent has `read_user`, whose calls the secret signs."""
    make_http(session, server, make_credential(session.membership, origins=[server.url]), parameters=PARAMETERS)
    return session


def asks(*ids: str) -> Say:
    return Say(calls=[call("read_user", {"id": each}) for each in ids])


def kept(session: ChatSession) -> str:
    """Every text of the session's turns, steps and events."""
    with organisation_scope(session.organisation_id):
        return str([list(rows.objects.values()) for rows in (Turn, Step, TurnEvent)])


def reply_of(turn: Turn) -> Step:
    with organisation_scope(turn.organisation_id):
        return Step.objects.filter(turn=turn, kind=StepKind.MODEL).order_by("index")[0]


def test_calls_of_one_reply_have_the_secret_and_nothing_keeps_it(
    signed: ChatSession,
    provider: ScriptedOpenAI,
    server: Server,  # noqa: F811
) -> None:
    provider.enqueue(asks(f"a-{SECRET}", "b", f"c-{SECRET}"), Say("Read."))

    turn = run(signed)

    assert sorted(path for _, path, *_ in server.requests) == [f"/users/a-{SECRET}", "/users/b", f"/users/c-{SECRET}"]
    assert SECRET not in kept(signed)
    ids = [json.loads(each["arguments"])["id"] for each in reply_of(turn).tool_calls]
    assert ids == [f"a-{MASK}", "b", f"c-{MASK}"]
    assert [json.loads(step.arguments)["id"] for step in tool_steps_of(turn)] == ids


def test_the_model_reads_its_calls_masked_from_the_next_round_on(signed: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(asks(SECRET), asks("b"), Say("Read."), Say("Hello."))

    run(signed)
    run(signed, "again")

    sent = [json.dumps(request["messages"], ensure_ascii=False) for request in provider.requests]
    assert [SECRET in each for each in sent] == [False] * 4
    assert [each.startswith(before[:-1]) for before, each in pairwise(sent)] == [True] * 3


def test_a_reply_without_a_secret_stays_byte_for_byte(
    session: ChatSession,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    server: Server,  # noqa: F811
) -> None:
    make_http(session, server, make_credential(session.membership, origins=[server.url]), parameters=PARAMETERS)
    written = '{ "id" : "b\\u00e4" }'
    provider.enqueue(Say(calls=[call("read_user", written)]), Say("Read."))

    turn = run(session)

    assert reply_of(turn).tool_calls[0]["arguments"] == written


class Killed(BaseException):
    """The end of a process."""


def test_a_worker_that_dies_before_the_reply_is_masked_leaves_that_to_the_next(
    signed: ChatSession,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    server: Server,  # noqa: F811
) -> None:
    provider.enqueue(asks(SECRET, "b"), Say("Read."))

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    turn = accept(signed)
    with monkeypatch.context() as patched:
        patched.setattr(batch, "mask_reply", die)
        with pytest.raises(Killed):
            work(turn)
    expire_lease(turn.pk)
    turn = work(turn)

    assert (turn.status, len(server.requests)) == (TurnStatus.DONE, 2)
    assert SECRET not in kept(signed)


def test_a_call_that_waits_keeps_its_arguments_until_it_is_answered(
    signed: ChatSession,
    provider: ScriptedOpenAI,
    server: Server,  # noqa: F811
) -> None:
    on_argument(signed, "read_user", "id", "*")
    provider.enqueue(asks(SECRET), Say("Read."))

    approval = asked(run(signed))
    assert SECRET not in approval.arguments
    done = answer(approval, writes.approve, admin_of(signed))

    assert (done.status, [path for _, path, *_ in server.requests]) == (TurnStatus.DONE, [f"/users/{SECRET}"])
    assert SECRET not in kept(signed)


def test_a_call_that_is_denied_keeps_no_secret(signed: ChatSession, provider: ScriptedOpenAI) -> None:
    on_argument(signed, "read_user", "id", "*")
    provider.enqueue(asks(SECRET), Say("Read."))

    approval = asked(run(signed))
    answer(approval, writes.deny, admin_of(signed))

    assert SECRET not in kept(signed)
    assert [step.status for step in tool_steps_of(approval.turn)] != [StepStatus.DONE]


def test_a_turn_that_is_stopped_while_a_call_waits_keeps_no_secret(
    signed: ChatSession, provider: ScriptedOpenAI
) -> None:
    on_argument(signed, "read_user", "id", "*")
    provider.enqueue(asks(SECRET), Say("Read."))
    turn = run(signed)
    assert SECRET in kept(signed)

    with organisation_scope(signed.organisation_id):
        ledger.cancel(turn, actor=signed.membership)

    assert SECRET not in kept(signed)
