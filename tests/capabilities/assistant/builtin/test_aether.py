from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from capabilities.assistant.builtin import aether
from capabilities.assistant.models import Journal, JournalEntry
from capabilities.assistant.records.writes import journals
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")

ENTRY = {"number": 1, "journal": "Garden", "date": "2026-11-18", "characters": 12}


def write(call: Call, *texts: str, journal: str = "Garden") -> None:
    for text in texts:
        call("ae_journal_entry_create", journal=journal, text=text)


def test_the_first_entry_makes_the_journal(as_alice: Call) -> None:
    answer = as_alice("ae_journal_entry_create", journal=" Garden ", text="planted rose")

    assert answer == {"entry": ENTRY}
    assert as_alice("ae_journal_list") == {"journals": [{"name": "Garden", "entries": 1, "latest": "2026-11-18"}]}


def test_a_journal_is_found_whatever_its_case(as_alice: Call) -> None:
    write(as_alice, "a", journal="Über uns")
    write(as_alice, "b", journal="über  UNS")

    assert as_alice("ae_journal_list")["journals"] == [{"name": "Über uns", "entries": 2, "latest": "2026-11-18"}]


def test_an_entry_is_read_in_full(as_alice: Call) -> None:
    as_alice("ae_journal_entry_create", journal="Garden", text="planted rose", title=" The  rose ", date="yesterday")

    answer = as_alice("ae_journal_entry_read", number=1)

    answer.pop("updated")
    assert answer == ENTRY | {"title": "The rose", "date": "2026-11-17", "text": "planted rose"}


def test_entries_are_listed_the_latest_first(as_alice: Call) -> None:
    for day in ("2026-11-01", "2026-11-03", "2026-11-02"):
        as_alice("ae_journal_entry_create", journal="Garden", text="x" * 300, date=day)

    entries = as_alice("ae_journal_entries_list", journal="garden")["entries"]

    assert [entry["number"] for entry in entries] == [2, 3, 1]
    assert entries[0]["excerpt"] == "x" * 200


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"since": "2026-11-02"}, [3, 2]),
        ({"until": "2026-11-02"}, [2, 1]),
        ({"since": "2026-11-02", "until": "2026-11-02"}, [2]),
        ({"offset": 2}, [1]),
        ({"offset": 9}, []),
    ],
)
def test_a_listing_is_narrowed(as_alice: Call, arguments: dict[str, str], numbers: list[int]) -> None:
    for day in (1, 2, 3):
        as_alice("ae_journal_entry_create", journal="Garden", text="x", date=f"2026-11-0{day}")

    entries = as_alice("ae_journal_entries_list", journal="Garden", **arguments)["entries"]

    assert [entry["number"] for entry in entries] == numbers


def test_a_long_listing_is_cut_and_says_how_much_is_left(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aether, "LIST_LIMIT", 2)
    write(as_alice, "a", "b", "c", "d")

    listing = as_alice("ae_journal_entries_list", journal="Garden", offset=1)

    assert ([entry["number"] for entry in listing["entries"]], listing["more"]) == ([3, 2], 1)


@pytest.mark.parametrize(
    ("query", "numbers"),
    [("rose", [3, 1]), ("ROSE planted", [1]), ("garten ÖL", [2]), ("tulip", [])],
)
def test_a_search_finds_entries_with_all_words(as_alice: Call, query: str, numbers: list[int]) -> None:
    write(as_alice, "planted the rose", "öl für den Garten", "the rose is dead")

    found = as_alice("ae_journal_search", query=query)["found"]

    assert [entry["number"] for entry in found] == numbers


def test_a_search_shows_the_place_and_may_be_of_one_journal(as_alice: Call) -> None:
    write(as_alice, "x" * 500 + " rose " + "y" * 500)
    write(as_alice, "rose", journal="Work")

    (found,) = as_alice("ae_journal_search", query="rose", journal="Garden")["found"]

    assert "rose" in found["excerpt"]
    assert len(found["excerpt"]) == 200


def test_many_results_are_cut(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aether, "SEARCH_LIMIT", 2)
    write(as_alice, "a", "a", "a")

    assert as_alice("ae_journal_search", query="a")["more"] == 1


