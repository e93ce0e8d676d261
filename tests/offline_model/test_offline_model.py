"""The offline model on tools of the tests' own, in many wordings; and its protocol, through the real SDK over HTTP."""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.running.egress import guarded_client
from toolhub.embedded.offline_model import answers, values
from toolhub.embedded.offline_model.app import WORD_SECONDS, _pause, _words
from toolhub.embedded.offline_model.replies import Reply, reply

TODAY = datetime.date.today()


def tool(name: str, description: str, required: str = "", /, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def text(description: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def number(description: str = "", kind: str = "integer", **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, **more}


ROOMS = [
    tool(
        "book_room",
        "Reserve a meeting room for a day.",
        "room day",
        room={"type": "string", "enum": ["blue", "green", "attic"], "description": "Which room."},
        day=text("The day.", format="date"),
        people=number("How many people will come."),
    ),
    tool("list_rooms", "List the meeting rooms and who has booked them.", day=text("Only this day.", format="date")),
    tool("cancel_booking", "Cancel a room booking.", "booking_id", booking_id=number("The booking's number.")),
]
CHORES = [
    tool(
        "new_chore",
        "Add a chore to the household's to-do list.",
        "title",
        title=text("What has to be done."),
        due={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "description": "When it is due."},
        priority={"type": "string", "enum": ["low", "normal", "high"], "description": "How urgent it is."},
    ),
    tool(
        "chores", "Show what is on the household's to-do list.", done={"type": "boolean", "description": "Also done."}
    ),
    tool("finish_chore", "Mark a chore as done.", "chore_id", chore_id=number("The chore's number.")),
    tool("drop_chore", "Delete a chore from the list.", "chore_id", chore_id=number("The chore's number.")),
]
HOME = [
    tool("play_song", "Play a song on the loudspeakers.", "title", title=text("Its title."), artist=text("Who sings.")),
    tool("stop_music", "Stop the music."),
    tool("water_plants", "Water the plants for some minutes.", "minutes", minutes=number("How long.", minimum=1)),
    tool(
        "set_thermostat",
        "Set the temperature of a room.",
        "celsius",
        celsius=number("Degrees.", "number"),
        room=text("Which room."),
    ),
    tool("weather_forecast", "Get the weather forecast for a city.", "city", city=text("The city's name.")),
]
OFFICE = [
    tool(
        "convert_currency",
        "Convert an amount of money from one currency to another.",
        "amount from_currency to_currency",
        amount=number("How much.", "number"),
        from_currency=text("Three-letter currency code.", pattern="^[A-Z]{3}$"),
        to_currency=text("Three-letter currency code.", pattern="^[A-Z]{3}$"),
    ),
    tool(
        "list_invoices", "List invoices.", status={"type": "string", "enum": ["open", "paid"]}, limit=number("At most.")
    ),
    tool("get_invoice", "Show one invoice.", "invoice_number", invoice_number=text("Like INV-1001.")),
    tool("arithmetic", "Compute the value of an arithmetic expression.", "expression", expression=text("Like 2 * 21.")),
    tool("fetch_page", "Fetch a page of the web and return its text.", "url", url=text("Its address.", format="uri")),
    tool("web_search", "Search the web.", "query", query=text("What to look for.")),
    tool("read_document", "Read a text document of the workspace.", "path", path=text("Where it is.")),
    tool(
        "write_document",
        "Write a text document into the workspace.",
        "path content",
        path=text("Where."),
        content=text("The text."),
    ),
    tool("keep_fact", "Remember a fact under a name.", "name value", name=text("Short name."), value=text("The fact.")),
    tool("recall_fact", "Recall the facts that were remembered.", query=text("Words to look for.")),
    tool(
        "send_message",
        "Send an e-mail message to somebody.",
        "to body",
        to=text("Address.", format="email"),
        body=text("The message."),
        subject=text("The subject line."),
    ),
    tool("invite", "Invite people to an event.", "guests", guests={"type": "array", "items": {"type": "string"}}),
]
ALL = [*ROOMS, *CHORES, *HOME, *OFFICE]


def in_days(count: int) -> str:
    return (TODAY + datetime.timedelta(days=count)).isoformat()


def next_weekday(number: int) -> str:
    return in_days((number - TODAY.weekday()) % 7 or 7)


def signed(text: str) -> str:
    return f"{text}\n\n{answers.SIGNATURE}"


def ask(message: str, tools: list[dict[str, Any]] | None = None, **more: Any) -> Reply:
    return reply({"messages": [{"role": "user", "content": message}], "tools": ALL if tools is None else tools, **more})


def called(message: str, tools: list[dict[str, Any]] | None = None) -> tuple[str, dict[str, Any]]:
    answer = ask(message, tools)
    assert answer.calls, answer.text
    return answer.calls[0].name, dict(answer.calls[0].arguments)


WORDINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("Book the blue room for tomorrow", "book_room", {"room": "blue", "day": in_days(1)}),
    ("Which rooms are there?", "list_rooms", {}),
    ("show me the meeting rooms on 2031-05-02", "list_rooms", {"day": "2031-05-02"}),
    ("Cancel booking 17", "cancel_booking", {"booking_id": 17}),
    ("Add a chore: clean the oven tomorrow", "new_chore", {"title": "clean the oven", "due": in_days(1)}),
    ("add fix the bike to my todo list", "new_chore", {"title": "fix the bike"}),
    (
        "Put 'call the plumber' on my list with high priority",
        "new_chore",
        {"title": "call the plumber", "priority": "high"},
    ),
    (
        "Can you create a new chore to sweep the yard in 3 days?",
        "new_chore",
        {"title": "sweep the yard", "due": in_days(3)},
    ),
    ("What is on my list?", "chores", {}),
    ("what chores do I have", "chores", {}),
    ("Show my to-dos", "chores", {}),
    ("mark chore 3 as done", "finish_chore", {"chore_id": 3}),
    ("I have finished chore #12", "finish_chore", {"chore_id": 12}),
    ("remove chore 4 from the list", "drop_chore", {"chore_id": 4}),
    ('I\'d like you to play the song "Hey Jude"', "play_song", {"title": "Hey Jude"}),
    ("stop the music please", "stop_music", {}),
    ("water the plants for 10 minutes", "water_plants", {"minutes": 10}),
    ("Set the temperature to 21.5", "set_thermostat", {"celsius": 21.5}),
    ("What's the weather in New York?", "weather_forecast", {"city": "New York"}),
    ("will it rain in Oslo tomorrow", "weather_forecast", {"city": "Oslo"}),
    ("list the last 5 invoices", "list_invoices", {"limit": 5}),
    ("which invoices are open?", "list_invoices", {"status": "open"}),
    ("show invoice INV-2044", "get_invoice", {"invoice_number": "INV-2044"}),
    ("What is 12 * (3 + 4)?", "arithmetic", {"expression": "12 * (3 + 4)"}),
    ("calculate 15% of 80", "arithmetic", {"expression": "15 / 100 * 80"}),
    ("Fetch the page https://example.org/a?b=1", "fetch_page", {"url": "https://example.org/a?b=1"}),
    ("search the web for the best pizza dough", "web_search", {"query": "the best pizza dough"}),
    ("read the document plans/spring.md", "read_document", {"path": "plans/spring.md"}),
    ("What do you remember about the door code?", "recall_fact", {"query": "door code"}),
    (
        "Send an e-mail to ann@example.org saying the parcel is here",
        "send_message",
        {"to": "ann@example.org", "body": "the parcel is here"},
    ),
]


@pytest.mark.parametrize(("message", "name", "arguments"), WORDINGS, ids=[each[0] for each in WORDINGS])
def test_message_reaches_the_tool_with_its_arguments(message: str, name: str, arguments: dict[str, Any]) -> None:
    assert called(message) == (name, arguments)


# Written after the matcher was tuned on the wordings above, with tools it had not met.
LATER = [
    tool("add_contact", "Save a new contact.", "name", name=text("Full name."), email=text("E-mail.", format="email")),
    tool("find_contact", "Look up a contact by name.", "name", name=text("Name or part of it.")),
    tool("remove_contact", "Delete a contact.", "name", name=text("Name.")),
    tool(
        "create_event",
        "Put an event into the calendar.",
        "title date",
        title=text("What."),
        date=text("Day.", format="date"),
        location=text("Where."),
    ),
    tool("list_events", "Show calendar events.", date=text("Only this day.", format="date")),
    tool("shopping_add", "Add an item to the shopping list.", "item", item=text("What to buy."), quantity=number("")),
    tool("shopping_show", "Show the shopping list."),
    tool("lock_door", "Lock a door.", "door", door=text("Which.", enum=["front", "back", "garage"])),
    tool("turn_light", "Turn a light on or off.", "on", on={"type": "boolean"}, room=text("Room.")),
    tool("translate_text", "Translate a text.", "text language", text=text("The text."), language=text("Into which.")),
    tool("rename_folder", "Rename a folder.", "old_name new_name", old_name=text(), new_name=text()),
    tool("set_alarm", "Set an alarm.", "at", at=text("When.", format="date-time")),
    tool("search_recipes", "Find recipes.", "foods", foods={"type": "array", "items": {"type": "string"}}),
    tool("measure_distance", "Distance between two cities.", "from to", **{"from": text("City."), "to": text("City.")}),
]
LATER_WORDINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("save contact Ada Lovelace", "add_contact", {"name": "Ada Lovelace"}),
    (
        "add a contact named Alan",
        "add_contact",
        {"name": "Alan"},
    ),
    ("look up the contact Grace Hopper", "find_contact", {"name": "Grace Hopper"}),
    ("delete the contact Bob", "remove_contact", {"name": "Bob"}),
    ("schedule a checkup on 2031-01-15", "create_event", {"title": "checkup", "date": "2031-01-15"}),
    (
        "create an event called team lunch next Tuesday in Hamburg",
        "create_event",
        {"title": "team lunch", "date": next_weekday(1), "location": "Hamburg"},
    ),
    ("what events are on my calendar tomorrow?", "list_events", {"date": in_days(1)}),
    ("put bananas on the shopping list", "shopping_add", {"item": "bananas"}),
    ("what's on the shopping list?", "shopping_show", {}),
    ("lock the garage door", "lock_door", {"door": "garage"}),
    ("find recipes with eggs, flour and milk", "search_recipes", {"foods": ["eggs", "flour", "milk"]}),
]


