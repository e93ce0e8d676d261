"""What a turn costs the database: statements and transactions from its claim to its end."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import CaptureQueriesContext

from capabilities.common.registry_version import touch_registry
from capabilities.models import Agent, Category, Dialect, Provider
from sessions.models import ChatSession, Door, TurnStatus
from sessions.turns import accepting
from sessions.turns.accepting import ClientAsks
from tests.cast import make_meta_tools
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import accept, run, work
from toolhub.tenants.access import issue_token
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

#: What begins or ends a transaction: a database server counts these as no statement.
EDGES = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")


def statements(captured: CaptureQueriesContext) -> list[str]:
    return [each["sql"] for each in captured.captured_queries if not each["sql"].startswith(EDGES)]


def commits(captured: CaptureQueriesContext) -> int:
    """Transactions that write. Those are told by their end: a write outside of one is a statement of its own."""
    return sum(each["sql"].startswith("COMMIT") for each in captured.captured_queries)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_turn_of_two_rounds_and_one_call_is_20_statements_and_6_commits(
    session: ChatSession, provider: ScriptedOpenAI, dialect: Dialect
) -> None:
    """The second turn of its session, in a process that has seen the organisation's catalogue before."""
    with organisation_scope(session.organisation_id):
        Provider.objects.update(dialect=dialect)
    for _ in range(2):
        provider.enqueue(Say(calls=[call("uuid")], reasoning="sealed"), Say("Here.", reasoning="sealed"))
    run(session)
    turn = accept(session)

    with CaptureQueriesContext(connection) as captured:
        work(turn)

    with organisation_scope(session.organisation_id):
        turn.refresh_from_db()
    assert (turn.status, turn.rounds, turn.last_event) == (TurnStatus.DONE, 2, 7)
    assert set(provider.paths) == {"/responses" if dialect == "responses" else "/chat/completions"}
    sent = statements(captured)
    # The last one is of `work` itself, which reads the turn again.
    assert len(sent) - 1 <= 20, "\n".join(sent)
    assert commits(captured) <= 6
    assert not [sql for sql in sent if "INSERT" in sql and "savepoint" in sql]


@pytest.mark.parametrize("mode", ["keywords", "hybrid"])
def test_a_turn_whose_message_decides_its_tools_costs_no_statement_more(
    session: ChatSession, provider: ScriptedOpenAI, mode: str
) -> None:
    make_meta_tools(session.organisation)
    with organisation_scope(session.organisation_id):
        Agent.objects.update(routing_mode=mode)
        Category.objects.filter(name="utility").update(keywords=["uuid"])
        touch_registry(session.organisation_id)
    messages = ["Make a uuid", "Make a uuid and a task", "Make a uuid", "Make a uuid"]
    counts = []
    for message in messages:
        provider.enqueue(Say(calls=[call("uuid")]), Say("Here."))
        turn = accept(session, message)
        with CaptureQueriesContext(connection) as captured:
            work(turn)
        counts.append((len(statements(captured)) - 1, commits(captured)))

    # A set of tools that nobody was sent before is looked for and stored.
    assert counts[1] <= (22, 7)
    assert all(sent <= 20 and written <= 6 for sent, written in counts[2:]), counts


def test_a_session_with_longer_history_costs_no_statement_more(session: ChatSession, provider: ScriptedOpenAI) -> None:
    counts = []
    for _ in range(4):
        provider.enqueue(Say(calls=[call("uuid")]), Say("Here."))
        turn = accept(session)
        with CaptureQueriesContext(connection) as captured:
            work(turn)
        counts.append(len(statements(captured)))

    assert counts[1] == counts[2] == counts[3]


def test_a_turn_of_the_gateway_costs_no_statement_more(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        token, _ = issue_token(session.membership, "client", actor=None)
    counts = []
    for asks in (None, None, ClientAsks(Door.CHAT, token, "digest", instructions="In English.")):
        provider.enqueue(Say("Here."))
        with organisation_scope(session.organisation_id):
            turn = accepting.accept(session, "Hello", member=session.membership, asks=asks).turn
        with CaptureQueriesContext(connection) as captured:
            work(turn)
        counts.append(len(statements(captured)))

    assert counts[2] == counts[1]
    assert "In English." in provider.requests[-1]["messages"][0]["content"]


def test_a_message_is_accepted_with_8_statements(session: ChatSession) -> None:
    accept(session)

    with CaptureQueriesContext(connection) as captured:
        accept(session)

    assert len(statements(captured)) <= 8


def test_a_message_over_rest_waits_for_no_query_to_be_compiled(
    session: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second one on; to compile a query takes ten times what the database takes to answer it."""
    api, address = Rest(session.membership), f"sessions/{session.pk}/turns"
    assert api.post(address, {"message": "hello"}).status == 202
    compiled: list[str] = []
    as_sql = SQLCompiler.as_sql

    def noted(compiler: SQLCompiler, *args: Any, **kwargs: Any) -> Any:
        sql, params = as_sql(compiler, *args, **kwargs)
        compiled.append(sql)
        return sql, params

    monkeypatch.setattr(SQLCompiler, "as_sql", noted)

    assert api.post(address, {"message": "hello again"}).status == 202
    assert compiled == []
