"""What members keep, on pages and over REST: the same rows and rules as the tools have, and nobody else's."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.assistant.models import (
    AgentNote,
    CalendarEvent,
    GroceryItem,
    JournalEntry,
    ListItem,
    Memory,
    Message,
    NamedList,
    Person,
    Task,
)
from capabilities.assistant.records.kinds import kind_named, kinds
from capabilities.assistant.records.writes.notebook import create_task
from capabilities.running.records.own import owner_of
from tests.cast import make_member
from tests.rest import Rest
from tests.test_lists import make_record
from tests.test_tenancy_routes import RECORDS
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation
from toolhub.tenants.rows.cursors import sealed_place
from toolhub.tenants.rows.scope import organisation_scope

NAMES = [kind.name for kind in kinds()]
CHANGED = [kind.name for kind in kinds() if kind.change]
ADDED = [kind.name for kind in kinds() if kind.create]
HTMX = {"HX-Request": "true"}


def page_of(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def make(name: str, member: Membership, number: int = 1) -> str:
    """The id of a new row of this kind."""
    kind = kind_named(name)
    assert kind is not None
    with organisation_scope(member.organisation):
        make_record(kind, member, number)
        row: Any = kind.model.objects.filter(membership=member).latest("pk")
        if isinstance(row, CalendarEvent):
            CalendarEvent.objects.filter(pk=row.pk).update(time_zone="UTC")
        return str(row.public_id)


def address(name: str, record: str = "", more: str = "") -> str:
    return f"/o/acme/data/{name}/" + (f"{record}/" if record else "") + more


def texts(page: bytes) -> list[str]:
    """What the lines of a list are called."""
    return re.findall(r'<td class="cell-main">\s*<a [^>]*>([^<]*)</a>', page.decode())


# -- The same rows and rules as the tools -----------------------------------------------------------------------------


@pytest.mark.usefixtures("in_acme")
def test_a_task_of_a_tool_is_seen_corrected_and_deleted_on_the_pages(alice: Membership) -> None:
    task = create_task(owner_of(alice), title="buy mlik")
    client = page_of(alice)
    form = {"title": " buy  milk ", "priority": "high", "status": "open", "due": "2026-11-23", "notes": ""}

    assert texts(client.get(address("tasks")).content) == ["buy mlik"]
    saved = client.post(address("tasks", str(task.public_id)), form)
    task.refresh_from_db()
    assert (saved.status_code, saved["Location"]) == (302, address("tasks"))
    assert (task.title, task.priority, str(task.due)) == ("buy milk", "high", "2026-11-23")

    deleted = client.post(address("tasks", str(task.public_id), "delete/"))
    assert (deleted.status_code, deleted["Location"]) == (302, address("tasks"))
    assert not Task.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_a_title_is_cleaned_over_rest_as_it_is_on_the_page_and_by_the_tool(alice: Membership) -> None:
    rest = Rest(alice)

    task = rest.post("data/tasks", {"title": " water   the plants "}).json

    assert (task["title"], task["number"], task["status"]) == ("water the plants", 1, "open")
    assert rest.ask("PATCH", f"data/tasks/{task['id']}", b'{"status": "done"}').json["completed_at"]
    assert rest.get("data/tasks", state="open").json["results"] == []
    assert rest.get("data/tasks", q="WATER plants").json["results"][0]["id"] == task["id"]


@pytest.mark.usefixtures("in_acme")
def test_what_is_bought_twice_in_a_unit_is_added_up_as_by_the_tool(alice: Membership) -> None:
    rest = Rest(alice)

    rest.post("data/groceries", {"name": "Milk", "quantity": "1.5", "unit": "l"})
    page_of(alice).post(address("groceries", more="new/"), {"name": "milk", "quantity": "0.5", "unit": "l"})

    assert [(row["name"], row["quantity"]) for row in rest.get("data/groceries").json["results"]] == [("Milk", "2.000")]


@pytest.mark.usefixtures("in_acme")
def test_a_new_name_makes_a_new_list_and_a_list_goes_with_its_items(alice: Membership) -> None:
    client = page_of(alice)

    for text in ("socks", "hat"):
        client.post(address("list-items", more="new/"), {"list": "Packing", "text": text})
    packing = NamedList.objects.get()
    items = client.get(f"{address('list-items')}?list={packing.public_id}").content

    assert texts(client.get(address("lists")).content) == ["Packing"]
    assert texts(items) == ["socks", "hat"]
    client.post(address("lists", str(packing.public_id), "delete/"))
    assert not ListItem.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_an_entry_that_was_hidden_from_tools_is_shown_to_its_member_and_can_be_shown_again(alice: Membership) -> None:
    rest = Rest(alice)
    entry = rest.post("data/journal-entries", {"journal": "Garden", "text": " Sown.\n", "is_hidden": True}).json

    page = page_of(alice).get(address("journal-entries")).content.decode()
    shown = rest.ask("PATCH", f"data/journal-entries/{entry['id']}", b'{"is_hidden": false}').json

    assert (entry["text"], entry["is_hidden"], shown["is_hidden"]) == (" Sown.\n", True, False)
    assert "hidden from agents" in page
    assert JournalEntry.objects.get().disabled_at is None


@pytest.mark.usefixtures("in_acme")
def test_an_event_of_whole_days_takes_the_days_of_its_zone(alice: Membership) -> None:
    form = {"title": "Fair", "starts_at": "2026-11-23T15:00", "ends_at": "2026-11-24T01:00", "is_all_day": "on"}
    client = page_of(alice)

    client.post(address("events", more="new/"), form | {"time_zone": "Europe/Berlin", "repeat": "none"})

    event = CalendarEvent.objects.get()
    assert (event.starts_at.isoformat(), event.days) == ("2026-11-22T23:00:00+00:00", 2)
    again = client.get(address("events", str(event.public_id))).content.decode()
    assert 'value="2026-11-23T00:00"' in again
    assert 'value="2026-11-24T23:59"' in again


@pytest.mark.usefixtures("in_acme")
def test_saving_a_form_as_it_is_shown_changes_nothing(alice: Membership) -> None:
    client = page_of(alice)
    form = {"title": "Lunch", "starts_at": "2026-11-27T12:30", "ends_at": "", "time_zone": "Europe/Berlin"}
    client.post(address("events", more="new/"), form | {"repeat": "weekly", "repeat_until": "2026-12-24"})
    client.post(address("people", more="new/"), {"name": "Ada", "birthday": "12-10"})
    client.post(address("groceries", more="new/"), {"name": "Milk", "quantity": "0.250", "unit": "l"})

    for name, model in (("events", CalendarEvent), ("people", Person), ("groceries", GroceryItem)):
        row: Any = model.objects.get()
        before: Any = model.objects.values().get()
        page = client.get(address(name, str(row.public_id)))
        shown = {field.html_name: field.value() for field in page.context["form"]}
        as_typed = {key: _typed(value) for key, value in shown.items() if value not in (None, False)}
        assert client.post(address(name, str(row.public_id)), as_typed).status_code == 302
        after: Any = model.objects.values().get()
        assert _without_times(after) == _without_times(before)


def _typed(value: Any) -> str:
    return value.strftime("%Y-%m-%dT%H:%M") if hasattr(value, "strftime") else str(value)


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "updated_at"}


# -- Whose they are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_nobody_but_the_member_sees_changes_or_deletes_a_row(
    name: str, alice: Membership, bob: Membership, charlie: Membership
) -> None:
    record = make(name, bob)
    path = f"data/{name}/{record}"

    for other in (alice, charlie):
        rest, client = Rest(other), page_of(other)
        org = other.organisation.slug
        assert rest.get(f"data/{name}").json["results"] == []
        assert {rest.ask(method, path, b"{}").status for method in ("GET", "DELETE")} == {404}
        assert rest.ask("PATCH", path, b"{}").status in (404, 405)
        assert texts(client.get(f"/o/{org}/data/{name}/?state=all").content) == []
        assert client.get(f"/o/{org}/data/{name}/{record}/").status_code == 404
        for act in ("", "delete/", "switch/"):
            assert client.post(f"/o/{org}/data/{name}/{record}/{act}", RECORDS[name]).status_code == 404
    assert Rest(bob).get(path).status == 200


@pytest.mark.parametrize("name", NAMES)
def test_whoever_may_use_no_tool_sees_and_deletes_their_own_rows(name: str, acme: Organisation) -> None:
    viewer = make_member(acme, "vera", Access.VIEWER)
    record = make(name, viewer)
    client = page_of(viewer)

    assert texts(client.get(f"{address(name)}?state=all").content) != []
    assert client.get(address(name, record)).status_code == 200
    assert client.post(address(name, record, "delete/")).status_code == 302
    assert texts(client.get(f"{address(name)}?state=all").content) == []


@pytest.mark.parametrize("name", ADDED)
def test_a_viewer_adds_nothing(name: str, acme: Organisation) -> None:
    viewer = make_member(acme, "vera", Access.VIEWER)
    client = page_of(viewer)

    assert Rest(viewer).post(f"data/{name}", RECORDS[name]).error == (403, "forbidden", None)
    assert client.post(address(name, more="new/"), RECORDS[name]).status_code == 403
    assert b"new/" not in client.get(address(name)).content


def test_a_list_of_another_member_is_answered_like_a_missing_one(alice: Membership, bob: Membership) -> None:
    theirs = make("lists", bob)
    client, rest = page_of(alice), Rest(alice)

    for record in (theirs, str(uuid4()), "x"):
        assert client.get(f"{address('list-items')}?list={record}").status_code == 404
        assert rest.get("data/list-items", list=record).error == (400, "unknown", "list")


def test_a_write_by_the_name_of_anothers_list_goes_into_ones_own(alice: Membership, bob: Membership) -> None:
    Rest(bob).post("data/list-items", {"list": "Packing", "text": "socks"})

    Rest(alice).post("data/list-items", {"list": "Packing", "text": "hat"})

    assert [row["text"] for row in Rest(bob).get("data/list-items").json["results"]] == ["socks"]
    assert [row["items"] for row in Rest(alice).get("data/lists").json["results"]] == [1]


@pytest.mark.usefixtures("in_acme")
def test_rows_of_daily_use_leave_the_audit_alone(alice: Membership) -> None:
    rest = Rest(alice)
    before = AuditEntry.objects.count()

    task = rest.post("data/tasks", {"title": "x"}).json
    rest.ask("PATCH", f"data/tasks/{task['id']}", b'{"title": "y"}')
    rest.ask("DELETE", f"data/tasks/{task['id']}")

    assert AuditEntry.objects.count() == before


# -- Each kind --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ADDED)
def test_a_row_is_added_read_changed_and_deleted_over_rest(name: str, alice: Membership) -> None:
    rest = Rest(alice)

    made = rest.post(f"data/{name}", RECORDS[name])
    path = f"data/{name}/{made.json['id']}"

    assert (made.status, rest.get(path).json) == (201, made.json)
    assert rest.get(f"data/{name}").json["results"] == [made.json]
    assert rest.ask("PATCH", path, b"{}").json == made.json
    assert rest.ask("DELETE", path).status == 204
    assert rest.get(path).error == (404, "not_found", None)


@pytest.mark.parametrize("name", CHANGED)
def test_a_form_without_its_values_says_so_beside_the_field(name: str, alice: Membership) -> None:
    record = make(name, alice)
    client = page_of(alice)

    answer = client.post(address(name, record), {"unknown": "1"})

    if name in {"scratchpad", "agent-notes"}:  # an empty page is one too
        assert answer.status_code == 302
    else:
        assert answer.status_code == 422
        assert b"This field is required." in answer.content
        assert b"is-invalid" in answer.content


@pytest.mark.parametrize("name", NAMES)
def test_the_pages_of_each_kind_open_empty_and_with_rows(name: str, alice: Membership) -> None:
    client = page_of(alice)

    empty = client.get(address(name)).content
    record = make(name, alice)
    listed = client.get(f"{address(name)}?state=all").content
    opened = client.get(address(name, record))

    assert b"Nothing here" in empty
    assert len(texts(listed)) == 1
    assert opened.status_code == 200
    assert b"Delete for good" in opened.content


@pytest.mark.parametrize("name", NAMES)
def test_a_list_takes_the_same_queries_for_1_and_3_rows(name: str, alice: Membership) -> None:
    client = page_of(alice)
    make(name, alice)
    with CaptureQueriesContext(connection) as one:
        client.get(f"{address(name)}?state=all")
    if name != "scratchpad":
        make(name, alice, 2)
        make(name, alice, 3)
    with CaptureQueriesContext(connection) as three:
        page = client.get(f"{address(name)}?state=all")

    assert len(texts(page.content)) == (1 if name == "scratchpad" else 3)
    assert len(one) == len(three)


def test_the_overview_counts_ones_own_rows_with_a_query_for_each_kind(alice: Membership, bob: Membership) -> None:
    make("tasks", bob)
    client = page_of(alice)
    with CaptureQueriesContext(connection) as none:
        client.get("/o/acme/data/")
    make("tasks", alice)
    make("tasks", alice, 2)
    with CaptureQueriesContext(connection) as some:
        page = client.get("/o/acme/data/")

    assert {kind.name: count for kind, count in page.context["kinds"]} == {
        kind.name: 2 if kind.name == "tasks" else 0 for kind in kinds() if not kind.parent
    }
    assert len(none) == len(some) <= len(NAMES) + 8


# -- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("tasks", {"title": " "}, "title"),
        ("tasks", {"title": "x" * 501}, "title"),
        ("tasks", {"title": "x", "due": "tomorrow"}, "due"),
        ("tasks", {"title": "x", "status": "gone"}, "status"),
        ("tasks", {"title": "x", "organisation": 1}, "organisation"),
        ("tasks", {"title": "x", "number": 7}, "number"),
        ("groceries", {"name": "x", "quantity": "0"}, "quantity"),
        ("groceries", {"name": "x", "quantity": "1000001"}, "quantity"),
        ("list-items", {"list": "x", "text": ""}, "text"),
        ("events", RECORDS["events"] | {"ends_at": "2026-11-22T11:00:00Z"}, "ends_at"),
        ("events", RECORDS["events"] | {"time_zone": "Mars/Base"}, "time_zone"),
        ("events", RECORDS["events"] | {"starts_at": "0001-01-01T00:00:00Z"}, "starts_at"),
        ("events", RECORDS["events"] | {"repeat_until": "2026-12-01"}, "repeat_until"),
        ("people", {"name": "x", "email": "nobody"}, "email"),
        ("people", {"name": "x", "birthday": "02-30"}, "birthday"),
        ("recipes", {"name": "x", "ingredients": "\n".join("x" * 101)}, "ingredients"),
        ("places", {"name": "x", "latitude": 91, "longitude": 0}, "latitude"),
    ],
)
def test_bad_input_is_refused_with_its_field_over_rest(
    name: str, body: dict[str, Any], field: str, alice: Membership
) -> None:
    refused = Rest(alice).post(f"data/{name}", body)

    assert (refused.error[0], refused.error[2]) == (400, field)
    assert Rest(alice).get(f"data/{name}").json["results"] == []


@pytest.mark.usefixtures("in_acme")
def test_what_a_write_refuses_stands_beside_its_field_on_the_page(alice: Membership) -> None:
    client = page_of(alice)
    event = {"title": "x", "starts_at": "2026-11-22T12:00", "ends_at": "2026-11-22T11:00", "time_zone": "UTC"}

    answer = client.post(address("events", more="new/"), event | {"repeat": "none"})

    assert answer.status_code == 422
    assert answer.context["form"].errors == {"ends_at": ["The event ends before it starts."]}
    assert not CalendarEvent.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_a_name_stands_once(alice: Membership) -> None:
    rest = Rest(alice)
    rest.post("data/lists", {"name": "Packing"})
    other = rest.post("data/lists", {"name": "Books"}).json

    assert rest.post("data/lists", {"name": "PACKING"}).error == (400, "invalid", "name")
    assert rest.ask("PATCH", f"data/lists/{other['id']}", b'{"name": "packing"}').error == (400, "invalid", "name")
    assert rest.ask("PATCH", f"data/lists/{other['id']}", b'{"name": "BOOKS"}').json["name"] == "BOOKS"


@pytest.mark.usefixtures("in_acme")
def test_a_full_list_refuses_more_with_a_conflict(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capabilities.assistant.records.writes.notebook.MEMORIES", 1)
    rest = Rest(alice)
    rest.post("data/memories", {"text": "one"})

    refused = rest.post("data/memories", {"text": "two"})
    page = page_of(alice).post(address("memories", more="new/"), {"text": "two"})

    assert refused.error == (409, "conflict", None)
    assert page.status_code == 422
    assert b"All 1 memories are in use: remove some first." in page.content
    assert Memory.objects.count() == 1


def test_kinds_and_acts_that_are_not_there_are_missing_pages(alice: Membership) -> None:
    client = page_of(alice)
    message = make("messages", alice)

    assert client.get(address("secrets")).status_code == 404
    assert client.get(address("messages", more="new/")).status_code == 404
    assert client.post(address("messages", message), {"text": "forged"}).status_code == 404
    assert client.post(address("messages", message, "switch/"), {"on": "1"}).status_code == 404
    with organisation_scope(alice.organisation):
        assert Message.objects.get().text != "forged"


# -- Switching, pages, search -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_acme")
def test_one_click_ends_a_task_and_opens_it_again(alice: Membership) -> None:
    record = make("tasks", alice)
    client = page_of(alice)

    line = client.post(address("tasks", record, "switch/"), {"on": "1"}, headers=HTMX)
    done = Task.objects.get().status
    back = client.post(address("tasks", record, "switch/"), {"on": "0"})

    assert (line.status_code, done) == (200, "done")
    assert line.content.decode().strip().startswith(f'<tr id="record-{record}"')
    assert (back.status_code, back["Location"], Task.objects.get().status) == (302, address("tasks"), "open")


@pytest.mark.usefixtures("in_acme")
def test_tasks_stand_by_date_over_several_pages_each_once(alice: Membership) -> None:
    days = [None if number % 3 == 0 else f"2026-12-{number % 28 + 1:02}" for number in range(120)]
    own = {"organisation": alice.organisation, "membership": alice}
    Task.objects.bulk_create(Task(**own, number=n, title=f"t{n}", due=day) for n, day in enumerate(days, 1))
    client = page_of(alice)

    seen: list[str] = []
    url = address("tasks")
    while url:
        page = client.get(url)
        assert len(page.content) < 200_000
        seen += texts(page.content)
        url = f"{address('tasks')}?after={page.context['page'].after}" if page.context["page"].after else ""

    assert seen == [f"t{n}" for n, day in sorted(enumerate(days, 1), key=lambda each: (each[1] or "9", each[0]))]


@pytest.mark.parametrize("place", ["x", "=", "WzEsMl0", ["x", "x"], ["1"], [], "é"])
def test_a_place_that_no_page_wrote_begins_anew(place: str | list[str], alice: Membership) -> None:
    make("tasks", alice)
    text = place if isinstance(place, str) else sealed_place(place)

    assert len(texts(page_of(alice).get(address("tasks"), {"after": text}).content)) == 1


@pytest.mark.usefixtures("in_acme")
@pytest.mark.parametrize(("q", "found"), [("milk", 1), ("MILK buy", 1), ("äpfel", 1), ("bread", 0), ("%", 0), ("", 2)])
def test_a_search_finds_rows_in_which_all_words_occur(q: str, found: int, alice: Membership) -> None:
    create_task(owner_of(alice), title="Buy milk")
    create_task(owner_of(alice), title="Äpfel", notes="from the market")

    assert len(texts(page_of(alice).get(address("tasks"), {"q": q}).content)) == found
    assert len(Rest(alice).get("data/tasks", q=q).json["results"]) == found


@pytest.mark.usefixtures("in_acme")
def test_a_search_for_nul_finds_nothing(alice: Membership) -> None:
    create_task(owner_of(alice), title="Buy milk")

    assert Rest(alice).get("data/tasks", q="\x00").json["results"] == []


@pytest.mark.usefixtures("in_acme")
def test_what_was_written_is_shown_as_text(alice: Membership) -> None:
    create_task(owner_of(alice), title="<script>alert(1)</script>", notes="<b>x</b>")
    AgentNote.objects.create(organisation=alice.organisation, membership=alice, text="<i>x</i>")
    client = page_of(alice)

    for name in ("tasks", "agent-notes"):
        page = client.get(address(name)).content
        assert b"<script>alert" not in page
        assert b"<b>x" not in page
        assert b"<i>x" not in page
