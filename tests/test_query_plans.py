"""No statement of a turn, of a sweep, of a page or of the REST API gets slower with what an organisation did before.

The statements are those that run, on a filled database; how each reads its tables is the database's own account.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest
from django.db import connection, transaction

from capabilities.assistant.models import CalendarEvent, FoodEntry, Memory, Message, Task
from capabilities.models import Grant, GrantRequest
from sessions.models import (
    Approval,
    BudgetPeriod,
    ChatSession,
    LoadedToolkit,
    Notice,
    Reminder,
    Reservation,
    Schedule,
    Step,
    StepFile,
    ToolSet,
    TrialRun,
    Turn,
    TurnEvent,
    TurnStatus,
)
from sessions.turns import queue
from sessions.usage.metrics.families import Figures
from sessions.worker.process import Housekeeper
from tests.cast import make_agent, make_budget, make_member, make_organisation, make_role, make_session, make_tool
from tests.history import copy_history, copy_waiting
from tests.query_plans import Collector, Statement, accesses, rows_read
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run
from tests.sessions.steps import accepted
from tests.test_tenancy_routes import ADDRESSES, CANARY, KNOWN, ROUTES, OrganisationRows, ask, client_of, fill
from toolhub.tenants.models import Access, AuditEntry, Membership
from toolhub.tenants.rows.guarded import TenantModel

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

ORGANISATIONS, MEMBERS = 8, 5
#: Tables that grow with what is done, beside sessions, turns, steps and events.
OTHERS: tuple[type[TenantModel], ...] = (
    Approval, AuditEntry, BudgetPeriod, CalendarEvent, FoodEntry, GrantRequest, LoadedToolkit, Memory, Message, Notice,
    Reminder, StepFile, Task, ToolSet, TrialRun,
)  # fmt: skip
OF_TURNS: tuple[type[TenantModel], ...] = (ChatSession, Turn, Step, TurnEvent, Reservation)
GROWING = {model._meta.db_table for model in (*OF_TURNS, *OTHERS)}
#: Tables that have many rows too, in the measure of what an organisation has set up.
SET_UP: tuple[type[TenantModel], ...] = (Grant, Schedule)
#: Routes whose writes are asked for too.
WRITTEN = re.compile("session|turn|message")
#: Rows that may be read in any way, where the database knows how many there are.
FEW = 1_000
#: Turns that wait, each in a session of its own, beside those that have ended.
WAITING, ENDED = 1_500, 40_000
#: Partial indexes over what is open, waits or is to be done: all of it may be read.
OPEN = {
    "approvals_that_expire",
    "approvals_that_wait",
    "held_reservations",
    "queued_turns_of_member",
    "queued_child_turns",
    "reminders_to_tell",
    "requests_that_wait",
    "sessions_to_remove",
    "throwaways_to_remove",
    "trials_unended",
    "unended_turns",
}


def test_nothing_reads_a_history(provider: ScriptedOpenAI) -> None:
    acme = make_organisation("acme")
    alice = make_member(acme, "alice", Access.ADMIN)
    session = make_session(alice, make_agent(acme, provider.url))
    make_tool(acme, "calculator")
    make_role(acme, alice)
    make_budget(acme, "each member", scope="member")
    make_budget(acme, "each turn", window="turn")
    make_budget(acme, "at once", measure="turns", window="total")
    with transaction.atomic():
        side = fill(alice, CANARY)
    copy_history(run_with_a_call(session, provider), [alice, *strangers()], [*OTHERS, *SET_UP])
    collector = Collector()

    with collector.collecting():
        collector.source = "turn"
        run_with_a_call(session, provider)
        collector.source = "sweep"
        Housekeeper().sweep()
        collector.source = "metrics"
        assert list(Figures().collect())
        assert list(Figures(by_organisation=True).collect())
        ask_everything(collector, alice, side)
    statements = list(collector.statements.values())

    sources = {"turn", "sweep", "metrics", "GET session_detail", "GET api-sessions"}
    assert {each.source for each in statements} >= sources
    assert not faults(statements), "\n".join(faults(statements))
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        connection.close()  # statistics are read as a connection opens
        assert not faults(statements), "\n".join(faults(statements))


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite never joins what asks for one value")
@pytest.mark.parametrize("has_statistics", [False, True])
def test_choosing_the_next_turn_compares_no_turn_with_all_others(has_statistics: bool) -> None:
    """Before PostgreSQL has read its first statistics as well."""
    members = list(strangers())
    copy_waiting(accepted(make_session(members[0])), members, WAITING, ENDED)
    table = Turn._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"REINDEX TABLE {table}")
        cursor.execute("ANALYZE")
        if not has_statistics:
            cursor.execute("DELETE FROM pg_statistic WHERE starelid = %s::regclass", [table])
            cursor.execute("SELECT pg_clear_relation_stats('public', %s)", [table])

    statement = the_only(queue.look)

    assert rows_read(statement) < 10 * WAITING


def the_only(ask: Callable[[], object]) -> Statement:
    """The one statement that this sends."""
    collector = Collector()
    with collector.collecting():
        ask()
    (statement,) = collector.statements.values()
    return statement


def run_with_a_call(session: ChatSession, provider: ScriptedOpenAI) -> Turn:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+1"})]), Say("2"))
    turn = run(session)
    assert turn.status == TurnStatus.DONE
    assert turn.rounds == 2
    return turn


def strangers() -> Iterable[Membership]:
    for number in range(ORGANISATIONS):
        organisation = make_organisation(f"org-{number}")
        for place in range(MEMBERS):
            yield make_member(organisation, f"member-{number}-{place}")


def ask_everything(collector: Collector, member: Membership, side: OrganisationRows) -> None:
    """Ask each page and each list, and each write of sessions and turns; take back what that changed."""
    for name in KNOWN:
        for way in ROUTES[name].asks:
            if way.method != "GET" and not WRITTEN.search(name):
                continue
            client = client_of(member, ADDRESSES[name])
            collector.source = f"{way.method} {name}"
            with transaction.atomic():
                ask(client, name, way, side)
                transaction.set_rollback(True)


def faults(statements: Iterable[Statement]) -> list[str]:
    return [fault for statement in statements for fault in faults_of(statement)]


def faults_of(statement: Statement) -> list[str]:
    """What the statement reads more of than it needs."""
    found = []
    for access in accesses(statement):
        if access.table not in GROWING or access.index in OPEN or access.rows <= FEW:
            continue
        if connection.vendor == "postgresql" and (access.is_limited or " LIKE " in statement.sql):
            continue  # it counts: it reads an organisation in order where that is soon done, and all to search a text
        is_by_member = f' AND "{access.table}"."membership_id" = %s' in statement.sql
        if not access.columns:
            found.append(f"{statement.source}: all of {access.table} {access.index}: {statement.sql}")
        elif access.columns == ("organisation_id",) and (is_by_member or not access.is_limited):
            found.append(f"{statement.source}: an organisation of {access.table} {access.index}: {statement.sql}")
    return found
