"""REST: versions of tools, what differs between two, decisions on those that wait, and the way back."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.tools.recipients.api import RecipientsIn, recipients_of
from capabilities.catalogue.tools.recipients.writes import NOBODY
from capabilities.catalogue.versions.queries import difference_between, may_read_code, version_or_404
from capabilities.catalogue.versions.rules import check_changes_versions
from capabilities.catalogue.versions.writes import (
    MAX_REASON,
    decide_version,
    keep_tool_back,
    release_tool,
    roll_back,
)
from capabilities.common.api import refusals
from capabilities.contract.trust import IN_UNTRUSTED
from capabilities.models import MAX_QUARANTINE, Tool, ToolVersion, VersionStatus
from toolhub.tenants.models import Membership, Right, Scope
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page


class ToolVersionOut(serializers.Serializer[ToolVersion]):
    number = serializers.IntegerField()
    status = serializers.ChoiceField(VersionStatus.choices, help_text="Only an `approved` one is sent and called.")
    status_reason = serializers.CharField(help_text="Why it was approved, rejected or retired, or empty.")
    description = serializers.CharField()
    parameters: Any = serializers.JSONField()
    instructions = serializers.CharField()
    human_format = serializers.CharField(help_text="A call in one line for people, a format over the arguments.")
    implementation: Any = serializers.SerializerMethodField(
        help_text="What runs, for members with the right `catalogue` or `approve_code`; null for others."
    )
    sha256 = serializers.CharField()
    tokens = serializers.IntegerField()
    effect = serializers.CharField()
    on_crash = serializers.CharField()
    timeout = serializers.FloatField(help_text="Seconds.")
    max_result_chars = serializers.IntegerField()
    untrusted_output = serializers.BooleanField(help_text="Whether its result is text from outside the organisation.")
    in_untrusted = serializers.ChoiceField(
        choices=IN_UNTRUSTED, help_text="What becomes of its call where text from outside is in the conversation."
    )
    created_at = serializers.DateTimeField()
    created_by = serializers.UUIDField(
        source="created_by.public_id", allow_null=True, default=None, help_text="A member; null for the service."
    )
    made_by_agent = serializers.CharField(
        source="made_by_agent.slug", allow_null=True, default=None, help_text="The agent that wrote it, or null."
    )
    decided_by = serializers.UUIDField(
        source="decided_by.public_id", allow_null=True, default=None, help_text="A member."
    )
    decided_at = serializers.DateTimeField(allow_null=True)

    def get_implementation(self, version: ToolVersion) -> dict[str, Any] | None:
        return version.implementation if self.context["reads_code"] else None


class QuarantineIn(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=MAX_QUARANTINE, help_text="Whoever decides about it reads it.")


class DecideIn(RecipientsIn):
    decision = serializers.ChoiceField(["approve", "reject"])
    reason = serializers.CharField(
        max_length=MAX_REASON, allow_blank=True, default="", help_text="A rejection needs one; the author reads it."
    )


class ReasonIn(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=MAX_REASON, allow_blank=True, default="")


class SchemaChangeOut(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="The argument, such as `place.city` or `tags[]`; empty for all of them.")
    text = serializers.CharField()
    is_breaking = serializers.BooleanField(help_text="Whether a call that fitted before may not fit any more.")


class PieceOut(serializers.Serializer[Any]):
    side = serializers.ChoiceField(["same", "removed", "added"])
    text = serializers.CharField()


class LineOut(serializers.Serializer[Any]):
    side = serializers.ChoiceField(["same", "removed", "added", "gap"])
    text = serializers.CharField()
    before = serializers.IntegerField(allow_null=True, help_text="Its number in the first version.")
    after = serializers.IntegerField(allow_null=True, help_text="Its number in the second version.")


class DifferenceOut(serializers.Serializer[Any]):
    is_breaking = serializers.BooleanField()
    schema = SchemaChangeOut(many=True)
    words = serializers.DictField(child=PieceOut(many=True), help_text="By text, such as `description`.")
    lines = serializers.DictField(child=LineOut(many=True), help_text="By text: code, what runs, schema.")
    knobs = serializers.DictField(child=serializers.ListField(), help_text="By title, before and after.")
    error = serializers.CharField(help_text="Why the two could not be compared, or empty.")


def version_out(member: Membership, version: ToolVersion) -> Any:
    reads_code = may_read_code(member, version.tool.category.name)
    return ToolVersionOut(version, context={"reads_code": reads_code}).data


class ToolVersions(APIView):
    @extend_schema(
        operation_id="tool_versions_list",
        summary="Versions of a tool",
        parameters=PAGE_PARAMETERS,
        responses=paged(ToolVersionOut),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the tool's versions, newest first, with those that wait, and those that were rejected."""
        member = api_member(request)
        tool = get_object_or_404(Tool, name=name)
        rows = ToolVersion.objects.filter(tool=tool).select_related(
            "tool__category", "created_by", "decided_by", "made_by_agent"
        )
        return Response(page(request, rows, "pk", lambda row: version_out(member, row), newest_first=True))


