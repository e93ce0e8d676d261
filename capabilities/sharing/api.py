"""REST: files that tools come from."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.models import SyncedFile
from capabilities.sharing.queries import BROKEN, GOOD, synced_files
from toolhub.tenants.api import api_member, paged
from toolhub.tenants.models import Right
from toolhub.tenants.paging import PAGE_PARAMETERS, page

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
        """What `manage.py sync_tools` read, in the order in which it was first seen. Needs the right `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        state = request.query_params.get("state", "")
        if state not in ("", BROKEN, GOOD):
            raise ValidationError({"state": f"Give {BROKEN} or {GOOD}."})
        rows = synced_files(state).order_by()
        return Response(page(request, rows, "pk", lambda row: ToolFileOut(row).data, filters=("state",)))
