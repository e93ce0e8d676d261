from __future__ import annotations

import pytest

from capabilities.assistant.models import Memory
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.usefixtures("in_acme")


def found(call: Call, query: str = "") -> list[str]:
    return [row["text"] for row in call("memory_search", query=query)["memories"]]


def test_a_stored_fact_is_found_with_its_number_and_day(as_alice: Call) -> None:
    as_alice("memory_store", text=" The user drinks tea. ")
    day = Memory.objects.get().created_at.date().isoformat()

    assert as_alice("memory_search", query="TEA") == {
        "memories": [{"number": 1, "text": "The user drinks tea.", "stored": day}]
    }


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("", ["Straße und ÖL", "green tea", "black tea", "black coffee"]),
        ("black tea", ["black tea", "green tea", "black coffee"]),
        ("BLACK", ["black tea", "black coffee"]),
        ("öl", ["Straße und ÖL"]),
        ("STRASSE", ["Straße und ÖL"]),
        ("what about the tea?", ["green tea", "black tea"]),
        ("wine", []),
        ("???", []),
    ],
)
def test_a_search_ranks_by_matching_words_then_the_newest(as_alice: Call, query: str, texts: list[str]) -> None:
    for text in ("black coffee", "black tea", "green tea", "Straße und ÖL"):
        as_alice("memory_store", text=text)

    assert found(as_alice, query) == texts


def test_the_same_fact_is_kept_once(as_alice: Call) -> None:
    assert as_alice("memory_store", text="tea") == as_alice("memory_store", text="tea")

    assert found(as_alice) == ["tea"]


def test_a_forgotten_fact_is_gone(as_alice: Call) -> None:
    stored = as_alice("memory_store", text="tea")["memory"]

    assert as_alice("memory_forget", number=1) == {"forgotten": stored}

    assert found(as_alice) == []
    with pytest.raises(ToolError, match="There is no memory 1: memory_search shows the numbers"):
        as_alice("memory_forget", number=1)


def test_a_search_shows_twenty_and_says_how_many_more(as_alice: Call, alice: Membership, acme: Organisation) -> None:
    rows = [Memory(organisation=acme, membership=alice, number=number, text="tea") for number in range(1, 24)]
    Memory.objects.bulk_create(rows)

    answer = as_alice("memory_search", query="tea")

    assert ([row["number"] for row in answer["memories"]], answer["more"]) == (list(range(23, 3, -1)), 3)


def test_a_full_memory_refuses_more(as_alice: Call, alice: Membership, acme: Organisation) -> None:
    rows = [Memory(organisation=acme, membership=alice, number=number, text="tea") for number in range(1, 1_001)]
    Memory.objects.bulk_create(rows)

    with pytest.raises(ToolError, match="All 1000 memories are in use"):
        as_alice("memory_store", text="coffee")


def test_nothing_to_remember_is_refused(as_alice: Call) -> None:
    with pytest.raises(ToolError, match="There is nothing to remember"):
        as_alice("memory_store", text=" \0 ")


def test_memories_of_others_do_not_exist(as_alice: Call, as_bob: Call, as_charlie: Call, globex: Organisation) -> None:
    as_alice("memory_store", text="tea")

    with organisation_scope(globex):
        assert found(as_charlie) == []
        with pytest.raises(ToolError, match="There is no memory 1"):
            as_charlie("memory_forget", number=1)
    assert found(as_bob) == []
    with pytest.raises(ToolError, match="There is no memory 1"):
        as_bob("memory_forget", number=1)
    assert found(as_alice) == ["tea"]
