from __future__ import annotations

import importlib
from typing import Any

import pytest
from django.test import Client

from capabilities.assistant.models import CalendarEvent, CalendarFeed
from capabilities.assistant.records.writes import calendar as writes
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")

calendar = importlib.import_module("capabilities.assistant.builtin.calendar")

LUNCH = {
    "number": 1,
    "title": "Lunch",
    "start": "2026-11-19T12:00+00:00",
    "end": "2026-11-19T13:00+00:00",
}


def add(call: Call, start: str, title: str = "x", **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = call("calendar_add", title=title, start=start, **arguments)
    return answer


def listed(call: Call, **arguments: Any) -> list[str]:
    events = call("calendar_list", **arguments)["events"]
    return [f"{each['title']} {each.get('start', each.get('day'))}" for each in events]


def test_an_event_is_added_and_listed(as_alice: Call) -> None:
    answer = add(as_alice, "tomorrow 12:00", " Lunch ", place="Canteen", notes="with Bo")

    lunch = LUNCH | {"place": "Canteen", "notes": "with Bo"}
    assert answer == {"event": lunch}
    assert as_alice("calendar_list") == {"time_zone": "UTC", "events": [lunch]}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"start": "2026-11-19"}, {"day": "2026-11-19"}),
        ({"start": "2026-11-19", "end": "2026-11-21"}, {"day": "2026-11-19", "last_day": "2026-11-21"}),
        (
            {"start": "2026-11-19 22:00", "end": "02:00"},
            {"start": "2026-11-19T22:00+00:00", "end": "2026-11-20T02:00+00:00"},
        ),
        (
            {"start": "2026-11-19 22:00", "end": "saturday 10:00"},
            {"start": "2026-11-19T22:00+00:00", "end": "2026-11-21T10:00+00:00"},
        ),
        (
            {"start": "2026-07-01 12:00", "time_zone": "Europe/Berlin"},
            {"start": "2026-07-01T12:00+02:00", "end": "2026-07-01T13:00+02:00"},
        ),
        (
            {"start": "2026-11-19T12:00+09:00", "time_zone": "Europe/Berlin"},
            {"start": "2026-11-19T04:00+01:00", "end": "2026-11-19T05:00+01:00"},
        ),
    ],
)
def test_a_start_and_an_end_are_understood(as_alice: Call, arguments: dict[str, str], shown: dict[str, str]) -> None:
    assert as_alice("calendar_add", title="x", **arguments)["event"] == {"number": 1, "title": "x"} | shown


@pytest.mark.parametrize(
    ("arguments", "titles"),
    [
        ({}, ["now", "week"]),
        ({"start": "2026-11-24", "end": "2026-11-25"}, ["week", "later"]),
        ({"start": "2026-11-25"}, ["later"]),
        ({"end": "2026-12-31", "query": "LATER"}, ["later"]),
    ],
)
def test_a_listing_is_of_a_range_of_days(as_alice: Call, arguments: dict[str, str], titles: list[str]) -> None:
    for title, start in (("later", "2026-11-25 00:00"), ("week", "2026-11-24 22:59"), ("now", "2026-11-18 08:00")):
        add(as_alice, start, title)
    add(as_alice, "2026-11-17 22:00", "before", end="2026-11-18 00:00")

    assert [each["title"] for each in as_alice("calendar_list", **arguments)["events"]] == titles


def test_times_are_told_in_the_zone_asked_for(as_alice: Call) -> None:
    add(as_alice, "2026-11-19 23:30", "late")

    listing = as_alice("calendar_list", start="2026-11-20", time_zone="Europe/Berlin")

    assert listing["time_zone"] == "Europe/Berlin"
    (event,) = listing["events"]
    assert (event["start"], event["time_zone"]) == ("2026-11-20T00:30+01:00", "UTC")


def test_a_repeated_event_is_listed_each_time_at_its_local_time(as_alice: Call) -> None:
    add(as_alice, "2026-10-19 09:00", "Stand-up", repeat="weekly", time_zone="Europe/Berlin", repeat_until="2026-11-02")

    assert listed(as_alice, start="2026-10-01", end="2026-11-30") == [
        "Stand-up 2026-10-19T07:00+00:00",
        "Stand-up 2026-10-26T08:00+00:00",
        "Stand-up 2026-11-02T08:00+00:00",
    ]


