"""The member's tasks as a board. Knows how tasks fall into columns; how they are changed, tasks.py knows."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Any

from django.db.models import Count, Q, QuerySet
from pydantic import Field

from capabilities.assistant.models import Task
from capabilities.contract.context import ToolContext
from capabilities.running.records.own import own_rows
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="ae_tasks",
    title="Task board",
    description="The member's tasks as a board with columns.",
    keywords=("ae task", "kanban", "board", "ae_task"),
)

#: Days that count as soon, and for which a task done is shown.
SOON_DAYS = 7
DONE_DAYS = 14


@tool(category="ae_tasks", effect="read", human_format="Showing the task board")
def ae_task_list(
    context: ToolContext,
    limit: Annotated[int, Field(description="Tasks in one column.", ge=1, le=100)] = 30,
) -> dict[str, Any]:
    """Show the user's tasks as a board: overdue, today, soon (7 days), later, without_date, done_lately (14 days)."""
    tasks = own_rows(Task, context)
    columns = _columns(context.now().date())
    counts = tasks.aggregate(**{name: Count("pk", filter=wanted) for name, wanted in columns.items()})
    return {name: _column(tasks.filter(wanted), counts[name], limit) for name, wanted in columns.items()}


def _columns(today: date) -> dict[str, Q]:
    is_open = Q(status=Task.Status.OPEN)
    soon = today + timedelta(days=SOON_DAYS)
    return {
        "overdue": is_open & Q(due__lt=today),
        "today": is_open & Q(due=today),
        "soon": is_open & Q(due__gt=today, due__lte=soon),
        "later": is_open & Q(due__gt=soon),
        "without_date": is_open & Q(due=None),
        "done_lately": Q(status=Task.Status.DONE, completed_at__date__gte=today - timedelta(days=DONE_DAYS)),
    }


def _column(tasks: QuerySet[Task], count: int, limit: int) -> dict[str, Any]:
    shown = [_as_json(task) for task in tasks.order_by("due", "number")[:limit]]
    return {"tasks": shown} | ({"more": count - limit} if count > limit else {})


def _as_json(task: Task) -> dict[str, Any]:
    row: dict[str, Any] = {"number": task.number, "title": task.title}
    if task.due:
        row["due"] = task.due.isoformat()
    if task.priority != Task.Priority.NORMAL:
        row["priority"] = task.priority
    return row
