"""A history for plans to be read on: tens of thousands of rows, copied in the database from rows that are there.

Several organisations with several members each, so that no one of them owns a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, models, transaction
from django.db.models import OuterRef, Subquery

from capabilities.models import Grant, GrantRequest
from sessions.models import Approval, BudgetPeriod, ChatSession, LoadedToolkit, Reminder, Step, StepFile, TrialRun, Turn
from tests.postgres import ask_no_foreign_keys
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import system_scope

#: Sessions, and turns in each of them.
SESSIONS, TURNS = 4_000, 5
#: Rows of every other table that grows.
OTHERS = 10_000
#: SQL for fields of rows that are over: of these tables, few rows are not.
OVER: dict[type[TenantModel], dict[str, str]] = {
    Approval: {"status": "'approved'"},
    Grant: {"expires_at": "t.created_at", "lapsed_at": "t.created_at"},
    GrantRequest: {"status": "'refused'", "grant": "NULL"},
    LoadedToolkit: {"unloaded_at": "t.loaded_at"},
    Reminder: {"fired_at": "t.due_at"},
    TrialRun: {"status": "'done'", "ended_at": "t.created_at"},
}
#: Copied keys begin here.
FIRST = 1_000_000


def copy_history(turn: Turn, members: Sequence[Membership], others: Sequence[type[TenantModel]]) -> None:
    """Copy an ended turn with its session, steps and events, and the first row of each other table, again and again.

    Sessions go to the members by turns, and so do the other tables' rows that have a member.
    """
    with system_scope():
        owner = {"organisation": organisation_of("n.i", members), "membership": member_of("n.i", members)}
        copy(ChatSession, turn.session_id, SESSIONS, {"id": uuid_of("n.i"), "parent_turn": "NULL", **owner})
        session = f"(n.i / {TURNS})"
        owner = {"organisation": organisation_of(session, members), "membership": member_of(session, members)}
        keys = {"id": uuid_of("n.i"), "session": uuid_of(session), "seq": f"n.i %% {TURNS} + 1"}
        copy(Turn, turn.pk, SESSIONS * TURNS, keys | owner | {"idempotency_key": "''", "parent_step": "NULL"})
        for model in (turn.steps.model, turn.events.model, turn.reservations.model):
            for row in model.objects.filter(turn=turn):
                keys = {"turn": uuid_of("n.i"), "organisation": owner["organisation"]}
                copy(model, row.pk, SESSIONS * TURNS, keys)
        hang_some_below_others()
        for other in others:
            copy_table(other, members)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE")


def copy_waiting(turn: Turn, members: Sequence[Membership], waiting: int, ended: int) -> None:
    """Copy a queued turn with its session: so many that wait, the members by turns, and so many that have ended."""
    with system_scope():
        owner = {"organisation": organisation_of("n.i", members), "membership": member_of("n.i", members)}
        keys = {"id": uuid_of("n.i"), "session": uuid_of("n.i"), "seq": "1", **owner}
        over = {"status": f"CASE WHEN n.i < {waiting} THEN t.status ELSE 'done' END"}
        for name in ("ended_at", "claimed_at"):
            over[name] = f"CASE WHEN n.i < {waiting} THEN NULL ELSE t.created_at END"
        copy(ChatSession, turn.session_id, waiting + ended, {"id": uuid_of("n.i"), "parent_turn": "NULL", **owner})
        copy(Turn, turn.pk, waiting + ended, keys | over)


def hang_some_below_others() -> None:
    """One turn of each session was asked for by another, and a tenth of the sessions were opened for one."""
    last_step = Step.objects.filter(turn=OuterRef("pk")).order_by("-index").values("pk")[:1]
    Turn.objects.filter(seq=TURNS).update(parent_step=Subquery(last_step))
    below = ChatSession.objects.order_by("pk").values_list("pk", flat=True)[: SESSIONS // 10]
    first_turn = Turn.objects.filter(session=OuterRef("pk"), seq=1).values("pk")[:1]
    ChatSession.objects.filter(pk__in=list(below)).update(parent_turn=Subquery(first_turn), depth=1)


def copy_table(model: type[TenantModel], members: Sequence[Membership]) -> None:
    names = {field.name for field in model._meta.concrete_fields}
    changed = {"organisation": organisation_of("n.i", members)}
    if "membership" in names:
        changed["membership"] = member_of("n.i", members)
    if "session" in names:
        changed["session"] = uuid_of(f"n.i %% {SESSIONS}")
        changed["organisation"] = organisation_of(f"n.i %% {SESSIONS}", members)
    for field in model._meta.concrete_fields:
        if isinstance(field, models.UUIDField) and field.unique:
            changed[field.name] = new_uuid()
        elif isinstance(field, models.CharField) and (field.unique or field.name in ("key", "name")):
            changed[field.name] = "'copy ' || n.i"
    for name in {"number"} & names:
        changed[name] = f"{FIRST} + n.i"
    if model in (Approval, StepFile):  # each names a turn and a step of its own
        changed |= {"turn": uuid_of("n.i"), "step": f"(SELECT MAX(id) FROM {Step._meta.db_table}) - n.i"}
    if model is BudgetPeriod:  # a window each hour
        for name in ("starts_at", "ends_at"):
            hours = f"t.{name} - n.i * interval '1 hour'"
            changed[name] = hours if is_postgresql() else f"datetime(t.{name}, '-' || n.i || ' hours')"
    changed |= OVER.get(model, {})
    first = model._base_manager.order_by("pk").values_list("pk", flat=True)[0]
    copy(model, first, OTHERS, changed)


def copy(model: type[models.Model], pk: Any, count: int, changed: Mapping[str, str]) -> None:
    """Insert `count` copies of one row. `changed` holds SQL for fields that differ, in which `n.i` counts from 0."""
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    columns = ", ".join(quoted(field.column) for field in fields)
    own = {"public_id": new_uuid(), **changed}
    values = ", ".join(own.get(field.name, f"t.{quoted(field.column)}") for field in fields)
    table, key = quoted(model._meta.db_table), model._meta.pk
    assert key is not None
    with transaction.atomic(), connection.cursor() as cursor:
        ask_no_foreign_keys(cursor)
        cursor.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %s) "
            f"INSERT INTO {table} ({columns}) SELECT {values} FROM {table} t, n WHERE t.{quoted(key.column)} = %s",
            [count, key.get_db_prep_value(pk, connection)],
        )


def quoted(name: str | None) -> str:
    assert name is not None
    return connection.ops.quote_name(name)


def is_postgresql() -> bool:
    return connection.vendor == "postgresql"


def new_uuid() -> str:
    return "gen_random_uuid()" if is_postgresql() else "lower(hex(randomblob(16)))"


def uuid_of(number: str) -> str:
    """SQL for the key of the copy with this number."""
    if connection.vendor == "postgresql":
        return f"lpad(to_hex({FIRST} + {number}), 32, '0')::uuid"
    return f"printf('%%032x', {FIRST} + {number})"


def member_of(number: str, members: Sequence[Membership]) -> str:
    return chosen(number, [member.pk for member in members])


def organisation_of(number: str, members: Sequence[Membership]) -> str:
    return chosen(number, [member.organisation_id for member in members])


def chosen(number: str, values: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {place} THEN {value}" for place, value in enumerate(values))
    return f"CASE ({number}) %% {len(values)} {cases} END"
