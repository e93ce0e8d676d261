"""REST: who is here, how they got in, what they may do, their tokens, and what was changed."""

from __future__ import annotations

from datetime import date
from typing import Any, cast
from uuid import UUID

from django.http import Http404
from django.urls import URLPattern, path, reverse
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from toolhub.tenants.access import revoke_token
from toolhub.tenants.api import api_member, checked, paged
from toolhub.tenants.invitations import invite, revoke_invitation
from toolhub.tenants.members import GivenRight, MemberRefused, change_member, current_members, remove_member
from toolhub.tenants.models import Access, ApiToken, AuditEntry, Invitation, Membership, Right, Scope
from toolhub.tenants.paging import PAGE_PARAMETERS, page
from toolhub.tenants.tokens import MAX_DAYS, issue_own_token, tokens_of
from toolhub.tenants.trail import AuditFilter, audit_entries
from toolhub.tenants.wire import Refused


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the tokens in the OpenAPI document; found by being imported."""

    target_class = "toolhub.tenants.wire.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class RightOut(serializers.Serializer[Any]):
    right = serializers.ChoiceField(Right.choices)
    category = serializers.CharField(
        default="", allow_blank=True, max_length=64, help_text="Name of the only category it counts for, or empty."
    )


class MemberOut(serializers.Serializer[Membership]):
    id = serializers.UUIDField(source="public_id")
    email = serializers.EmailField(source="user.email")
    name = serializers.CharField(source="user")
    access = serializers.CharField()
    rights = RightOut(many=True, source="admin_rights.all", help_text="Delegated, on top of the access level.")
    created_at = serializers.DateTimeField()


class MemberIn(serializers.Serializer[Any]):
    access = serializers.ChoiceField(Access.choices, required=False)
    rights = RightOut(many=True, required=False, help_text="The whole list: what is not in it is taken away.")


class InvitationIn(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)
    access = serializers.ChoiceField(Access.choices, default=Access.MEMBER)
    roles = serializers.ListField(
        child=serializers.CharField(max_length=63),
        max_length=100,
        default=list,
        help_text="Short names of the roles to have once it is accepted. Needs the right `roles` as well.",
    )


class InvitationOut(serializers.Serializer[Invitation]):
    id = serializers.UUIDField(source="public_id")
    email = serializers.EmailField()
    access = serializers.CharField()
    roles = serializers.SerializerMethodField(help_text="Short names of the roles that it gives.")
    state = serializers.CharField(help_text="`open`, `accepted`, `revoked` or `expired`.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()

    def get_roles(self, invitation: Invitation) -> list[str]:
        return sorted(each.role.slug for each in invitation.invitation_roles.all())


class NewInvitationOut(InvitationOut):
    link = serializers.CharField(help_text="Told here, and never again.")


class TokenIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices), min_length=1, max_length=10)
    expires_in_days = serializers.IntegerField(
        min_value=1, max_value=MAX_DAYS, allow_null=True, default=90, help_text="Null for never."
    )


class TokenOut(serializers.Serializer[ApiToken]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField()
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)


class NewTokenOut(TokenOut):
    token = serializers.CharField(help_text="Told here, and never again.")


class AuditEntryOut(serializers.Serializer[AuditEntry]):
    number = serializers.IntegerField(help_text="Counted from 1 in each organisation, without a gap.")
    at = serializers.DateTimeField(source="created_at")
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

    def get_target_id(self, entry: AuditEntry) -> str:
        return "" if entry.target_id.isdecimal() else entry.target_id


def refused(error: MemberRefused) -> Exception:
    """The answer to a write that the domain refused."""
    if error.code == "forbidden":
        return Refused("forbidden", str(error), status_code=403)
    if error.field and error.code != "last_admin":
        return ValidationError({error.field: ErrorDetail(str(error), code=error.code)})
    return Refused(error.code, str(error))


def member_row(member_id: UUID) -> Membership:
    member = current_members().filter(public_id=member_id).first()
    if member is None:
        raise Http404("No such member.")
    return member


class MemberList(APIView):
    @extend_schema(
        operation_id="members_list", summary="Members", parameters=PAGE_PARAMETERS, responses=paged(MemberOut)
    )
    def get(self, request: Request) -> Response:
        """The organisation's members. Needs the right `members`."""
        api_member(request, right=Right.MEMBERS)
        return Response(page(request, current_members(), "pk", lambda row: MemberOut(row).data))


