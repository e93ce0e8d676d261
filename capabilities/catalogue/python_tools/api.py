"""REST: tools that are Python written here, their saved tests, and the switch by which agents make tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.http_tools.writes import EFFECTS
from capabilities.catalogue.python_tools.checks import PythonContent, TestOutcome, check_content, run_tests
from capabilities.catalogue.python_tools.queries import (
    category_named,
    newest_version,
    python_tool_or_404,
    test_or_404,
    waiting_number,
)
from capabilities.catalogue.python_tools.writes import (
    SavedVersion,
    delete_test,
    let_agents_make_tools,
    note_outcomes,
    save_checked,
    save_test,
)
from capabilities.catalogue.tools.writes import MAX_DESCRIPTION, MAX_HUMAN_FORMAT, MAX_INSTRUCTIONS, definition_of
from capabilities.common.api import refusals
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import require
from capabilities.models import Category, Tool, ToolTestCase, ToolVersion, VersionStatus
from capabilities.running.sandbox import MAX_CODE, RUNTIMES
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page


class PythonContentIn(serializers.Serializer[Any]):
    description = serializers.CharField(max_length=MAX_DESCRIPTION, help_text="What the model chooses by.")
    parameters = serializers.JSONField(help_text="JSON Schema of the arguments, of the type `object`.")
    code = serializers.CharField(
        max_length=MAX_CODE,
        trim_whitespace=False,
        help_text="With a function `run`, which takes the arguments by name.",
    )
    runtime = serializers.ChoiceField(choices=RUNTIMES, default="monty")
    helpers = serializers.DictField(
        child=serializers.IntegerField(min_value=1),
        default=dict,
        help_text="Modules of the organisation that the code imports, each with its version: `{name: number}`.",
    )
    instructions = serializers.CharField(max_length=MAX_INSTRUCTIONS, allow_blank=True, default="")
    human_format = serializers.CharField(
        max_length=MAX_HUMAN_FORMAT,
        allow_blank=True,
        default="",
        help_text="A call in one line for people, such as `Writing {text} in capitals`.",
    )
    effect = serializers.ChoiceField(choices=EFFECTS, default="external")
    timeout = serializers.FloatField(min_value=0.5, max_value=120, default=20.0, help_text="Seconds.")
    max_result_chars = serializers.IntegerField(min_value=200, max_value=200_000, default=40_000)


class PythonToolIn(PythonContentIn):
    submit = serializers.BooleanField(
        default=True, help_text="Whether it waits for somebody’s approval; a draft waits for nobody."
    )


class NewPythonToolIn(PythonToolIn):
    name = serializers.CharField(max_length=64)
    category = serializers.CharField(max_length=64, help_text="Name of a category.")


class PythonCheckIn(PythonContentIn):
    name = serializers.CharField(max_length=64)
    example = serializers.JSONField(
        required=False, allow_null=True, help_text="Arguments of one call to try. Left out: the code is not run."
    )


class ProblemOut(serializers.Serializer[Any]):
    line = serializers.IntegerField(allow_null=True, help_text="Of the code, from 1; null where it is of no line.")
    column = serializers.IntegerField(allow_null=True)
    message = serializers.CharField()
    advice = serializers.CharField(help_text="What to write instead, or empty.")
    blocks = serializers.BooleanField(help_text="Whether the code cannot be submitted with it.")


class PythonCheckOut(serializers.Serializer[Any]):
    problems = ProblemOut(many=True)
    display = serializers.CharField(help_text="The call in one line for people; empty without an example.")
    has_run = serializers.BooleanField()
    result = serializers.CharField(help_text="What came of the example, as JSON text; empty where nothing did.")
    error = serializers.CharField(help_text="Why nothing came of it, with the line; or empty.")


class PythonToolOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    category = serializers.CharField()
    description = serializers.CharField()
    parameters = serializers.JSONField()
    code = serializers.CharField()
    runtime = serializers.CharField()
    helpers = serializers.DictField(child=serializers.IntegerField())
    instructions = serializers.CharField()
    human_format = serializers.CharField()
    effect = serializers.CharField()
    timeout = serializers.FloatField()
    max_result_chars = serializers.IntegerField()
    number = serializers.IntegerField(help_text="Of the version that this is: the newest one that was not rejected.")
    status = serializers.ChoiceField(VersionStatus.choices)
    version = serializers.IntegerField(help_text="The one in force; 0 for none.")
    waiting_version = serializers.IntegerField(help_text="The newest one that waits for approval; 0 for none.")


class SavedPythonToolOut(PythonToolOut):
    failed_tests = serializers.ListField(
        child=serializers.CharField(), help_text="Names of tests that fail with it: it stays a draft."
    )


class ToolTestIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    arguments = serializers.JSONField(default=dict, help_text="One JSON object.")
    expected = serializers.JSONField(
        default=None, allow_null=True, help_text="The result, or a part of the error’s text; null: any."
    )
    expects_error = serializers.BooleanField(default=False)


class ToolTestOut(serializers.Serializer[ToolTestCase]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField()
    arguments: Any = serializers.JSONField()
    expected: Any = serializers.JSONField(allow_null=True)
    expects_error = serializers.BooleanField()
    version = serializers.IntegerField(
        source="version.number", allow_null=True, default=None, help_text="Of the tool, at its last run."
    )
    has_passed = serializers.BooleanField(allow_null=True, help_text="At its last run; null before.")
    outcome = serializers.CharField()
    ran_at = serializers.DateTimeField(allow_null=True)


class TestRunIn(serializers.Serializer[Any]):
    version = serializers.IntegerField(
        min_value=1, required=False, allow_null=True, help_text="Left out: the newest one that was not rejected."
    )

    __test__ = False


class TestRunRowOut(serializers.Serializer[TestOutcome]):
    id = serializers.UUIDField(source="case.public_id")
    name = serializers.CharField(source="case.name")
    has_passed = serializers.BooleanField()
    outcome = serializers.CharField()

    __test__ = False


class TestRunOut(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    passed = serializers.BooleanField(help_text="Whether all of them passed.")
    results = TestRunRowOut(many=True)

    __test__ = False


class AgentsMakeToolsIn(serializers.Serializer[Any]):
    agents_make_tools = serializers.BooleanField(help_text="What an agent makes waits for somebody’s approval.")


class AgentsMakeToolsOut(AgentsMakeToolsIn):
    organisation = serializers.CharField(help_text="Its name.")


def _content(name: str, body: dict[str, Any]) -> PythonContent:
    named = ("description", "parameters", "code", "runtime", "human_format", "instructions", "helpers")
    knobs = ("effect", "timeout", "max_result_chars")
    return PythonContent(name, *(body[each] for each in named), *(body[each] for each in knobs))


def _saved(
    tool: Tool | None, category: Category, content: PythonContent, member: Membership, *, submit: bool
) -> SavedVersion:
    """Check and save as the editor does it. Raises the API's errors, with the line of the code."""
    with refusals(), _fields_of_body():
        if not isinstance(content.parameters, dict):
            raise ChangeRefused("parameters", "The schema is one JSON object.")
        require(member, Right.CATALOGUE, [category.name])
        found = check_content(content.definition(), None, member.organisation_id)
        return save_checked(tool, category, found, submit=submit, actor=member)


