"""`benchmarks/routing.py` on a folder of its own: every kind of row, catalogue and option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import routing

Row = dict[str, Any]


def tool(name: str, description: str, toolkit: str = "") -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": {"type": "object", "properties": {}}}
    return {"type": "function", "function": function, "x_toolkit": toolkit}


CATALOGUE = [
    tool("get_weather", "Get the weather forecast of a city", "weather"),
    tool("play_music", "Play a song of an artist", "music"),
    tool("create_issue", "Create an issue in Jira", "jira"),
    tool("send_email", "Send an e-mail to somebody", "mail"),
]
OTHER = [tool("book_flight", "Book a flight to a city"), tool("rent_car", "Rent a car")]
CATEGORIES = {
    "keywords_code": {"web": ["search", "what is"], "git": ["commit"]},
    "keywords_table": {"git": ["branch"]},
    "tools": {"web": ["web_search"], "git": ["git_log"]},
}
ROWS: dict[str, list[Row]] = {
    "plain": [
        {
            "id": 1,
            "query": "Will it rain in Rome? Show the weather",
            "tools_needed": ["get_weather"],
            "catalogue": "one",
        },
        {"id": 2, "query": "hello", "tools_needed": [], "no_tool": True, "catalogue": "*", "kind": "small_talk"},
        {
            "id": 3,
            "query": "Queen",
            "tools_needed": ["send_email"],
            "alternatives": {"send_email": ["send_email", "play_music"]},
            "catalogue": "one",
            "context": [
                {"role": "user", "content": "Play some music"},
                {"role": "assistant", "content": "Which artist?"},
            ],
            "tools_used_before": ["play_music", "gone"],
            "conversation": "a",
        },
    ],
    "scoped": [
        {
            "id": "s",
            "query": "Book a flight",
            "tools_needed": ["book_flight"],
            "catalogue": "two",
            "scope": ["book_flight"],
        }
    ],
    "asked": [
        {"id": "c1", "query": "show the commits of the branch", "categories_ok": ["git"]},
        {"id": "c2", "query": "good morning", "categories_ok": [], "no_tool": True},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in (
        ("dev/catalogs/one", CATALOGUE),
        ("dev/catalogs/cats", CATEGORIES),
        ("extra/catalogs/two", OTHER),
    ):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    queries = tmp_path / "dev" / "queries"
    queries.mkdir()
    for name, rows in ROWS.items():
        lines = (json.dumps({"no_tool": False, **row}) for row in rows)
        (queries / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_the_figures_and_predictions_of_every_kind_of_row(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "SIZES", (4, 1_000))
    written = folder / "predictions.jsonl"
    arguments = [str(folder / "dev"), "--extra-catalogs", str(folder / "extra"), "--predictions", str(written)]

    assert routing.main(arguments) == 0

    predictions = {
        (each["file"], each["id"]): each["tools"] for each in map(json.loads, written.read_text().splitlines())
    }
    assert len(predictions) == 6
    assert predictions["plain", 1][0] == "get_weather"
    assert predictions["plain", 2] == predictions["asked", "c2"] == []
    assert predictions["plain", 3][0] == "play_music"
    assert predictions["scoped", "s"] == ["book_flight"]
    assert predictions["asked", "c1"][0] == "git"
    printed = capsys.readouterr().out.splitlines()
    figures = json.loads(printed[-1])
    assert (figures["r5"], figures["r10"], figures["r1k"]) == (1.0, 1.0, 1.0)
    assert (figures["false_empty"], figures["false_empty_worst"], figures["small_talk_empty"]) == (0.0, 0.0, 1.0)
    assert (figures["categories_top3"], figures["categories_false_empty"]) == (1.0, 0.0)
    assert figures["keywords_r10"] == figures["fts5_r10"] == 0.5
    assert figures["p95_ms_4"] > 0
    assert figures["p95_ms_1000"] is None
    assert any(line.split()[:3] == ["scoped", "router", "1"] for line in printed)


def test_recall_within_a_budget_is_counted_as_the_scorer_does() -> None:
    tokens = {"dear": 5_000, "a": 600, "b": 400, "c": 1}

    assert routing.within(["dear", "a"], tokens) == 1
    assert routing.within(["a", "b", "c"], tokens) == 2
    assert routing.within([], tokens) == 0


def test_a_folder_without_questions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        routing.main([str(tmp_path)])

    assert "has no folder queries/" in capsys.readouterr().err