class MemberDetail(APIView):
    @extend_schema(operation_id="members_read", summary="Member", responses=MemberOut)
    def get(self, request: Request, member_id: UUID) -> Response:
        """One member. Needs the right `members`."""
        api_member(request, right=Right.MEMBERS)
        return Response(MemberOut(member_row(member_id)).data)

    @extend_schema(operation_id="members_update", summary="Change a member", request=MemberIn, responses=MemberOut)
    def patch(self, request: Request, member_id: UUID) -> Response:
        """Set the access level, the delegated rights, or both at once. Nobody gives more than they hold, changes
        themselves, or takes away the last admin (409 `last_admin`). Needs the right `members`."""
        actor = api_member(request, right=Right.MEMBERS)
        member = member_row(member_id)
        wanted = checked(MemberIn, request)
        access = Access(wanted["access"]) if "access" in wanted else None
        rights = None
        if "rights" in wanted:
            rights = [GivenRight(Right(each["right"]), each["category"]) for each in wanted["rights"]]
        try:
            change_member(member, access=access, rights=rights, actor=actor)
        except MemberRefused as error:
            raise refused(error) from error
        return Response(MemberOut(member_row(member_id)).data)

    @extend_schema(operation_id="members_remove", summary="Remove a member", responses={204: None})
    def delete(self, request: Request, member_id: UUID) -> Response:
        """End the membership, with its tokens and rights; chats stay. Needs the right `members`."""
        actor = api_member(request, right=Right.MEMBERS)
        try:
            remove_member(member_row(member_id), actor=actor)
        except MemberRefused as error:
            raise refused(error) from error
        return Response(status=204)


class InvitationList(APIView):
    @extend_schema(
        operation_id="invitations_list",
        summary="Invitations",
        parameters=PAGE_PARAMETERS,
        responses=paged(InvitationOut),
    )
    def get(self, request: Request) -> Response:
        """Every invitation, newest first, with its state. Needs the right `members`."""
        api_member(request, right=Right.MEMBERS)
        rows = Invitation.objects.prefetch_related("invitation_roles__role")
        return Response(page(request, rows, "pk", lambda row: InvitationOut(row).data, newest_first=True))

    @extend_schema(
        operation_id="invitations_create", summary="Invite", request=InvitationIn, responses={201: NewInvitationOut}
    )
    def post(self, request: Request) -> Response:
        """Make a link for one e-mail address: for a week, for one use. An open one for that address ends. Needs the
        right `members`, and for roles the right `roles`: below access `admin`, only roles that allow no more than one
        may use oneself."""
        actor = api_member(request, right=Right.MEMBERS)
        wanted = checked(InvitationIn, request)
        try:
            invitation, secret = invite(wanted["email"], Access(wanted["access"]), actor=actor, roles=wanted["roles"])
        except MemberRefused as error:
            raise refused(error) from error
        link = request.build_absolute_uri(reverse("join_link", args=[secret]))
        return Response(InvitationOut(invitation).data | {"link": link}, status=201)


class InvitationDetail(APIView):
    @extend_schema(operation_id="invitations_revoke", summary="Revoke an invitation", responses={204: None})
    def delete(self, request: Request, invitation_id: UUID) -> Response:
        """End the link. One that is used or ended stays as it is. Needs the right `members`."""
        actor = api_member(request, right=Right.MEMBERS)
        invitation = Invitation.objects.filter(public_id=invitation_id).first()
        if invitation is None:
            raise Http404("No such invitation.")
        try:
            revoke_invitation(invitation, actor=actor)
        except MemberRefused as error:
            raise refused(error) from error
        return Response(status=204)


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


AUDIT_PARAMETERS = [
    OpenApiParameter("actor", str, description="Part of the actor's e-mail address."),
    OpenApiParameter("action", str, description="The action, or how it begins: `member.`"),
    OpenApiParameter("target", str, description="A kind of target (`tool`), or part of one's name."),
    OpenApiParameter("from", date, description="First day (UTC)."),
    OpenApiParameter("to", date, description="Last day (UTC)."),
    OpenApiParameter("q", str, description="Text anywhere in an entry."),
]
AUDIT_NAMES = ("actor", "action", "target", "from", "to", "q")


class AuditList(APIView):
    @extend_schema(
        operation_id="audit_list",
        summary="Audit",
        parameters=[*PAGE_PARAMETERS, *AUDIT_PARAMETERS],
        responses=paged(AuditEntryOut),
    )
    def get(self, request: Request) -> Response:
        """Who changed what, newest first. Needs the right `audit`."""
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
    return AuditFilter(since=_day(request, "from"), until=_day(request, "to"), **texts)


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


urlpatterns: list[URLPattern] = [
    path("members", MemberList.as_view(), name="api-members"),
    path("members/<uuid:member_id>", MemberDetail.as_view(), name="api-member"),
    path("invitations", InvitationList.as_view(), name="api-invitations"),
    path("invitations/<uuid:invitation_id>", InvitationDetail.as_view(), name="api-invitation"),
    path("tokens", TokenList.as_view(), name="api-tokens"),
    path("tokens/<uuid:own_token>", TokenDetail.as_view(), name="api-token"),
    path("audit", AuditList.as_view(), name="api-audit"),
]
