"""REST: the audit."""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from toolhub.tenants.audit.queries import AuditFilter, audit_entries
from toolhub.tenants.audit.sentences import sentence_of
from toolhub.tenants.models import AuditEntry, Right
from toolhub.tenants.rest.api import api_member, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page, uuid_parameter

AUDIT_PARAMETERS = [
    OpenApiParameter("actor", str, description="Part of the actor's e-mail address."),
    OpenApiParameter("action", str, description="The action, or how it begins: `member.`"),
    OpenApiParameter("target", str, description="A kind of target (`tool`), or part of one's name."),
    OpenApiParameter("from", date, description="First day (UTC)."),
    OpenApiParameter("to", date, description="Last day (UTC)."),
    OpenApiParameter("q", str, description="Text anywhere in an entry."),
    OpenApiParameter("target_id", UUID, description="The id of one target: its history."),
]
AUDIT_NAMES = ("actor", "action", "target", "from", "to", "q", "target_id")


class AuditEntryOut(serializers.Serializer[AuditEntry]):
    number = serializers.IntegerField(help_text="Counted from 1 in each organisation, without a gap.")
    at = serializers.DateTimeField(source="created_at")
    sentence = serializers.SerializerMethodField(
        help_text="The entry in words, with the name that the actor has now: for people, and not in the hash."
    )
    actor = serializers.CharField(source="actor_label")
    action = serializers.CharField()
    target_type = serializers.CharField()
    target_id = serializers.SerializerMethodField(
        help_text="The target's random id; empty for several targets, and in entries from before there were such ids."
    )
    target = serializers.CharField(source="target_label")
    before: Any = serializers.JSONField()
    after: Any = serializers.JSONField()
    request_id = serializers.CharField()
    hash = serializers.CharField(help_text="Covers the entry and the hash of the one before.")

    def get_sentence(self, entry: AuditEntry) -> str:
        return str(sentence_of(entry))

    def get_target_id(self, entry: AuditEntry) -> str:
        return "" if entry.target_id.isdecimal() else entry.target_id


class AuditList(APIView):
    @extend_schema(
        operation_id="audit_list",
        summary="Audit",
        parameters=[*PAGE_PARAMETERS, *AUDIT_PARAMETERS],
        responses=paged(AuditEntryOut),
    )
    def get(self, request: Request) -> Response:
        """List the changes and who made them, newest first. Needs the right `audit`."""
        api_member(request, right=Right.AUDIT)
        entries = audit_entries(audit_filter(request))
        return Response(
            page(
                request, entries, "number", lambda row: AuditEntryOut(row).data, newest_first=True, filters=AUDIT_NAMES
            )
        )


def audit_filter(request: Request) -> AuditFilter:
    texts = {name: request.query_params.get(name, "") for name in ("actor", "action", "target", "q")}
    for name, text in texts.items():
        if len(text) > 200 or "\x00" in text:
            raise ValidationError({name: "Give at most 200 characters, without NUL."})
    return AuditFilter(
        since=_day(request, "from"), until=_day(request, "to"), target_id=uuid_parameter(request, "target_id"), **texts
    )


def _day(request: Request, name: str) -> date | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
        if not 1970 <= day.year < 9999:
            raise ValueError
    except ValueError:
        raise ValidationError({name: "Give a day like 2026-01-31."}) from None
    return day
