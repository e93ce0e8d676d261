"""REST: files that tools come from, and toolkits as files."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.sharing.exports import Exported, export_toolkit
from capabilities.agents.sharing.imported_toolkits import save_imported_toolkit
from capabilities.agents.sharing.queries import BROKEN, GOOD, synced_files
from capabilities.catalogue.imports.queries import import_or_404
from capabilities.common.api import refusals
from capabilities.models import SyncedFile, Toolkit
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import ErrorOut, api_member, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

STATE = OpenApiParameter("state", str, enum=[BROKEN, GOOD], description="Only broken files, or only those in step.")


class ToolFileOut(serializers.Serializer[Any]):
    folder = serializers.CharField()
    path = serializers.CharField(help_text="Inside the folder.")
    sha256 = serializers.CharField(help_text="Of the content that was read last.")
    tool = serializers.SerializerMethodField(help_text="Name; null where none came of it yet.")
    error = serializers.CharField(help_text="Why it is no tool, or not in its newest form; empty where it is.")
    changed_at = serializers.DateTimeField()

    def get_tool(self, row: SyncedFile) -> str | None:
        return row.tool.name if row.tool else None


class ToolFileList(APIView):
    @extend_schema(
        operation_id="tool_files_list",
        summary="Files that tools come from",
        parameters=[STATE, *PAGE_PARAMETERS],
        responses=paged(ToolFileOut),
    )
    def get(self, request: Request) -> Response:
        """List the files that `manage.py sync_tools` read, in the order of their first reading. Needs the right
        `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        state = request.query_params.get("state", "")
        if state not in ("", BROKEN, GOOD):
            raise ValidationError({"state": f"Give {BROKEN} or {GOOD}."})
        rows = synced_files(state).order_by()
        return Response(page(request, rows, "pk", lambda row: ToolFileOut(row).data, filters=("state",)))


class ToolkitFileOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="file_name", help_text="What the file is called.")
    sha256 = serializers.CharField(help_text="Of its content, as the file says it.")
    document = serializers.CharField(
        source="text", help_text="The file itself: canonical JSON, to be kept byte by byte."
    )
    left_out = serializers.SerializerMethodField(help_text="Tools that are not in it, each with the reason.")

    def get_left_out(self, exported: Exported) -> list[dict[str, str]]:
        return [{"tool": name, "because": why} for name, why in exported.left_out]


class ToolkitExport(APIView):
    @extend_schema(
        operation_id="toolkits_export",
        summary="A toolkit as a file",
        request=None,
        responses={200: ToolkitFileOut, 404: ErrorOut},
    )
    def post(self, request: Request, name: str) -> Response:
        """Its tools as they are in force, without secrets. It is on record. Needs the right `catalogue`; tools whose
        code you may not read are left out."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        toolkit = get_object_or_404(Toolkit, name=name)
        with refusals():
            exported = export_toolkit(toolkit, actor=member)
        return Response(ToolkitFileOut(exported).data)


class ImportToolkit(APIView):
    @extend_schema(
        operation_id="imports_toolkit",
        summary="Make or update the toolkit of an imported file",
        request=None,
        responses={
            200: inline_serializer("ImportedToolkitOut", {"toolkit": serializers.CharField()}),
            404: ErrorOut,
            409: ErrorOut,
        },
    )
    def post(self, request: Request, import_id: UUID) -> Response:
        """Save a toolkit of the tools that were accepted by now and of those that were here already. Needs the right
        `toolkits`."""
        member = api_member(request, right=Right.TOOLKITS)
        tool_import = import_or_404(import_id)
        with refusals():
            toolkit = save_imported_toolkit(tool_import, actor=member)
        return Response({"toolkit": toolkit.name})