def test_a_repeated_event_that_goes_on_over_midnight_is_listed_on_the_next_day_too(as_alice: Call) -> None:
    add(as_alice, "2026-11-02 23:00", "night", end="02:00", repeat="daily")

    assert listed(as_alice, start="2026-11-10", end="2026-11-10") == [
        "night 2026-11-09T23:00+00:00",
        "night 2026-11-10T23:00+00:00",
    ]


def test_what_repeats_on_a_day_that_not_every_month_has_is_told(as_alice: Call) -> None:
    answer = add(as_alice, "2026-12-31", repeat="monthly")

    assert "no day 31" in answer["note"]
    assert listed(as_alice, start="2026-12-01", end="2027-04-30") == ["x 2026-12-31", "x 2027-01-31", "x 2027-03-31"]


def test_overlaps_are_told(as_alice: Call) -> None:
    add(as_alice, "2026-11-19", "holiday")
    add(as_alice, "2026-11-19 12:00", "Lunch")
    add(as_alice, "2026-11-19 13:00", "after")

    answer = add(as_alice, "2026-11-19 12:30", "Call", end="13:00")

    assert answer["overlaps"] == [{"number": 2, "title": "Lunch", "start": "2026-11-19T12:00+00:00"}]
    events = as_alice("calendar_list")["events"]
    assert {each["title"]: each.get("overlaps") for each in events} == {
        "holiday": None,
        "Lunch": [4],
        "Call": [2],
        "after": None,
    }


def test_overlaps_of_a_repeated_event_are_told_for_the_days_to_come(as_alice: Call) -> None:
    for week in ("2026-11-26", "2026-12-03"):
        add(as_alice, f"{week} 12:00", "Lunch")

    answer = add(as_alice, "2026-11-19 12:30", "Call", repeat="weekly")

    assert [each["number"] for each in answer["overlaps"]] == [1, 2]


def test_many_overlaps_are_cut(as_alice: Call) -> None:
    for _ in range(7):
        answer = add(as_alice, "tomorrow 12:00")

    assert (len(answer["overlaps"]), answer["more_overlaps"]) == (5, 1)


def test_an_update_changes_what_it_names_and_nothing_else(as_alice: Call) -> None:
    add(as_alice, "tomorrow 12:00", "Lunch", end="13:30", place="Canteen")
    uid = CalendarEvent.objects.get().uid

    answer = as_alice("calendar_update", number=1, start="2026-11-20 11:00", title="Brunch")

    assert answer["event"] == {
        "number": 1,
        "title": "Brunch",
        "start": "2026-11-20T11:00+00:00",
        "end": "2026-11-20T12:30+00:00",
        "place": "Canteen",
    }
    assert CalendarEvent.objects.get().uid == uid


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"end": "14:00"}, {"start": "2026-11-19T12:00+00:00", "end": "2026-11-19T14:00+00:00"}),
        ({"start": "2026-11-20"}, {"day": "2026-11-20"}),
        ({"repeat": "daily"}, {"repeat": "daily"}),
        ({"repeat": "daily", "repeat_until": "2026-12-01"}, {"repeat": "daily", "repeat_until": "2026-12-01"}),
        ({"time_zone": "Asia/Tokyo"}, {"start": "2026-11-19T21:00+09:00", "end": "2026-11-19T22:00+09:00"}),
    ],
)
def test_an_update_moves_repeats_and_travels(as_alice: Call, arguments: dict[str, str], shown: dict[str, str]) -> None:
    add(as_alice, "tomorrow 12:00", "Lunch")

    event = as_alice("calendar_update", number=1, **arguments)["event"]

    assert event == ({} if "day" in shown else LUNCH) | {"number": 1, "title": "Lunch"} | shown


def test_whole_days_stay_the_days_they_are_in_another_zone(as_alice: Call) -> None:
    add(as_alice, "2026-11-19", end="2026-11-20")

    event = as_alice("calendar_update", number=1, time_zone="America/New_York")["event"]

    assert (event["day"], event["last_day"]) == ("2026-11-19", "2026-11-20")
    assert as_alice("calendar_update", number=1, start="2026-12-01")["event"]["last_day"] == "2026-12-02"