@pytest.mark.parametrize(("message", "name", "arguments"), LATER_WORDINGS, ids=[each[0] for each in LATER_WORDINGS])
def test_other_tools_are_reached_as_well(message: str, name: str, arguments: dict[str, Any]) -> None:
    assert called(message, LATER) == (name, arguments)


def test_date_and_time_become_one_moment() -> None:
    name, arguments = called("set an alarm for tomorrow at 7am", LATER)

    assert (name, arguments["at"][:19]) == ("set_alarm", f"{in_days(1)}T07:00:00")


def test_hour_that_is_over_today_is_tomorrow_s() -> None:
    now = datetime.datetime.now().astimezone()
    over = now.replace(minute=0) if now.minute else now - datetime.timedelta(hours=1)

    moment = datetime.datetime.fromisoformat(called(f"set an alarm at {over:%H:00}", LATER)[1]["at"])

    assert now < moment <= now + datetime.timedelta(days=1)


@pytest.mark.parametrize("message", ["what can you do?", "help", "", "???", "日本語", "🙂"])
def test_a_message_without_a_deed_calls_nothing_and_learns_what_can_be_asked(message: str) -> None:
    answer = ask(message)

    assert answer.calls == ()
    assert "- book_room: Reserve a meeting room" in answer.text
    assert answer.text.endswith(answers.SIGNATURE)


