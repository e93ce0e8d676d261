"""REST: tools and their versions, and which of them a member may use."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.categories.writes import (
    move_tool,
)
from capabilities.catalogue.tools.bulk.writes import ASKS, EFFECTS, IN_UNTRUSTED, ToolsChange, change_tools
from capabilities.catalogue.tools.queries import brought_by
from capabilities.catalogue.tools.search import by_tokens, found_page, in_order
from capabilities.catalogue.tools.writes import (
    MAX_BULK,
    MAX_INSTRUCTIONS,
    MAX_OFF_MESSAGE,
    set_instructions,
    set_tool_enabled,
)
from capabilities.common.api import checked_part, refusals
from capabilities.common.dry_run import with_dry_run
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.refused_tools import refusal_or_404, shown_refusals, try_again
from capabilities.models import Agent, Category, Tool, ToolRefusal
from capabilities.running.services.writes import is_ready, tool_scope
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked, paged, unknown
from toolhub.tenants.rest.paging import (
    MAX_PAGE,
    PAGE_PARAMETERS,
    begun,
    cursor_of,
    integer_parameter,
    only_parameters,
)
from toolhub.tenants.rows.keyset import PAGE, Keyset

M = TypeVar("M", bound=Model)
SORTS = ("name", "tokens")
MAX_QUERY = 100


class ToolOut(serializers.Serializer[Tool]):
    name = serializers.CharField()
    category = serializers.CharField(source="category.name")
    kind = serializers.CharField()
    origin = serializers.CharField(
        source="source", help_text="Where it came from, for people; empty where somebody wrote it here."
    )
    quarantine = serializers.CharField(help_text="Why it is kept back until somebody decides, or empty.")
    quarantined_at = serializers.DateTimeField(allow_null=True, help_text="Since when, where it is noted; else null.")
    is_enabled = serializers.BooleanField()
    off_message = serializers.CharField(help_text="While it is off: what models and users read of that, or empty.")
    service = serializers.CharField(help_text="What must be set up before it works, or empty.")
    is_ready = serializers.BooleanField(help_text="Whether that is set up.")
    scope = serializers.CharField(
        help_text="With whose credential it acts: `organisation`, or `member` for an account of the member's own; "
        "empty for none."
    )
    description = serializers.CharField(source="current_version.description", default="")
    parameters: Any = serializers.JSONField(source="current_version.parameters", default=dict)
    instructions = serializers.CharField(
        source="current_version.instructions", default="", help_text="Instructions for the model."
    )
    effect = serializers.CharField(source="current_version.effect", default="")
    tokens = serializers.IntegerField(source="current_version.tokens", default=0)
    version = serializers.IntegerField(
        source="current_version.number", default=0, help_text="The one in force; 0 while none is."
    )


class ToolPart(serializers.Serializer[Any]):
    is_enabled = serializers.BooleanField(required=False)
    off_message = serializers.CharField(
        max_length=MAX_OFF_MESSAGE,
        allow_blank=True,
        required=False,
        help_text="With `is_enabled: false`: what models and users read of it. Left out, it stays as it is.",
    )
    category = serializers.CharField(max_length=64, required=False, help_text="Name of the category to move it to.")
    instructions = serializers.CharField(
        max_length=MAX_INSTRUCTIONS,
        allow_blank=True,
        required=False,
        help_text="Instructions for the model, sent only while the tool is; empty for none. Another text makes a new "
        "version of the tool.",
    )


class ToolBulkIn(serializers.Serializer[Any]):
    names = serializers.ListField(child=serializers.CharField(max_length=64), min_length=1, max_length=MAX_BULK)
    is_enabled = serializers.BooleanField(required=False)
    effect = serializers.ChoiceField(
        EFFECTS, required=False, help_text="What they do. A new version of each; not of built-in tools."
    )
    category = serializers.CharField(max_length=64, required=False, help_text="Name of the category to move them to.")
    ask = serializers.ChoiceField(
        ASKS, required=False, help_text="When a call asks a person first. Needs the right `policies`."
    )
    in_untrusted = serializers.ChoiceField(
        IN_UNTRUSTED,
        required=False,
        help_text="What becomes of a call in a turn that has read text from outside. Needs the right `policies`.",
    )
    off_message = serializers.CharField(
        max_length=MAX_OFF_MESSAGE, allow_blank=True, default="", help_text="As of one tool; for those switched off."
    )


def shown_tools() -> QuerySet[Tool]:
    return Tool.objects.select_related("category", "current_version").annotate(is_ready=is_ready(), scope=tool_scope())


class ToolList(APIView):
    @extend_schema(
        operation_id="tools_list",
        summary="Tools",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("q", str, description="Only tools that these words find, as `search_tools` ranks them."),
            OpenApiParameter("category", str, description="Only tools of this category."),
            OpenApiParameter("agent", str, description="Only tools that this agent begins with, for whatever member."),
            OpenApiParameter(
                "sort", str, description="`name`: what `q` finds best, then by name; `tokens`: most first.", enum=SORTS
            ),
        ],
        responses=paged(ToolOut),
    )
    def get(self, request: Request) -> Response:
        """List the organisation's tools."""
        member = api_member(request)
        only_parameters(request, "cursor", "limit", "q", "category", "agent", "sort")
        wanted = {name: str(value).replace("\x00", "") for name, value in request.query_params.items()}
        q, sort = wanted.get("q", "")[:MAX_QUERY], wanted.get("sort", "name")
        if sort not in SORTS:
            raise ValidationError({"sort": f"It is one of {', '.join(SORTS)}."})
        rows = shown_tools()
        if "category" in wanted:
            rows = rows.filter(category=_or_unknown("category", Category.objects.filter(name=wanted["category"][:64])))
        if "agent" in wanted:
            agents = Agent.objects.seen_by(member).filter(slug=wanted["agent"][:64])
            rows = rows.filter(pk__in=brought_by(_or_unknown("agent", agents)))
        order = by_tokens() if sort == "tokens" else None
        limit = integer_parameter(request, "limit", PAGE, 1, MAX_PAGE)
        if q.strip():
            found = found_page(rows, q, order, after=cursor_of(request), limit=limit)
        else:
            found = begun(request, in_order(rows, order)).page(limit=limit)
        return Response({"results": [ToolOut(row).data for row in found.rows], "next": found.after or None})


