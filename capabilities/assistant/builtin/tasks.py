"""A member's to-do list. Knows the rows of the member it runs for, and of nobody else."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.db.models import F, QuerySet
from pydantic import Field

from capabilities.assistant.models import Task
from capabilities.assistant.records.writes.notebook import TASK_NOTES, TASK_TITLE, change_task, create_task
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.dates import parse_date
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="tasks",
    title="Tasks",
    description="The member's own to-do list.",
    keywords=(
        "task",
        "todo",
        "to-do",
        "to do",
        "add task",
        "create task",
        "what's on my list",
        "what is on my list",
        "pending",
    ),
    is_core=True,
)

#: Tasks that one listing shows.
LIST_LIMIT = 200

Number = Annotated[int, Field(description="The task's number.")]
Title = Annotated[str, Field(max_length=TASK_TITLE), WITHOUT_NUL]
Notes = Annotated[str, Field(max_length=TASK_NOTES), WITHOUT_NUL]
Due = Annotated[
    str | None,
    Field(
        description="YYYY-MM-DD, or words such as tomorrow, friday, in 3 days.", json_schema_extra={"format": "date"}
    ),
]
Priority = Literal["low", "normal", "high"]


@tool(category="tasks", effect="read", human_format="Listing {status} tasks")
def task_list(
    context: ToolContext, status: Literal["open", "done", "all"] = "open", due_before: Due = None
) -> dict[str, Any]:
    """List the user's tasks, the next due first. With due_before, only those due earlier than that day."""
    tasks = _mine(context)
    if status != "all":
        tasks = tasks.filter(status=status)
    if due_before:
        tasks = tasks.filter(due__lt=parse_date(due_before, context.now().date()))
    total = tasks.count()
    shown = tasks.order_by(F("due").asc(nulls_last=True), "number")[:LIST_LIMIT]
    listing: dict[str, Any] = {"tasks": [_as_json(task) for task in shown]}
    if total > LIST_LIMIT:
        listing["more"] = total - LIST_LIMIT
    return listing


@tool(category="tasks", effect="write", human_format="Adding task: {title}")
def task_create(
    context: ToolContext, title: Title, due: Due = None, notes: Notes = "", priority: Priority = "normal"
) -> dict[str, Any]:
    """Add a task to the user's list."""
    task = create_task(context, title=title, due=_due(context, due), notes=notes, priority=priority)
    return {"task": _as_json(task)}


# Setting the same values a second time changes nothing, so a crash may be followed by another try.
@tool(category="tasks", effect="write", on_crash="retry", human_format="Changing task {number}")
def task_update(
    context: ToolContext,
    number: Number,
    title: Title | None = None,
    due: Annotated[Due, Field(description="As in task_create; none takes the date away.")] = None,
    notes: Notes | None = None,
    priority: Priority | None = None,
    status: Literal["open", "done"] | None = None,
) -> dict[str, Any]:
    """Change a task; what is left out stays as it is. To finish a task use task_complete."""
    changes: dict[str, Any] = {}
    if title is not None:
        changes["title"] = title
    if due is not None:
        changes["due"] = _due(context, due)
    if notes is not None:
        changes["notes"] = notes
    if priority is not None:
        changes["priority"] = priority
    if not changes and status is None:
        raise ToolError("Say what to change: title, due, notes, priority or status.")
    change_task(context, _task(context, number), status=status, **changes)
    return {"task": _as_json(_task(context, number))}


@tool(category="tasks", effect="write", on_crash="retry", human_format="Completing task {number}")
def task_complete(context: ToolContext, number: Number) -> dict[str, Any]:
    """Mark a task as done."""
    change_task(context, _task(context, number), status=Task.Status.DONE)
    return {"task": _as_json(_task(context, number))}


def _mine(context: ToolContext) -> QuerySet[Task]:
    return own_rows(Task, context)


def _task(context: ToolContext, number: int) -> Task:
    task = _mine(context).filter(number=number).first()
    if task is None:
        raise ToolError(f"There is no task {number}: task_list shows the numbers.")
    return task


def _due(context: ToolContext, text: str | None) -> Any:
    if text is None or text.strip().lower() in {"", "none", "null"}:
        return None
    return parse_date(text, context.now().date())


def _as_json(task: Task) -> dict[str, Any]:
    """Return the task as JSON, without empty and usual values: they would cost tokens and say nothing."""
    row: dict[str, Any] = {"number": task.number, "title": task.title}
    if task.due:
        row["due"] = task.due.isoformat()
    row["status"] = task.status
    if task.priority != Task.Priority.NORMAL:
        row["priority"] = task.priority
    if task.notes:
        row["notes"] = task.notes
    return row
