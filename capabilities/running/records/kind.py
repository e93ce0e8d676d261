"""Definition of a kind of rows, for the pages and routes that are the same for all of them. Knows no single kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet
from rest_framework.serializers import Serializer

from capabilities.running.records.forms import RecordForm

#: Characters of a text that a line shows.
NOTE = 140


@dataclass(frozen=True)
class RecordLine:
    """One row as a list shows it: its text, a line under it, short facts beside it, and whether it is done with."""

    text: str
    note: str = ""
    facts: tuple[str, ...] = ()
    is_done: bool = False


@dataclass(frozen=True)
class State:
    """Some of the rows, under a tab: `name` stands in the address."""

    name: str
    label: str
    rows: Q


@dataclass(frozen=True)
class Switch:
    """Change that one click on a line makes: the values that are written, and the buttons' words."""

    on: dict[str, Any]
    off: dict[str, Any]
    on_label: str
    off_label: str


@dataclass(frozen=True)
class Kind:
    """One kind of a member's own rows: which they are, how they are shown, and the functions that write them."""

    #: In addresses, such as list-items.
    name: str
    title: str
    #: One of them, after "a" or "an".
    one: str
    icon: str
    #: Purpose of the kind, and a message to an agent that makes one.
    purpose: str
    example: str
    #: A PublicModel with a membership.
    model: type[Any]
    #: The order of its page; the last field is the member's own and stands once. A minus is before what falls.
    order: tuple[str, ...]
    #: The field that cursors over REST hold; it stands once for each member. Numbers go from the newest.
    key: str = field(kw_only=True, default="number")
    #: Fields that a search looks in.
    searched: tuple[str, ...]
    line: Callable[[Any], RecordLine]
    #: A row, and the body of a write, over REST; the same names as the form's fields and the writes' arguments.
    out: type[Serializer[Any]]
    body: type[Serializer[Any]] | None = None
    form: type[RecordForm] | None = None
    #: Called as create(owner, **values) and change(owner, row, **values). Without one there is no such page or method.
    create: Callable[..., Any] | None = None
    change: Callable[..., None] | None = None
    #: Adds what lines and REST show of other tables.
    joined: Callable[[QuerySet[Any]], QuerySet[Any]] = lambda rows: rows
    #: The first one is what the page shows at first.
    states: tuple[State, ...] = ()
    switch: Switch | None = None
    #: The field that leads to the row that these belong to, and the name of its kind.
    parent: str = ""
    parent_kind: str = ""
    #: The kind of the rows that belong to these, and its field that leads here.
    children: str = ""
    child_field: str = ""

    @property
    def consequence(self) -> str:
        """Warning that is shown before a row is deleted."""
        return f"It cannot be brought back{', nor what is in it' if self.children else ''}."

    def state(self, name: str) -> State | None:
        return next((each for each in self.states if each.name == name), None)


def short(text: str) -> str:
    line = " ".join(text[: 2 * NOTE].split())
    return line if len(line) <= NOTE else line[: NOTE - 1] + "…"
