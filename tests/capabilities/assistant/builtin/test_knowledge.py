"""`knowledge`: one search over memories, journals and the agent's own notes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import capabilities.assistant.builtin.aether
import capabilities.assistant.builtin.notes  # noqa: F401 -- each registers its tools
from capabilities.assistant.builtin._lib.passages import EXCERPT, Passage, best_of
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.conftest import Call
from tests.cast import make_agent
from toolhub.tenants.models import Membership, Organisation

pytestmark = pytest.mark.usefixtures("in_acme")


def found(call: Call, query: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = call("knowledge", query=query)["found"]
    return listed


def test_one_search_finds_memories_journals_and_notes_and_says_where_from(as_alice: Call) -> None:
    as_alice("memory_store", text="Alice drinks green tea.")
    as_alice("ae_journal_entry_create", journal="Garden", text="Planted tea.", title="Spring", date="2026-03-01")
    as_alice("agent_notes_write", text="Be short.\n\nServe tea at four.")

    assert found(as_alice, "tea") == [
        {"from": "memory", "number": 1, "excerpt": "Alice drinks green tea."},
        {
            "from": "journal",
            "journal": "Garden",
            "number": 1,
            "date": "2026-03-01",
            "title": "Spring",
            "excerpt": "Planted tea.",
        },
        {"from": "notes", "excerpt": "Serve tea at four."},
    ]


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("green tea", ["green tea", "tea again", "black tea with milk"]),
        ("what about milk?", ["black tea with milk"]),
        ("MILK tea", ["black tea with milk", "tea again", "green tea"]),
        ("straße", ["STRASSE"]),
        ("wine", []),
    ],
)
def test_the_best_match_is_first_and_rare_words_count_more(as_alice: Call, query: str, texts: list[str]) -> None:
    for text in ("green tea", "black tea with milk", "tea again", "STRASSE"):
        as_alice("memory_store", text=text)

    assert [row["excerpt"] for row in found(as_alice, query)] == texts


def test_a_word_of_a_title_counts_more(as_alice: Call) -> None:
    as_alice("ae_journal_entry_create", journal="Work", text="A release.", title="Notes")
    as_alice("ae_journal_entry_create", journal="Work", text="Something.", title="Release")

    assert [row["number"] for row in found(as_alice, "release")] == [2, 1]


def test_a_long_text_is_shown_around_the_word(as_alice: Call) -> None:
    as_alice("ae_journal_entry_create", journal="Work", text="before " * 400 + "needle" + " behind" * 400)

    (row,) = found(as_alice, "needle")

    assert "needle" in row["excerpt"]
    assert len(row["excerpt"]) <= EXCERPT + 4
    assert (row["excerpt"][:2], row["excerpt"][-2:]) == ("… ", " …")


def test_what_is_hidden_or_another_agents_or_members_is_not_found(
    as_alice: Call,
    as_bob: Call,
    alice: Membership,
    acme: Organisation,
    context: ToolContext,
) -> None:
    as_bob("memory_store", text="tea of Bob")
    as_alice("ae_journal_entry_create", journal="Work", text="tea that is hidden")
    as_alice("ae_journal_entry_disable", number=1)
    of_agent = dataclasses.replace(
        context, organisation_id=acme.pk, membership_id=alice.pk, agent_id=make_agent(acme).pk
    )
    registry.tools["agent_notes_write"].call(of_agent, {"text": "tea of an agent"})

    assert found(as_alice, "tea") == []
    assert registry.tools["knowledge"].call(of_agent, {"query": "tea"})["found"] == [
        {"from": "notes", "excerpt": "tea of an agent"}
    ]


@pytest.mark.parametrize("query", ["???", "   "])
def test_a_query_without_words_is_refused(as_alice: Call, query: str) -> None:
    with pytest.raises(ToolError, match="Name at least one word to look for"):
        as_alice("knowledge", query=query)


def test_more_than_is_shown_is_counted(as_alice: Call) -> None:
    for number in range(23):
        as_alice("memory_store", text=f"tea {number}")

    told = as_alice("knowledge", query="tea")

    assert (len(told["found"]), told["more"]) == (20, 3)


def test_a_number_of_words_and_texts_asks_the_database_the_same(as_alice: Call, django_assert_num_queries: Any) -> None:
    for number in range(3):
        as_alice("memory_store", text=f"tea {number}")
        as_alice("ae_journal_entry_create", journal=f"Work {number}", text="tea")

    with django_assert_num_queries(3):
        as_alice("knowledge", query="tea and milk and wine")


def test_a_text_that_grows_when_it_is_compared_is_shown_all_the_same() -> None:
    assert best_of([Passage({}, "ﷺ" * 400 + " tea")], ["tea"]) != []
