"""A row in every table of the starter tools, with one word in each of its texts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

from capabilities.assistant.models import (
    AgentNote,
    CalendarEvent,
    CalendarFeed,
    Entity,
    FoodEntry,
    GroceryItem,
    Journal,
    JournalEntry,
    ListItem,
    Message,
    NamedList,
    Person,
    Place,
    Recipe,
    Relation,
    Series,
    SeriesPoint,
)
from toolhub.tenants.models import Membership


def fill_starter_tables(member: Membership, word: str) -> None:
    """Made in the scope of the member's organisation."""
    own: dict[str, Any] = {"organisation": member.organisation, "membership": member}
    named = own | {"name": word, "key": word}
    day = date(2026, 11, 18)
    AgentNote.objects.create(**own, former_agent="starter", text=word)
    JournalEntry.objects.create(
        **own, number=1, journal=Journal.objects.create(**named), title=word, text=word, date=day
    )
    ListItem.objects.create(**own, number=1, list=NamedList.objects.create(**named), text=word)
    GroceryItem.objects.create(**named, number=1, quantity=1, unit=word[:20])
    FoodEntry.objects.create(**own, number=1, date=day, food=word, kcal=100)
    Recipe.objects.create(**named, ingredients=word, steps=word)
    Place.objects.create(**named, latitude=52.5, longitude=13.4, address=word)
    Person.objects.create(**own, number=1, name=word, email=f"{word}@example.com", notes=word)
    Message.objects.create(**own, number=1, sender=member, sender_name=word, text=word)
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    CalendarEvent.objects.create(
        **own, number=1, title=word, place=word, notes=word, starts_at=now, ends_at=now, time_zone="UTC"
    )
    CalendarFeed.objects.create(**own, digest=sha256(word.encode()).hexdigest(), created_at=now)
    entity = Entity.objects.create(**named, kind=word, notes=word)
    Relation.objects.create(**own, source=entity, label=word, target=entity)
    SeriesPoint.objects.create(**own, series=Series.objects.create(**named, unit=word), at=now, value=1.0)
