"""REST: members, what they administer, and invitations."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from toolhub.tenants.models import Access, Invitation, Membership, Right
from toolhub.tenants.people.invitations import invite, revoke_invitation
from toolhub.tenants.people.writes import GivenRight, MemberRefused, change_member, current_members, remove_member
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page
from toolhub.tenants.rest.wire import Refused


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
