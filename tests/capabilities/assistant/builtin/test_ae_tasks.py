from __future__ import annotations

import pytest

from capabilities.assistant.models import Task
from tests.capabilities.assistant.builtin.conftest import NOW, Call

pytestmark = pytest.mark.usefixtures("in_acme")

EMPTY: dict[str, object] = {
    name: {"tasks": []} for name in ("overdue", "today", "soon", "later", "without_date", "done_lately")
}


def test_an_empty_board_has_its_columns(as_alice: Call) -> None:
    assert as_alice("ae_task_list") == EMPTY


def test_each_task_stands_in_its_column(as_alice: Call) -> None:
    for title, due in (
        ("late", "yesterday"),
        ("now", "today"),
        ("week", "2026-11-25"),
        ("far", "2026-11-26"),
        ("some", None),
        ("done", "yesterday"),
    ):
        as_alice("task_create", title=title, due=due, priority="high" if title == "now" else "normal")
    as_alice("task_complete", number=6)

    assert as_alice("ae_task_list") == {
        "overdue": {"tasks": [{"number": 1, "title": "late", "due": "2026-11-17"}]},
        "today": {"tasks": [{"number": 2, "title": "now", "due": "2026-11-18", "priority": "high"}]},
        "soon": {"tasks": [{"number": 3, "title": "week", "due": "2026-11-25"}]},
        "later": {"tasks": [{"number": 4, "title": "far", "due": "2026-11-26"}]},
        "without_date": {"tasks": [{"number": 5, "title": "some"}]},
        "done_lately": {"tasks": [{"number": 6, "title": "done", "due": "2026-11-17"}]},
    }


def test_what_was_done_long_ago_is_left_out(as_alice: Call) -> None:
    as_alice("task_create", title="old")
    as_alice("task_complete", number=1)
    Task.objects.update(completed_at=NOW.replace(month=10))

    assert as_alice("ae_task_list") == EMPTY


def test_a_long_column_is_cut_and_says_how_much_is_left(as_alice: Call) -> None:
    for _ in range(3):
        as_alice("task_create", title="t")

    column = as_alice("ae_task_list", limit=2)["without_date"]

    assert (len(column["tasks"]), column["more"]) == (2, 1)


@pytest.mark.parametrize("count", [1, 3])
def test_the_board_takes_seven_queries(
    as_alice: Call, count: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for _ in range(count):
        as_alice("task_create", title="t")

    with django_assert_num_queries(7):  # type: ignore[operator]
        as_alice("ae_task_list")