def test_an_update_changes_what_it_names_and_nothing_else(as_alice: Call) -> None:
    write(as_alice, "planted rose")

    as_alice("ae_journal_entry_update", number=1, title="Rose", date="2026-11-01")

    row = JournalEntry.objects.get()
    assert (row.title, row.text, row.date) == ("Rose", "planted rose", date(2026, 11, 1))


def test_appending_and_prepending_add_a_line(as_alice: Call) -> None:
    write(as_alice, "middle")

    as_alice("ae_journal_entry_append", number=1, text="end")
    answer = as_alice("ae_journal_entry_prepend", number=1, text="start")

    assert answer["entry"]["characters"] == 16
    assert as_alice("ae_journal_entry_read", number=1)["text"] == "start\nmiddle\nend"


def test_a_full_entry_takes_no_more(as_alice: Call) -> None:
    write(as_alice, "x" * 100_000)

    for name in ("ae_journal_entry_append", "ae_journal_entry_prepend"):
        with pytest.raises(ToolError, match="at most 100000 characters: write a new one"):
            as_alice(name, number=1, text="y")


def test_a_disabled_entry_is_hidden_everywhere_and_stays_stored(as_alice: Call) -> None:
    write(as_alice, "rose", "tulip")

    assert as_alice("ae_journal_entry_disable", number=1) == "Entry 1 is hidden."
    assert as_alice("ae_journal_entry_disable", number=1) == "Entry 1 is hidden."

    assert as_alice("ae_journal_list")["journals"][0]["entries"] == 1
    assert [each["number"] for each in as_alice("ae_journal_entries_list", journal="Garden")["entries"]] == [2]
    assert as_alice("ae_journal_search", query="rose") == {"found": []}
    for name, arguments in (
        ("ae_journal_entry_read", {}),
        ("ae_journal_entry_update", {"text": "x"}),
        ("ae_journal_entry_append", {"text": "x"}),
        ("ae_journal_entry_prepend", {"text": "x"}),
    ):
        with pytest.raises(ToolError, match="no journal entry 1: ae_journal_entries_list shows"):
            as_alice(name, number=1, **arguments)
    assert JournalEntry.objects.get(number=1).text == "rose"


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("ae_journal_entries_list", {"journal": "none"}, "There is no journal none: ae_journal_list shows them"),
        ("ae_journal_search", {"query": "x", "journal": "none"}, "There is no journal none"),
        ("ae_journal_search", {"query": "?!"}, "Name at least one word"),
        ("ae_journal_entry_create", {"journal": " ", "text": "x"}, "A journal needs a name"),
        ("ae_journal_entry_create", {"journal": "\ufdfa" * 100, "text": "x"}, "at most 200 characters"),
        ("ae_journal_entry_create", {"journal": "a", "text": "x", "date": "soonish"}, "'soonish' is not a date"),
        ("ae_journal_entry_update", {"number": 1}, "Say what to change: text, title or date"),
        ("ae_journal_entry_update", {"number": 1, "title": "x"}, "There is no journal entry 1"),
        ("ae_journal_entry_disable", {"number": 1}, "There is no journal entry 1"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)


def test_journals_are_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "A_JOURNAL", replace(journals.A_JOURNAL, limit=1))
    write(as_alice, "a", "b")

    with pytest.raises(ToolError, match="All 1 journals are in use"):
        write(as_alice, "c", journal="Second")
    assert Journal.objects.count() == 1


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("name", "arguments", "queries"),
    [
        ("ae_journal_list", {}, 2),
        ("ae_journal_entries_list", {"journal": "j0"}, 3),
        ("ae_journal_search", {"query": "text"}, 1),
    ],
)
def test_listings_take_a_fixed_number_of_queries(
    as_alice: Call,
    count: int,
    name: str,
    arguments: dict[str, str],
    queries: int,
    django_assert_num_queries: pytest.FixtureRequest,
) -> None:
    for number in range(count):
        write(as_alice, "text", "text", journal="j0")
        write(as_alice, "text", journal=f"j{number}")

    with django_assert_num_queries(queries):  # type: ignore[operator]
        as_alice(name, **arguments)
