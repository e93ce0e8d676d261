from __future__ import annotations

from datetime import date

import pytest

from capabilities.assistant.builtin import people
from capabilities.assistant.models import Person
from capabilities.assistant.records.writes import people as writes
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")

ADA = {
    "number": 1,
    "name": "Ada Lovelace",
    "email": "ada@example.com",
    "phone": "+44 1",
    "birthday": "1815-12-10",
    "notes": "likes numbers",
}


def add_ada(call: Call) -> None:
    call("people_add", **{key: value for key, value in ADA.items() if key != "number"})


def test_a_person_is_added_and_found(as_alice: Call) -> None:
    assert as_alice("people_add", name=" Jürgen  Ärmel ") == {"person": {"number": 1, "name": "Jürgen Ärmel"}}

    assert as_alice("people_search", query="JÜRGEN ä") == {"people": [{"number": 1, "name": "Jürgen Ärmel"}]}


@pytest.mark.parametrize("query", ["", "ada", "lovelace ADA", "example", "44", "numbers"])
def test_every_field_is_searched(as_alice: Call, query: str) -> None:
    add_ada(as_alice)

    assert as_alice("people_search", query=query) == {"people": [ADA]}


def test_without_a_match_nobody_is_found(as_alice: Call) -> None:
    add_ada(as_alice)

    assert as_alice("people_search", query="ada bob") == {"people": []}


def test_birthdays_come_the_next_first(as_alice: Call) -> None:
    add_ada(as_alice)
    as_alice("people_add", name="Bo", birthday="11-18")
    as_alice("people_add", name="Cy", birthday="--11-17")
    as_alice("people_add", name="Di")

    assert as_alice("people_search", birthday_within_days=30) == {
        "people": [
            {"number": 2, "name": "Bo", "birthday": "11-18", "in_days": 0},
            ADA | {"in_days": 22, "turns": 211},
        ]
    }


@pytest.mark.parametrize(
    ("today", "days"), [(date(2027, 2, 27), 1), (date(2027, 2, 28), 0), (date(2028, 2, 28), 1), (date(2027, 3, 1), 365)]
)
def test_a_birthday_on_29_february_comes_every_year(today: date, days: int) -> None:
    assert people.days_to_birthday(Person(birth_month=2, birth_day=29), today) == days


def test_an_update_changes_what_it_names_and_nothing_else(as_alice: Call) -> None:
    add_ada(as_alice)

    answer = as_alice("people_update", number=1, phone="", birthday="12-11", email="a@b")

    expected = ADA | {"email": "a@b", "birthday": "12-11"}
    expected.pop("phone")
    assert answer == {"person": expected}


def test_a_birthday_is_taken_away(as_alice: Call) -> None:
    add_ada(as_alice)

    assert "birthday" not in as_alice("people_update", number=1, birthday="none")["person"]


def test_a_person_is_removed(as_alice: Call) -> None:
    add_ada(as_alice)

    assert as_alice("people_remove", number=1) == {"removed": ADA}

    assert as_alice("people_search") == {"people": []}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("people_add", {"name": " "}, "A person needs a name"),
        ("people_add", {"name": "x", "email": "nobody"}, "'nobody' is no e-mail address"),
        ("people_add", {"name": "x", "birthday": "tomorrow"}, "'tomorrow' is no birthday: write it as YYYY-MM-DD"),
        ("people_add", {"name": "x", "birthday": "2027-02-29"}, "is no birthday"),
        ("people_update", {"number": 1}, "Say what to change"),
        ("people_update", {"number": 1, "name": ""}, "A person needs a name"),
        ("people_update", {"number": 7, "name": "x"}, "There is no person 7: people_search shows"),
        ("people_remove", {"number": 7}, "There is no person 7"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    as_alice("people_add", name="Ada")

    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)


def test_the_address_book_and_a_search_are_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "PEOPLE", 3)
    monkeypatch.setattr(people, "SEARCH_LIMIT", 2)
    for name in ("c", "B", "a"):
        as_alice("people_add", name=name)

    answer = as_alice("people_search")

    assert ([each["name"] for each in answer["people"]], answer["more"]) == (["a", "B"], 1)
    with pytest.raises(ToolError, match="at most 3 people"):
        as_alice("people_add", name="d")


@pytest.mark.parametrize("count", [1, 3])
def test_a_search_takes_one_query(as_alice: Call, count: int, django_assert_num_queries: pytest.FixtureRequest) -> None:
    for _ in range(count):
        as_alice("people_add", name="x", birthday="11-20")

    with django_assert_num_queries(1):  # type: ignore[operator]
        as_alice("people_search", birthday_within_days=9)
