"""The forms of members' own rows. Field names are the arguments of the writes; limits are those of the writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone

from capabilities.assistant.models import CalendarEvent, Task
from capabilities.assistant.records.writes import calendar, household, journals, notebook, people
from capabilities.assistant.records.writes.calendar import whole_days
from capabilities.assistant.records.writes.household import LEAST, MOST
from capabilities.contract.context import ToolError
from capabilities.running.records.forms import RecordForm, choice_field, day_field, moment_field, text_field
from capabilities.running.records.moments import zone_named
from capabilities.running.records.names import NAME_LIMIT

MEALS = (("", "—"), ("breakfast", "Breakfast"), ("lunch", "Lunch"), ("dinner", "Dinner"), ("snack", "Snack"))


class TaskForm(RecordForm):
    title = forms.CharField(max_length=notebook.TASK_TITLE)
    due = day_field(required=False)
    priority = choice_field(Task.Priority.choices, initial=Task.Priority.NORMAL)
    notes = text_field(notebook.TASK_NOTES, required=False)
    status = choice_field(Task.Status.choices)
    later = ("status",)


class NameForm(RecordForm):
    name = forms.CharField(max_length=NAME_LIMIT)


class ListItemForm(RecordForm):
    text = forms.CharField(max_length=household.ITEM_TEXT)
    list = forms.CharField(max_length=NAME_LIMIT, help_text="A new name makes a new list.")
    is_checked = forms.BooleanField(required=False, label="Checked off")
    later = ("is_checked",)


class GroceryForm(RecordForm):
    name = forms.CharField(max_length=NAME_LIMIT)
    quantity = forms.DecimalField(min_value=LEAST, max_value=MOST, initial=1, decimal_places=3)
    unit = forms.CharField(
        max_length=household.UNIT_TEXT, required=False, help_text="Such as g, l, pack; empty for pieces."
    )
    is_bought = forms.BooleanField(required=False, label="Bought")
    later = ("is_bought",)

    @classmethod
    def initial_of(cls, shown: Mapping[str, Any]) -> dict[str, Any]:
        return dict(shown) | {"quantity": f"{float(shown['quantity']):g}"}


class EntryForm(RecordForm):
    journal = forms.CharField(max_length=NAME_LIMIT, help_text="A new name makes a new journal.")
    title = forms.CharField(max_length=journals.ENTRY_TITLE, required=False)
    date = day_field(required=False, help_text="The day that it is about; today where it is empty.")
    text = text_field(journals.ENTRY_TEXT, 12, strip=False)
    is_hidden = forms.BooleanField(required=False, label="Hidden from agents")
    later = ("is_hidden",)

    def values(self) -> dict[str, Any]:
        values = super().values()
        return values | {"date": values["date"] or timezone.localdate()}


class MemoryForm(RecordForm):
    text = text_field(notebook.MEMORY_TEXT, help_text="One fact, understandable on its own.")


class PageForm(RecordForm):
    text = text_field(notebook.PAGE_TEXT, 16, required=False, strip=False)


class PersonForm(RecordForm):
    name = forms.CharField(max_length=people.NAME)
    email = forms.CharField(max_length=people.EMAIL_TEXT, required=False, label="E-mail")
    phone = forms.CharField(max_length=people.PHONE, required=False)
    birthday = forms.CharField(max_length=10, required=False, help_text="YYYY-MM-DD, or MM-DD without a year.")
    notes = text_field(people.NOTES, required=False)


class FoodEntryForm(RecordForm):
    food = forms.CharField(max_length=household.FOOD_TEXT, help_text="What was eaten, with its amount.")
    date = day_field(required=False, help_text="Today where it is empty.")
    meal = choice_field(MEALS, required=False)
    kcal = forms.IntegerField(min_value=0, max_value=household.MOST_KCAL, required=False, label="Kilocalories")

    def values(self) -> dict[str, Any]:
        values = super().values()
        return values | {"date": values["date"] or timezone.localdate()}


class RecipeForm(RecordForm):
    name = forms.CharField(max_length=NAME_LIMIT)
    servings = forms.IntegerField(min_value=1, max_value=household.MOST_SERVINGS, required=False)
    ingredients = text_field(household.INGREDIENTS * (household.FOOD_TEXT + 2), 8, help_text="One a line.")
    steps = text_field(household.STEPS_TEXT, 8, required=False)


class PlaceForm(RecordForm):
    name = forms.CharField(max_length=NAME_LIMIT, help_text="Such as home or office.")
    latitude = forms.FloatField(min_value=-90, max_value=90, help_text="In degrees, north of the equator.")
    longitude = forms.FloatField(min_value=-180, max_value=180, help_text="In degrees, east of Greenwich.")
    address = forms.CharField(max_length=household.ADDRESS_TEXT, required=False)


class EventForm(RecordForm):
    """An event in the local time of its zone. One of whole days goes from the day it starts to the day it ends."""

    title = forms.CharField(max_length=calendar.TITLE)
    starts_at = moment_field(label="Starts")
    ends_at = moment_field(label="Ends", required=False, help_text="An hour later where it is empty.")
    is_all_day = forms.BooleanField(required=False, label="Whole days", help_text="The times of day do not count.")
    time_zone = forms.CharField(max_length=64, initial="UTC", help_text="An IANA name, such as Europe/Berlin.")
    repeat = choice_field(CalendarEvent.Repeat.choices)
    repeat_until = day_field(required=False, label="Repeat until", help_text="The last day on which it may start.")
    place = forms.CharField(max_length=calendar.PLACE, required=False)
    notes = text_field(calendar.NOTES, required=False)

    @classmethod
    def initial_of(cls, shown: Mapping[str, Any]) -> dict[str, Any]:
        zone = ZoneInfo(shown["time_zone"])
        start, end = (datetime.fromisoformat(shown[name]).astimezone(zone) for name in ("starts_at", "ends_at"))
        if shown["is_all_day"]:
            end -= timedelta(minutes=1)
        return dict(shown) | {"starts_at": start.replace(tzinfo=None), "ends_at": end.replace(tzinfo=None)}

    def full_clean(self) -> None:
        """Read the typed times as they are: an hour that the page's zone skips or has twice may be one of the
        event's."""
        with timezone.override(UTC):
            super().full_clean()

    def clean_time_zone(self) -> str:
        name: str = self.cleaned_data["time_zone"]
        try:
            zone_named(name)
        except ToolError as error:
            raise forms.ValidationError(str(error)) from None
        return name

    def values(self) -> dict[str, Any]:
        """Return the values with the typed times in the event's zone; the fields took them for times in UTC."""
        values = super().values()
        zone = ZoneInfo(values["time_zone"])
        start = values["starts_at"].replace(tzinfo=zone)
        end = values["ends_at"].replace(tzinfo=zone) if values["ends_at"] else None
        if values["is_all_day"]:
            start, end = whole_days(start.date(), (end or start).date(), zone)
        return values | {"starts_at": start, "ends_at": end or start + timedelta(hours=1)}
