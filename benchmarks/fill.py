"""Copies one turn of a SQLite database many times, with its session, steps and events: a history, without the wait."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

Row = dict[str, Any]

TURNS_A_SESSION = 100
SESSION, TURN = "toolhub_sessions_chatsession", "toolhub_sessions_turn"
#: Tables whose rows go with a turn.
OF_TURN = ("toolhub_sessions_step", "toolhub_sessions_turnevent")
TURNS_AT_ONCE = 1000


def add_copies(database: Path, turn_id: str, count: int) -> None:
    """Store `count` copies of a turn that has ended, TURNS_A_SESSION to a session, each a minute older than the last.

    Every column is copied but keys and times, so that a copy is all that a real turn leaves in these tables.
    """
    with closing(sqlite3.connect(database, timeout=60.0, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        (turn,) = rows(connection, TURN, "id", turn_id.replace("-", ""))
        (session,) = rows(connection, SESSION, "id", turn["session_id"])
        parts = {table: rows(connection, table, "turn_id", turn["id"]) for table in OF_TURN}
        for first in range(0, count, TURNS_AT_ONCE):
            batch: dict[str, list[Row]] = {SESSION: [], TURN: [], **{table: [] for table in OF_TURN}}
            for number in range(first, min(count, first + TURNS_AT_ONCE)):
                if number % TURNS_A_SESSION == 0:
                    batch[SESSION].append(older(session, number) | {"id": uuid.uuid4().hex})
                    current = batch[SESSION][-1]["id"]
                keys = {"id": uuid.uuid4().hex, "session_id": current, "seq": number % TURNS_A_SESSION + 1}
                batch[TURN].append(older(turn, number) | keys)
                for table, found in parts.items():
                    batch[table] += [fresh(older(row, number)) | {"turn_id": keys["id"]} for row in found]
            connection.execute("BEGIN IMMEDIATE")
            for table, made in batch.items():
                insert(connection, table, made)
            connection.execute("COMMIT")


def rows(connection: sqlite3.Connection, table: str, column: str, value: Any) -> list[Row]:
    return [dict(row) for row in connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", [value])]


def insert(connection: sqlite3.Connection, table: str, made: list[Row]) -> None:
    if made:
        names = ", ".join(f'"{name}"' for name in made[0])
        marks = ", ".join("?" * len(made[0]))
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", map(tuple, values_of(made)))


def values_of(made: list[Row]) -> Iterator[Any]:
    return (row.values() for row in made)


def older(row: Row, minutes: int) -> Row:
    """The row with all its times so much earlier."""
    return row | {
        name: str(datetime.fromisoformat(value) - timedelta(minutes=minutes + 1))
        for name, value in row.items()
        if name.endswith("_at") and value is not None
    }


def fresh(row: Row) -> Row:
    """Without the key, which the database gives, and with another public one, where there is one."""
    public = {"public_id": uuid.uuid4().hex} if "public_id" in row else {}
    return {name: value for name, value in row.items() if name != "id"} | public
