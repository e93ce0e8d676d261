"""The pages of imports: the list, a new one, the review of what was found, and one definition of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.catalogue.imports.forms import (
    STATUSES,
    BaseUrlForm,
    ChangeForm,
    DecideForm,
    FoundAddress,
    ImportsAddress,
    StartForm,
)
from capabilities.catalogue.imports.matching import ACCEPTABLE, content_of, later_reading
from capabilities.catalogue.imports.queries import (
    BADGES,
    IMPORT_BADGES,
    categories_of,
    credentials_to_pick,
    decides_in,
    found_page,
    found_rows,
    import_numbers,
    import_or_404,
    imported_or_404,
    imports_page,
    may_decide,
    review_numbers,
    rows_named,
    suggested_credential,
    tools_accepted,
    versions_compared,
)
from capabilities.catalogue.imports.readers import sources
from capabilities.catalogue.imports.writes.change import change_imported, close_import, set_base_url, set_effects
from capabilities.catalogue.imports.writes.decide import Accepted, accept_imported, dismiss_imported, restore_imported
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.catalogue.tools.recipients.forms import recipient_choices
from capabilities.catalogue.tools.recipients.pages import giving_page, preview_page, require_giver, saved_or_shown
from capabilities.catalogue.tools.recipients.queries import holders_of
from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.catalogue.versions.queries import difference_between
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.previews import Preview, digest
from capabilities.common.refused import ChangeRefused
from capabilities.common.visible import visible_parts
from capabilities.contract.parameters import parameter_rows
from capabilities.contract.warnings import normalised
from capabilities.models import (
    UNDECIDED,
    Category,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    StoredCredential,
    ToolImport,
    ToolKind,
)
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.keyset import Page

FILTERS = ("q", "status", "warning", "group")


@require_GET
@signed_in
def import_list(request: MemberRequest, org: str) -> HttpResponse:
    member_or_404(request, right=Right.CATALOGUE, category=None)
    address = ImportsAddress(request.GET)
    every, review = import_numbers()
    page = with_badges(imports_page(**address.values()))
    context = {**address.context(page), "every": every, "review": review, "statuses": ImportStatus.choices}
    return render(request, "capabilities/catalogue/imports/import_list.html", context)


@require_GET
@signed_in
def import_review_list(request: MemberRequest, org: str) -> HttpResponse:
    """List the imports that wait for a review, newest first."""
    member_or_404(request, right=Right.CATALOGUE, category=None)
    address = ListAddress(request.GET)
    page = with_badges(imports_page(status=ImportStatus.REVIEW, **address.place))
    return render(request, "capabilities/catalogue/imports/import_review_list.html", address.context(page))


def with_badges(page: Page[ToolImport]) -> Page[ToolImport]:
    for each in page.rows:
        each.badge = IMPORT_BADGES[ImportStatus(each.status)]  # type: ignore[attr-defined]
    return page


@require_http_methods(["GET", "POST"])
@signed_in
def import_create(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    categories = categories_of(member)
    sent = (request.POST, request.FILES) if request.method == "POST" else ()
    form = StartForm(
        *sent, initial=request.GET.dict(), categories=categories, has_all=member.has_right(Right.CATALOGUE)
    )
    if form.is_bound and form.is_valid():
        data = form.cleaned_data
        try:
            tool_import = start_import(
                ImportSource(data["source"]),
                actor=member,
                title=data["title"],
                url=data["url"],
                document=data["file"],
                category=data["category"],
                part=form.part(),
            )
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            return redirect("import_detail", org, tool_import.public_id)
    return render(request, "capabilities/catalogue/imports/import_form.html", {"form": form}, status=status_of(form))


# -- The review -------------------------------------------------------------------------------------------------------


@require_GET
@signed_in
def import_detail(request: MemberRequest, org: str, import_id: UUID) -> HttpResponse:
    """Show the definitions found, to accept or to dismiss. While the source is read, the page asks again by itself."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool_import = import_or_404(import_id)
    if tool_import.is_open and request.htmx:
        return render(request, "capabilities/catalogue/imports/_import_progress.html", {"import": tool_import})
    if request.htmx:
        return HttpResponse(headers={"HX-Refresh": "true"})
    return _review(request, member, tool_import)


