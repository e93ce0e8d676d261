"""The pages of what members keep: one list, one form and one deletion for every kind. All rows are the member's own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.assistant.records.kinds import kind_named, kinds
from capabilities.contract.context import ToolError
from capabilities.running.records.forms import RecordForm
from capabilities.running.records.kind import Kind, State
from capabilities.running.records.own import owner_of, remove_row
from capabilities.running.records.queries import count_rows, matching, row_or_404, rows_of
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.keyset import Keyset

#: The tab behind the others: every row.
ALL = State("all", "All", Q())


class RecordsAddress(ListAddress):
    """Words to look for, and a tab."""

    q = forms.CharField(required=False, max_length=100)
    state = forms.CharField(required=False, max_length=20)


@require_GET
@signed_in
def data_overview(request: MemberRequest, org: str) -> HttpResponse:
    """The kinds, and how many rows of each the member has. A query for each kind."""
    owner = owner_of(member_or_404(request))
    shown = count_rows([kind for kind in kinds() if not kind.parent], owner)
    return render(request, "capabilities/assistant/records/overview.html", {"kinds": shown})


@require_GET
@signed_in
def data_list(request: MemberRequest, org: str, kind: str) -> HttpResponse:
    """The member's rows of one kind; with the kind of their parent in the address, those that belong to one row."""
    member = member_or_404(request)
    shown_kind = kind_or_404(kind)
    asked = RecordsAddress(request.GET)
    address = asked.values()
    owner = owner_of(member)
    parent = _parent(shown_kind, member, request.GET)
    rows = rows_of(shown_kind, owner)
    if parent is not None:
        rows = rows.filter(**{shown_kind.parent: parent})
    tabs = [*shown_kind.states, ALL] if shown_kind.states else []
    state = next((each for each in tabs if each.name == address["state"]), tabs[0] if tabs else None)
    if state is not None:
        rows = rows.filter(state.rows)
    if address["q"]:
        rows = rows.filter(matching(shown_kind, address["q"]))
    page = Keyset(rows, shown_kind.order).page(**asked.place)
    context = {
        "kind": shown_kind,
        "parent": parent,
        "parent_kind": kind_named(shown_kind.parent_kind),
        "page": page.of(lambda row: line_context(shown_kind, row)),
        "q": address["q"],
        "tabs": tabs,
        "state": state.name if state else "",
        "is_first": not any(asked.place.values()),
        "query": _query(shown_kind, parent, address["q"], state.name if state else ""),
        "may_add": shown_kind.create is not None and member.has_access(Access.MEMBER),
    }
    return render(request, "capabilities/assistant/records/list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def data_create(request: MemberRequest, org: str, kind: str) -> HttpResponse:
    member = member_or_404(request)
    shown_kind = kind_or_404(kind)
    if shown_kind.create is None or shown_kind.form is None:
        raise Http404("Nobody adds these by hand.")
    member_or_404(request, at_least=Access.MEMBER)
    parent = _parent(shown_kind, member, request.GET)
    initial = {shown_kind.parent: parent.name} if parent is not None else {}
    form = shown_kind.form(request.POST or None, is_new=True, initial=initial)
    if form.is_valid():
        try:
            row = shown_kind.create(owner_of(member), **form.values())
        except ToolError as error:
            _show_refusal(form, error)
        else:
            messages.success(request, "Added.")
            return redirect(_list_address(org, shown_kind, row))
    return _form_page(request, org, shown_kind, form, None, parent)


@require_http_methods(["GET", "POST"])
@signed_in
def data_record(request: MemberRequest, org: str, kind: str, own_record: UUID) -> HttpResponse:
    """One row: its form, or its text where it can only be read."""
    member = member_or_404(request)
    shown_kind = kind_or_404(kind)
    owner = owner_of(member)
    row = row_or_404(shown_kind, owner, own_record)
    shown = dict(shown_kind.out(row).data)
    if shown_kind.form is None or shown_kind.change is None:
        if request.method == "POST":
            raise Http404("These cannot be changed.")
        return _form_page(request, org, shown_kind, None, row)
    form = shown_kind.form(request.POST or None, initial=shown_kind.form.initial_of(shown))
    if form.is_valid():
        try:
            shown_kind.change(owner, row, **form.values())
        except ToolError as error:
            _show_refusal(form, error)
        else:
            messages.success(request, "Saved.")
            return redirect(_list_address(org, shown_kind, row_or_404(shown_kind, owner, own_record)))
    return _form_page(request, org, shown_kind, form, row)


@require_POST
@signed_in
def data_delete(request: MemberRequest, org: str, kind: str, own_record: UUID) -> HttpResponse:
    owner = owner_of(member_or_404(request))
    shown_kind = kind_or_404(kind)
    row = row_or_404(shown_kind, owner, own_record)
    remove_row(owner, row)
    messages.success(request, "Deleted.")
    return redirect(_list_address(org, shown_kind, row))


@require_POST
@signed_in
def data_switch(request: MemberRequest, org: str, kind: str, own_record: UUID) -> HttpResponse:
    """Done or open again, with one click. htmx gets the line; others go back to the list."""
    owner = owner_of(member_or_404(request))
    shown_kind = kind_or_404(kind)
    row = row_or_404(shown_kind, owner, own_record)
    if shown_kind.switch is None or shown_kind.change is None:
        raise Http404("There is nothing to switch.")
    values = shown_kind.switch.on if request.POST.get("on") == "1" else shown_kind.switch.off
    try:
        shown_kind.change(owner, row, **values)
    except ToolError as error:
        messages.error(request, str(error))
        return redirect(_list_address(org, shown_kind, row))
    if not request.htmx:
        return redirect(_list_address(org, shown_kind, row))
    line = line_context(shown_kind, row_or_404(shown_kind, owner, own_record))
    return render(request, "capabilities/assistant/records/_line.html", {"kind": shown_kind, "line": line})


def kind_or_404(name: str) -> Kind:
    kind = kind_named(name)
    if kind is None:
        raise Http404("No such kind.")
    return kind


def line_context(kind: Kind, row: Any) -> dict[str, Any]:
    """A row as `_line.html` shows it."""
    return {"row": row, "shown": kind.line(row), "id": row.public_id}


def _parent(kind: Kind, member: Membership, address: QueryDict) -> Any:
    """The row that the address narrows the list to, or None. One that is not the member's looks like a missing one."""
    text = address.get(kind.parent, "") if kind.parent else ""
    parent_kind = kind_named(kind.parent_kind)
    if not text or parent_kind is None:
        return None
    try:
        return row_or_404(parent_kind, owner_of(member), UUID(text))
    except ValueError:
        raise Http404("No such row.") from None


def _query(kind: Kind, parent: Any, q: str, state: str) -> str:
    """The list's address without its place."""
    query = QueryDict(mutable=True)
    for name, value in ((kind.parent, parent.public_id if parent else ""), ("state", state), ("q", q)):
        if name and value:
            query[name] = str(value)
    return query.urlencode()


def _list_address(org: str, kind: Kind, row: Any) -> str:
    """The list that a row stands on: of its parent, where it has one."""
    address = reverse("data_list", args=[org, kind.name])
    return f"{address}?{kind.parent}={getattr(row, kind.parent).public_id}" if kind.parent else address


def _show_refusal(form: RecordForm, error: ToolError) -> None:
    """Beside its field; over the form, where it names none of the form's."""
    name = getattr(error, "field", "")
    form.add_error(name if name in form.fields else None, str(error))


def _form_page(
    request: MemberRequest, org: str, kind: Kind, form: RecordForm | None, row: Any, parent: Any = None
) -> HttpResponse:
    is_wrong = form is not None and bool(form.errors)
    child = row if row is not None else None
    back_url = _list_address(org, kind, child) if child is not None else reverse("data_list", args=[org, kind.name])
    if parent is not None:
        back_url = f"{back_url}?{kind.parent}={parent.public_id}"
    context = {
        "kind": kind,
        "form": form,
        "row": row,
        "line": kind.line(row) if row is not None else None,
        "back": back_url,
        "back_title": parent or (getattr(row, kind.parent) if row is not None and kind.parent else kind.title),
    }
    return render(request, "capabilities/assistant/records/form.html", context, status=422 if is_wrong else 200)