@contextmanager
def _fields_of_body() -> Iterator[None]:
    """Remove `implementation.` from the field that a refusal names: the body holds each of those fields by itself."""
    try:
        yield
    except ChangeRefused as error:
        error.field = error.field.removeprefix("implementation.")
        raise


def _shown(tool: Tool, version: ToolVersion) -> dict[str, Any]:
    """Return a tool's version as the API shows it. One query."""
    implementation = version.implementation
    plain = ("description", "parameters", "instructions", "human_format", "effect", "timeout", "max_result_chars")
    return {
        "name": tool.name,
        "category": tool.category.name,
        **{name: getattr(version, name) for name in plain},
        "code": str(implementation.get("code", "")),
        "runtime": str(implementation.get("runtime", "")),
        "helpers": implementation.get("helpers") or {},
        "number": version.number,
        "status": version.status,
        "version": tool.current_version.number if tool.current_version else 0,
        "waiting_version": waiting_number(tool),
    }


def _after_save(saved: SavedVersion, name: str, status_code: int = status.HTTP_200_OK) -> Response:
    body = _shown(python_tool_or_404(name), saved.version) | {"failed_tests": list(saved.failed)}
    return Response(SavedPythonToolOut(body).data, status=status_code)


def _own(request: Request, name: str) -> tuple[Membership, Tool]:
    """Return the member and the tool. Needs the right `catalogue` for its category."""
    member = api_member(request, right=Right.CATALOGUE, category=None)
    tool = python_tool_or_404(name)
    require(member, Right.CATALOGUE, [tool.category.name])
    return member, tool


