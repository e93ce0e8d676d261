"""Tables of the personal assistant: what its tools keep for a member."""

from __future__ import annotations

from capabilities.assistant.models.calendar import CalendarEvent, CalendarFeed
from capabilities.assistant.models.household import FoodEntry, GroceryItem, ListItem, NamedList, Place, Recipe
from capabilities.assistant.models.journals import Journal, JournalEntry
from capabilities.assistant.models.knowledge import Entity, Relation, Series, SeriesPoint
from capabilities.assistant.models.memories import Memory
from capabilities.assistant.models.notes import AgentNote, Scratchpad
from capabilities.assistant.models.people import Message, Person
from capabilities.assistant.models.tasks import Task

__all__ = [
    "AgentNote",
    "CalendarEvent",
    "CalendarFeed",
    "Entity",
    "FoodEntry",
    "GroceryItem",
    "Journal",
    "JournalEntry",
    "ListItem",
    "Memory",
    "Message",
    "NamedList",
    "Person",
    "Place",
    "Recipe",
    "Relation",
    "Scratchpad",
    "Series",
    "SeriesPoint",
    "Task",
]
