"""REST: roles and who has them. Needs the right `roles`, whole or (rules) for a category."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Count, Prefetch, Q, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.access.roles.writes import (
    MAX_RULES,
    RoleContent,
    Rule,
    create_role,
    delete_role,
    set_role_rules,
    set_roles_of,
    update_role,
)
from capabilities.common.api import MADE_FROM_NAME, SlugField, checked_part, refusals
from capabilities.common.dry_run import with_dry_run
from capabilities.models import Effect, Role, RoleMode, RoleRule
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

#: Each may have thousands of rules.
ROLES_AT_ONCE = 10


class RuleOut(serializers.Serializer[RoleRule]):
    category = serializers.CharField(source="category.name", allow_null=True, default=None)
    tool = serializers.CharField(source="tool.name", allow_null=True, default=None)
    effect = serializers.CharField()


class RoleOut(serializers.Serializer[Role]):
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    mode = serializers.CharField()
    rules = RuleOut(many=True)
    members = serializers.IntegerField(help_text="How many have it.")


class RuleIn(serializers.Serializer[Any]):
    category = serializers.CharField(max_length=64, required=False, allow_null=True)
    tool = serializers.CharField(max_length=64, required=False, allow_null=True)
    effect = serializers.ChoiceField(Effect.choices, default=Effect.ALLOW)

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            raise ValidationError({unknown[0][:100]: "There is no such field here."}, "unknown_field")
        return super().to_internal_value(data)


class RoleIn(serializers.Serializer[Any]):
    slug = SlugField(default="", help_text=MADE_FROM_NAME)
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=2_000, allow_blank=True, default="")
    mode = serializers.ChoiceField(
        RoleMode.choices, default=RoleMode.NONE, help_text="The rules count in the mode `listed` alone."
    )
    rules = RuleIn(  # type: ignore[call-arg]
        many=True, default=list, max_length=MAX_RULES, help_text="Each names a category or a tool."
    )


class MemberRoles(serializers.Serializer[Any]):
    roles = serializers.ListField(child=serializers.CharField(max_length=63), max_length=500)


def shown_roles() -> QuerySet[Role]:
    rules = RoleRule.objects.select_related("category", "tool").order_by("pk")
    rules = rules.only("organisation", "role", "effect", "category__name", "tool__name")
    active = Q(role_memberships__membership__ended_at=None)
    return Role.objects.annotate(members=Count("role_memberships", filter=active)).prefetch_related(
        Prefetch("rules", rules)
    )


def rules_in(rows: list[dict[str, Any]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(str(row.get("effect", Effect.ALLOW)), row.get("category") or "", row.get("tool") or "") for row in rows
    )


class RoleList(APIView):
    @extend_schema(operation_id="roles_list", summary="Roles", parameters=PAGE_PARAMETERS, responses=paged(RoleOut))
    def get(self, request: Request) -> Response:
        """List the roles, with the rules on what their members may use. Needs the right `roles`."""
        api_member(request, right=Right.ROLES, category=None)
        return Response(page(request, shown_roles(), "slug", lambda row: RoleOut(row).data, at_once=ROLES_AT_ONCE))

    @with_dry_run("role")
    @extend_schema(operation_id="roles_create", summary="Add a role", request=RoleIn, responses={201: RoleOut})
    def post(self, request: Request) -> Response:
        """Add a role. A new role opens nothing unless it says so, and nobody has it yet."""
        member = api_member(request, right=Right.ROLES)
        body = checked(RoleIn, request)
        with refusals():
            role = create_role(RoleContent(**body | {"rules": rules_in(body["rules"])}), actor=member)
        return Response(RoleOut(shown_roles().get(pk=role.pk)).data, status.HTTP_201_CREATED)


class RoleDetail(APIView):
    @extend_schema(operation_id="roles_read", summary="One role", responses=RoleOut)
    def get(self, request: Request, slug: str) -> Response:
        """Needs the right `roles`."""
        api_member(request, right=Right.ROLES, category=None)
        return Response(RoleOut(get_object_or_404(shown_roles(), slug=slug)).data)

    @with_dry_run("role")
    @extend_schema(operation_id="roles_update", summary="Change a role", request=RoleIn, responses=RoleOut)
    def patch(self, request: Request, slug: str) -> Response:
        """Change a role; what is left out stays, and `rules` are replaced whole. With the right for a category: only
        its rules."""
        member = api_member(request, right=Right.ROLES, category=None)
        role = get_object_or_404(Role, slug=slug)
        body = checked_part(RoleIn, request)
        rules = rules_in(body.pop("rules")) if "rules" in body else None
        with refusals():
            if not body and rules is not None:
                set_role_rules(role, rules, actor=member)
            else:
                update_role(role, RoleContent(**_stored(role) | body, rules=rules), actor=member)
        return Response(RoleOut(shown_roles().get(pk=role.pk)).data)

    @with_dry_run("role")
    @extend_schema(operation_id="roles_delete", summary="Remove a role", responses={204: None})
    def delete(self, request: Request, slug: str) -> Response:
        """Members who have it lose what only it opened."""
        member = api_member(request, right=Right.ROLES)
        with refusals():
            delete_role(get_object_or_404(Role, slug=slug), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _stored(role: Role) -> dict[str, Any]:
    return {"slug": role.slug, "name": role.name, "description": role.description, "mode": role.mode}


class MemberRolesView(APIView):
    @extend_schema(operation_id="member_roles_read", summary="Roles of a member", responses=MemberRoles)
    def get(self, request: Request, member_id: UUID) -> Response:
        """Needs the right `roles`."""
        api_member(request, right=Right.ROLES, category=None)
        return Response({"roles": _roles_of(_member_or_404(member_id))})

    @with_dry_run("member")
    @extend_schema(
        operation_id="member_roles_set", summary="Set the roles of a member", request=MemberRoles, responses=MemberRoles
    )
    def put(self, request: Request, member_id: UUID) -> Response:
        """The member has these roles from now on, and no others."""
        actor = api_member(request, right=Right.ROLES)
        member = _member_or_404(member_id)
        with refusals():
            return Response({"roles": set_roles_of(member, checked(MemberRoles, request)["roles"], actor=actor)})


def _member_or_404(member_id: UUID) -> Membership:
    return get_object_or_404(Membership.objects.select_related("user"), public_id=member_id, ended_at=None)


def _roles_of(member: Membership) -> list[str]:
    return list(
        Role.objects.filter(role_memberships__membership=member).order_by("slug").values_list("slug", flat=True)
    )
