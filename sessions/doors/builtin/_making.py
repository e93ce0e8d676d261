"""Making of a tool by an agent: its text is checked, run once if it gives an example, and saved for approval."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.catalogue.python_tools.checks import (
    PythonContent,
    check_definition,
    complaint_about_arguments,
    problems_of,
    run_once,
)
from capabilities.catalogue.python_tools.writes import save_python_version
from capabilities.catalogue.tools.writes import Definition
from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.loading import META_CATEGORY
from capabilities.models import Agent, Category, Tool, ToolKind, VersionStatus
from capabilities.running.kinds.lines import filled_line
from capabilities.running.kinds.python import failure_text
from capabilities.running.sandbox import isolation
from toolhub.tenants.models import Membership, Organisation

RUNTIME = "monty"
#: Characters of a tool's name.
MAX_NAME = 64
#: Least number of these characters that are left of the agent's name.
LEAST_OF_AGENT = 8
_NAME = re.compile(r"[a-zA-Z0-9_-]+\Z")
OFF = "Agents may not make tools in this organisation: an admin switches it on."


@dataclass(frozen=True)
class Asked:
    """Definition of a tool as the agent asks for it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    code: str
    human_format: str = ""
    category: str = ""
    example: Mapping[str, Any] | None = None


def tool_name(agent: str, name: str) -> str:
    """The tool's whole name, of the agent's short name and what it calls the tool. Raises ToolError."""
    begin = f"agent_{agent}__"
    name = name.strip().removeprefix(begin)
    if not _NAME.match(name):
        raise ToolError("Name the tool with letters a-z, A-Z, digits, _ and - alone, such as text_transformer.")
    room = MAX_NAME - len("agent___") - len(name)
    if room < min(LEAST_OF_AGENT, len(agent)):
        most = MAX_NAME - len("agent___") - min(LEAST_OF_AGENT, len(agent))
        raise ToolError(f"The name {name[:80]} is too long: take at most {most} characters.")
    return f"agent_{agent[:room]}__{name}"


def make_tool(asked: Asked, context: ToolContext) -> dict[str, Any]:
    """Check, try and save it. Raises ToolError with all that is wrong, each with its line and what to write instead."""
    if context.agent_id is None:
        raise ToolError("Tools are made by agents, in a conversation. People write them in the catalogue.")
    if not Organisation.objects.filter(pk=context.organisation_id, agents_make_tools=True).exists():
        raise ToolError(OFF)
    if not isolation().has(RUNTIME):
        raise ToolError(f"No tool can be made here: {isolation().reason(RUNTIME)}")
    agent = Agent.objects.get(pk=context.agent_id)
    member = Membership.objects.select_related("user", "organisation").get(pk=context.membership_id)
    name = tool_name(agent.slug, asked.name)
    tool = Tool.objects.select_related("category", "current_version").filter(name=name).first()
    if tool is not None and (tool.kind != ToolKind.PYTHON or tool.made_by_agent_id != agent.pk):
        raise ToolError(f"There is another tool named {name} already: take another name.")
    category = _category(asked.category) if asked.category or tool is None else tool.category
    content = PythonContent(name, asked.description, asked.parameters, asked.code, RUNTIME, asked.human_format)
    definition = content.definition()
    doubts = _check(definition, asked, context)
    shown = _tried(definition, asked, context)
    try:
        version = save_python_version(tool, category, definition, submit=True, actor=member, agent=agent)
    except ChangeRefused as error:
        raise ToolError(str(error)) from error
    result: dict[str, Any] = {"tool": name, "version": version.number, "status": version.status}
    if version.status == VersionStatus.APPROVED:
        result["message"] = f"{name} says exactly this already, and is approved: call it by its name."
    else:
        result["message"] = (
            f"{name} is saved, and waits until somebody else than {member} approves it. "
            "Then it can be called by its name; until then go on without it."
        )
    if tool is not None and tool.current_version is not None and version.status != VersionStatus.APPROVED:
        result["message"] += f" Version {tool.current_version.number} stays in force until then."
    return result | ({"doubts": doubts} if doubts else {}) | shown


def _category(name: str) -> Category:
    wanted = name.strip() or META_CATEGORY
    found = Category.objects.filter(name=wanted).first()
    if found is None:
        raise ToolError(f"There is no category {wanted[:64]}: leave it out, or name one that is there.")
    return found


def _check(definition: Definition, asked: Asked, context: ToolContext) -> list[str]:
    """The doubts of the type check. Raises ToolError with all that blocks."""
    wrong: list[str] = []
    try:
        check_definition(definition)
    except ChangeRefused as error:
        wrong.append(f"{error.field.removeprefix('implementation.')}: {error}")
    # Code without a schema is still looked at: the model mends both at once.
    if not asked.code.strip():
        raise ToolError("\n".join(wrong))
    problems = problems_of(definition, context.organisation_id) if isinstance(asked.parameters, Mapping) else []
    wrong += [str(each) for each in problems if each.blocks]
    if wrong:
        raise ToolError("The tool is not saved. Mend this, and call create_dynamic_tool again:\n" + "\n".join(wrong))
    return [str(each) for each in problems]


def _tried(definition: Definition, asked: Asked, context: ToolContext) -> dict[str, Any]:
    """Return `{"example_result": ...}` of the example's run; empty without an example. Raises ToolError where it
    fails."""
    if asked.example is None:
        return {}
    unfit = complaint_about_arguments(definition, dict(asked.example), context.organisation_id)
    if unfit:
        raise ToolError(f"The tool is not saved. The example does not fit the schema: {unfit}")
    if asked.human_format and not filled_line(definition.human_format, {**_defaults(definition), **asked.example}):
        raise ToolError(
            "The tool is not saved. human_readable_format names an argument that the example does not have: "
            "write {name} for an argument of the schema that has a default or is always given."
        )
    result = run_once(definition, asked.example, context.organisation_id, seconds=min(10.0, context.timeout * 0.5))
    if result.error is not None:
        raise ToolError(f"The tool is not saved. The example fails:\n{failure_text(result)}")
    return {"example_result": json.loads(json.dumps(result.value))}


def _defaults(definition: Definition) -> dict[str, Any]:
    properties = definition.parameters.get("properties", {})
    return {name: each["default"] for name, each in properties.items() if isinstance(each, dict) and "default" in each}
