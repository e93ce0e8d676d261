"""REST: tools that are one HTTP request."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.http_tools.queries import (
    HttpPreview,
    http_tool_or_404,
    preview_of,
    stored_content,
    waiting_version,
)
from capabilities.catalogue.http_tools.writes import (
    EFFECTS,
    ON_CRASH,
    USUAL,
    HttpToolContent,
    create_http_tool,
    update_http_tool,
)
from capabilities.catalogue.tools.recipients.api import RecipientsIn, recipients_of
from capabilities.catalogue.tools.writes import KNOBS as KNOB_NAMES
from capabilities.catalogue.tools.writes import MAX_DESCRIPTION, MAX_HUMAN_FORMAT, MAX_INSTRUCTIONS, Definition
from capabilities.common.api import refusals
from capabilities.common.rights import require
from capabilities.contract.knobs import KNOBS
from capabilities.contract.trust import IN_UNTRUSTED
from capabilities.models import Tool, VersionStatus
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked

IMPLEMENTATION = (
    'What is sent: `method`, `url` (`{name}` in its path is an argument), `arguments` (`{name: {"in": path, query, '
    'header, cookie, body, form or file, "name", "style", "explode"}}`, styles as in OpenAPI), fixed `headers` and '
    '`query`, `body` (`{"media_type", "argument"}`: the argument that is the whole body) and `response` '
    '(`{"pointer", "fields", "text"}`: what of the answer the model reads).'
)
EMPTY = {"type": "object", "properties": {}}


class HttpToolIn(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=MAX_DESCRIPTION, help_text="What the model chooses by.")
    parameters = serializers.JSONField(default=lambda: dict(EMPTY), help_text="JSON Schema of the arguments.")
    implementation = serializers.JSONField(help_text=IMPLEMENTATION)
    credential = serializers.CharField(
        max_length=64, allow_blank=True, default="", help_text="Name of the stored credential that signs each call."
    )
    instructions = serializers.CharField(max_length=MAX_INSTRUCTIONS, allow_blank=True, default="")
    human_format = serializers.CharField(
        max_length=MAX_HUMAN_FORMAT,
        allow_blank=True,
        default="",
        help_text="A call in one line for people, such as `Reading {id}`.",
    )
    effect = serializers.ChoiceField(choices=EFFECTS, default="external")
    on_crash = serializers.ChoiceField(
        choices=ON_CRASH, default="never", help_text="What follows a crash in the middle of a call."
    )
    timeout = serializers.FloatField(
        min_value=KNOBS["timeout_sec"].minimum,
        max_value=KNOBS["timeout_sec"].maximum,
        default=USUAL.timeout,
        help_text="Seconds.",
    )
    max_result_chars = serializers.IntegerField(min_value=200, max_value=1_000_000, default=USUAL.max_result_chars)
    untrusted_output = serializers.BooleanField(default=USUAL.untrusted_output)
    in_untrusted = serializers.ChoiceField(choices=IN_UNTRUSTED, default="allow")


class NewHttpToolIn(HttpToolIn, RecipientsIn):
    name = serializers.CharField(max_length=64)
    category = serializers.CharField(max_length=64, help_text="Name of a category.")


class HttpPreviewIn(NewHttpToolIn):
    sample = serializers.JSONField(
        required=False, allow_null=True, help_text="Arguments of the request that is shown. Left out: some that fit."
    )


class HttpToolOut(serializers.Serializer[Tool]):
    name = serializers.CharField()
    category = serializers.CharField(source="category.name")
    description = serializers.CharField(source="content.definition.description")
    parameters: Any = serializers.JSONField(source="content.definition.parameters")
    implementation: Any = serializers.JSONField(source="content.definition.implementation")
    credential = serializers.CharField(source="content.credential")
    instructions = serializers.CharField(source="content.definition.instructions")
    human_format = serializers.CharField(source="content.definition.human_format")
    effect = serializers.CharField(source="content.definition.effect")
    on_crash = serializers.CharField(source="content.definition.on_crash")
    timeout = serializers.FloatField(source="content.definition.timeout")
    max_result_chars = serializers.IntegerField(source="content.definition.max_result_chars")
    untrusted_output = serializers.BooleanField(source="content.definition.untrusted_output")
    in_untrusted = serializers.CharField(source="content.definition.in_untrusted")
    version = serializers.IntegerField(
        source="current_version.number", default=0, help_text="The one in force; 0 for none."
    )
    waiting_version = serializers.IntegerField(
        source="waiting.number", default=0, help_text="The newest one that waits for approval; 0 for none."
    )


class HttpPreviewOut(serializers.Serializer[HttpPreview]):
    wire = serializers.CharField(help_text="The definition as the model is sent it.")
    tokens = serializers.IntegerField()
    arguments: Any = serializers.JSONField()
    request = serializers.CharField(
        help_text="As it would go out, the credential’s secret as dots; empty: see problem."
    )
    problem = serializers.CharField(help_text="Why a call with these arguments would not be sent.")
    warnings: Any = serializers.SerializerMethodField(help_text="`[{code, text}]`")
    status = serializers.ChoiceField(
        choices=VersionStatus.choices, help_text="Whether it would be in force at once, or wait for approval."
    )

    def get_warnings(self, preview: HttpPreview) -> list[dict[str, str]]:
        return [each.as_json() for each in preview.warnings]


def _content(name: str, body: dict[str, Any]) -> HttpToolContent:
    more = {each: body[each] for each in KNOB_NAMES}
    definition = Definition(name, body["description"], body["parameters"], **more)
    return HttpToolContent(definition, body["credential"], body.get("category", ""))


def _out(tool: Tool) -> Response:
    """Return the answer with the tool. Three queries at most."""
    tool.content = stored_content(tool)  # type: ignore[attr-defined]
    tool.waiting = waiting_version(tool)  # type: ignore[attr-defined]
    return Response(HttpToolOut(tool).data)


class HttpToolList(APIView):
    @extend_schema(
        operation_id="http_tools_create",
        summary="Add an HTTP tool",
        request=NewHttpToolIn,
        responses={201: HttpToolOut},
    )
    def post(self, request: Request) -> Response:
        """Add the tool. Needs the right `catalogue` for its category. It is in force at once for who has the right
        `approve_code` for it, and waits for somebody who has it otherwise."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        body = checked(NewHttpToolIn, request)
        with refusals():
            tool = create_http_tool(_content(body["name"], body), to=recipients_of(body), actor=member)
        answer = _out(http_tool_or_404(tool.name))
        answer.status_code = status.HTTP_201_CREATED
        return answer