class PythonToolList(APIView):
    @extend_schema(
        operation_id="python_tools_create",
        summary="Write a Python tool",
        request=NewPythonToolIn,
        responses={201: SavedPythonToolOut},
    )
    def post(self, request: Request) -> Response:
        """Add the tool. Needs the right `catalogue` for its category. Its code is checked in the sandbox: where it has
        problems, a draft is saved, and nothing else. It is called after somebody else has approved it."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        body = checked(NewPythonToolIn, request)
        with refusals():
            category = category_named(body["category"])
        saved = _saved(None, category, _content(body["name"], body), member, submit=body["submit"])
        return _after_save(saved, body["name"], status.HTTP_201_CREATED)


class PythonToolCheck(APIView):
    @extend_schema(
        operation_id="python_tool_checks_create",
        summary="Check the code of a Python tool, and try it",
        request=PythonCheckIn,
        responses=PythonCheckOut,
    )
    def post(self, request: Request) -> Response:
        """Return every problem with its line and what to write instead; and one run with `example`, without a way to
        the web. Nothing is saved."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        body = checked(PythonCheckIn, request)
        content, example = _content(body["name"], body), body.get("example")
        with refusals(), _fields_of_body():
            for name, value in (("parameters", content.parameters), ("example", {} if example is None else example)):
                if not isinstance(value, dict):
                    raise ChangeRefused(name, "This is one JSON object.")
            found = check_content(content.definition(), example, member.organisation_id)
        return Response(PythonCheckOut(found).data)


class PythonToolDetail(APIView):
    @extend_schema(operation_id="python_tools_read", summary="One Python tool", responses=PythonToolOut)
    def get(self, request: Request, name: str) -> Response:
        """Return the newest version that was not rejected, with its code. Needs the right `catalogue` for its
        category."""
        _, tool = _own(request, name)
        with refusals():
            return Response(PythonToolOut(_shown(tool, _newest(tool))).data)

    @extend_schema(
        operation_id="python_tools_update",
        summary="Give a Python tool its next version",
        request=PythonToolIn,
        responses=SavedPythonToolOut,
    )
    def put(self, request: Request, name: str) -> Response:
        """Replace all of it by a new version: a draft, or one that waits. Only words of the version in force count at
        once. Its tests run, and a version with one that fails stays a draft."""
        member, tool = _own(request, name)
        body = checked(PythonToolIn, request)
        saved = _saved(tool, tool.category, _content(tool.name, body), member, submit=body["submit"])
        return _after_save(saved, tool.name)


def _newest(tool: Tool) -> ToolVersion:
    version = newest_version(tool)
    if version is None:
        raise ChangeRefused("", f"Each version of {tool} was rejected.", code="conflict")
    return version