def _review(
    request: MemberRequest, member: Membership, tool_import: ToolImport, form: DecideForm | None = None
) -> HttpResponse:
    """Show the review, with the form as it was sent where that was wrong."""
    sent: QueryDict = request.GET if form is None else request.POST
    address = FoundAddress(sent)
    page = found_page(tool_import, address.wanted(), **address.place)
    ticked = set(request.POST.getlist("tools"))
    for row in page.rows:
        _mark(row, member)
        row.is_ticked = str(row.public_id) in ticked  # type: ignore[attr-defined]
    stored = _credentials_for(tool_import)
    suggested = suggested_credential(tool_import, stored)
    numbers = review_numbers(tool_import)
    waits = tool_import.status == ImportStatus.REVIEW and numbers.waiting > 0
    summary = tool_import.summary if isinstance(tool_import.summary, dict) else {}
    categories = categories_of(member)
    form = form or DecideForm(
        initial={
            "credential": suggested.name if suggested else "",
            "category": suggested_category(tool_import, categories),
        }
    )
    context = {
        **address.context(page),
        "import": tool_import,
        "badge_state": IMPORT_BADGES[ImportStatus(tool_import.status)],
        "numbers": numbers,
        "summary": summary,
        "servers": summary.get("servers", []),
        "needed": summary.get("credentials", []),
        "form": form,
        "sent": {name: request.POST.get(name, "") for name in ("effect", "ask", "in_untrusted")},
        "categories": categories,
        "credentials": stored,
        "may_add_category": member.has_right(Right.CATALOGUE),
        "may_accept": tool_import.source in ACCEPTABLE,
        "may_set_approvals": member.has_right(Right.POLICIES),
        "waits": waits,
        "decides": waits and decides_in(member, tool_import),
        "may_close": tool_import.status == ImportStatus.REVIEW and may_decide(member, tool_import),
        "matching": found_rows(tool_import, address.wanted()).filter(status__in=UNDECIDED).count(),
        "filter_statuses": STATUSES,
        **recipient_choices(member, form if form.is_bound else None),
        **_next_step(member, tool_import),
    }
    source = sources.get(tool_import.source)
    if source and source.review and not tool_import.is_open and tool_import.status != ImportStatus.FAILED:
        context["extra"] = source.review(tool_import, member)
    return render(request, "capabilities/catalogue/imports/import_detail.html", context, status=status_of(form))


def _next_step(member: Membership, tool_import: ToolImport) -> dict[str, Any]:
    """Return the context of who has what was accepted. Seven queries at most."""
    return {
        "holders": holders_of(tools_accepted(tool_import), member),
        "no_agent": NO_AGENT,
        "give_url": reverse("import_give", args=[member.organisation.slug, tool_import.public_id]),
        "may_give": member.has_right(Right.AGENTS) or member.has_right(Right.TOOLKITS),
        "may_chat": member.has_access(Access.MEMBER),
    }


@require_http_methods(["GET", "POST"])
@signed_in
def import_give(request: MemberRequest, org: str, import_id: UUID) -> HttpResponse:
    """Give agents what was accepted and no agent has; all that was accepted, where each has an agent."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    require_giver(member)
    tool_import = import_or_404(import_id)
    tools = tools_accepted(tool_import)
    back_url = reverse("import_detail", args=[org, tool_import.public_id])
    names = holders_of(tools).without_agent or [tool.name for tool in tools]
    if not names:
        return refused(
            request, ChangeRefused("tools", "Nothing of this import is accepted yet."), "import_detail", org, import_id
        )
    return giving_page(request, member, names, back_url=back_url)


def _credentials_for(tool_import: ToolImport) -> list[StoredCredential]:
    """Return the credentials that its tools may be signed with. At most one query."""
    needs = isinstance(tool_import.summary, dict) and tool_import.summary.get("credentials")
    is_file = tool_import.source == ImportSource.TOOLKIT and needs
    return credentials_to_pick() if is_file or tool_import.source == ImportSource.OPENAPI else []


def suggested_category(tool_import: ToolImport, categories: Sequence[Category]) -> str:
    """Return the name of the category that the import's tools go to by default: its own, or the one with its title;
    "" for a new one with its title."""
    if tool_import.category is not None:
        return tool_import.category.name
    return next((each.name for each in categories if each.title == tool_import.title), "")


def _mark(row: ImportedTool, member: Membership) -> None:
    """Set on a row what the page shows beside its own columns."""
    row.badge = BADGES[row.status]  # type: ignore[attr-defined, index]
    row.line = " ".join(normalised(row.description).split())[:300]  # type: ignore[attr-defined]
    row.is_waiting = row.status in UNDECIDED  # type: ignore[attr-defined]


@require_POST
@signed_in
def import_decide(request: MemberRequest, org: str, import_id: UUID) -> HttpResponse:
    """Accept, dismiss or bring back the ticked definitions, or all that the filters of the page mean."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool_import = import_or_404(import_id)
    form = DecideForm(request.POST)
    if form.is_valid():
        try:
            rows = _chosen(request, tool_import)
            done = _decide(request, rows, form, member, tool_import)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            address = _back(request, org, tool_import)
            if isinstance(done, Preview):
                return preview_page(request, done, title=f"Accept from {tool_import.title}", back_url=address)
            messages.success(request, done)
            return redirect(address)
    return _review(request, member, tool_import, form)