SMALL_TALK = [
    ("Hello!", "Hello! What can I do for you?"),
    ("hi there", "Hello! What can I do for you?"),
    ("Hey, how are you?", "I am ready to work, thank you. What can I do for you?"),
    ("vielen Dank!", "Gern geschehen."),
    ("thanks, that is all", "You are welcome."),
    ("good night", "Goodbye!"),
    ("Are you an AI?", "I am the offline model: I match the words of a message with the tools at hand."),
    ("That's great!", "Good. What is next?"),
    ("ok", "All right."),
]


@pytest.mark.parametrize("tools", [ALL, []], ids=["tools", "none"])
@pytest.mark.parametrize(("message", "sentence"), SMALL_TALK, ids=[each[0] for each in SMALL_TALK])
def test_small_talk_is_answered_in_a_sentence(message: str, sentence: str, tools: list[dict[str, Any]]) -> None:
    assert ask(message, tools) == Reply(signed(sentence))


def test_it_says_once_a_conversation_that_it_is_no_llm() -> None:
    first = ask("Hello!")
    messages = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "thanks"},
    ]

    assert first.text.count(answers.SIGNATURE) == 1
    assert reply({"messages": messages, "tools": ALL}) == Reply("You are welcome.")


# -- A deed that changes something -----------------------------------------------------------------------------------