class PythonToolTests(APIView):
    @extend_schema(
        operation_id="python_tool_tests_list",
        summary="Saved tests of a Python tool",
        parameters=PAGE_PARAMETERS,
        responses=paged(ToolTestOut),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the saved tests by name, with what each showed at its last run."""
        _, tool = _own(request, name)
        rows = ToolTestCase.objects.filter(tool=tool).select_related("version")
        rows = rows.defer("version__wire", "version__parameters", "version__implementation")
        return Response(page(request, rows, "name", lambda row: ToolTestOut(row).data))

    @extend_schema(
        operation_id="python_tool_tests_create",
        summary="Save a test of a Python tool",
        request=ToolTestIn,
        responses={201: ToolTestOut},
    )
    def post(self, request: Request, name: str) -> Response:
        """Save a test: a call, and the result that it must have. One of the same name is replaced. It runs with each
        save of the tool."""
        member, tool = _own(request, name)
        case = _kept(tool, checked(ToolTestIn, request), None, member)
        return Response(ToolTestOut(case).data, status=status.HTTP_201_CREATED)


def _kept(tool: Tool, body: dict[str, Any], case: ToolTestCase | None, member: Membership) -> ToolTestCase:
    with refusals():
        saved = save_test(
            tool,
            body["name"],
            body["arguments"],
            expected=body["expected"],
            expects_error=body["expects_error"],
            case=case,
            actor=member,
        )
    return test_or_404(tool, saved.public_id)


class PythonToolTest(APIView):
    @extend_schema(operation_id="python_tool_tests_read", summary="One saved test", responses=ToolTestOut)
    def get(self, request: Request, name: str, test_id: UUID) -> Response:
        """Return the test with what it showed at its last run."""
        _, tool = _own(request, name)
        return Response(ToolTestOut(test_or_404(tool, test_id)).data)

    @extend_schema(
        operation_id="python_tool_tests_update",
        summary="Change a saved test",
        request=ToolTestIn,
        responses=ToolTestOut,
    )
    def put(self, request: Request, name: str, test_id: UUID) -> Response:
        """Replace all of the test, its name included. What it showed before is gone."""
        member, tool = _own(request, name)
        case = test_or_404(tool, test_id)
        return Response(ToolTestOut(_kept(tool, checked(ToolTestIn, request), case, member)).data)

    @extend_schema(operation_id="python_tool_tests_delete", summary="Delete a saved test", responses={204: None})
    def delete(self, request: Request, name: str, test_id: UUID) -> Response:
        """Delete the test with its outcomes."""
        member, tool = _own(request, name)
        case = test_or_404(tool, test_id)
        with refusals():
            delete_test(case, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PythonToolTestRun(APIView):
    @extend_schema(
        operation_id="python_tool_tests_run",
        summary="Run the saved tests of a Python tool",
        request=TestRunIn,
        responses=TestRunOut,
    )
    def post(self, request: Request, name: str) -> Response:
        """Run all tests, in the sandbox and without a way to the web, at most 10 seconds each and 30 together."""
        member, tool = _own(request, name)
        wanted = checked(TestRunIn, request).get("version")
        with refusals():
            version = _newest(tool) if wanted is None else _numbered(tool, wanted)
        cases = ToolTestCase.objects.filter(tool=tool).order_by("name")
        outcomes = run_tests(definition_of(tool, version), cases, member.organisation_id)
        note_outcomes(outcomes, version)
        passed = all(each.has_passed for each in outcomes)
        return Response(TestRunOut({"version": version.number, "passed": passed, "results": outcomes}).data)


def _numbered(tool: Tool, number: int) -> ToolVersion:
    version = ToolVersion.objects.filter(tool=tool, number=number).first()
    if version is None:
        raise ChangeRefused("version", f"{tool} has no version {number}.", code="unknown")
    return version


class AgentsMakeTools(APIView):
    @extend_schema(
        operation_id="agents_make_tools_read",
        summary="Whether agents may make tools",
        responses=AgentsMakeToolsOut,
    )
    def get(self, request: Request) -> Response:
        """Return whether agents may make tools. Needs the right `approve_code` for every category."""
        member = api_member(request, right=Right.APPROVE_CODE)
        return self._shown(member)

    @extend_schema(
        operation_id="agents_make_tools_set",
        summary="Let agents make tools, or stop them",
        request=AgentsMakeToolsIn,
        responses=AgentsMakeToolsOut,
    )
    def put(self, request: Request) -> Response:
        """Set the switch from the next call on. Tools that agents made stay as they are."""
        member = api_member(request, right=Right.APPROVE_CODE)
        allowed = checked(AgentsMakeToolsIn, request)["agents_make_tools"]
        with refusals():
            let_agents_make_tools(allowed, actor=member)
        return self._shown(member)

    def _shown(self, member: Membership) -> Response:
        organisation = Organisation.objects.get(pk=member.organisation_id)
        shown = {"agents_make_tools": organisation.agents_make_tools, "organisation": organisation.name}
        return Response(AgentsMakeToolsOut(shown).data)
