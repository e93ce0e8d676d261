"""Members' own rows over REST: `...In` is the body of a write, `...Out` a row. Limits are those of the writes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from capabilities.assistant.models import CalendarEvent, Message, Task
from capabilities.assistant.records.writes import calendar, household, journals, notebook, people
from capabilities.assistant.records.writes.household import LEAST, MOST
from capabilities.running.records.names import NAME_LIMIT
from capabilities.running.records.serializers import identity, moment, number, page_text, text

MEALS = ("", "breakfast", "lunch", "dinner", "snack")


class TaskIn(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=notebook.TASK_TITLE)
    due = serializers.DateField(allow_null=True, required=False)
    priority = serializers.ChoiceField(Task.Priority.choices, required=False)
    notes = text(notebook.TASK_NOTES)
    status = serializers.ChoiceField(Task.Status.choices, required=False)


class TaskOut(TaskIn):
    id = identity()
    number = number()
    created_at = moment()
    completed_at = moment(allow_null=True)


class ListIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=NAME_LIMIT, help_text="Stands once, whatever its case.")


class ListOut(ListIn):
    id = identity()
    items = serializers.IntegerField(source="item_count")
    unchecked = serializers.IntegerField(source="open_count")


class ListItemIn(serializers.Serializer[Any]):
    list = serializers.CharField(max_length=NAME_LIMIT, help_text="The list's name; a new one makes a new list.")
    text = serializers.CharField(max_length=household.ITEM_TEXT)
    is_checked = serializers.BooleanField(required=False)


class ListItemOut(ListItemIn):
    id = identity()
    number = number()
    list = serializers.CharField(source="list.name")
    created_at = moment()


class GroceryIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=NAME_LIMIT)
    quantity = serializers.DecimalField(
        max_digits=12, decimal_places=3, min_value=LEAST, max_value=MOST, required=False, help_text="1, if left out."
    )
    unit = text(household.UNIT_TEXT, help_text="Such as g, l, pack; empty for pieces.")
    is_bought = serializers.BooleanField(required=False)


class GroceryOut(GroceryIn):
    id = identity()
    number = number()
    created_at = moment()


class JournalIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=NAME_LIMIT, help_text="Stands once, whatever its case.")


class JournalOut(JournalIn):
    id = identity()
    entries = serializers.IntegerField(source="entry_count")


class JournalEntryIn(serializers.Serializer[Any]):
    journal = serializers.CharField(max_length=NAME_LIMIT, help_text="Its name; a new one makes a new journal.")
    title = text(journals.ENTRY_TITLE)
    date = serializers.DateField(required=False, help_text="The day that it is about; today, if left out.")
    text = page_text(journals.ENTRY_TEXT)
    is_hidden = serializers.BooleanField(required=False, help_text="No tool shows a hidden entry.")


class JournalEntryOut(JournalEntryIn):
    id = identity()
    number = number()
    journal = serializers.CharField(source="journal.name")
    created_at = moment()
    updated_at = moment()


class EventIn(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=calendar.TITLE)
    starts_at = moment()
    ends_at = moment(help_text="Where the last day ends, for an event of whole days.")
    is_all_day = serializers.BooleanField(required=False)
    time_zone = serializers.CharField(max_length=64, help_text="An IANA name, such as Europe/Berlin.")
    repeat = serializers.ChoiceField(CalendarEvent.Repeat.choices, required=False)
    repeat_until = serializers.DateField(
        allow_null=True, required=False, help_text="The last day on which it may start."
    )
    place = text(calendar.PLACE)
    notes = text(calendar.NOTES)


class EventOut(EventIn):
    id = identity()
    number = number()
    created_at = moment()
    updated_at = moment()


class PersonIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=people.NAME)
    email = text(people.EMAIL_TEXT)
    phone = text(people.PHONE)
    birthday = text(10, help_text="YYYY-MM-DD, or MM-DD without a year.")
    notes = text(people.NOTES)


class PersonOut(PersonIn):
    id = identity()
    number = number()
    created_at = moment()


class MemoryIn(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=notebook.MEMORY_TEXT)


class MemoryOut(MemoryIn):
    id = identity()
    number = number()
    created_at = moment()


class PageIn(serializers.Serializer[Any]):
    text = page_text(notebook.PAGE_TEXT, allow_blank=True)


class ScratchpadOut(PageIn):
    id = identity()
    updated_at = moment()


class AgentNoteOut(PageIn):
    id = identity()
    agent = serializers.CharField(
        source="agent.slug", allow_null=True, default=None, help_text="Whose notes these are; null if it is gone."
    )
    updated_at = moment()


class FoodEntryIn(serializers.Serializer[Any]):
    food = serializers.CharField(max_length=household.FOOD_TEXT)
    date = serializers.DateField(required=False, help_text="Today, if left out.")
    meal = serializers.ChoiceField(MEALS, required=False)
    kcal = serializers.IntegerField(min_value=0, max_value=household.MOST_KCAL, allow_null=True, required=False)


class FoodEntryOut(FoodEntryIn):
    id = identity()
    number = number()
    created_at = moment()


class RecipeIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=NAME_LIMIT, help_text="Stands once, whatever its case.")
    servings = serializers.IntegerField(min_value=1, max_value=household.MOST_SERVINGS, allow_null=True, required=False)
    ingredients = serializers.CharField(
        max_length=household.INGREDIENTS * (household.FOOD_TEXT + 2), help_text="One a line."
    )
    steps = text(household.STEPS_TEXT)


class RecipeOut(RecipeIn):
    id = identity()
    updated_at = moment()


class PlaceIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=NAME_LIMIT, help_text="Stands once, whatever its case.")
    latitude = serializers.FloatField(min_value=-90, max_value=90)
    longitude = serializers.FloatField(min_value=-180, max_value=180)
    address = text(household.ADDRESS_TEXT)


class PlaceOut(PlaceIn):
    id = identity()


class MessageOut(serializers.Serializer[Message]):
    """A message from another member; it can be read and deleted."""

    id = identity()
    number = number()
    sender = serializers.CharField(source="sender_name")
    text = serializers.CharField()
    created_at = moment()
    read_at = moment(allow_null=True)