def _chosen(request: MemberRequest, tool_import: ToolImport) -> QuerySet[ImportedTool]:
    if request.POST.get("act", "").endswith("_all"):
        return found_rows(tool_import, FoundAddress(request.POST).wanted())
    ticked = request.POST.getlist("tools")
    if not ticked:
        raise ChangeRefused("tools", "Tick the tools first.")
    return rows_named(tool_import, ticked)


def _decide(
    request: MemberRequest,
    rows: QuerySet[ImportedTool],
    form: DecideForm,
    member: Membership,
    tool_import: ToolImport,
) -> str | Preview:
    """Decide, and return the outcome in a sentence; where somebody gets the tools and feels it, first a Preview."""
    if request.POST.get("act") == "restore":
        count = restore_imported(rows, actor=member)
        return f"Brought back: {count:,} definition{'' if count == 1 else 's'}."
    if request.POST.get("act", "").startswith("set"):
        count = set_effects(rows, request.POST.get("effect", ""), actor=member)
        return f"The effect of {count:,} definition{'' if count == 1 else 's'} is changed."
    if request.POST.get("act", "").startswith("dismiss"):
        count = dismiss_imported(rows, actor=member)
        return f"Dismissed: {count:,} definition{'' if count == 1 else 's'}. The catalogue stays as it is."
    data, to = form.cleaned_data, form.recipients()
    named_after = tool_import.title if member.has_right(Right.CATALOGUE) and data["category"] is None else ""
    new_category = data["new_category"].strip() or named_after

    def write() -> Accepted:
        return accept_imported(
            rows.all(),
            data["category"],
            actor=member,
            credential=data["credential"],
            new_category=new_category,
            to=to,
            knobs={name: data[name] for name in ("ask", "in_untrusted") if data[name]},
        )

    if to.is_nobody:
        return accepted_text(write())
    waiting = sorted(str(key) for key in rows.filter(status__in=UNDECIDED).values_list("public_id", flat=True))
    done = saved_or_shown(request, write, to, actor=member, state=[digest([tool_import.base_url, waiting])])
    return done if isinstance(done, Preview) else accepted_text(done)


def accepted_text(accepted: Accepted) -> str:
    """Return the outcome of accepted definitions, in sentences."""
    parts = [
        (len(accepted.created), "new tool"),
        (len(accepted.updated), "new version"),
        (len(accepted.switched_off), "tool switched off", "tools switched off"),
    ]
    counts_text = [
        f"{count:,} {one if count == 1 else (more or [f'{one}s'])[0]}" for count, one, *more in parts if count
    ]
    waits = len(accepted.waiting)
    after = f" {waits:,} wait{'s' if waits == 1 else ''} for approval by somebody with the right." if waits else ""
    if accepted.modules:
        after += f" With them came the modules {', '.join(accepted.modules)}: each has to be approved before its tools."
    note = f" {accepted.note}" if accepted.note else ""
    return f"Accepted: {', '.join(counts_text) or 'nothing that was still waiting'}.{after}{note}"


