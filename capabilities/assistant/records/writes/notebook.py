"""Tasks, memories, the scratchpad and the notes of agents."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.db import transaction

from capabilities.assistant.models import AgentNote, Memory, Scratchpad, Task
from capabilities.models.numbered import Owner
from capabilities.running.records.names import one_line
from capabilities.running.records.own import RecordRefused, own_rows
from capabilities.running.records.rows import create_numbered

#: Characters of a task's title and notes, of a memory, and of a page of notes.
TASK_TITLE = 500
TASK_NOTES = 10_000
MEMORY_TEXT = 2_000
PAGE_TEXT = 100_000
#: Memories that one member can have, so that a search over all of them stays quick.
MEMORIES = 1_000


@transaction.atomic
def create_task(
    owner: Owner,
    *,
    title: str,
    due: date | None = None,
    notes: str = "",
    priority: str = Task.Priority.NORMAL,
    status: str = Task.Status.OPEN,
) -> Task:
    """Create a task under the next number of the member. Raises ToolError without a title."""
    return create_numbered(
        Task,
        owner,
        title=_title(title),
        due=due,
        notes=notes.strip(),
        priority=priority,
        status=status,
        completed_at=owner.now() if status == Task.Status.DONE else None,
    )


@transaction.atomic
def change_task(owner: Owner, task: Task, *, status: str | None = None, **changes: Any) -> None:
    """`changes`: title, due, notes, priority. A task that is done already keeps the moment of its completion."""
    if "title" in changes:
        changes["title"] = _title(changes["title"])
    if "notes" in changes:
        changes["notes"] = changes["notes"].strip()
    rows = own_rows(Task, owner).filter(pk=task.pk)
    if changes:
        rows.update(**changes)
    if status is not None:
        completed_at = owner.now() if status == Task.Status.DONE else None
        rows.exclude(status=status).update(status=status, completed_at=completed_at)


def _title(text: str) -> str:
    return one_line(text, "A task needs a title.")


@transaction.atomic
def create_memory(owner: Owner, *, text: str) -> Memory:
    """The new memory, or the one that has this text already. Raises RecordRefused where all are in use."""
    text = _memory_text(text)
    known = own_rows(Memory, owner).filter(text=text).first()
    if known is None and own_rows(Memory, owner).count() >= MEMORIES:
        raise RecordRefused(f"All {MEMORIES} memories are in use: remove some first.")
    return known or create_numbered(Memory, owner, text=text)


def change_memory(owner: Owner, memory: Memory, *, text: str) -> None:
    own_rows(Memory, owner).filter(pk=memory.pk).update(text=_memory_text(text))


def _memory_text(text: str) -> str:
    text = text.strip()
    if not text:
        raise RecordRefused("There is nothing to remember: the text is empty.", "text")
    return text


def write_scratchpad(owner: Owner, *, text: str) -> Scratchpad:
    """Put this text in place of the whole page, which is made where there is none."""
    return Scratchpad.objects.update_or_create(
        organisation_id=owner.organisation_id, membership_id=owner.membership_id, defaults={"text": text}
    )[0]


def change_scratchpad(owner: Owner, page: Scratchpad, *, text: str) -> None:
    own_rows(Scratchpad, owner).filter(pk=page.pk).update(text=text, updated_at=owner.now())


def change_agent_note(owner: Owner, page: AgentNote, *, text: str) -> None:
    own_rows(AgentNote, owner).filter(pk=page.pk).update(text=text, updated_at=owner.now())