#: Tools that write, as a personal assistant has them.
DIARY = [
    tool("meal_log_add", "Write down what the user ate.", "food", food=text("What was eaten.")),
    tool("todo_create", "Add a task to the user's list.", "title", title=text("What.")),
    tool(
        "grocery_add",
        "Put things on the user's shopping list.",
        "items",
        items={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": text(), "quantity": number("", "number")},
                "required": ["name"],
            },
        },
    ),
    tool("grocery_list", "List the user's groceries."),
    tool("list_add", "Add items to a list.", "name", name=text("Which list."), item=text("What.")),
    tool("list_remove", "Remove items from a list.", "name", name=text("Which list.")),
    tool("page_write", "Replace the whole page with this text.", "text", text=text("The text.")),
    tool("memory_store", "Remember something about the user.", "text", text=text("What.")),
]


@pytest.mark.parametrize(
    "message",
    [
        "Write me a poem about autumn",
        "write a letter to my grandmother",
        "Compose a haiku about rain",
        "Make me a sandwich",
        "Plan my life",
        "create a website for me",
        "add spice to my life",
        "Can you write a python function?",
        "I finished my homework",
        "My task is hard",
        "the groceries were expensive",
        "my list of fears is long",
        "keep it short",
        "put the cat out",
        "remove the doubt",
    ],
)
def test_a_write_needs_its_verb_and_its_object(message: str) -> None:
    answer = ask(message, DIARY)

    assert answer.calls == ()
    assert "none fits well enough" in answer.text


@pytest.mark.parametrize(
    ("message", "name", "arguments"),
    [
        ("add milk and eggs to the grocery list", "grocery_add", {"items": [{"name": "milk"}, {"name": "eggs"}]}),
        ("Add 6 eggs to my groceries", "grocery_add", {"items": [{"name": "eggs", "quantity": 6}]}),
        ("What is on the shopping list?", "grocery_list", {}),
        ("Add a task: write a poem", "todo_create", {"title": "write a poem"}),
        ("add fix the bike to my todo list", "todo_create", {"title": "fix the bike"}),
        ("write down that I ate a banana", "meal_log_add", {"food": "I ate a banana"}),
        ("Remember that I like poems", "memory_store", {"text": "I like poems"}),
        ("memory_store: the sea", "memory_store", {"text": "the sea"}),
    ],
)
def test_a_write_that_is_asked_for_is_made(message: str, name: str, arguments: dict[str, Any]) -> None:
    assert called(message, DIARY) == (name, arguments)


def test_the_nearest_tools_are_offered_first() -> None:
    answer = ask("My task is hard", DIARY)

    assert answer.text.splitlines()[1].startswith("- todo_create: ")


def test_without_tools_it_says_so() -> None:
    assert ask("Add a chore: sweep", []).text.startswith("I was sent no tools")
    assert reply({"messages": [{"role": "user", "content": "hi"}]}).calls == ()


def test_missing_argument_is_asked_for_and_the_answer_is_understood() -> None:
    question = ask("Book the attic room")

    assert "need: day (The day)." in question.text

    messages = [
        {"role": "user", "content": "Book the attic room"},
        {"role": "assistant", "content": question.text},
        {"role": "user", "content": "on 2031-04-05"},
    ]
    assert reply({"messages": messages, "tools": ALL}).calls[0].arguments == {"room": "attic", "day": "2031-04-05"}


