"""The kinds of rows that members keep, in the order of the page. Rooms above provide further ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from capabilities.assistant.models import (
    AgentNote,
    CalendarEvent,
    FoodEntry,
    GroceryItem,
    Journal,
    JournalEntry,
    ListItem,
    Memory,
    Message,
    NamedList,
    Person,
    Place,
    Recipe,
    Scratchpad,
    Task,
)
from capabilities.assistant.records import forms, serializers
from capabilities.assistant.records.writes import calendar, household, journals, notebook, people
from capabilities.running.records.kind import Kind, RecordLine, State, Switch, short
from toolhub.tenants.provided import ProvidedByKey
from toolhub.tenants.times import day, day_and_time

#: Where tasks without a date stand: behind all others.
NO_DATE = date.max


#: By name.
further_kinds: ProvidedByKey[Kind] = ProvidedByKey("further kinds of records")


def kinds() -> Sequence[Kind]:
    return [*_OWN_KINDS.values(), *further_kinds.values()]


def kind_named(name: str) -> Kind | None:
    return _OWN_KINDS.get(name) or further_kinds.get(name)


# -- Tasks ------------------------------------------------------------------------------------------------------------


def _tasks(rows: QuerySet[Task]) -> QuerySet[Task]:
    return rows.annotate(due_or_last=Coalesce("due", NO_DATE))


def _task(task: Task) -> RecordLine:
    facts = [f"due {day(task.due)}"] if task.due else []
    facts += [f"{task.get_priority_display()} priority"] if task.priority != Task.Priority.NORMAL else []
    return RecordLine(task.title, short(task.notes), tuple(facts), is_done=task.status == Task.Status.DONE)


TASKS = Kind(
    name="tasks",
    title="Tasks",
    one="task",
    icon="check-lg",
    purpose="What you want done, with a date and a priority where you like.",
    example="Add a task: buy milk tomorrow",
    model=Task,
    order=("due_or_last", "number"),
    searched=("title", "notes"),
    line=_task,
    joined=_tasks,
    out=serializers.TaskOut,
    body=serializers.TaskIn,
    form=forms.TaskForm,
    create=notebook.create_task,
    change=notebook.change_task,
    states=(State("open", "Open", Q(status=Task.Status.OPEN)), State("done", "Done", Q(status=Task.Status.DONE))),
    switch=Switch({"status": "done"}, {"status": "open"}, "Done", "Open again"),
)


# -- Lists and groceries ----------------------------------------------------------------------------------------------


def _lists(rows: QuerySet[NamedList]) -> QuerySet[NamedList]:
    return rows.annotate(item_count=Count("items"), open_count=Count("items", filter=Q(items__checked_at=None)))


def _list(row: Any) -> RecordLine:
    items = f"{row.item_count:,} item{'' if row.item_count == 1 else 's'}"
    return RecordLine(row.name, facts=(items, f"{row.open_count:,} open") if row.item_count else (items,))


LISTS = Kind(
    name="lists",
    title="Lists",
    one="list",
    icon="list",
    purpose="Lists with a name, such as packing or books to read.",
    example="Put socks and a hat on my packing list",
    model=NamedList,
    order=("key",),
    key="key",
    searched=("name",),
    line=_list,
    joined=_lists,
    out=serializers.ListOut,
    body=serializers.ListIn,
    form=forms.NameForm,
    create=household.create_list,
    change=household.change_list,
    children="list-items",
    child_field="list",
)
LIST_ITEMS = Kind(
    name="list-items",
    title="List items",
    one="item",
    icon="list",
    purpose="The lines of your lists.",
    example="Put socks and a hat on my packing list",
    model=ListItem,
    order=("number",),
    searched=("text",),
    line=lambda row: RecordLine(row.text, is_done=row.is_checked),
    joined=lambda rows: rows.select_related("list"),
    out=serializers.ListItemOut,
    body=serializers.ListItemIn,
    form=forms.ListItemForm,
    create=household.create_list_item,
    change=household.change_list_item,
    switch=Switch({"is_checked": True}, {"is_checked": False}, "Check off", "Open again"),
    parent="list",
    parent_kind="lists",
)


def _grocery(item: GroceryItem) -> RecordLine:
    return RecordLine(item.name, facts=(f"{float(item.quantity):g} {item.unit}".strip(),), is_done=item.is_bought)


GROCERIES = Kind(
    name="groceries",
    title="Groceries",
    one="thing to buy",
    icon="box-seam",
    purpose="Your shopping list. The same thing in the same unit stands on it once.",
    example="Put two litres of milk on the shopping list",
    model=GroceryItem,
    order=("key", "number"),
    searched=("name",),
    line=_grocery,
    out=serializers.GroceryOut,
    body=serializers.GroceryIn,
    form=forms.GroceryForm,
    create=household.create_grocery,
    change=household.change_grocery,
    states=(State("open", "To buy", Q(bought_at=None)), State("done", "Bought", Q(bought_at__isnull=False))),
    switch=Switch({"is_bought": True}, {"is_bought": False}, "Bought", "Buy again"),
)


# -- Notes and journals -----------------------------------------------------------------------------------------------

SCRATCHPAD = Kind(
    name="scratchpad",
    title="Scratchpad",
    one="scratchpad",
    icon="pencil",
    purpose="One page of working notes. Your agents read it and write on it when you ask them.",
    example="Write on my scratchpad: call Ada about the offer",
    model=Scratchpad,
    order=("public_id",),
    key="pk",
    searched=("text",),
    line=lambda row: RecordLine("Your scratchpad", short(row.text), (f"{len(row.text):,} characters",)),
    out=serializers.ScratchpadOut,
    body=serializers.PageIn,
    form=forms.PageForm,
    create=notebook.write_scratchpad,
    change=notebook.change_scratchpad,
)
AGENT_NOTES = Kind(
    name="agent-notes",
    title="Agent notes",
    one="page of notes",
    icon="robot",
    purpose="What agents have written down for themselves about working for you, a page for each agent.",
    example="Note for yourself that I like short answers",
    model=AgentNote,
    order=("public_id",),
    key="pk",
    searched=("text",),
    joined=lambda rows: rows.select_related("agent"),
    line=lambda row: RecordLine(str(row), short(row.text), (f"{len(row.text):,} characters",)),
    out=serializers.AgentNoteOut,
    body=serializers.PageIn,
    form=forms.PageForm,
    change=notebook.change_agent_note,
)


def _journals(rows: QuerySet[Journal]) -> QuerySet[Journal]:
    return rows.annotate(entry_count=Count("entries"))


def _journal(row: Any) -> RecordLine:
    return RecordLine(row.name, facts=(f"{row.entry_count:,} entr{'y' if row.entry_count == 1 else 'ies'}",))


JOURNALS = Kind(
    name="journals",
    title="Journals",
    one="journal",
    icon="journal-text",
    purpose="Journals with dated entries.",
    example="Write into my garden journal: planted the tomatoes",
    model=Journal,
    order=("key",),
    key="key",
    searched=("name",),
    line=_journal,
    joined=_journals,
    out=serializers.JournalOut,
    body=serializers.JournalIn,
    form=forms.NameForm,
    create=journals.create_journal,
    change=journals.change_journal,
    children="journal-entries",
    child_field="journal",
)


def _entry(entry: JournalEntry) -> RecordLine:
    facts = (day(entry.date),) + (("hidden from agents",) if entry.is_hidden else ())
    return RecordLine(entry.title or short(entry.text), short(entry.text) if entry.title else "", facts)


JOURNAL_ENTRIES = Kind(
    name="journal-entries",
    title="Journal entries",
    one="entry",
    icon="journal-text",
    purpose="What you have written into your journals. A hidden entry is shown by no tool, and to you only here.",
    example="Write into my garden journal: planted the tomatoes",
    model=JournalEntry,
    order=("-date", "-number"),
    searched=("title", "text"),
    line=_entry,
    joined=lambda rows: rows.select_related("journal"),
    out=serializers.JournalEntryOut,
    body=serializers.JournalEntryIn,
    form=forms.EntryForm,
    create=journals.create_entry,
    change=journals.change_entry,
    parent="journal",
    parent_kind="journals",
)


# -- Calendar, people, memories, messages -----------------------------------------------------------------------------


def _event(event: CalendarEvent) -> RecordLine:
    zone = ZoneInfo(event.time_zone)
    with timezone.override(zone):
        when = day(event.starts_at) if event.is_all_day else f"{day_and_time(event.starts_at)} {event.time_zone}"
        last = day(event.ends_at - timedelta(minutes=1))
    facts = [f"{when} to {last}" if event.is_all_day and event.days > 1 else when]
    facts += [event.get_repeat_display()] if event.repeat != CalendarEvent.Repeat.NONE else []
    return RecordLine(event.title, short(" · ".join(filter(None, (event.place, event.notes)))), tuple(facts))


EVENTS = Kind(
    name="events",
    title="Calendar",
    one="event",
    icon="hourglass-split",
    purpose="Events, once or repeated, each in its own time zone.",
    example="Lunch with Ada on Friday at 12:30",
    model=CalendarEvent,
    order=("-starts_at", "-number"),
    searched=("title", "place", "notes"),
    line=_event,
    out=serializers.EventOut,
    body=serializers.EventIn,
    form=forms.EventForm,
    create=calendar.create_event,
    change=calendar.change_event,
)


def _person(person: Person) -> RecordLine:
    facts = (person.email, person.phone, f"born {person.birthday}" if person.birthday else "")
    return RecordLine(person.name, short(person.notes), tuple(filter(None, facts)))


PEOPLE = Kind(
    name="people",
    title="People",
    one="person",
    icon="people",
    purpose="Your address book, with birthdays. Colleagues are not in it unless you add them.",
    example="Add Ada Lovelace to my address book, ada@example.com",
    model=Person,
    order=("name", "number"),
    searched=("name", "email", "phone", "notes"),
    line=_person,
    out=serializers.PersonOut,
    body=serializers.PersonIn,
    form=forms.PersonForm,
    create=people.create_person,
    change=people.change_person,
)
MEMORIES = Kind(
    name="memories",
    title="Memories",
    one="memory",
    icon="lightning-charge-fill",
    purpose="Facts about you that you asked agents to remember beyond one conversation.",
    example="Remember that I do not eat meat",
    model=Memory,
    order=("-number",),
    searched=("text",),
    line=lambda row: RecordLine(short(row.text), facts=(f"since {day(row.created_at)}",)),
    out=serializers.MemoryOut,
    body=serializers.MemoryIn,
    form=forms.MemoryForm,
    create=notebook.create_memory,
    change=notebook.change_memory,
)


def _message(message: Message) -> RecordLine:
    facts = (day(message.created_at),) + (() if message.read_at else ("unread",))
    return RecordLine(f"From {message.sender_name}", short(message.text), facts)


MESSAGES = Kind(
    name="messages",
    title="Messages",
    one="message",
    icon="send",
    purpose="What other members of this organisation have written to you through their agents.",
    example="Do I have messages?",
    model=Message,
    order=("-number",),
    searched=("sender_name", "text"),
    line=_message,
    out=serializers.MessageOut,
)


# -- Food, recipes, places --------------------------------------------------------------------------------------------


def _food(entry: FoodEntry) -> RecordLine:
    facts = (day(entry.date), entry.meal, f"{entry.kcal:,} kcal" if entry.kcal is not None else "")
    return RecordLine(entry.food, facts=tuple(filter(None, facts)))


FOOD = Kind(
    name="food",
    title="Food log",
    one="entry",
    icon="check-lg",
    purpose="What you ate, by day.",
    example="I had two eggs for breakfast",
    model=FoodEntry,
    order=("-date", "-number"),
    searched=("food",),
    line=_food,
    out=serializers.FoodEntryOut,
    body=serializers.FoodEntryIn,
    form=forms.FoodEntryForm,
    create=household.create_food_entry,
    change=household.change_food_entry,
)


def _recipe(recipe: Recipe) -> RecordLine:
    facts = (f"for {recipe.servings}",) if recipe.servings else ()
    return RecordLine(recipe.name, short(", ".join(recipe.ingredients.splitlines())), facts)


RECIPES = Kind(
    name="recipes",
    title="Recipes",
    one="recipe",
    icon="journal-text",
    purpose="How your dishes are made.",
    example="Save my recipe for pancakes: 2 eggs, 200 g flour, 300 ml milk",
    model=Recipe,
    order=("key",),
    key="key",
    searched=("name", "ingredients"),
    line=_recipe,
    out=serializers.RecipeOut,
    body=serializers.RecipeIn,
    form=forms.RecipeForm,
    create=household.create_recipe,
    change=household.change_recipe,
)
PLACES = Kind(
    name="places",
    title="Places",
    one="place",
    icon="globe2",
    purpose="Places with their coordinates, so that agents can tell distances.",
    example="Save the place office at 52.52, 13.405",
    model=Place,
    order=("key",),
    key="key",
    searched=("name", "address"),
    line=lambda row: RecordLine(row.name, row.address, (f"{row.latitude:g}, {row.longitude:g}",)),
    out=serializers.PlaceOut,
    body=serializers.PlaceIn,
    form=forms.PlaceForm,
    create=household.create_place,
    change=household.change_place,
)

_OWN_KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        TASKS,
        LISTS,
        LIST_ITEMS,
        GROCERIES,
        SCRATCHPAD,
        AGENT_NOTES,
        JOURNALS,
        JOURNAL_ENTRIES,
        EVENTS,
        PEOPLE,
        MEMORIES,
        MESSAGES,
        FOOD,
        RECIPES,
        PLACES,
    )
}
