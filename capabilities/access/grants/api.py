"""REST: grants. Needs the right `roles`, whole or for the category."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.access.grants.writes import MAX_REASON, GrantContent, give_grant, revoke_grant, update_grant
from capabilities.common.api import checked_part, refusals
from capabilities.common.dry_run import with_dry_run
from capabilities.models import Effect, Grant
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import api_member, checked, paged, unknown
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page, uuid_parameter


class GrantOut(serializers.Serializer[Grant]):
    id = serializers.UUIDField(source="public_id")
    member = serializers.UUIDField(source="membership.public_id")
    category = serializers.CharField(source="category.name", allow_null=True, default=None)
    tool = serializers.CharField(source="tool.name", allow_null=True, default=None)
    effect = serializers.CharField()
    reason = serializers.CharField()
    expires_at = serializers.DateTimeField(allow_null=True)
    lapsed_at = serializers.DateTimeField(
        allow_null=True, help_text="When its end was put on record; it does nothing from `expires_at` on."
    )
    created_at = serializers.DateTimeField()


class GrantIn(serializers.Serializer[Any]):
    member = serializers.UUIDField()
    tool = serializers.CharField(max_length=64, required=False, allow_null=True)
    category = serializers.CharField(max_length=64, required=False, allow_null=True)
    effect = serializers.ChoiceField(Effect.choices)
    reason = serializers.CharField(max_length=MAX_REASON, allow_blank=True, default="")
    expires_at = serializers.DateTimeField(allow_null=True, default=None)


class GrantPart(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=MAX_REASON, allow_blank=True, required=False)
    expires_at = serializers.DateTimeField(allow_null=True, required=False)


class GrantList(APIView):
    @extend_schema(
        operation_id="grants_list",
        summary="Grants",
        parameters=[*PAGE_PARAMETERS, OpenApiParameter("member", UUID, description="Only this member's.")],
        responses=paged(GrantOut),
    )
    def get(self, request: Request) -> Response:
        """Members' own allows and denies, expired ones too. Needs the right `roles`."""
        api_member(request, right=Right.ROLES, category=None)
        rows = Grant.objects.select_related("category", "tool", "membership")
        member = uuid_parameter(request, "member")
        if member is not None:
            found = Membership.objects.filter(public_id=member).first()
            if found is None:
                raise unknown("member", "There is no such member.")
            rows = rows.filter(membership=found)
        return Response(page(request, rows, "pk", lambda row: GrantOut(row).data, filters=("member",)))

    @with_dry_run("grant")
    @extend_schema(operation_id="grants_create", summary="Give a grant", request=GrantIn, responses={201: GrantOut})
    def post(self, request: Request) -> Response:
        """Name a tool or a category. A deny beats everything; an allow adds to the roles."""
        actor = api_member(request, right=Right.ROLES, category=None)
        body = checked(GrantIn, request)
        body |= {"tool": body.get("tool") or "", "category": body.get("category") or ""}
        with refusals():
            grant = give_grant(GrantContent(**body), actor=actor)
        return Response(GrantOut(grant).data, status.HTTP_201_CREATED)


class GrantDetail(APIView):
    @extend_schema(operation_id="grants_read", summary="One grant", responses=GrantOut)
    def get(self, request: Request, grant_id: UUID) -> Response:
        """Needs the right `roles`."""
        api_member(request, right=Right.ROLES, category=None)
        return Response(GrantOut(_grant_or_404(grant_id)).data)

    @with_dry_run("grant")
    @extend_schema(operation_id="grants_update", summary="Change a grant", request=GrantPart, responses=GrantOut)
    def patch(self, request: Request, grant_id: UUID) -> Response:
        """Its reason and its end; for another tool or effect, give another grant."""
        actor = api_member(request, right=Right.ROLES, category=None)
        grant = _grant_or_404(grant_id)
        body = {"reason": grant.reason, "expires_at": grant.expires_at} | checked_part(GrantPart, request)
        with refusals():
            return Response(GrantOut(update_grant(grant, **body, actor=actor)).data)

    @with_dry_run("grant")
    @extend_schema(operation_id="grants_delete", summary="Revoke a grant", responses={204: None})
    def delete(self, request: Request, grant_id: UUID) -> Response:
        """Revoke a grant. The grant counts no more from the member's next call on."""
        actor = api_member(request, right=Right.ROLES, category=None)
        revoke_grant(_grant_or_404(grant_id), actor=actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _grant_or_404(grant_id: UUID) -> Grant:
    return get_object_or_404(
        Grant.objects.select_related("category", "tool__category", "membership__user"), public_id=grant_id
    )