def test_optional_choice_inside_a_text_is_not_taken_out_of_it() -> None:
    assert called("Add a chore: build the high chair") == ("new_chore", {"title": "build the high chair"})


def test_clauses_become_several_calls_unless_one_is_wanted() -> None:
    message = "water the plants for 5 minutes; stop the music"

    assert [call.name for call in ask(message).calls] == ["water_plants", "stop_music"]
    assert len(ask(message, parallel_tool_calls=False).calls) <= 1


def test_rows_behind_a_reference_are_filled_and_an_object_is_asked_for() -> None:
    definition = tool(
        "add_stop", "Add stops to the route.", "stops", stops={"type": "array", "items": {"$ref": "#/$defs/Stop"}}
    )
    definition["function"]["parameters"]["$defs"] = {
        "Stop": {"type": "object", "properties": {"city": text(), "quantity": number()}, "required": ["city"]}
    }
    inner = {"type": "object", "properties": {"city": text()}, "required": ["city"]}
    nested = tool("add_stop", "Add a stop to the route.", "stop", stop=inner)

    rows = {"stops": [{"city": "Ghent", "quantity": 3}, {"city": "Bruges"}]}
    assert called("Add 3 Ghent and Bruges to the route", [definition]) == ("add_stop", rows)
    assert ask("Add a stop to the route", [nested]).text.startswith("To use add_stop I still need: stop.")


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        "text",
        [],
        {"properties": []},
        {"properties": {"title": None}, "required": "title"},
        {"properties": {"title": {"type": 5, "enum": 7, "description": 9}}, "required": [3, "title"]},
        {"properties": {"title": {"$ref": "#/nowhere"}}, "required": ["title"]},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"title": {"$ref": "#/$defs/a"}}, "required": ["title"]},
        {"properties": {"title": {"anyOf": "none"}}},
    ],
)
def test_malformed_schema_is_tolerated(parameters: Any) -> None:
    odd = {"type": "function", "function": {"name": "add_chore", "description": None, "parameters": parameters}}

    answer = ask("add chore: sweep", [odd, "no tool", {"function": 3}, {"function": {"name": ""}}])  # type: ignore[list-item]

    assert answer.calls or answer.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200), json_values, st.lists(st.dictionaries(st.text(max_size=8), json_values, max_size=3)))
def test_any_message_and_any_tools_get_a_reply(message: str, schema: Any, history: list[dict[str, Any]]) -> None:
    odd = {"type": "function", "function": {"name": "add_chore", "description": "Add.", "parameters": schema}}

    answer = ask(message, [odd, *ALL])

    assert bool(answer.calls) != bool(answer.text)
    assert reply(
        {"messages": [*history, {"role": "user", "content": [{"type": "text", "text": message}]}], "tools": [odd]}
    )


@pytest.mark.parametrize("piece", ["(", "1+", "a.", "from ", "x/", "'", "1 ", "due on ", "{", "every day ", "the "])
def test_long_hostile_message_is_read_quickly(piece: str) -> None:
    started = time.perf_counter()

    ask("calculate " + piece * 20_000)

    assert time.perf_counter() - started < 3


def test_message_is_matched_with_128_tools_in_20_milliseconds() -> None:
    many = [
        tool(
            f"{verb}_{noun}",
            f"{verb} one {noun} of the house.",
            "name",
            name=text("Its name."),
            size=number("Its size."),
        )
        for verb in ("create", "list", "delete", "update")
        for noun in [f"noun{index}" for index in range(32)]
    ]
    ask("create a noun7 called x", many)

    taken = []
    for name in "abcde":
        started = time.perf_counter()
        ask(f"create a noun7 called {name}", many)
        taken.append(time.perf_counter() - started)

    assert min(taken) < 0.02


# -- Values ----------------------------------------------------------------------------------------------------------

WEDNESDAY = datetime.date(2026, 2, 25)


