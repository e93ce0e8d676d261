"""REST: one's own API tokens, and those of members that one may manage."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from toolhub.tenants.access import revoke_token
from toolhub.tenants.models import ApiToken, Scope
from toolhub.tenants.people.api import refused
from toolhub.tenants.people.writes import MemberRefused
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page
from toolhub.tenants.tokens.writes import MAX_DAYS, issue_own_token, tokens_of


class TokenIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices), min_length=1, max_length=10)
    expires_in_days = serializers.IntegerField(
        min_value=1, max_value=MAX_DAYS, allow_null=True, default=90, help_text="Null for never."
    )


class TokenUserOut(serializers.Serializer[ApiToken]):
    client = serializers.CharField(source="last_client", help_text="As it names itself; empty where it does not.")
    agent = serializers.CharField(
        source="last_agent", help_text="Slug of an agent, or `toolkit/<name>`; empty for none."
    )
    address = serializers.CharField(source="last_address")


class TokenOut(serializers.Serializer[ApiToken]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField()
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    last_used_by = serializers.SerializerMethodField()

    @extend_schema_field(TokenUserOut(allow_null=True))
    def get_last_used_by(self, token: ApiToken) -> Any:
        return TokenUserOut(token).data if token.last_used_at else None


class NewTokenOut(TokenOut):
    token = serializers.CharField(help_text="Told here, and never again.")


class TokenList(APIView):
    @extend_schema(operation_id="tokens_list", summary="Tokens", parameters=PAGE_PARAMETERS, responses=paged(TokenOut))
    def get(self, request: Request) -> Response:
        """One's own tokens that were not revoked, newest first."""
        member = api_member(request)
        return Response(page(request, tokens_of(member), "pk", lambda row: TokenOut(row).data, newest_first=True))

    @extend_schema(operation_id="tokens_create", summary="Make a token", request=TokenIn, responses={201: NewTokenOut})
    def post(self, request: Request) -> Response:
        """A token for oneself, with no more scopes and no longer a life than the one that asks."""
        member = api_member(request)
        wanted = checked(TokenIn, request)
        scopes = [Scope(scope) for scope in wanted["scopes"]]
        try:
            token, secret = issue_own_token(
                member, wanted["name"], scopes, wanted["expires_in_days"], by=cast(ApiToken, request.auth)
            )
        except MemberRefused as error:
            raise refused(error) from error
        return Response(TokenOut(token).data | {"token": secret}, status=201)


class TokenDetail(APIView):
    @extend_schema(operation_id="tokens_revoke", summary="Revoke a token", responses={204: None})
    def delete(self, request: Request, own_token: UUID) -> Response:
        """End one of one's own tokens at once; the one that asks as well."""
        member = api_member(request)
        token = tokens_of(member).filter(public_id=own_token).first()
        if token is None:
            raise Http404("No such token.")
        revoke_token(token, actor=member)
        return Response(status=204)
