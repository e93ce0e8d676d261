"""The benchmarks that run in this process say what they promise."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from benchmarks import fill, instant_model, large_organisation, pages, prefix, scenes, tokens, turn_cost
from benchmarks.large_organisation import Size
from benchmarks.many_tools.tally import Tally, Watch, read
from benchmarks.prefix import Row
from benchmarks.up import ROOT
from sessions.models import ChatSession, Step, Turn, TurnEvent


@pytest.mark.lasting
@pytest.mark.django_db(transaction=True)
def test_what_repeats_of_each_request_reaches_its_goal_in_each_loading_mode() -> None:
    dialects = prefix.rows_per_dialect()

    assert list(dialects) == ["chat", "responses"]
    for modes in dialects.values():
        check_modes(modes)
    assert prefix.share(dialects["responses"]["native"]) > prefix.share(dialects["responses"]["constant"])


def check_modes(modes: prefix.Modes) -> None:
    found = prefix.shares(modes)
    assert list(found) == ["next_request", "same_run", "native", "constant"]
    assert 0 < found["next_request"] < 1
    assert 0.6 <= found["same_run"] < 1
    assert 0.9 <= found["constant"] < 1
    for rows in modes.values():
        assert len(rows) == 20
        assert 0 <= prefix.share(rows) - prefix.stored_share(rows) <= prefix.TOLERANCE
    assert changes_of_tools(modes["constant"]) == 0
    assert changes_of_tools(modes["same_run"]) == changes_of_tools(modes["next_request"]) == 4


@pytest.mark.lasting
@pytest.mark.django_db
def test_cx_40_each_step_sends_fewer_tokens_of_definitions() -> None:
    found = tokens.table()
    costs = tokens.session_costs(found)
    told = tokens.summary(found, costs)

    assert len(tokens.NAMES) == told["tools"] == 63
    assert list(found) == list(tokens.MESSAGES)
    for by_step in found.values():
        before, role, keywords, whole = (by_step[step].tokens for step in tokens.SHOWN)
        assert before > role > max(keywords, whole)
        assert {name for name, _ in by_step["before"].tools} >= tokens.NAMES
    assert found["Good morning"]["+ keywords"].tokens < 200
    assert {"web_search", "ae_journal_search"} <= {
        name for name, _ in found["Search journals for X"]["+ keywords"].tools
    }
    assert costs["before"].input_tokens > costs["+ all"].input_tokens
    assert costs["before"].with_cache < costs["before"].without_cache
    text = tokens.as_text(found, costs)
    assert "Simulated, not measured" in text
    assert json.loads(json.dumps(told))["session"]["+ all"]["without_cache"] == costs["+ all"].without_cache


def test_a_simulated_cache_reads_what_begins_as_the_prompt_before() -> None:
    a, b, c = ("a", 10), ("b", 20), ("c", 30)

    assert tokens.common(([a, b], 100), ([a, b], 150)) == 130
    assert tokens.common(([a, b], 100), ([a, c], 150)) == 10
    assert tokens.common(([a, b], 100), ([a, b, c], 150)) == 30
    assert tokens.common(([], 0), ([a], 150)) == 0


def changes_of_tools(rows: Sequence[Row]) -> int:
    return sum(before.tools != after.tools for before, after in pairwise(rows))


def test_what_repeats_is_measured_in_the_order_tools_then_messages() -> None:
    tool = {"type": "function", "function": {"name": "a"}}
    first = {"messages": [{"role": "user", "content": "Hä"}], "model": "m", "tools": [tool]}
    more = {**first, "messages": [*first["messages"], {"role": "assistant", "content": "so"}]}
    other = {**more, "tools": [tool, tool]}
    sent = [prefix.rendering(prefix.compact(each)) for each in (first, more, other)]

    assert sent[0] == '[{"type":"function","function":{"name":"a"}}]{"role":"user","content":"Hä"}'.encode()
    assert prefix.common_bytes(sent[0], sent[1]) == len(sent[0])
    assert prefix.rendering(prefix.compact({"input": [{"a": 1}], "tools": []})) == b'[]{"a":1}'
    assert prefix.common_bytes(sent[1], sent[2]) == len(json.dumps([tool], separators=(",", ":"))) - 1


def test_the_script_of_the_benchmark_has_the_rounds_and_loads_that_it_promises() -> None:
    acts = [act for scene in scenes.SCENES for each in scene.rounds for act in each]

    assert sum(len(scene.rounds) + 1 for scene in scenes.SCENES) == 20
    assert [sum(isinstance(act, kind) for act in acts) for kind in (scenes.Load, scenes.Unload)] == [3, 1]
    assert sorted(len(tools) for tools in scenes.TOOLKITS.values()) == [3, 5, 8]
    assert len(scenes.OWN) == 15


# -- What a turn costs -------------------------------------------------------------------------------------------------


def test_the_instant_model_asks_for_the_first_tool_and_then_answers() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("first", "second")]
    messages = [{"role": "user", "content": "Add."}]
    asked = {"messages": messages, "tools": tools}
    told = {"messages": [*messages, {"role": "tool", "content": "42"}], "tools": tools}

    _, text = instant_model.answer("/v1/chat/completions", json.dumps(asked).encode())
    (call,) = json.loads(text)["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "first"
    _, text = instant_model.answer("/v1/chat/completions", json.dumps(told).encode())
    assert json.loads(text)["choices"][0]["message"] == {"role": "assistant", "content": instant_model.ANSWER}


def test_the_instant_model_streams_where_it_is_asked_to_and_keeps_the_tools() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b", "c")]
    request = {"messages": [{"role": "user", "content": "Add."}], "tools": tools, "stream": True}

    kind, text = instant_model.answer("/v1/chat/completions", json.dumps(request).encode())

    assert kind == "text/event-stream"
    events = [line.removeprefix("data: ") for line in text.decode().splitlines() if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[0])["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "a"
    assert json.loads(instant_model.answer("/tools/3", b"")[1]) == tools


def test_a_database_is_filled_with_whole_turns_in_the_products_tables(tmp_path: Path) -> None:
    assert (ChatSession._meta.db_table, Turn._meta.db_table) == (fill.SESSION, fill.TURN)
    assert (Step._meta.db_table, TurnEvent._meta.db_table) == fill.OF_TURN
    turn_id = uuid4().hex
    with closing(sqlite3.connect(tmp_path / "db")) as connection, connection:
        connection.execute(f"CREATE TABLE {fill.SESSION} (id PRIMARY KEY, title)")
        connection.execute(f"CREATE TABLE {fill.TURN} (id PRIMARY KEY, session_id, seq, created_at, ended_at)")
        connection.execute(f"INSERT INTO {fill.SESSION} VALUES ('s', 'Sums')")
        times = ("2026-01-02 00:00:00.5", None)
        connection.execute(f"INSERT INTO {fill.TURN} VALUES (?, 's', 3, ?, ?)", (turn_id, *times))
        for table in fill.OF_TURN:
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, turn_id, number)")
            connection.executemany(f"INSERT INTO {table} (turn_id, number) VALUES (?, ?)", [(turn_id, 1), (turn_id, 2)])

    fill.add_copies(tmp_path / "db", turn_id, 250)

    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        sessions = connection.execute(f"SELECT title, count(*) FROM {fill.SESSION} GROUP BY 1").fetchall()
        assert sessions == [("Sums", 1 + 3)]
        per_session = f"SELECT count(*), max(seq), count(ended_at) FROM {fill.TURN} GROUP BY session_id ORDER BY 1"
        assert connection.execute(per_session).fetchall() == [(1, 3, 0), (50, 50, 0), (100, 100, 0), (100, 100, 0)]
        newest = connection.execute(f"SELECT max(created_at) FROM {fill.TURN} WHERE id != ?", [turn_id]).fetchone()
        assert newest == ("2026-01-01 23:59:00.500000",)
        for table in fill.OF_TURN:
            parts = f"SELECT count(*), count(DISTINCT id), count(DISTINCT turn_id) FROM {table}"
            assert connection.execute(parts).fetchone() == (502, 502, 251)


def test_the_last_line_has_the_figures_of_the_peers_only_where_they_ran() -> None:
    alone = {"worker": {5: [30.0, 10.0, 20.0], 128: [40.0]}, "web": {5: [9.0]}, "bare": {5: [4.0]}}
    alone |= {"full_worker": {5: [22.0]}, "full_web": {5: [9.0]}}

    counted = turn_cost.Counted(20.0, 6.0, 5.0, 4.0)
    line = turn_cost.summary(alone, counted)
    assert [line[name] for name in ("statements", "commits", "write_commits", "autocommit_reads")] == list(counted)
    assert (line["worker_cpu_ms"], line["ratio_bare"], line["ratio_full_database"]) == (20.0, 5.0, 1.1)
    assert line["ratio_agents_5"] is line["ratio_agents_128"] is None

    line = turn_cost.summary({**alone, "agents": {5: [10.0], 128: [80.0]}}, counted)
    assert (line["ratio_agents_5"], line["ratio_agents_128"]) == (2.0, 0.5)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_asked_to_end_leaves_no_process(number: signal.Signals) -> None:
    script = """
