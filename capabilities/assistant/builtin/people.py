"""A member's address book. Colleagues are no part of it, unless the member writes them down."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Any

from django.db.models import QuerySet
from pydantic import Field

from capabilities.assistant.models import Person
from capabilities.assistant.records.writes.people import EMAIL_TEXT, NAME, NOTES, PHONE, change_person, create_person
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import folded, holds_all, words_of
from capabilities.running.records.own import own_rows, remove_row
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="people",
    title="People",
    description="The member's address book, with birthdays.",
    keywords=(
        "people",
        "person",
        "contact",
        "contacts",
        "address book",
        "phone number",
        "birthday",
        "birthdays",
        "email address",
    ),
    is_core=True,
)

#: People that one search answers with.
SEARCH_LIMIT = 50

Number = Annotated[int, Field(description="The person's number.")]
Name = Annotated[str, Field(max_length=NAME), WITHOUT_NUL]
Email = Annotated[str, Field(max_length=EMAIL_TEXT), WITHOUT_NUL]
Phone = Annotated[str, Field(max_length=PHONE), WITHOUT_NUL]
Birthday = Annotated[str, Field(description="YYYY-MM-DD, or MM-DD without a year.", max_length=10)]
Notes = Annotated[str, Field(max_length=NOTES), WITHOUT_NUL]


@tool(category="people", effect="read", human_format="Searching the address book")
def people_search(
    context: ToolContext,
    query: Annotated[
        str, Field(description="Words of name, e-mail, phone or notes; empty for all.", max_length=200)
    ] = "",
    birthday_within_days: Annotated[int | None, Field(description="Only birthdays that soon.", ge=0, le=366)] = None,
) -> dict[str, Any]:
    """Find people in the user's address book; with birthday_within_days those with a birthday soon, the next first."""
    today = context.now().date()
    words = words_of(query)
    # Compared here and not in the database: SQLite ignores case in ASCII letters only.
    found = [row for row in _mine(context) if holds_all(words, row.name, row.email, row.phone, row.notes)]
    found.sort(key=lambda person: (folded(person.name), person.number))
    rows = [_as_json(person) for person in found]
    if birthday_within_days is not None:
        rows = _birthdays(found, today, birthday_within_days)
    return {"people": rows[:SEARCH_LIMIT]} | ({"more": len(rows) - SEARCH_LIMIT} if len(rows) > SEARCH_LIMIT else {})


@tool(category="people", effect="write", human_format="Adding {name} to the address book")
def people_add(
    context: ToolContext, name: Name, email: Email = "", phone: Phone = "", birthday: Birthday = "", notes: Notes = ""
) -> dict[str, Any]:
    """Add a person to the user's address book. Search first: a name may be there already."""
    person = create_person(context, name=name, email=email, phone=phone, birthday=birthday, notes=notes)
    return {"person": _as_json(person)}


# Setting the same values a second time changes nothing, so a crash may be followed by another try.
@tool(category="people", effect="write", on_crash="retry", human_format="Changing person {number}")
def people_update(
    context: ToolContext,
    number: Number,
    name: Name | None = None,
    email: Email | None = None,
    phone: Phone | None = None,
    birthday: Birthday | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Change a person of the address book; what is left out stays, an empty text takes the old one away."""
    given = {"name": name, "email": email, "phone": phone, "birthday": birthday, "notes": notes}
    changes = {key: text for key, text in given.items() if text is not None}
    if not changes:
        raise ToolError("Say what to change: name, email, phone, birthday or notes.")
    change_person(context, _person(context, number), **changes)
    return {"person": _as_json(_person(context, number))}


# No retry after a crash: the highest number is given again, so a repeat could remove a newer person.
@tool(category="people", effect="write", human_format="Removing person {number}")
def people_remove(context: ToolContext, number: Number) -> dict[str, Any]:
    """Remove a person from the user's address book."""
    person = _person(context, number)
    remove_row(context, person)
    return {"removed": _as_json(person)}


def days_to_birthday(person: Person, today: date) -> int | None:
    """Days until the next one, 0 today; None where it is not known. Who was born on 29 February has it on the 28th in
    other years."""
    if not person.birth_month or not person.birth_day:
        return None
    for year in (today.year, today.year + 1):
        birthday = _in_year(year, person.birth_month, person.birth_day)
        if birthday >= today:
            return (birthday - today).days
    return None


def _in_year(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        return date(year, month, day - 1)


def _mine(context: ToolContext) -> QuerySet[Person]:
    return own_rows(Person, context)


def _person(context: ToolContext, number: int) -> Person:
    person = _mine(context).filter(number=number).first()
    if person is None:
        raise ToolError(f"There is no person {number}: people_search shows the numbers.")
    return person


def _birthdays(people: list[Person], today: date, within: int) -> list[dict[str, Any]]:
    """Return the people with a birthday that soon, the next first; in how many days, and how old it makes them."""
    soon = [(days, person) for person in people if (days := days_to_birthday(person, today)) is not None]
    rows = []
    for days, person in sorted(soon, key=lambda each: each[0]):
        if days <= within:
            year = (today + timedelta(days=days)).year
            turns = {"turns": year - person.birth_year} if person.birth_year else {}
            rows.append(_as_json(person) | {"in_days": days} | turns)
    return rows


def _as_json(person: Person) -> dict[str, Any]:
    row: dict[str, Any] = {"number": person.number, "name": person.name}
    row |= {key: getattr(person, key) for key in ("email", "phone") if getattr(person, key)}
    row |= {"birthday": person.birthday} if person.birthday else {}
    return row | ({"notes": person.notes} if person.notes else {})
