"""REST: requests for a grant. Every member sees and makes their own; with the right `roles` they are decided."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.access.grants.writes import MAX_REASON
from capabilities.access.requests.queries import request_or_404, requests_seen_by
from capabilities.access.requests.writes import (
    MAX_HOURS,
    USUAL_HOURS,
    RequestContent,
    ask_for_grant,
    grant_request,
    refuse_request,
    withdraw_request,
)
from capabilities.common.api import refusals
from capabilities.models import GrantRequest, RequestStatus
from toolhub.tenants.models import Access, Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page


class GrantRequestOut(serializers.Serializer[GrantRequest]):
    id = serializers.UUIDField(source="public_id")
    member = serializers.UUIDField(source="membership.public_id")
    category = serializers.CharField(source="category.name", allow_null=True, default=None)
    tool = serializers.CharField(source="tool.name", allow_null=True, default=None)
    reason = serializers.CharField()
    hours = serializers.IntegerField(help_text="That were asked for.")
    status = serializers.ChoiceField(RequestStatus.choices)
    answer = serializers.CharField(help_text="What whoever decided said to it.")
    grant = serializers.UUIDField(
        source="grant.public_id",
        allow_null=True,
        default=None,
        help_text="What it became; null again once that is revoked.",
    )
    expires_at = serializers.DateTimeField(
        source="grant.expires_at", allow_null=True, default=None, help_text="Of the grant."
    )
    created_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.UUIDField(
        source="decided_by.public_id", allow_null=True, default=None, help_text="A member."
    )


class GrantRequestIn(serializers.Serializer[Any]):
    tool = serializers.CharField(max_length=64, required=False, allow_null=True)
    category = serializers.CharField(max_length=64, required=False, allow_null=True)
    reason = serializers.CharField(max_length=MAX_REASON)
    hours = serializers.IntegerField(min_value=1, max_value=MAX_HOURS, default=USUAL_HOURS)


class RequestGranted(serializers.Serializer[Any]):
    hours = serializers.IntegerField(
        min_value=1, max_value=MAX_HOURS, required=False, help_text="From now on; left out, as many as were asked for."
    )
    answer = serializers.CharField(max_length=MAX_REASON, allow_blank=True, default="")


class RequestRefused(serializers.Serializer[Any]):
    answer = serializers.CharField(max_length=MAX_REASON, help_text="Whoever asked reads it.")


def shown(request: GrantRequest) -> Any:
    return GrantRequestOut(request).data


class GrantRequestList(APIView):
    @extend_schema(
        operation_id="grant_requests_list",
        summary="Requests for a grant",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("status", str, enum=RequestStatus.values, description="Only those that stand there."),
        ],
        responses=paged(GrantRequestOut),
    )
    def get(self, request: Request) -> Response:
        """Your own, newest first; with the right `roles` those of everybody, as far as it reaches."""
        rows = requests_seen_by(api_member(request))
        wanted = request.query_params.get("status")
        if wanted is not None:
            if wanted not in RequestStatus.values:
                raise ValidationError({"status": f"The status is one of {', '.join(RequestStatus.values)}."})
            rows = rows.filter(status=wanted)
        return Response(page(request, rows, "pk", shown, newest_first=True, filters=("status",)))

    @extend_schema(
        operation_id="grant_requests_create",
        summary="Ask for a grant",
        request=GrantRequestIn,
        responses={201: GrantRequestOut},
    )
    def post(self, request: Request) -> Response:
        """Name a tool or a category that you may not use yet, and say why. One request for a thing waits at a time."""
        member = api_member(request, at_least=Access.MEMBER)
        body = checked(GrantRequestIn, request)
        body |= {"tool": body.get("tool") or "", "category": body.get("category") or ""}
        with refusals():
            asked = ask_for_grant(RequestContent(**body), member=member)
        return Response(shown(asked), status.HTTP_201_CREATED)


class GrantRequestDetail(APIView):
    @extend_schema(operation_id="grant_requests_read", summary="One request for a grant", responses=GrantRequestOut)
    def get(self, request: Request, own_request: UUID) -> Response:
        """Your own; with the right `roles` anybody's, as far as it reaches."""
        return Response(shown(request_or_404(api_member(request), own_request)))


class GrantRequestWithdraw(APIView):
    @extend_schema(
        operation_id="grant_requests_withdraw",
        summary="Withdraw a request for a grant",
        request=None,
        responses=GrantRequestOut,
    )
    def post(self, request: Request, own_request: UUID) -> Response:
        """Your own, while it waits; then 409 `conflict`."""
        member = api_member(request)
        with refusals():
            return Response(shown(withdraw_request(request_or_404(member, own_request), member=member)))


class GrantRequestGrant(APIView):
    @extend_schema(
        operation_id="grant_requests_grant",
        summary="Grant a request",
        request=RequestGranted,
        responses=GrantRequestOut,
    )
    def post(self, request: Request, request_id: UUID) -> Response:
        """Allow what was asked for, for a time. Not for a request of your own. 409 `conflict` if it does not wait any
        more, or while a deny stands in the way. Needs the right `roles`."""
        actor = api_member(request, right=Right.ROLES, category=None)
        asked = request_or_404(actor, request_id)
        body = checked(RequestGranted, request)
        with refusals():
            return Response(
                shown(grant_request(asked, hours=body.get("hours", asked.hours), answer=body["answer"], actor=actor))
            )


class GrantRequestRefuse(APIView):
    @extend_schema(
        operation_id="grant_requests_refuse",
        summary="Refuse a request",
        request=RequestRefused,
        responses=GrantRequestOut,
    )
    def post(self, request: Request, request_id: UUID) -> Response:
        """Say no, and why. Not to a request of your own. 409 `conflict` if it does not wait any more. Needs the right
        `roles`."""
        actor = api_member(request, right=Right.ROLES, category=None)
        asked = request_or_404(actor, request_id)
        body = checked(RequestRefused, request)
        with refusals():
            return Response(shown(refuse_request(asked, answer=body["answer"], actor=actor)))
