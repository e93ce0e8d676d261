"""REST: Python modules of the organisation, their versions, decisions on those that wait, and who uses which."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.python_tools.api import ProblemOut
from capabilities.catalogue.python_tools.helper_modules.checks import check_module
from capabilities.catalogue.python_tools.helper_modules.queries import (
    STATE_FILTERS,
    difference_between,
    filtered_modules,
    module_or_404,
    uses_of,
    version_or_404,
    versions_of,
)
from capabilities.catalogue.python_tools.helper_modules.writes import (
    MAX_DESCRIPTION,
    create_module,
    decide_module,
    delete_module,
    describe_module,
    retire_module,
    roll_back_module,
    update_module,
)
from capabilities.catalogue.versions.api import DecideIn, LineOut, ReasonIn
from capabilities.catalogue.versions.rules import check_changes_versions
from capabilities.common.api import checked_part, refusals
from capabilities.models import HelperModule, HelperUse, HelperVersion, VersionStatus
from capabilities.running.sandbox import MAX_CODE
from toolhub.tenants.models import Membership, Right, Scope
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page


class ModuleVersionIn(serializers.Serializer[Any]):
    code = serializers.CharField(max_length=MAX_CODE, trim_whitespace=False, help_text="What tools import.")


class ModuleIn(ModuleVersionIn):
    name = serializers.CharField(max_length=64, help_text="Code imports it by this, and it stays.")
    description = serializers.CharField(max_length=MAX_DESCRIPTION, allow_blank=True, default="")


class ModulePart(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=MAX_DESCRIPTION, allow_blank=True)


class ModuleCheckIn(ModuleVersionIn):
    name = serializers.CharField(max_length=64)


class ModuleOut(serializers.Serializer[HelperModule]):
    name = serializers.CharField()
    description = serializers.CharField()
    version = serializers.IntegerField(
        source="current_version.number", allow_null=True, default=None, help_text="The one in force, or null."
    )
    waiting_version = serializers.IntegerField(
        source="waiting_number", allow_null=True, help_text="The newest one that waits for approval, or null."
    )
    tools = serializers.IntegerField(
        source="tool_count", help_text="Tools with a version in force, or waiting, that imports it."
    )
    created_at = serializers.DateTimeField()


class ModuleVersionRowOut(serializers.Serializer[HelperVersion]):
    number = serializers.IntegerField()
    status = serializers.ChoiceField(VersionStatus.choices)
    status_reason = serializers.CharField(help_text="Why it was approved, rejected or retired, or empty.")
    sha256 = serializers.CharField()
    runtimes = serializers.ListField(child=serializers.CharField(), help_text="Those that it can be loaded in.")
    created_at = serializers.DateTimeField()
    created_by = serializers.UUIDField(
        source="created_by.public_id", allow_null=True, default=None, help_text="A member."
    )
    decided_by = serializers.UUIDField(
        source="decided_by.public_id", allow_null=True, default=None, help_text="A member."
    )
    decided_at = serializers.DateTimeField(allow_null=True)


class ModuleVersionOut(ModuleVersionRowOut):
    module = serializers.CharField(source="module.name")
    code = serializers.CharField()


class ModuleUseOut(serializers.Serializer[HelperUse]):
    tool = serializers.CharField(source="tool_version.tool.name")
    tool_version = serializers.IntegerField(source="tool_version.number")
    status = serializers.ChoiceField(VersionStatus.choices, source="tool_version.status")
    module_version = serializers.IntegerField(
        source="helper_version.number", help_text="The one that this version of the tool imports."
    )


class ModuleCheckOut(serializers.Serializer[Any]):
    runtimes = serializers.ListField(
        child=serializers.CharField(), help_text="Those that it can be loaded in. With none, it cannot be saved."
    )
    problems = serializers.DictField(child=ProblemOut(many=True), help_text="By runtime.")
    error = serializers.CharField(help_text="Why there is no runtime here at all, or empty.")


class ModuleDifferenceOut(serializers.Serializer[Any]):
    lines = LineOut(many=True)
    error = serializers.CharField(help_text="Why the two could not be compared, or empty.")


def _reader(request: Request) -> Membership:
    """Return the member who reads modules: one with `catalogue` or `approve_code`, if only for one category."""
    member = api_member(request)
    check_changes_versions(member)
    return member


STATE = OpenApiParameter("state", str, enum=[*STATE_FILTERS], description="`out`: no version is in force.")
SEARCH = OpenApiParameter("q", str, description="Words of name or description.")


class ModuleList(APIView):
    @extend_schema(
        operation_id="python_modules_list",
        summary="Python modules",
        parameters=[*PAGE_PARAMETERS, SEARCH, STATE],
        responses=paged(ModuleOut),
    )
    def get(self, request: Request) -> Response:
        """List the modules by name. Needs the right `catalogue` or `approve_code`, if only for one category."""
        _reader(request)
        state = request.query_params.get("state", "")
        if state not in ("", *STATE_FILTERS):
            raise ValidationError({"state": f"This must be one of {', '.join(STATE_FILTERS)}."})
        rows = filtered_modules(q=request.query_params.get("q", "")[:100].replace("\x00", ""), state=state)
        return Response(page(request, rows, "name", lambda row: ModuleOut(row).data, filters=("q", "state")))

    @extend_schema(
        operation_id="python_modules_create",
        summary="Write a Python module",
        request=ModuleIn,
        responses={201: ModuleVersionOut},
    )
    def post(self, request: Request) -> Response:
        """Add a module; its first version waits for somebody else’s approval. Needs the right `catalogue` for every
        category. 400 with the lines where no runtime can load the code."""
        member = api_member(request, right=Right.CATALOGUE)
        body = checked(ModuleIn, request)
        with refusals():
            found = check_module(body["name"], body["code"], member.organisation_id)
            create_module(body["name"], body["description"], found, actor=member)
        version = version_or_404(body["name"], 1)
        return Response(ModuleVersionOut(version).data, status=status.HTTP_201_CREATED)


class ModuleCheck(APIView):
    @extend_schema(
        operation_id="python_module_checks_create",
        summary="Check the code of a Python module",
        request=ModuleCheckIn,
        responses=ModuleCheckOut,
    )
    def post(self, request: Request) -> Response:
        """Return every problem with its line and what to write instead, in each runtime here. Nothing is saved."""
        member = api_member(request, right=Right.CATALOGUE)
        body = checked(ModuleCheckIn, request)
        with refusals():
            found = check_module(body["name"], body["code"], member.organisation_id)
        return Response(ModuleCheckOut(found).data)


class ModuleDetail(APIView):
    @extend_schema(operation_id="python_modules_read", summary="One Python module", responses=ModuleOut)
    def get(self, request: Request, name: str) -> Response:
        """Return the module; its code is read with its versions."""
        _reader(request)
        return Response(ModuleOut(module_or_404(name)).data)

    @extend_schema(
        operation_id="python_modules_update",
        summary="Describe a Python module",
        request=ModulePart,
        responses=ModuleOut,
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change the description, for people: it counts at once. New code is a new version."""
        member = api_member(request, right=Right.CATALOGUE)
        module = module_or_404(name)
        body = checked_part(ModulePart, request)
        if "description" in body:
            with refusals():
                describe_module(module, body["description"], actor=member)
        return Response(ModuleOut(module_or_404(name)).data)

    @extend_schema(
        operation_id="python_modules_delete",
        summary="Remove a Python module",
        responses={204: None, 409: ErrorOut},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Delete the module. 409 with the tools, while a version of a tool names it that is in force, waits, is a draft
        or can come back."""
        member = api_member(request, right=Right.CATALOGUE)
        module = module_or_404(name)
        with refusals():
            delete_module(module, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ModuleRetire(APIView):
    @extend_schema(
        operation_id="python_modules_retire",
        summary="Take a Python module out of use",
        request=ReasonIn,
        responses=ModuleOut,
    )
    def post(self, request: Request, name: str) -> Response:
        """Take the module out of use: no tool comes into force with it any more; those in force with it go on. 409
        where nothing is in force."""
        member = api_member(request, right=Right.CATALOGUE)
        module = module_or_404(name)
        body = checked(ReasonIn, request)
        with refusals():
            retire_module(module, reason=body["reason"], actor=member)
        return Response(ModuleOut(module_or_404(name)).data)


class ModuleUses(APIView):
    @extend_schema(
        operation_id="python_modules_uses_list",
        summary="Tools that import a Python module",
        parameters=PAGE_PARAMETERS,
        responses=paged(ModuleUseOut),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the versions of tools that are in force or wait, and which version of the module each imports."""
        _reader(request)
        rows = uses_of(module_or_404(name))
        return Response(page(request, rows, "pk", lambda row: ModuleUseOut(row).data))


class ModuleVersions(APIView):
    @extend_schema(
        operation_id="python_module_versions_list",
        summary="Versions of a Python module",
        parameters=PAGE_PARAMETERS,
        responses=paged(ModuleVersionRowOut),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the versions, newest first, without their code."""
        _reader(request)
        rows = versions_of(module_or_404(name))
        return Response(page(request, rows, "pk", lambda row: ModuleVersionRowOut(row).data, newest_first=True))

    @extend_schema(
        operation_id="python_module_versions_create",
        summary="Write the next version of a Python module",
        request=ModuleVersionIn,
        responses={201: ModuleVersionOut},
    )
    def post(self, request: Request, name: str) -> Response:
        """Add a version, which waits for somebody else’s approval and changes no tool. The same code makes none."""
        member = api_member(request, right=Right.CATALOGUE)
        module = module_or_404(name)
        body = checked(ModuleVersionIn, request)
        with refusals():
            found = check_module(module.name, body["code"], member.organisation_id)
            version = update_module(module, found, actor=member)
        version = version_or_404(name, version.number)
        return Response(ModuleVersionOut(version).data, status=status.HTTP_201_CREATED)


class ModuleVersionDetail(APIView):
    @extend_schema(
        operation_id="python_module_versions_read",
        summary="One version of a Python module",
        responses=ModuleVersionOut,
    )
    def get(self, request: Request, name: str, number: int) -> Response:
        """Return the version with its code."""
        _reader(request)
        return Response(ModuleVersionOut(version_or_404(name, number)).data)


class ModuleVersionDifference(APIView):
    @extend_schema(
        operation_id="python_module_versions_compare",
        summary="What differs between two versions of a Python module",
        responses=ModuleDifferenceOut,
    )
    def get(self, request: Request, name: str, number: int, other: int) -> Response:
        """Return the difference from the first to the second, line by line."""
        _reader(request)
        found = difference_between(version_or_404(name, number), version_or_404(name, other))
        return Response(ModuleDifferenceOut({"lines": found.as_json, "error": found.error}).data)


class ModuleVersionDecide(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(
        operation_id="python_module_versions_decide",
        summary="Approve or reject a version of a Python module that waits",
        request=DecideIn,
        responses=ModuleVersionOut,
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        """Decide on the version. Needs the right `approve_code` for every category. Nobody approves code of their own.
        409 where it does not wait any more."""
        member = api_member(request, right=Right.APPROVE_CODE)
        version = version_or_404(name, number)
        body = checked(DecideIn, request)
        with refusals():
            decide_module(version, approve=body["decision"] == "approve", reason=body["reason"], actor=member)
        return Response(ModuleVersionOut(version_or_404(name, number)).data)


class ModuleVersionRollback(APIView):
    @extend_schema(
        operation_id="python_module_versions_rollback",
        summary="Put an earlier version of a Python module in force again",
        request=ReasonIn,
        responses=ModuleVersionOut,
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        """Put a version in force again that was in force before. Needs the right `approve_code` for every category."""
        member = api_member(request, right=Right.APPROVE_CODE)
        version = version_or_404(name, number)
        body = checked(ReasonIn, request)
        with refusals():
            roll_back_module(version.module, number, reason=body["reason"], actor=member)
        return Response(ModuleVersionOut(version_or_404(name, number)).data)