@pytest.mark.parametrize(
    ("message", "day"),
    [
        ("today", "2026-02-25"),
        ("tonight", "2026-02-25"),
        ("due tomorrow", "2026-02-26"),
        ("the day after tomorrow", "2026-02-27"),
        ("yesterday", "2026-02-24"),
        ("on 2026-12-01", "2026-12-01"),
        ("by Friday", "2026-02-27"),
        ("wednesday", "2026-03-04"),
        ("next monday", "2026-03-02"),
        ("in 3 days", "2026-02-28"),
        ("in two weeks", "2026-03-11"),
        ("in a month", "2026-03-25"),
        ("next week", "2026-03-04"),
        ("next year", "2027-02-25"),
        ("March 5th", "2026-03-05"),
        ("the 3rd of January", "2027-01-03"),
        ("5 May 2030", "2030-05-05"),
    ],
)
def test_day_is_read(message: str, day: str) -> None:
    assert [found.value.isoformat() for found in values.days(message, WEDNESDAY)] == [day]


@pytest.mark.parametrize("message", ["31 February", "2026-13-45", "may I", "second", "version 1.2.3"])
def test_words_that_name_no_day_are_not_read_as_days(message: str) -> None:
    assert values.days(message, WEDNESDAY) == []


def test_month_is_added_at_the_end_of_a_year() -> None:
    assert values.days("in 1 month", datetime.date(2026, 12, 31))[0].value == datetime.date(2027, 1, 31)
    assert values.days("in 2 months", datetime.date(2026, 12, 31))[0].value == datetime.date(2027, 2, 28)


@pytest.mark.parametrize(
    ("message", "time"),
    [
        ("at 9", "09:00"),
        ("tomorrow at 9 to call Ann", "09:00"),
        ("at 9pm", "21:00"),
        ("at 15:30", "15:30"),
        ("at noon", "12:00"),
        ("at 25:00", None),
        ("the top 9", None),
        ("at 9 people", None),
    ],
)
def test_time_is_read(message: str, time: str | None) -> None:
    assert [found.value.isoformat("minutes") for found in values.times(message)] == [time] * (time is not None)


def test_distance_from_now_is_read_as_a_moment() -> None:
    now = datetime.datetime(2026, 2, 25, 23, 0, tzinfo=datetime.UTC)

    found = [values.soon(message, now)[0].value.isoformat() for message in ("in 2 hours", "in ten minutes")]

    assert found == ["2026-02-26T01:00:00+00:00", "2026-02-25T23:10:00+00:00"]
    assert values.soon("in time", now) == []


@pytest.mark.parametrize(
    ("message", "expression"),
    [
        ("what is 2+2?", "2+2"),
        ("ten", ""),
        ("3 times 4", "3 * 4"),
        ("20% of 50", "20 / 100 * 50"),
        ("1,200 / 4", "1200 / 4"),
        ("2 ** 10 of it", "2 ** 10"),
        ("on 2026-01-02", ""),
        ("room 5", ""),
    ],
)
def test_sum_is_read(message: str, expression: str) -> None:
    assert [found.value for found in values.sums(message)] == [expression] * bool(expression)


# -- After a tool has run --------------------------------------------------------------------------------------------


