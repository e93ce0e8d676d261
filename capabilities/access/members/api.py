"""REST: the registry, what of the organisation's tools a member may use, and what opens it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.access.members.queries import roles_of_member
from capabilities.access.members.registry import MyTool, my_tools
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import api_member
from toolhub.tenants.rest.paging import (
    MAX_PAGE,
    PAGE_PARAMETERS,
    integer_parameter,
    only_parameters,
    read_cursor,
    write_cursor,
)
from toolhub.tenants.rows.keyset import PAGE


class RegistryToolOut(serializers.Serializer[MyTool]):
    name = serializers.CharField(source="tool.name")
    description = serializers.CharField(source="tool.current_version.description")
    parameters: Any = serializers.JSONField(source="tool.current_version.parameters")
    categories = serializers.SerializerMethodField(help_text="The one that it is in.")
    category = serializers.CharField(source="tool.category.name")
    allowed = serializers.BooleanField(source="answer.allowed", help_text="True: only such tools are listed.")
    reason = serializers.CharField(source="answer.reason", help_text="What allows it to you.")
    usable = serializers.SerializerMethodField(help_text="False while it needs set-up: then it is sent to no model.")
    needs_set_up = serializers.CharField(help_text="What an admin has to set up before it works, or empty.")
    tokens = serializers.IntegerField(source="tool.current_version.tokens")

    def get_categories(self, row: MyTool) -> list[str]:
        return [row.tool.category.name]

    def get_usable(self, row: MyTool) -> bool:
        return not row.needs_set_up


class RegistryRightOut(serializers.Serializer[Any]):
    right = serializers.ChoiceField(Right.choices)
    categories = serializers.ListField(
        child=serializers.CharField(), allow_null=True, help_text="Where it counts; null for everywhere."
    )


class RegistryCategoryOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    tools = serializers.IntegerField(help_text="That are switched on.")
    allowed = serializers.IntegerField(help_text="How many of them you may use.")
    opened_by = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="How many of these each role or grant opens.",
    )


class PermissionMatrixOut(serializers.Serializer[Any]):
    access = serializers.CharField(help_text="Your access level: what you may administer.")
    rights = RegistryRightOut(many=True, help_text="The admin rights that you hold, by level or by delegation.")
    roles = serializers.ListField(child=serializers.CharField(), help_text="Your roles, by short name.")
    categories = RegistryCategoryOut(many=True, help_text="Each category that has tools.")


class RegistryOut(serializers.Serializer[Any]):
    version = serializers.IntegerField(help_text="Rises when what the organisation's members may call has changed.")
    permission_matrix = PermissionMatrixOut(allow_null=True, help_text="On the first page; null on later ones.")
    tools = RegistryToolOut(many=True)
    next = serializers.CharField(allow_null=True)


class RegistryView(APIView):
    @extend_schema(operation_id="registry_read", summary="My tools", parameters=PAGE_PARAMETERS, responses=RegistryOut)
    def get(self, request: Request) -> Response:
        """The tools that you may use now, by name, with what allows each, and what opens each category to you.

        A page may be shorter than `limit`: it holds about 150 KB. For what one session has at hand, and the version of
        that, ask `sessions/{id}/tools`.
        """
        member = api_member(request)
        only_parameters(request, "cursor", "limit")
        limit = integer_parameter(request, "limit", PAGE, 1, MAX_PAGE)
        cursor = request.query_params.get("cursor")
        found = my_tools(member, after="" if cursor is None else str(read_cursor(cursor, str)), limit=limit)
        matrix = None
        if cursor is None:
            matrix = {
                "access": member.access,
                "rights": rights_fields(member),
                "roles": sorted(role.slug for role in roles_of_member(member)),
                "categories": found.categories,
            }
        body = {
            "version": member.organisation.registry_version,
            "permission_matrix": matrix,
            "tools": found.tools,
            "next": write_cursor(found.next) if found.next else None,
        }
        return Response(RegistryOut(body).data)


def rights_fields(member: Membership) -> list[dict[str, Any]]:
    reaches = [(right, member.reach(right)) for right in Right]
    return [
        {"right": right.value, "categories": None if reach.covers("") else sorted(reach.categories)}
        for right, reach in reaches
        if reach
    ]
