"""The address book."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from django.db import transaction

from capabilities.assistant.models import Person
from capabilities.models.numbered import Owner
from capabilities.running.records.names import one_line
from capabilities.running.records.own import RecordRefused, own_rows
from capabilities.running.records.rows import create_numbered

#: People that a member can keep, so that a search over all of them stays quick.
PEOPLE = 2_000
NAME = 200
EMAIL_TEXT = 254
PHONE = 50
NOTES = 5_000

BIRTHDAY = re.compile(r"(?:(\d{4})-|--)?(\d{1,2})-(\d{1,2})", re.ASCII)
EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
#: A year with a 29 February, for birthdays without one.
LEAP = 2000


@transaction.atomic
def create_person(
    owner: Owner, *, name: str, email: str = "", phone: str = "", birthday: str = "", notes: str = ""
) -> Person:
    """Add a person. `birthday` is YYYY-MM-DD, or MM-DD without a year. Raises RecordRefused for a full address book,
    and for a field that is not taken."""
    if own_rows(Person, owner).count() >= PEOPLE:
        raise RecordRefused(f"The address book holds at most {PEOPLE} people: remove some first.")
    fields = _columns({"name": name, "email": email, "phone": phone, "birthday": birthday, "notes": notes})
    return create_numbered(Person, owner, **fields)


def change_person(owner: Owner, person: Person, **changes: str) -> None:
    """`changes`: name, email, phone, birthday, notes; an empty text takes the old one away."""
    own_rows(Person, owner).filter(pk=person.pk).update(**_columns(changes))


def _columns(given: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {key: text.strip() for key, text in given.items()}
    if "name" in fields:
        fields["name"] = one_line(fields["name"], "A person needs a name.")
    if fields.get("email") and not EMAIL.fullmatch(fields["email"]):
        raise RecordRefused(f"{fields['email']!r} is no e-mail address.", "email")
    if "birthday" in fields:
        fields |= _birthday(fields.pop("birthday"))
    return fields


def _birthday(text: str) -> dict[str, int | None]:
    year = month = day = None
    if text and text.lower() != "none":
        found = BIRTHDAY.fullmatch(text)
        try:
            if found is None:
                raise ValueError(text)
            year, month, day = int(found[1]) if found[1] else None, int(found[2]), int(found[3])
            date(year or LEAP, month, day)
        except ValueError:
            raise RecordRefused(f"{text!r} is no birthday: write it as YYYY-MM-DD, or as MM-DD.", "birthday") from None
    return {"birth_year": year, "birth_month": month, "birth_day": day}
