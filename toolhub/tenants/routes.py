"""REST: who is here, and what they changed. Read only."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from toolhub.tenants.api import api_member, paged
from toolhub.tenants.models import AuditEntry, Membership, Right
from toolhub.tenants.paging import PAGE_PARAMETERS, page


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the tokens in the OpenAPI document; found by being imported."""

    target_class = "toolhub.tenants.wire.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class MemberOut(serializers.Serializer[Membership]):
    id = serializers.IntegerField(source="pk")
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user")
    access = serializers.CharField()
    created_at = serializers.DateTimeField()


class AuditEntryOut(serializers.Serializer[AuditEntry]):
    id = serializers.IntegerField(source="pk")
    at = serializers.DateTimeField(source="created_at")
    actor = serializers.CharField(source="actor_label")
    action = serializers.CharField()
    target_type = serializers.CharField()
    target_id = serializers.CharField()
    target = serializers.CharField(source="target_label")
    before: Any = serializers.JSONField()
    after: Any = serializers.JSONField()
    request_id = serializers.CharField()


class MemberList(APIView):
    @extend_schema(
        operation_id="members_list", summary="Members", parameters=PAGE_PARAMETERS, responses=paged(MemberOut)
    )
    def get(self, request: Request) -> Response:
        """The organisation's members. Needs the right `members`."""
        api_member(request, right=Right.MEMBERS)
        rows = Membership.objects.select_related("user")
        return Response(page(request, rows, "pk", lambda row: MemberOut(row).data))


class AuditList(APIView):
    @extend_schema(
        operation_id="audit_list", summary="Audit", parameters=PAGE_PARAMETERS, responses=paged(AuditEntryOut)
    )
    def get(self, request: Request) -> Response:
        """Who changed what, newest first. Needs the right `audit`."""
        api_member(request, right=Right.AUDIT)
        return Response(
            page(request, AuditEntry.objects.all(), "pk", lambda row: AuditEntryOut(row).data, newest_first=True)
        )


urlpatterns: list[URLPattern] = [
    path("members", MemberList.as_view(), name="api-members"),
    path("audit", AuditList.as_view(), name="api-audit"),
]
