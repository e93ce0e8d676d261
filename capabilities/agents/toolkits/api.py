"""REST: toolkits, what is in them and which agents may load them."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.toolkits.queries import note_scopes, weigh, whole_toolkits
from capabilities.agents.toolkits.writes import (
    MAX_CATEGORIES,
    MAX_DESCRIPTION,
    MAX_RESULT_CHARS,
    MAX_TIMEOUT,
    MAX_TOOLS,
    MIN_RESULT_CHARS,
    MIN_TIMEOUT,
    ToolkitContent,
    ToolkitLine,
    content_of,
    create_toolkit,
    delete_toolkit,
    update_toolkit,
)
from capabilities.common.api import checked_part, refusals
from capabilities.common.dry_run import with_dry_run
from capabilities.models import Toolkit
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

#: Each may hold a thousand tools.
TOOLKITS_AT_ONCE = 10


class ToolkitLineOut(serializers.Serializer[Any]):
    tool = serializers.CharField(source="tool.name")
    timeout = serializers.FloatField(allow_null=True, help_text="Seconds; null: the tool's own.")
    max_result_chars = serializers.IntegerField(allow_null=True, help_text="Null: the tool's own.")
    knobs = serializers.DictField(help_text="Further runtime settings by name, such as `ask`.")


class ToolkitOut(serializers.Serializer[Toolkit]):
    name = serializers.CharField()
    description = serializers.CharField()
    tools = ToolkitLineOut(source="toolkit_tools", many=True)
    categories = serializers.SerializerMethodField(help_text="With all the tools that are in them.")
    used_by = serializers.SerializerMethodField(help_text="Short names of the agents that may load it.")
    tokens = serializers.IntegerField(help_text="Of all its tools, each once, as they are now.")
    scope = serializers.CharField(
        help_text="`organisation` where a tool of it acts with a credential that the organisation shares, else "
        "`member` where one acts with the member's own account, else empty."
    )

    def get_categories(self, toolkit: Toolkit) -> list[str]:
        return [line.category.name for line in toolkit.toolkit_categories.all()]

    def get_used_by(self, toolkit: Toolkit) -> list[str]:
        return sorted(line.agent.slug for line in toolkit.agent_toolkits.all())


class ToolkitLineIn(serializers.Serializer[Any]):
    tool = serializers.CharField(max_length=64)
    timeout = serializers.FloatField(
        min_value=MIN_TIMEOUT, max_value=MAX_TIMEOUT, allow_null=True, default=None, help_text="Seconds."
    )
    max_result_chars = serializers.IntegerField(
        min_value=MIN_RESULT_CHARS, max_value=MAX_RESULT_CHARS, allow_null=True, default=None
    )
    knobs = serializers.DictField(
        child=serializers.JSONField(),
        required=False,
        help_text="Further runtime settings. Those that decide what a call may do need the right `policies` too.",
    )

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            raise ValidationError({unknown[0][:100]: "There is no such field here."}, "unknown_field")
        line: dict[str, Any] = super().to_internal_value(data)
        if "tool" not in line:
            raise ValidationError({"tool": "Name the tool."}, "required")  # in a PATCH too
        return line


class ToolkitIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=64)
    description = serializers.CharField(
        max_length=MAX_DESCRIPTION, allow_blank=True, default="", help_text="The model chooses by it what to load."
    )
    tools = ToolkitLineIn(  # type: ignore[call-arg]
        many=True,
        default=list,
        max_length=MAX_TOOLS,
        help_text="In their order, each with what the toolkit says in place of the tool's own.",
    )
    categories = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=MAX_CATEGORIES, default=list
    )


class ToolkitList(APIView):
    @extend_schema(
        operation_id="toolkits_list", summary="Toolkits", parameters=PAGE_PARAMETERS, responses=paged(ToolkitOut)
    )
    def get(self, request: Request) -> Response:
        """List the toolkits that agents may be allowed to load."""
        rows = whole_toolkits(api_member(request))
        return Response(page(request, rows, "name", _shown, complete=complete, at_once=TOOLKITS_AT_ONCE))

    @with_dry_run("toolkit")
    @extend_schema(
        operation_id="toolkits_create", summary="Add a toolkit", request=ToolkitIn, responses={201: ToolkitOut}
    )
    def post(self, request: Request) -> Response:
        """Needs the right `toolkits`."""
        member = api_member(request, right=Right.TOOLKITS)
        content = _content(checked(ToolkitIn, request))
        with refusals():
            toolkit = create_toolkit(content, actor=member)
        return Response(_toolkit_out(member, toolkit.name), status.HTTP_201_CREATED)


class ToolkitDetail(APIView):
    @extend_schema(operation_id="toolkits_read", summary="One toolkit", responses=ToolkitOut)
    def get(self, request: Request, name: str) -> Response:
        """Its tools and categories, and the agents that may load it."""
        return Response(_toolkit_out(api_member(request), name))

    @with_dry_run("toolkit")
    @extend_schema(operation_id="toolkits_update", summary="Change a toolkit", request=ToolkitIn, responses=ToolkitOut)
    def patch(self, request: Request, name: str) -> Response:
        """Change a toolkit; what is left out stays. Refused where an agent that begins with it would have one tool in
        two ways."""
        member = api_member(request, right=Right.TOOLKITS)
        toolkit = get_object_or_404(Toolkit, name=name)
        body = checked_part(ToolkitIn, request)
        with refusals():
            update_toolkit(toolkit, _content(body, content_of(toolkit)), actor=member)
        return Response(_toolkit_out(member, toolkit.name))

    @with_dry_run("toolkit")
    @extend_schema(operation_id="toolkits_delete", summary="Remove a toolkit", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Refused (409 `in_use`) while agents may load it."""
        member = api_member(request, right=Right.TOOLKITS)
        toolkit = get_object_or_404(Toolkit, name=name)
        with refusals():
            delete_toolkit(toolkit, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def complete(toolkits: list[Toolkit]) -> None:
    """Give them their numbers and their scope. Two queries."""
    weigh(toolkits)
    note_scopes(toolkits)


def _shown(toolkit: Toolkit) -> Any:
    return ToolkitOut(toolkit).data


def _toolkit_out(member: Membership, name: str) -> Any:
    toolkit = get_object_or_404(whole_toolkits(member), name=name)
    complete([toolkit])
    return _shown(toolkit)


def _content(body: dict[str, Any], stored: ToolkitContent | None = None) -> ToolkitContent:
    """Build a toolkit's content from the body; the stored one gives what the body leaves out."""
    known = stored or ToolkitContent("")
    return ToolkitContent(
        name=body.get("name", known.name),
        description=body.get("description", known.description),
        tools=tuple(ToolkitLine(**line) for line in body["tools"]) if "tools" in body else known.tools,
        categories=tuple(body.get("categories", known.categories)),
    )