class ToolVersionDetail(APIView):
    @extend_schema(operation_id="tool_versions_read", summary="One version of a tool", responses=ToolVersionOut)
    def get(self, request: Request, name: str, number: int) -> Response:
        """Return a version, whatever its status."""
        member = api_member(request)
        return Response(version_out(member, version_or_404(name, number)))


class ToolVersionDifference(APIView):
    @extend_schema(
        operation_id="tool_versions_compare", summary="What differs between two versions", responses=DifferenceOut
    )
    def get(self, request: Request, name: str, number: int, other: int) -> Response:
        """Return the difference from first to second: words, schema (compatible or breaking), lines of code, knobs."""
        member = api_member(request)
        first, second = version_or_404(name, number), version_or_404(name, other)
        found = difference_between(first, second, with_code=may_read_code(member, first.tool.category.name))
        values = {
            "is_breaking": found.is_breaking,
            "schema": found.as_json.get("schema", []),
            "words": found.as_json.get("words", {}),
            "lines": found.as_json.get("lines", {}),
            "knobs": {title: [before, after] for title, before, after in found.knobs},
            "error": found.error,
        }
        return Response(DifferenceOut(values).data)


class ToolVersionDecide(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(
        operation_id="tool_versions_decide",
        summary="Approve or reject a version that waits",
        request=DecideIn,
        responses=ToolVersionOut,
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        """Decide on the version. Needs the right `approve_code` for the tool's category. Nobody approves code of their
        own. 409 where it does not wait any more."""
        member = api_member(request, right=Right.APPROVE_CODE, category=None)
        version = version_or_404(name, number)
        body = checked(DecideIn, request)
        with refusals():
            approve = body["decision"] == "approve"
            to = recipients_of(body) if approve else NOBODY
            decide_version(version, approve=approve, reason=body["reason"], to=to, actor=member)
        return Response(version_out(member, version_or_404(name, number)))


class ToolVersionRollback(APIView):
    @extend_schema(
        operation_id="tool_versions_rollback",
        summary="Put an earlier version in force again",
        request=ReasonIn,
        responses=ToolVersionOut,
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        """Put a version in force again that was in force before. Needs the right `approve_code` for the tool's
        category; `catalogue` where only words differ."""
        member = api_member(request)
        check_changes_versions(member)
        version = version_or_404(name, number)
        body = checked(ReasonIn, request)
        with refusals():
            roll_back(version.tool, number, reason=body["reason"], actor=member)
        return Response(version_out(member, version_or_404(name, number)))


class ToolQuarantine(APIView):
    @extend_schema(
        operation_id="tools_quarantine_update", summary="Keep a tool back", request=QuarantineIn, responses={204: None}
    )
    def put(self, request: Request, name: str) -> Response:
        """Keep the tool back: no model gets it, and calls of it are refused, in running turns too, until somebody
        decides. Needs the right `catalogue` or `approve_code` for its category; `approve_code` where it is kept back
        already."""
        member = api_member(request)
        check_changes_versions(member)
        tool = get_object_or_404(Tool, name=name)
        body = checked(QuarantineIn, request)
        with refusals():
            keep_tool_back(tool, body["reason"], actor=member)
        return Response(status=204)

    @extend_schema(operation_id="tools_quarantine_delete", summary="Release a tool", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Release the tool: its version in force is used again. Needs the right `approve_code` for its category; nobody
        releases code of their own. 409 where it is not kept back, or its server does not offer the version in force."""
        member = api_member(request, right=Right.APPROVE_CODE, category=None)
        tool = get_object_or_404(Tool, name=name)
        with refusals():
            release_tool(tool, actor=member)
        return Response(status=204)