class HttpToolPreview(APIView):
    @extend_schema(
        operation_id="http_tools_preview",
        summary="Show an HTTP tool before it is saved",
        request=HttpPreviewIn,
        responses=HttpPreviewOut,
    )
    def post(self, request: Request) -> Response:
        """Return the definition with its tokens, and the request of a call. Saves and sends nothing; refused as saving
        is."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        body = checked(HttpPreviewIn, request)
        sample = body.get("sample")
        if sample is not None and not isinstance(sample, dict):
            raise serializers.ValidationError({"sample": "This must be an object."})
        with refusals():
            return Response(HttpPreviewOut(preview_of(_content(body["name"], body), sample, member=member)).data)


class HttpToolDetail(APIView):
    @extend_schema(operation_id="http_tools_read", summary="One HTTP tool", responses=HttpToolOut)
    def get(self, request: Request, name: str) -> Response:
        """Return the version in force, or the newest where none is. Needs the right `catalogue` for its category."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool = http_tool_or_404(name)
        require(member, Right.CATALOGUE, [tool.category.name])
        return _out(tool)

    @extend_schema(
        operation_id="http_tools_update",
        summary="Give an HTTP tool its next version",
        request=HttpToolIn,
        responses=HttpToolOut,
    )
    def put(self, request: Request, name: str) -> Response:
        """Replace all of what is in force. It counts at once for who has the right `approve_code`, and where only words
        change; else it waits. Another credential needs `approve_code`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        tool = http_tool_or_404(name)
        require(member, Right.CATALOGUE, [tool.category.name])
        body = checked(HttpToolIn, request)
        with refusals():
            update_http_tool(tool, _content(tool.name, body), actor=member)
        return _out(http_tool_or_404(name))