def _or_unknown(field: str, rows: QuerySet[M]) -> M:
    found = rows.first()
    if found is None:
        raise unknown(field, f"There is no such {field}.")
    return found


class ToolBulk(APIView):
    @with_dry_run("tool")
    @extend_schema(
        operation_id="tools_bulk",
        summary="Switch, move or set many tools",
        request=ToolBulkIn,
        responses=inline_serializer(
            "ToolBulkOut",
            {
                "changed": serializers.IntegerField(),
                "waiting": serializers.ListField(
                    child=serializers.CharField(), help_text="Tools whose new version waits for approval."
                ),
            },
        ),
    )
    def post(self, request: Request) -> Response:
        """Change all of them or, if one name is unknown, none. Needs the right `catalogue` for each one's category."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        body = checked(ToolBulkIn, request)
        with refusals():
            done = change_tools(body.pop("names"), ToolsChange(**body), actor=member)
            return Response({"changed": len(done.changed), "waiting": done.waiting})


class ToolDetail(APIView):
    @extend_schema(operation_id="tools_read", summary="One tool", responses=ToolOut)
    def get(self, request: Request, name: str) -> Response:
        """Return a tool at its current version."""
        api_member(request)
        return Response(ToolOut(get_object_or_404(shown_tools(), name=name)).data)

    @with_dry_run("tool")
    @extend_schema(
        operation_id="tools_update", summary="Switch, move or instruct a tool", request=ToolPart, responses=ToolOut
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change a tool. Needs the right `catalogue` for its category, and for the one that it moves to."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool = get_object_or_404(shown_tools(), name=name)
        body = checked_part(ToolPart, request)
        with transaction.atomic(), refusals():
            if "category" in body:
                move_tool(tool, body["category"], actor=member)
            if "is_enabled" in body:
                set_tool_enabled(tool, body["is_enabled"], actor=member, message=body.get("off_message"))
            elif "off_message" in body:
                raise ChangeRefused("off_message", "Send it with is_enabled: false.")
            if "instructions" in body:
                set_instructions(tool, body["instructions"], actor=member)
        return Response(ToolOut(tool).data)


class ToolRefusalOut(serializers.Serializer[ToolRefusal]):
    id = serializers.UUIDField(source="public_id")
    provider = serializers.CharField(source="model.provider.slug")
    model = serializers.CharField(source="model.name")
    words = serializers.CharField(help_text="What the provider said.")
    count = serializers.IntegerField(help_text="How often it was refused.")
    refused_at = serializers.DateTimeField(help_text="When it was refused last.")
    sha256 = serializers.CharField(help_text="Of the definition as it went out.")


class ToolRefusals(APIView):
    @extend_schema(
        operation_id="tools_refusals_list",
        summary="Models that refuse a tool",
        parameters=PAGE_PARAMETERS,
        responses=paged(ToolRefusalOut),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the models whose provider refused the definition in force: turns with them go on without the tool."""
        api_member(request)
        only_parameters(request, "cursor", "limit")
        tool = get_object_or_404(Tool, name=name)
        limit = integer_parameter(request, "limit", PAGE, 1, MAX_PAGE)
        found = begun(request, Keyset(shown_refusals(tool.refusals.all()), ("-pk",))).page(limit=limit)
        return Response({"results": [ToolRefusalOut(row).data for row in found.rows], "next": found.after or None})


class ToolRefusalDetail(APIView):
    @extend_schema(operation_id="tools_refusals_delete", summary="Send a refused tool again", responses={204: None})
    def delete(self, request: Request, name: str, refusal_id: UUID) -> Response:
        """Forget that the model's provider refused it: it goes out with the next call. Needs the right `catalogue` for
        its category."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        with refusals():
            try_again(refusal_or_404(name, refusal_id), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)