def _back(request: MemberRequest, org: str, tool_import: ToolImport) -> str:
    """Return the path of the review with the filters that the form was sent from."""
    query = urlencode({name: request.POST[name] for name in FILTERS if request.POST.get(name)})
    path = redirect("import_detail", org, tool_import.public_id).url
    return f"{path}?{query}" if query else path


@require_POST
@signed_in
def import_address(request: MemberRequest, org: str, import_id: UUID) -> HttpResponse:
    """Set the base address of the calls."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool_import = import_or_404(import_id)
    form = BaseUrlForm(request.POST)
    if not form.is_valid():
        return refused(request, ChangeRefused("base_url", "Give an address."), "import_detail", org, import_id)
    try:
        set_base_url(tool_import, form.cleaned_data["base_url"], actor=member)
    except ChangeRefused as error:
        return refused(request, error, "import_detail", org, import_id)
    messages.success(request, "The base address is saved: what was found was compared again.")
    return redirect("import_detail", org, import_id)


@require_POST
@signed_in
def import_close(request: MemberRequest, org: str, import_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool_import = import_or_404(import_id)
    close_import(tool_import, actor=member)
    messages.success(request, f"{tool_import} is closed. What was accepted stays.")
    return redirect("import_list", org)


# -- One definition ---------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@signed_in
def import_tool(request: MemberRequest, org: str, import_id: UUID, imported_id: UUID) -> HttpResponse:
    """Show everything that its source says of it, and the form of its name and of what it does."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool_import = import_or_404(import_id)
    row = imported_or_404(tool_import, imported_id)
    initial = {"name": row.name, "effect": row.effect, "is_destructive": row.is_destructive}
    form = ChangeForm(request.POST if request.method == "POST" else None, initial=initial)
    if row.tool_id is not None:
        form.fields["name"].disabled = True
    if form.is_bound and form.is_valid():
        try:
            change_imported(row, actor=member, **form.cleaned_data)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{row.name} is saved.")
            return redirect("import_tool", org, import_id, imported_id)
    return _definition_page(request, member, tool_import, row, form)


def _definition_page(
    request: MemberRequest, member: Membership, tool_import: ToolImport, row: ImportedTool, form: ChangeForm
) -> HttpResponse:
    _mark(row, member)
    categories = categories_of(member)
    compared = versions_compared(row)
    stored = _credentials_for(tool_import) if not row.more or row.more.get("credential") else []
    would_be = content_of(row, tool_import)
    implementation = dict(would_be.implementation)
    code = str(implementation.pop("code", "")) if row.kind == ToolKind.PYTHON else ""
    is_mine = may_decide(member, tool_import, [row])
    context = {
        "import": tool_import,
        "row": row,
        "form": form,
        "description": list(visible_parts(row.description)),
        "parameters": parameter_rows(row.parameters),
        "schema": json.dumps(row.parameters, indent=2, ensure_ascii=False),
        "implementation": json.dumps(implementation, indent=2, ensure_ascii=False) if implementation else "",
        "code": [list(visible_parts(line)) for line in code.split("\n")] if code else [],
        "more": row.more,
        "would_be": would_be if row.more else None,
        "tests": json.dumps(row.more["tests"], indent=2, ensure_ascii=False) if row.more.get("tests") else "",
        "annotations": json.dumps(row.annotations, indent=2, ensure_ascii=False) if row.annotations else "",
        "method": implementation.get("method", ""),
        "url": implementation.get("url", ""),
        "difference": difference_between(*compared) if compared else None,
        "decide": DecideForm(),
        **recipient_choices(member),
        "recipients_of": "it",
        "category": suggested_category(tool_import, categories),
        "categories": categories,
        "credentials": stored,
        "suggested": suggested_credential(tool_import, stored),
        "may_add_category": member.has_right(Right.CATALOGUE),
        "may_accept": tool_import.source in ACCEPTABLE,
        "decides": tool_import.status == ImportStatus.REVIEW and row.status in UNDECIDED and is_mine,
        "restores": row.status == ImportedStatus.DISMISSED and is_mine and later_reading(tool_import) is None,
    }
    return render(request, "capabilities/catalogue/imports/import_tool.html", context, status=status_of(form))