import sys
import time
from benchmarks.ending import to_its_end
from benchmarks.up import child

def main():
    with child(["sleep", "60"]) as process:
        print(process.pid, flush=True)
        time.sleep(60)

sys.exit(to_its_end(main))
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            started = int(process.stdout.readline())
            process.send_signal(number)

            assert process.wait(50) == 130
        finally:
            process.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


def test_reads_outside_of_a_transaction_are_counted_apart_from_commits(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "7")
    watch = Watch(tally)
    connection = SimpleNamespace(in_atomic_block=False)

    def execute(sql: str) -> None:
        watch.statement(lambda *args: None, sql, None, False, {"connection": connection})

    execute("SELECT 1")
    execute("UPDATE t SET a = 1")
    assert read(tmp_path, [7]) == (2, 1, 1, 1)
    execute("BEGIN IMMEDIATE")
    connection.in_atomic_block = True
    execute("SELECT 1")
    watch.commit(connection)
    assert read(tmp_path, [7]) == (4, 2, 1, 1)
    execute("INSERT INTO t VALUES (1)")
    execute("UPDATE t SET a = 1")
    watch.commit(connection)
    assert read(tmp_path, [7]) == (6, 3, 2, 1)


@pytest.mark.lasting
@pytest.mark.django_db
def test_every_page_and_list_that_a_member_reads_is_asked_of_a_filled_organisation() -> None:
    large_organisation.fill(
        Size(tools=30, categories=5, toolkits=4, roles=3, members=5, agents=3, sessions=2, turns=3, records=3)
    )

    found = pages.costs(large_organisation.filled(), tries=1)

    names = {cost.address.split("?")[0] for cost in found}
    assert {"tool_list", "role_matrix", "session_detail", "api-session-toolkits", "api-data-tasks"} <= names
    assert {cost.address: cost.status for cost in found if cost.status not in (200, 302)} == {}
    assert all(cost.bytes > 0 and cost.ms > 0 for cost in found if cost.status == 200)
    totals = pages.summary(found, (1.0, 2.0))
    assert totals["errors"] == []
    assert totals["pages"] == len(found)
    assert totals["largest_bytes"] == max(cost.bytes for cost in found)
