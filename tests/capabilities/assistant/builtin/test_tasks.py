from __future__ import annotations

from datetime import timedelta

import pytest

from capabilities.assistant.models import Task
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records import rows as _rows
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.conftest import NOW, Call
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.usefixtures("in_acme")

MILK = {"number": 1, "title": "buy milk", "due": "2026-11-23", "status": "open"}


def test_a_created_task_is_listed(as_alice: Call) -> None:
    assert as_alice("task_create", title=" buy  milk ", due="monday") == {"task": MILK}

    assert as_alice("task_list") == {"tasks": [MILK]}


def test_numbers_count_from_one_for_each_member(as_alice: Call, as_bob: Call) -> None:
    numbers = [call("task_create", title="t")["task"]["number"] for call in (as_alice, as_alice, as_bob, as_alice)]

    assert numbers == [1, 2, 1, 3]


def test_a_number_taken_at_the_same_moment_is_counted_again(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    as_alice("task_create", title="first")
    counted = iter([0, 0, 1])
    monkeypatch.setattr(_rows, "last_number", lambda model, context: next(counted))

    assert as_alice("task_create", title="second")["task"]["number"] == 2


def test_a_number_that_stays_taken_ends_in_a_sentence(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    as_alice("task_create", title="first")
    monkeypatch.setattr(_rows, "last_number", lambda model, context: 0)

    with pytest.raises(ToolError, match="Too many changes at the same time; try again"):
        as_alice("task_create", title="second")


def test_a_listing_is_ordered_by_due_date_and_says_what_matters(as_alice: Call) -> None:
    as_alice("task_create", title="someday")
    as_alice("task_create", title="later", due="2026-12-24", notes="wrap it", priority="high")
    as_alice("task_create", title="soon", due="tomorrow", priority="low")

    assert as_alice("task_list") == {
        "tasks": [
            {"number": 3, "title": "soon", "due": "2026-11-19", "status": "open", "priority": "low"},
            {
                "number": 2,
                "title": "later",
                "due": "2026-12-24",
                "status": "open",
                "priority": "high",
                "notes": "wrap it",
            },
            {"number": 1, "title": "someday", "status": "open"},
        ]
    }


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({}, [2, 3]),
        ({"status": "done"}, [1]),
        ({"status": "all"}, [1, 2, 3]),
        ({"due_before": "2026-11-20"}, [2]),
        ({"status": "all", "due_before": "friday"}, [1, 2]),
        ({"due_before": "today"}, []),
    ],
)
def test_a_listing_is_narrowed(as_alice: Call, arguments: dict[str, str], numbers: list[int]) -> None:
    for title, due in (("a", "today"), ("b", "tomorrow"), ("c", "friday")):
        as_alice("task_create", title=title, due=due)
    as_alice("task_complete", number=1)

    assert [task["number"] for task in as_alice("task_list", **arguments)["tasks"]] == numbers


def test_a_long_listing_is_cut_and_says_how_much_is_left(as_alice: Call, alice: Membership, acme: Organisation) -> None:
    rows = [Task(organisation=acme, membership=alice, number=number, title="t") for number in range(1, 206)]
    Task.objects.bulk_create(rows)

    listing = as_alice("task_list")

    assert (len(listing["tasks"]), listing["more"]) == (200, 5)


@pytest.mark.parametrize("count", [1, 3])
def test_a_listing_takes_two_queries(
    as_alice: Call, count: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for _ in range(count):
        as_alice("task_create", title="t")

    with django_assert_num_queries(2):  # type: ignore[operator]
        as_alice("task_list")


def test_an_update_changes_what_it_names_and_nothing_else(as_alice: Call) -> None:
    as_alice("task_create", title="buy milk", due="monday", notes="two")

    assert as_alice("task_update", number=1, title="buy oat milk", priority="high") == {
        "task": MILK | {"title": "buy oat milk", "priority": "high", "notes": "two"}
    }


def test_an_update_takes_the_date_away_and_opens_again(as_alice: Call) -> None:
    as_alice("task_create", title="buy milk", due="monday")
    as_alice("task_complete", number=1)

    answer = as_alice("task_update", number=1, due="none", status="open")

    assert answer == {"task": {"number": 1, "title": "buy milk", "status": "open"}}
    assert Task.objects.get().completed_at is None


def test_an_update_without_a_change_is_refused(as_alice: Call) -> None:
    with pytest.raises(ToolError, match="Say what to change"):
        as_alice("task_update", number=1)


def test_completing_twice_keeps_the_first_moment(as_alice: Call, alice: Membership, context: ToolContext) -> None:
    as_alice("task_create", title="buy milk")

    assert as_alice("task_complete", number=1) == as_alice("task_complete", number=1)

    assert Task.objects.get().completed_at == NOW
    Task.objects.update(completed_at=NOW - timedelta(days=1))
    as_alice("task_complete", number=1)
    assert Task.objects.get().completed_at == NOW - timedelta(days=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"title": "  "}, "A task needs a title."),
        ({"title": "x", "due": "someday"}, "'someday' is not a date: write it as YYYY-MM-DD."),
        ({"title": "x" * 501}, "title: String should have at most 500 characters"),
        ({"title": "x", "priority": "urgent"}, "priority: Input should be 'low', 'normal' or 'high'"),
        ({"title": "x", "colour": "red"}, "colour: Extra inputs are not permitted"),
    ],
)
def test_a_task_that_cannot_be_is_refused(as_alice: Call, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ToolError) as refused:
        as_alice("task_create", **arguments)

    assert str(refused.value) == message
    assert as_alice("task_list", status="all") == {"tasks": []}


def test_a_nul_in_a_text_is_left_out(as_alice: Call) -> None:
    assert as_alice("task_create", title="a\0b")["task"]["title"] == "ab"


@pytest.mark.parametrize("number", [0, -1, 7, 10**30])
@pytest.mark.parametrize("name", ["task_complete", "task_update"])
def test_a_missing_task_is_named(as_alice: Call, name: str, number: int) -> None:
    with pytest.raises(ToolError, match=f"There is no task {number}: task_list shows the numbers"):
        as_alice(name, number=number, **({"title": "x"} if name == "task_update" else {}))


def test_tasks_of_others_do_not_exist(as_alice: Call, as_bob: Call, as_charlie: Call, globex: Organisation) -> None:
    as_alice("task_create", title="of Alice")

    with organisation_scope(globex):
        assert as_charlie("task_list", status="all") == {"tasks": []}
        with pytest.raises(ToolError, match="There is no task 1"):
            as_charlie("task_complete", number=1)
    assert as_bob("task_list", status="all") == {"tasks": []}
    with pytest.raises(ToolError, match="There is no task 1"):
        as_bob("task_update", number=1, title="of Bob")
    assert as_alice("task_list") == {"tasks": [{"number": 1, "title": "of Alice", "status": "open"}]}


def test_the_model_reads_that_due_is_a_date() -> None:
    due = registry.tools["task_create"].parameters["properties"]["due"]

    assert due["format"] == "date"