def test_an_event_that_ends_to_repeat_has_no_last_day(as_alice: Call) -> None:
    add(as_alice, "tomorrow 12:00", "Lunch", repeat="daily", repeat_until="2026-12-01")

    assert as_alice("calendar_update", number=1, repeat_until="none")["event"] == LUNCH | {"repeat": "daily"}
    assert as_alice("calendar_update", number=1, repeat="none")["event"] == LUNCH


def test_an_event_is_removed(as_alice: Call) -> None:
    add(as_alice, "tomorrow 12:00", "Lunch")

    assert as_alice("calendar_remove", number=1) == {"removed": LUNCH}

    assert as_alice("calendar_list")["events"] == []


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("calendar_add", {"title": " ", "start": "today"}, "An event needs a title"),
        ("calendar_add", {"title": "x", "start": "soon"}, "'soon' is not a date"),
        ("calendar_add", {"title": "x", "start": "today", "time_zone": "Moon"}, "There is no time zone 'Moon'"),
        ("calendar_add", {"title": "x", "start": "today", "end": "yesterday"}, "The event ends before it starts"),
        ("calendar_add", {"title": "x", "start": "15:00", "end": "2026-11-18 14:00"}, "ends before it starts"),
        ("calendar_add", {"title": "x", "start": "15:00", "end": "friday"}, "give its end with a time too"),
        ("calendar_add", {"title": "x", "start": "today", "end": "2028-01-01"}, "An event lasts at most 366 days"),
        ("calendar_add", {"title": "x", "start": "today", "repeat_until": "friday"}, "The event does not repeat"),
        (
            "calendar_add",
            {"title": "x", "start": "today", "repeat": "daily", "repeat_until": "yesterday"},
            "repeat_until is earlier than the event",
        ),
        ("calendar_list", {"start": "today", "end": "yesterday"}, "The last day comes after the first"),
        ("calendar_list", {"start": "today", "end": "2028-01-01"}, "at most 400 days later"),
        ("calendar_update", {"number": 9}, "There is no event 9: calendar_list shows the numbers"),
        ("calendar_remove", {"number": 9}, "There is no event 9"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)
    assert not CalendarEvent.objects.exists()


def test_the_calendar_is_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "EVENTS", 2)
    monkeypatch.setattr(writes, "REPEATING", 1)
    monkeypatch.setattr(calendar, "LIST_LIMIT", 2)
    add(as_alice, "today", repeat="daily")

    with pytest.raises(ToolError, match="at most 1 repeated events"):
        add(as_alice, "today", repeat="daily")
    add(as_alice, "today")
    with pytest.raises(ToolError, match="at most 2 events"):
        add(as_alice, "today")
    monkeypatch.setattr(writes, "EVENTS", 3)
    with pytest.raises(ToolError, match="at most 1 repeated events"):
        as_alice("calendar_update", number=2, repeat="weekly")
    assert as_alice("calendar_list")["note"] == "There are more: name fewer days."


def test_the_address_of_the_feed_is_given_once(as_alice: Call, client: Client) -> None:
    add(as_alice, "tomorrow 12:00", "Lunch")

    path = as_alice("calendar_feed")["path"]

    assert "SUMMARY:Lunch" in client.get(path).content.decode()
    with pytest.raises(ToolError, match="its address was shown once: use the action renew"):
        as_alice("calendar_feed")


def test_the_feed_is_renewed_and_removed(as_alice: Call, client: Client) -> None:
    first = as_alice("calendar_feed")["path"]

    second = as_alice("calendar_feed", action="renew")["path"]

    assert [client.get(path).status_code for path in (first, second)] == [404, 200]
    as_alice("calendar_feed", action="remove")
    assert client.get(second).status_code == 404
    assert not CalendarFeed.objects.exists()


@pytest.mark.parametrize("count", [1, 3])
def test_a_listing_takes_one_query(
    as_alice: Call, count: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for _ in range(count):
        add(as_alice, "today 18:00", repeat="daily")

    with django_assert_num_queries(1):  # type: ignore[operator]
        as_alice("calendar_list")
