"""The audited writes of Python tools: versions from the editor and from agents, saved tests, and the switch by which
agents may make tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now

from capabilities.catalogue.python_tools.checks import Checked, TestOutcome, run_tests
from capabilities.catalogue.tools.writes import Definition, Origin, ToolRefused, create_tool, same_content, update_tool
from capabilities.catalogue.versions.rules import changes_code, status_of_new
from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.text import storable_json
from capabilities.models import Agent, Category, Tool, ToolKind, ToolTestCase, ToolVersion, VersionStatus
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Organisation, Right

#: Versions of agents that may wait at once: in an organisation, and of one agent for one member.
MAX_WAITING = 50
MAX_WAITING_OF_AGENT = 5
#: Saved tests of one tool, and characters of one's arguments or result.
MAX_TESTS = 30
MAX_VALUE = 20_000


@configuration_write("name")
def save_python_version(
    tool: Tool | None,
    category: Category,
    definition: Definition,
    *,
    submit: bool,
    actor: Membership,
    agent: Agent | None = None,
) -> ToolVersion:
    """The tool's next version: a draft, or (`submit`) one that waits for somebody's approval; in force at once where
    only words of the one in force change. The same content again makes no new version.

    A person needs the right `catalogue` for the category. `agent` wrote it in a turn of the actor's, who needs none:
    somebody else decides. The content was checked and tested before. Raises PermissionDenied without the right;
    ToolRefused for a tool of another kind.
    """
    if agent is None:
        require(actor, Right.CATALOGUE, [category.name])
    else:
        _check_room(actor, agent)
    if tool is not None:  # its tests ran meanwhile: what is in force now counts
        tool.refresh_from_db(fields=["kind", "current_version"])
    status = VersionStatus.DRAFT
    if submit:
        code = tool is None or changes_code(tool, definition)
        author = actor if agent is not None else None
        status = status_of_new(ToolKind.PYTHON, actor, author=author, changes_code=code, category=category.name)
    if tool is None:
        origin = Origin(ToolKind.PYTHON, made_by_agent=agent)
        tool = create_tool(category, definition, actor=actor, origin=origin, status=status)
        return ToolVersion.objects.get(tool=tool, number=1)
    if tool.kind != ToolKind.PYTHON:
        raise ToolRefused("name", f"{tool} is no Python tool.")
    newest = ToolVersion.objects.filter(tool=tool).order_by("-number").first()
    if newest is not None and same_content(newest, definition) and newest.status in _GOES_ON:
        return _submitted(tool, newest, actor) if submit and newest.status == VersionStatus.DRAFT else newest
    return update_tool(tool, definition, actor=actor, status=status, agent=agent)


@dataclass(frozen=True)
class SavedVersion:
    """The version that was saved, and the names of tests that fail with it: those keep it a draft."""

    version: ToolVersion
    failed: Sequence[str] = ()


def save_checked(
    tool: Tool | None, category: Category, checked: Checked, *, submit: bool, actor: Membership
) -> SavedVersion:
    """Save what was checked as the tool's next version, with its tests run: what the editor and the API call.

    `submit`: it waits for somebody's approval, unless a test fails. Raises ChangeRefused with the lines at fault where
    the code has problems and was to be submitted; a draft may have them. The tests run before the transaction begins.
    """
    require(actor, Right.CATALOGUE, [category.name])
    if submit and checked.blocks:
        raise ChangeRefused("code", f"It cannot be submitted with these problems. {checked.refusal}")
    cases = ToolTestCase.objects.filter(tool=tool).order_by("name") if tool else ()
    outcomes = run_tests(checked.definition, cases, actor.organisation_id)
    failed = [each.case.name for each in outcomes if not each.has_passed]
    version = save_python_version(tool, category, checked.definition, submit=submit and not failed, actor=actor)
    note_outcomes(outcomes, version)
    return SavedVersion(version, failed)


#: A version that stays what the tool's newest content is.
_GOES_ON = (VersionStatus.DRAFT, VersionStatus.PENDING, VersionStatus.APPROVED)


def _submitted(tool: Tool, draft: ToolVersion, actor: Membership) -> ToolVersion:
    drafts = ToolVersion.objects.filter(pk=draft.pk, status=VersionStatus.DRAFT)
    drafts.update(status=VersionStatus.PENDING)
    record("tool.version_submit", tool, actor=actor, after={"version": draft.number, "sha256": draft.sha256})
    touch_registry(tool.organisation_id)
    draft.refresh_from_db()
    return draft


def _check_room(actor: Membership, agent: Agent) -> None:
    """Raise ChangeRefused where as many versions of agents wait as may. Two queries."""
    waiting = ToolVersion.objects.filter(status=VersionStatus.PENDING, made_by_agent__isnull=False)
    if waiting.filter(made_by_agent=agent, created_by=actor).count() >= MAX_WAITING_OF_AGENT:
        raise ChangeRefused("name", f"{MAX_WAITING_OF_AGENT} tools of yours wait for approval: wait for a decision.")
    if waiting.count() >= MAX_WAITING:
        raise ChangeRefused("name", f"{MAX_WAITING} tools of agents wait for approval here: wait for a decision.")


# -- Saved tests -------------------------------------------------------------------------------------------------------


@configuration_write("name")
def save_test(
    tool: Tool,
    name: str,
    arguments: Any,
    *,
    expected: Any = None,
    expects_error: bool = False,
    case: ToolTestCase | None = None,
    actor: Membership,
) -> ToolTestCase:
    """Keep a call of the tool and what must come of it. Needs the right `catalogue` for the tool's category.

    `case` is the one that it takes the place of, which may get another name; else one of the same name is replaced.
    Raises PermissionDenied without the right; ChangeRefused for a name or values that are not taken, and for one test
    too many.
    """
    require(actor, Right.CATALOGUE, [tool.category.name])
    title = " ".join(name.split())
    if not title or len(title) > 100:
        raise ChangeRefused("name", "Name the test, in at most 100 characters.")
    if not isinstance(arguments, dict):
        raise ChangeRefused("arguments", "The arguments are one JSON object.")
    for label, value in (("arguments", arguments), ("expected", expected)):
        if value and storable_json(value, MAX_VALUE) is None:
            raise ChangeRefused(label, f"Keep it under {MAX_VALUE:,} characters of JSON.")
    others = ToolTestCase.objects.filter(tool=tool).exclude(name=case.name if case else title)
    if others.count() >= MAX_TESTS:
        raise ChangeRefused("name", f"A tool has at most {MAX_TESTS} tests.")
    if case is not None and case.name != title:
        if others.filter(name=title).exists():
            raise ChangeRefused("name", f"There is a test {title} already.", code="taken")
        ToolTestCase.objects.filter(pk=case.pk).update(name=title)
    case, _ = ToolTestCase.objects.update_or_create(
        organisation_id=tool.organisation_id,
        tool=tool,
        name=title,
        defaults={
            "arguments": arguments,
            "expected": expected,
            "expects_error": expects_error,
            "has_passed": None,
            "outcome": "",
        },
    )
    record("tool.test_save", tool, actor=actor, after={"test": title, "arguments": json.dumps(arguments)[:500]})
    return case


@configuration_write("name")
def delete_test(case: ToolTestCase, *, actor: Membership) -> None:
    """Delete a saved test. Needs the right `catalogue` for the tool's category. Raises PermissionDenied without it."""
    require(actor, Right.CATALOGUE, [case.tool.category.name])
    record("tool.test_delete", case.tool, actor=actor, before={"test": case.name})
    case.delete()


def note_outcomes(outcomes: Sequence[TestOutcome], version: ToolVersion | None) -> None:
    """Write down what the tests showed, and of which version."""
    for each in outcomes:
        ToolTestCase.objects.filter(pk=each.case.pk).update(
            has_passed=each.has_passed, outcome=each.outcome, version=version, ran_at=Now()
        )


# -- The switch --------------------------------------------------------------------------------------------------------


@configuration_write("agents_make_tools")
def let_agents_make_tools(allowed: bool, *, actor: Membership) -> None:
    """Set whether agents of the organisation may make tools; what they make waits for approval. Needs the right
    `approve_code` for every category. Raises PermissionDenied without it."""
    require(actor, Right.APPROVE_CODE, [EVERY_CATEGORY])
    organisation = Organisation.objects.get(pk=actor.organisation_id)
    if organisation.agents_make_tools == allowed:
        return
    Organisation.objects.filter(pk=organisation.pk).update(agents_make_tools=allowed)
    record(
        "organisation.agents_make_tools",
        actor,
        actor=actor,
        before={"agents_make_tools": not allowed},
        after={"agents_make_tools": allowed},
    )
    touch_registry(organisation.pk)