def after(*results: str, displays: dict[str, str] | None = None) -> Reply:
    ids = [f"c{place}" for place in range(len(results))]
    calls = [{"id": each, "type": "function", "function": {"name": "chores", "arguments": "{}"}} for each in ids]
    asked = [{"role": "user", "content": "chores"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    answered = [{"role": "tool", "tool_call_id": ids[place], "content": each} for place, each in enumerate(results)]
    return reply({"messages": [*asked, *answered], "tools": ALL, "metadata": displays})


def test_a_result_is_told_under_the_line_that_says_its_call() -> None:
    listing = json.dumps({"tasks": [{"number": 1, "title": "buy milk", "due": "2031-01-02"}]})
    call = {"id": "c0", "type": "function", "function": {"name": "chores", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "what chores do I have"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": listing},
    ]
    answer = reply({"messages": messages, "tools": ALL, "metadata": {"c0": "Listing open\ntasks", "c9": 3}})

    line, listed = "Listing open tasks:", "- buy milk (number: 1, due: 2031-01-02)"
    assert answer.text == signed(f"{line}\n{listed}")
    assert reply({"messages": messages, "tools": ALL, "metadata": ["c0"]}).text.startswith("- buy milk")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("42", "42"),
        ('"done"', "done"),
        ("plain words", "plain words"),
        ("", "Done; the tool gave back nothing."),
        ("[]", "Nothing was found."),
        ("{}", "Nothing was found."),
        ('{"invoices": []}', "Nothing was found."),
        ('{"task": {"number": 1, "title": "buy milk"}}', "- buy milk (number: 1)"),
        ('{"totals": {"open": {"eur": 5}}, "count": 1}', "- totals:\n  - open:\n    - eur: 5\n- count: 1"),
        ('["a", "b"]', "- a\n- b"),
        ('[{"title": "Sweep", "due": "2031-01-01", "notes": ""}]', "- Sweep (due: 2031-01-01)"),
        ('{"invoices": [{"id": 1, "paid": true}], "total": 1}', "- invoices:\n  - id: 1, paid: yes\n- total: 1"),
        ('{"error": "no such room"}', "That did not work: no such room"),
        ('{"error": {"code": "x", "message": "Too late."}}', "That did not work: Too late."),
        ("Error: disk full", "Error: disk full"),
    ],
)
def test_result_is_told_plainly(content: str, told: str) -> None:
    assert after(content).text == signed(told)


def test_several_results_are_told_one_by_one() -> None:
    answer = after("1", "2", displays={"c0": "Counting", "c1": "Counting on"})

    assert answer.text == signed("Counting:\n1\n\nCounting on:\n2")
    assert after("1", "2").text == signed("1\n\n2")


def test_long_result_is_cut() -> None:
    told = after(json.dumps(list(range(500)))).text

    assert "... and 470 more lines." in told


# -- The protocol, over HTTP -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "toolhub.embedded.offline_model:app",
        "--port",
        str(number),
        "--no-access-log",
    ]
    # Without the service's settings: the offline model must not need them.
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", number), timeout=1).close()
            break
        except OSError:
            time.sleep(0.05)
    yield number
    server.send_signal(signal.SIGINT)
    server.wait(10)


@pytest.fixture
def http(port: int) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client


@pytest.fixture
def sdk(port: int) -> Iterator[openai.OpenAI]:
    with guarded_client(timeout=10, trusted_origin=f"127.0.0.1:{port}") as client:
        yield openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{port}/v1", http_client=client)


def test_sdk_gets_a_text(sdk: openai.OpenAI) -> None:
    completion = sdk.chat.completions.create(model="offline", messages=[{"role": "user", "content": "Hello"}])

    choice = completion.choices[0]
    assert choice.finish_reason == "stop"
    assert (choice.message.content or "").endswith(answers.SIGNATURE)
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


def test_sdk_gets_a_tool_call(sdk: openai.OpenAI) -> None:
    completion = sdk.chat.completions.create(
        model="offline",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Book the blue room on 2031-01-02"}]}],
        tools=ALL,  # type: ignore[arg-type]
    )

    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "book_room",
        {"room": "blue", "day": "2031-01-02"},
    )


