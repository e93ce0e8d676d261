"""REST: imports of tools, what was found in each, and the decisions on it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.imports.forms import STATUSES, FoundAddress
from capabilities.catalogue.imports.queries import (
    found_rows,
    import_or_404,
    imported_or_404,
    review_numbers,
    rows_named,
    shown_imports,
)
from capabilities.catalogue.imports.writes.change import change_imported, close_import, set_base_url, set_effects
from capabilities.catalogue.imports.writes.decide import (
    EFFECTS,
    accept_imported,
    dismiss_imported,
    import_rows,
    restore_imported,
)
from capabilities.catalogue.imports.writes.start import MAX_FILE, start_import
from capabilities.catalogue.tools.bulk.writes import ASKS, IN_UNTRUSTED
from capabilities.catalogue.tools.recipients.api import RecipientsIn, recipients_of
from capabilities.common.api import checked_part, refusals
from capabilities.common.refused import not_there
from capabilities.contract.openapi.part import MAX_TAGS, MAX_TEXT, Part
from capabilities.contract.warnings import TITLES
from capabilities.models import (
    Category,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    StoredCredential,
    ToolImport,
)
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

#: Definitions that one decision names.
MAX_NAMED = 2_000


class ImportIn(serializers.Serializer[Any]):
    source: Any = serializers.ChoiceField(
        [ImportSource.OPENAPI, ImportSource.DEFINITIONS, ImportSource.TOOLKIT],
        help_text="`openapi`: a document of 3.0 or 3.1; `definitions`: an answer of an MCP server to tools/list; "
        "`toolkit`: a toolkit file.",
    )
    url = serializers.CharField(
        max_length=1_000, allow_blank=True, default="", help_text="Where a worker reads the document."
    )
    document = serializers.CharField(
        max_length=MAX_FILE,
        allow_blank=True,
        trim_whitespace=False,
        default="",
        help_text="The document itself, JSON or YAML, in place of its address.",
    )
    title = serializers.CharField(
        max_length=200, allow_blank=True, default="", help_text="Empty: what the document calls itself."
    )
    tags = serializers.ListField(
        child=serializers.CharField(max_length=MAX_TEXT),
        max_length=MAX_TAGS,
        default=list,
        help_text="Of an OpenAPI document: only operations with any of these.",
    )
    path = serializers.CharField(
        max_length=MAX_TEXT,
        allow_blank=True,
        default="",
        help_text="Only operations whose path begins so, or fits the pattern with `*`.",
    )
    words = serializers.CharField(
        max_length=MAX_TEXT,
        allow_blank=True,
        default="",
        help_text="Only operations with all of these words in name, path or description.",
    )
    category = serializers.CharField(
        max_length=64,
        allow_blank=True,
        default="",
        help_text="Name of the category whose administrators decide on what is found. Empty: those of the whole "
        "catalogue, or of the one category that you administer.",
    )


def category_named(name: str) -> Category | None:
    """Return the category, None for no name. Raises ChangeRefused for one that is not there. One query."""
    found = Category.objects.filter(name=name).first() if name else None
    if name and found is None:
        raise not_there("category", "category", name)
    return found


class ImportOut(serializers.Serializer[ToolImport]):
    id = serializers.UUIDField(source="public_id")
    source: Any = serializers.ChoiceField(ImportSource.choices)
    title = serializers.CharField(help_text="Text from outside, where nobody gave one.")
    url = serializers.CharField()
    server = serializers.CharField(source="server.name", default="", help_text="Name of the MCP server that was read.")
    status = serializers.ChoiceField(ImportStatus.choices)
    reason = serializers.CharField(help_text="Why it failed.")
    found = serializers.IntegerField(source="found_count")
    to_review = serializers.IntegerField(source="waiting_count", help_text="Definitions that wait for a decision.")
    created_at = serializers.DateTimeField()


class ImportDetailOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    source: Any = serializers.CharField()
    title = serializers.CharField()
    url = serializers.CharField()
    category = serializers.CharField(help_text="Whose administrators decide; empty: those of the whole catalogue.")
    base_url = serializers.CharField(help_text="Where calls go whose document gives only their path.")
    status = serializers.CharField()
    reason = serializers.CharField()
    statuses: Any = serializers.JSONField(help_text="Definitions by their status.")
    tokens = serializers.IntegerField(help_text="If all that wait were accepted and sent.")
    part: Any = serializers.JSONField(help_text="What is meant of the document: `tags`, `path`, `text`; `{}` for all.")
    summary: Any = serializers.JSONField(
        help_text="Facts of the source: servers, credentials that it asks for; of a part, or a document with too much, "
        "its `operations` and `tags` with their numbers."
    )
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class ImportPart(serializers.Serializer[Any]):
    base_url = serializers.CharField(max_length=1_000, required=False)
    status = serializers.ChoiceField([ImportStatus.CLOSED], required=False, help_text="`closed`: the rest is left.")


class WarningOut(serializers.Serializer[Any]):
    code = serializers.ChoiceField(sorted(TITLES))
    text = serializers.CharField()


class ImportedToolOut(serializers.Serializer[ImportedTool]):
    id = serializers.UUIDField(source="public_id")
    original_name = serializers.CharField(help_text="What the source calls it: text from outside.")
    name = serializers.CharField(help_text="What the tool is called here.")
    group = serializers.CharField()
    description = serializers.CharField(help_text="As the source has it: text from outside.")
    effect = serializers.CharField(help_text="A guess: read, write or external.")
    is_destructive = serializers.BooleanField()
    effect_why = serializers.CharField(help_text="What the source's own hint does to the guess; empty: nothing.")
    tokens = serializers.IntegerField()
    warnings = WarningOut(many=True)
    collision = serializers.CharField(help_text="Which tool has the name that it would have had.")
    status = serializers.ChoiceField(ImportedStatus.choices)
    reason = serializers.CharField()
    kind = serializers.CharField(help_text="How its tool would run; empty where the source says that of all.")


class ImportedToolDetailOut(ImportedToolOut):
    parameters: Any = serializers.JSONField()
    implementation: Any = serializers.JSONField()
    annotations: Any = serializers.JSONField(help_text="Hints of the source: see `effect_why`.")
    more: Any = serializers.JSONField(help_text="What a toolkit file says beside: instructions, timeout, tests, ...")


class ImportedToolPart(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=64, required=False)
    effect = serializers.ChoiceField(EFFECTS, required=False)
    is_destructive = serializers.BooleanField(required=False)
    status = serializers.ChoiceField(
        ["new"], required=False, help_text="`new`: one that was dismissed waits for a decision again."
    )


class ChoiceIn(serializers.Serializer[Any]):
    tools = serializers.ListField(
        child=serializers.UUIDField(),
        max_length=MAX_NAMED,
        required=False,
        help_text="Ids of definitions; left out: all that wait, of this `group` where one is given.",
    )
    group = serializers.CharField(max_length=200, allow_blank=True, default="")


class AcceptIn(ChoiceIn, RecipientsIn):
    category = serializers.CharField(
        max_length=64, allow_blank=True, default="", help_text="Name of the category that new tools go to."
    )
    new_category = serializers.CharField(
        max_length=100, allow_blank=True, default="", help_text="Title of a new one, in place of `category`."
    )
    credential = serializers.CharField(
        max_length=64, allow_blank=True, default="", help_text="Name of the credential that signs; empty: none."
    )
    ask = serializers.ChoiceField(
        ASKS, required=False, help_text="When their calls ask a person first. Needs the right `policies`."
    )
    in_untrusted = serializers.ChoiceField(
        IN_UNTRUSTED,
        required=False,
        help_text="What becomes of a call in a turn that has read text from outside. Needs the right `policies`.",
    )


class EffectsIn(ChoiceIn):
    effect = serializers.ChoiceField(EFFECTS)
    is_destructive = serializers.BooleanField(
        required=False, help_text="Whether it can destroy something. Left out, each keeps its own, but for `read`."
    )


class AcceptedOut(serializers.Serializer[Any]):
    created = serializers.ListField(child=serializers.CharField(), help_text="New tools.")
    updated = serializers.ListField(child=serializers.CharField(), help_text="Tools with a new version.")
    waiting = serializers.ListField(child=serializers.CharField(), help_text="Those that wait for approval.")
    switched_off = serializers.ListField(child=serializers.CharField(), help_text="Those that are gone at the source.")
    modules = serializers.ListField(
        child=serializers.CharField(), help_text="Versions of Python modules that came along and wait for approval."
    )
    note = serializers.CharField(help_text="What became of a file’s toolkit; empty for other sources.")


def shown(tool_import: ToolImport) -> dict[str, Any]:
    """One import with its numbers. Two queries."""
    numbers = review_numbers(tool_import)
    names = ("source", "title", "url", "base_url", "status", "reason", "part", "summary", "created_at", "ended_at")
    category = tool_import.category.name if tool_import.category is not None else ""
    body = {"id": tool_import.public_id, "category": category, "statuses": numbers.statuses, "tokens": numbers.tokens}
    return dict(ImportDetailOut(body | {name: getattr(tool_import, name) for name in names}).data)


class ImportList(APIView):
    @extend_schema(
        operation_id="imports_list", summary="Imports of tools", parameters=PAGE_PARAMETERS, responses=paged(ImportOut)
    )
    def get(self, request: Request) -> Response:
        """List the imports, newest first. Needs the right `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        return Response(page(request, shown_imports(), "pk", lambda row: ImportOut(row).data, newest_first=True))

    @extend_schema(
        operation_id="imports_create",
        summary="Import tools",
        request=ImportIn,
        responses={202: ImportDetailOut, 409: ErrorOut},
    )
    def post(self, request: Request) -> Response:
        """Have a worker read the document; what it finds waits for a decision, and nothing of it is a tool before.

        Needs the right `catalogue`. 409 `conflict` where too many imports are not read yet.
        """
        member = api_member(request, right=Right.CATALOGUE, category=None)
        body = checked(ImportIn, request)
        with refusals():
            source, category = ImportSource(body.pop("source")), category_named(body.pop("category"))
            part = Part(tuple(body.pop("tags")), body.pop("path"), body.pop("words"))
            tool_import = start_import(source, actor=member, category=category, part=part, **body)
        location = {"Location": f"/api/v1/imports/{tool_import.public_id}"}
        return Response(shown(tool_import), status.HTTP_202_ACCEPTED, headers=location)


class ImportDetail(APIView):
    @extend_schema(operation_id="imports_read", summary="One import", responses={200: ImportDetailOut, 404: ErrorOut})
    def get(self, request: Request, import_id: UUID) -> Response:
        """Return an import. Needs the right `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        return Response(shown(import_or_404(import_id)))

    @extend_schema(
        operation_id="imports_update",
        summary="Set where calls go, or close an import",
        request=ImportPart,
        responses={200: ImportDetailOut, 404: ErrorOut, 409: ErrorOut},
    )
    def patch(self, request: Request, import_id: UUID) -> Response:
        """Set the base address, which compares all that was found again, or close the import. Needs the right
        `catalogue` for the import's category, for the whole catalogue where it has none."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool_import = import_or_404(import_id)
        body = checked_part(ImportPart, request)
        with refusals():
            if "base_url" in body:
                set_base_url(tool_import, body["base_url"], actor=member)
            if "status" in body:
                close_import(tool_import, actor=member)
        return Response(shown(import_or_404(import_id)))


class ImportedToolList(APIView):
    @extend_schema(
        operation_id="import_tools_list",
        summary="Definitions of an import",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("q", str, description="Only those with this in a name or the description."),
            OpenApiParameter("status", str, enum=[value for value, _ in STATUSES]),
            OpenApiParameter("warning", str, enum=sorted(TITLES)),
            OpenApiParameter("group", str, description="Only those that the source groups so."),
        ],
        responses=paged(ImportedToolOut),
    )
    def get(self, request: Request, import_id: UUID) -> Response:
        """List the definitions in the order of the source. Needs the right `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        tool_import = import_or_404(import_id)
        rows = found_rows(tool_import, FoundAddress(request.query_params).wanted())
        rows = rows.defer("parameters", "implementation", "annotations")
        filters = ("q", "status", "warning", "group")
        return Response(page(request, rows, "position", lambda row: ImportedToolOut(row).data, filters=filters))

    @extend_schema(
        operation_id="import_tools_set",
        summary="Set the effect of many definitions",
        request=EffectsIn,
        responses={
            200: inline_serializer("EffectsOut", {"changed": serializers.IntegerField()}),
            404: ErrorOut,
            409: ErrorOut,
        },
    )
    def patch(self, request: Request, import_id: UUID) -> Response:
        """Set the same guess of the effect for all that are named, or all that wait. All or none. Needs the right
        `catalogue` for the categories of their tools, or of the import."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool_import = import_or_404(import_id)
        body = checked(EffectsIn, request)
        with refusals():
            rows = _chosen(tool_import, body)
            changed = set_effects(rows, body["effect"], actor=member, is_destructive=body.get("is_destructive"))
        return Response({"changed": changed})


class ImportedToolDetail(APIView):
    @extend_schema(
        operation_id="import_tools_read",
        summary="One definition of an import",
        responses={200: ImportedToolDetailOut, 404: ErrorOut},
    )
    def get(self, request: Request, import_id: UUID, imported_id: UUID) -> Response:
        """Return a definition. Needs the right `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        return Response(ImportedToolDetailOut(imported_or_404(import_or_404(import_id), imported_id)).data)

    @extend_schema(
        operation_id="import_tools_update",
        summary="Change what a tool would be",
        request=ImportedToolPart,
        responses={200: ImportedToolDetailOut, 404: ErrorOut, 409: ErrorOut},
    )
    def patch(self, request: Request, import_id: UUID, imported_id: UUID) -> Response:
        """Change its name, while it is new, and the guess of what it does; or bring back one that was dismissed. Needs
        the right `catalogue` for the category of its tool, or of the import."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        row = imported_or_404(import_or_404(import_id), imported_id)
        body = checked_part(ImportedToolPart, request)
        with refusals():
            if body.pop("status", ""):
                restore_imported(import_rows(row.tool_import).filter(pk=row.pk), actor=member)
                row.refresh_from_db()
            return Response(ImportedToolDetailOut(change_imported(row, actor=member, **body)).data)


def _chosen(tool_import: ToolImport, body: dict[str, Any]) -> QuerySet[ImportedTool]:
    if "tools" in body:
        return rows_named(tool_import, body["tools"])
    rows = ImportedTool.objects.filter(tool_import=tool_import)
    return rows.filter(group=body["group"]) if body["group"] else rows


class ImportAccept(APIView):
    @extend_schema(
        operation_id="imports_accept",
        summary="Accept definitions",
        request=AcceptIn,
        responses={200: AcceptedOut, 404: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request, import_id: UUID) -> Response:
        """Accept the definitions: all become tools or new versions, or none does. A version waits for approval where
        the member may not approve it. Needs the right `catalogue` for the category, for that of the import (the whole
        catalogue where it has none), and for those of tools that change."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool_import = import_or_404(import_id)
        body = checked(AcceptIn, request)
        with refusals():
            category, credential = category_named(body["category"]), None
            if body["credential"]:
                credential = StoredCredential.objects.filter(name=body["credential"]).first()
                if credential is None:
                    raise not_there("credential", "credential", body["credential"])
            accepted = accept_imported(
                _chosen(tool_import, body),
                category,
                actor=member,
                credential=credential,
                new_category=body["new_category"],
                to=recipients_of(body),
                knobs={name: body[name] for name in ("ask", "in_untrusted") if name in body},
            )
        return Response(AcceptedOut(accepted).data)


class ImportDismiss(APIView):
    @extend_schema(
        operation_id="imports_dismiss",
        summary="Dismiss definitions",
        request=ChoiceIn,
        responses={
            200: inline_serializer("DismissedOut", {"dismissed": serializers.IntegerField()}),
            404: ErrorOut,
        },
    )
    def post(self, request: Request, import_id: UUID) -> Response:
        """Dismiss definitions: they become nothing, at later readings of the source too while they say the same; the
        catalogue stays as it is. Needs the right `catalogue` for the categories of their tools, and for that of the
        import: for the whole catalogue where it has none."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool_import = import_or_404(import_id)
        body = checked(ChoiceIn, request)
        with refusals():
            return Response({"dismissed": dismiss_imported(_chosen(tool_import, body), actor=member)})