def test_sdk_streams_a_text_with_its_usage(sdk: openai.OpenAI) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model="offline",
            messages=[{"role": "user", "content": "Hellö"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces).endswith(answers.SIGNATURE)
    assert max(len(piece.split()) for piece in pieces) == 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert (chunks[-1].choices, chunks[-1].usage is not None) == ([], True)
    assert len({chunk.id for chunk in chunks}) == 1


def test_an_answer_is_written_word_by_word_in_time(sdk: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Hello"}]
    tools: Any = ALL
    stream = sdk.chat.completions.create(model="offline", messages=messages, tools=tools, stream=True)
    arrived = [time.monotonic() for chunk in stream if chunk.choices and chunk.choices[0].delta.content]

    assert len(arrived) > 20
    assert arrived[-1] - arrived[0] > 0.5 * WORD_SECONDS * len(arrived)


def test_a_long_answer_takes_no_longer_than_one_of_150_words() -> None:
    assert _pause("word " * 150) == WORD_SECONDS
    assert _pause("word " * 1_500) == pytest.approx(WORD_SECONDS / 10)
    assert _words("  one two\n\nthree ") == ["  one ", "two\n\n", "three "]


def test_sdk_streams_calls_in_pieces(sdk: openai.OpenAI) -> None:
    message = 'write the document "hello, big wide world" to greetings.txt; stop the music'
    with sdk.chat.completions.stream(
        model="offline",
        messages=[{"role": "user", "content": message}],
        tools=ALL,  # type: ignore[arg-type]
    ) as stream:
        completion = stream.get_final_completion()

    calls = completion.choices[0].message.tool_calls or []
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("write_document", {"path": "greetings.txt", "content": "hello, big wide world"}),
        ("stop_music", {}),
    ]
    assert len({call.id for call in calls}) == 2


def test_stream_is_events_that_end_with_done(http: httpx2.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "stream": True})

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = answer.text.removesuffix("\n\n").split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(event.removeprefix("data: ")) for event in events[:-1])


def test_same_beginning_of_a_prompt_counts_as_cached(http: httpx2.Client) -> None:
    messages = [{"role": "system", "content": "You are an unlikely butler. " * 300}, {"role": "user", "content": "a"}]

    first = http.post("/v1/chat/completions", json={"messages": messages}).json()["usage"]
    second = http.post("/v1/chat/completions", json={"messages": [*messages[:1], {"role": "user", "content": "b"}]})

    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    usage = second.json()["usage"]
    assert 1_024 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"messages": []}', 400),
        (b'{"messages": "hi"}', 400),
        (b'{"messages": [1]}', 400),
        (b'{"messages": [{"role": "user", "content": "hi"}], "tools": 3}', 400),
        (b'{"messages": [{"role": "user", "content": "hi"}], "stream_options": 3}', 400),
        (b'{"messages": [{"role": "user"}], "tools": null}', 200),
        (b'{"messages": [{"role": "system", "content": 5}]}', 200),
        (b'{"messages": [{"role": "user", "content": [3, {"text": 4}]}], "tool_choice": {"function": "x"}}', 200),
        ('{"messages": [{"role": "user", "content": "\\ud83d and ☃"}]}'.encode(), 200),
        (b"[" * 100_000, 400),
    ],
)
def test_bad_request_gets_the_protocols_error(http: httpx2.Client, body: bytes, status: int) -> None:
    answer = http.post("/v1/chat/completions", content=body)

    assert answer.status_code == status
    if status != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_models_health_and_unknown_addresses(http: httpx2.Client) -> None:
    assert [model["id"] for model in http.get("/v1/models").json()["data"]] == ["offline"]
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/v1/models/offline").status_code == 404
    assert http.get("/v1/chat/completions").status_code == 405
    assert http.get("/nothing").json()["error"]["code"] == "unknown_url"


def test_it_imports_the_pure_rooms_alone_and_reads_no_table_of_vectors() -> None:
    """Also once it has ranked tools: the table takes more memory than all the rest of the process."""
    request = {"messages": [{"role": "user", "content": "Which rooms are there?"}], "tools": ROOMS}
    script = (
        "import json, sys; from toolhub.embedded.offline_model.replies import reply; "
        "from capabilities.choosing.routing.embedding import table; "
        f"called = [call.name for call in reply(json.loads({json.dumps(request)!r})).calls]; "
        "print(json.dumps([called, table.cache_info().currsize, sorted(sys.modules)]))"
    )

    called, tables, modules = json.loads(subprocess.check_output([sys.executable, "-c", script], text=True))

    assert (called, tables) == (["list_rooms"], 0)
    assert not {"django", "celery", "openai", "pydantic", "wordllama", "sessions"}.intersection(modules)
    rooms = {".".join(each.split(".")[:3]) for each in modules if each.startswith("capabilities.choosing.")}
    assert rooms == {"capabilities.choosing.routing"}
