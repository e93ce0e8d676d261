"""The audited writes of the catalogue. Each is one transaction, with its audit row and the new registry version."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Max

from capabilities.common.names import check_name_free
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.tokens import count_each
from capabilities.contract.names import name_key, reserved_for
from capabilities.contract.schemas import check_schema
from capabilities.contract.trust import ALLOW
from capabilities.contract.wire import TOOL_NAME, canonical_json, is_whole, sha256_hex, tool_wire
from capabilities.models import (
    Agent,
    Category,
    HelperUse,
    HelperVersion,
    McpServer,
    StoredCredential,
    Tool,
    ToolKind,
    ToolVersion,
    VersionStatus,
)
from capabilities.running.kinds import CHECKS
from capabilities.running.kinds.lines import why_never_filled
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, Membership, Right

#: A provider that takes more is not known; longer ones are cut there without a word.
MAX_DESCRIPTION = 8_000
#: Characters of a tool's instructions.
MAX_INSTRUCTIONS = 4_000
#: Characters of the line that shows a call to people.
MAX_HUMAN_FORMAT = 300
#: Characters of what models and users read of a tool that is switched off.
MAX_OFF_MESSAGE = 300
#: Tools that one bulk switch names.
MAX_BULK = 1_000
#: Names that stand for something else in our addresses.
RESERVED_NAMES = frozenset({"bulk"})


class ToolRefused(ChangeRefused):
    """Reason why the tool cannot be saved."""


@dataclass(frozen=True)
class Definition:
    """The content of a tool version, before it is one.

    `timeout` is in seconds. `instructions` are no part of what is sent as the tool: the model reads them beside it,
    while the tool is at hand. `implementation` is what runs, as its kind says; `human_format` shows a call in one line.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: str = "external"
    on_crash: str = "never"
    timeout: float = 20.0
    max_result_chars: int = 40_000
    instructions: str = ""
    untrusted_output: bool = False
    in_untrusted: str = ALLOW
    implementation: Mapping[str, Any] = field(default_factory=dict)
    human_format: str = ""

    def check(self) -> None:
        """Raise ToolRefused where a provider would refuse it, or a reader could not use it."""
        if not TOOL_NAME.match(self.name):
            raise ToolRefused("name", "A tool name has 1 to 64 characters of a-z, A-Z, 0-9, _ and -.")
        if self.name in RESERVED_NAMES:
            raise ToolRefused("name", f"The name {self.name} is taken by the service itself.")
        if not self.description.strip():
            raise ToolRefused("description", "Say what the tool does: the model chooses by this text.")
        if len(self.description) > MAX_DESCRIPTION:
            raise ToolRefused("description", f"Keep the description under {MAX_DESCRIPTION:,} characters.")
        if len(self.instructions) > MAX_INSTRUCTIONS:
            raise ToolRefused("instructions", f"Keep the instructions under {MAX_INSTRUCTIONS:,} characters.")
        try:
            check_schema(self.parameters)
        except ValueError as error:
            raise ToolRefused("parameters", str(error)) from error
        if len(self.human_format) > MAX_HUMAN_FORMAT:
            raise ToolRefused("human_format", f"Keep the line under {MAX_HUMAN_FORMAT} characters.")
        unfilled = why_never_filled(self.human_format, self.parameters)
        if unfilled:
            raise ToolRefused("human_format", unfilled)
        for name in ("description", "parameters", "instructions", "implementation", "human_format"):
            if not is_whole(getattr(self, name)):
                raise ToolRefused(name, "The text holds half a character, or one that databases refuse (U+0000).")


#: Fields of a version beside the tool's name, description and parameters, in the order of Definition.
KNOBS = (
    "effect",
    "on_crash",
    "timeout",
    "max_result_chars",
    "instructions",
    "untrusted_output",
    "in_untrusted",
    "implementation",
    "human_format",
)


@dataclass(frozen=True)
class Origin:
    """Origin of a tool, beside its content: what runs it, what signs its calls, who or what made it."""

    kind: ToolKind = ToolKind.BUILTIN
    server: McpServer | None = None
    credential: StoredCredential | None = None
    made_by_agent: Agent | None = None
    source: str = ""


@configuration_write("name")
def create_tool(
    category: Category,
    definition: Definition,
    *,
    actor: Membership | None,
    origin: Origin = Origin(),
    status: VersionStatus = VersionStatus.APPROVED,
) -> Tool:
    """Add a tool with its first version. Raises ToolRefused for content or a name that cannot be.

    Without an approved version it is in the catalogue, and is neither sent nor called.
    """
    definition.check()
    check_tool_name(definition.name, origin if actor is not None else None, organisation_id=category.organisation_id)
    tool = Tool.objects.create(
        organisation_id=category.organisation_id,
        name=definition.name,
        category=category,
        kind=origin.kind,
        server=origin.server,
        credential=origin.credential,
        made_by_agent=origin.made_by_agent,
        source=origin.source[:300],
    )
    write_versions([(tool, definition)], actor=actor, status=status, agent=origin.made_by_agent)
    record(
        "tool.create", tool, actor=actor, after=audited_content(definition) | {"kind": origin.kind, "status": status}
    )
    touch_registry(tool.organisation_id)
    return tool


def check_tool_name(name: str, origin: Origin | None, *, organisation_id: int) -> None:
    """Raise ToolRefused for a name that another tool has, or that is taken for another's, and for one that begins like
    the names of others' tools. Without an origin it is the service itself that names the tool. Up to two queries."""
    if origin is not None:
        check_maker(name, origin)
    try:
        check_name_free(Tool.every.filter(organisation_id=organisation_id), "a tool", name)
    except ChangeRefused as error:
        raise ToolRefused(error.field, str(error), code="taken") from error


def check_maker(name: str, origin: Origin) -> None:
    """Raise ToolRefused for a name that begins like those of others' tools. No query where `origin` is loaded."""
    server = origin.server.name if origin.server is not None else ""
    agent = origin.made_by_agent.slug if origin.made_by_agent is not None else ""
    if owner := reserved_for(name, server=server, agent=agent):
        raise ToolRefused("name", f"Names like {name} are kept for {owner}: choose another.", code="reserved")


def add_tools(category: Category, contents: Collection[tuple[Definition, Origin]]) -> list[Tool]:
    """Add many new tools to a category, without a version yet, in the caller's transaction and without an audit row.

    Raises ToolRefused for content or a name that cannot be. One query, and one for some hundred tools.
    """
    for definition, origin in contents:
        definition.check()
        check_maker(definition.name, origin)
    keys = [name_key(definition.name) for definition, _ in contents]
    taken = set(Tool.objects.filter(name_key__in=keys).values_list("name_key", flat=True))
    twice = taken | {key for key, count in Counter(keys).items() if count > 1}
    if twice:
        raise ToolRefused("name", f"There is a tool named {min(twice)} already.", code="taken")
    return Tool.objects.bulk_create(
        Tool(
            organisation_id=category.organisation_id,
            name=definition.name,
            category=category,
            kind=origin.kind,
            server=origin.server,
            credential=origin.credential,
            made_by_agent=origin.made_by_agent,
            source=origin.source[:300],
        )
        for definition, origin in contents
    )


@configuration_write()
def update_tool(
    tool: Tool,
    definition: Definition,
    *,
    actor: Membership | None,
    status: VersionStatus = VersionStatus.APPROVED,
    agent: Agent | None = None,
) -> ToolVersion:
    """Give the tool a new version, unless the content is the current one's: then that one is returned.

    One that is not approved waits beside the current one, which stays in force. `agent` wrote it in the actor's turn.
    Raises ToolRefused for another name, and for content that its kind cannot run.
    """
    definition.check()
    if definition.name != tool.name:
        raise ToolRefused("name", "A tool keeps its name: sessions and models know it by that.")
    tool.refresh_from_db(fields=["current_version"])
    current = tool.current_version
    if current is not None and same_content(current, definition):
        return current
    (version,) = write_versions([(tool, definition)], actor=actor, status=status, agent=agent)
    before = {"version": current.number, "sha256": current.sha256} if current else {}
    record(
        "tool.update", tool, actor=actor, before=before, after=audited_content(definition) | {"version": version.number}
    )
    touch_registry(tool.organisation_id)
    return version


@configuration_write("instructions")
def set_instructions(tool: Tool, text: str, *, actor: Membership) -> ToolVersion:
    """Set the instructions that the model reads beside the tool: the tool's next version, if the text is another.

    Empty for nothing. A right limited to the tool's category is enough. Raises PermissionDenied without it; ToolRefused
    for a tool without a version, and for a text that is too long.
    """
    require(actor, Right.CATALOGUE, [tool.category.name])
    tool.refresh_from_db(fields=["current_version"])
    current = tool.current_version
    if current is None:
        raise ToolRefused("instructions", "This tool has no version yet: there is nothing to instruct about.")
    definition = replace(definition_of(tool, current), instructions=text.replace("\r\n", "\n").strip())
    definition.check()
    if definition.instructions == current.instructions:
        return current
    (version,) = write_versions([(tool, definition)], actor=actor)
    record(
        "tool.instruct",
        tool,
        actor=actor,
        before={"version": current.number, "instructions": current.instructions},
        after={"version": version.number, "instructions": version.instructions},
    )
    touch_registry(tool.organisation_id)
    return version


@configuration_write("is_enabled")
def set_tool_enabled(tool: Tool, enabled: bool, *, actor: Membership, message: str | None = None) -> None:
    """Switch a tool on or off for the whole organisation, from the next call on: running turns feel it too.

    With `message`, models and users read it where the tool is off; one that is off already gets another message. None
    leaves it as it is. Switched on, it has none. What an admin switched off, nobody below switches on where they may
    use it themselves. Raises PermissionDenied without the right `catalogue`; ChangeRefused for a message that is too
    long.
    """
    require(actor, Right.CATALOGUE, [tool.category.name])
    line = "" if enabled else _off_message(tool.off_message if message is None else message)
    before: dict[str, Any] = {**Tool.objects.filter(pk=tool.pk).values("is_enabled", "off_message").get()}
    tool.is_enabled, tool.off_message = enabled, line
    after = {"is_enabled": enabled, "off_message": line}
    if after == before:
        return
    changes: dict[str, Any] = dict(after)
    if before["is_enabled"] != enabled:
        changes["off_by_admin"] = actor.has_access(Access.ADMIN)
    Tool.objects.filter(pk=tool.pk).update(**changes)
    differing = [name for name in after if before[name] != after[name]]
    record(
        "tool.enable" if enabled else "tool.disable",
        tool,
        actor=actor,
        before={name: before[name] for name in differing},
        after={name: after[name] for name in differing},
    )
    touch_registry(tool.organisation_id)


def _off_message(message: str) -> str:
    """Return the message in one line. Raises ChangeRefused where it is too long."""
    line = " ".join(message.split())
    if len(line) > MAX_OFF_MESSAGE:
        raise ChangeRefused("off_message", f"The message has at most {MAX_OFF_MESSAGE} characters.")
    return line


@configuration_write("names")
def set_tools_enabled(names: Collection[str], enabled: bool, *, actor: Membership, message: str = "") -> int:
    """Switch many tools at once, with one audit row that lists them; returns how many it changed. All or none.

    `message` is what models and users read of those that are switched off. Raises PermissionDenied without the right
    `catalogue`; ChangeRefused for an unknown name, for too many, and for a message that is too long.
    """
    line = "" if enabled else _off_message(message)
    if len(names) > MAX_BULK:
        raise ChangeRefused("names", f"Name at most {MAX_BULK:,} tools at a time.")
    rows = Tool.objects.filter(name__in=names).values_list("name", "pk", "is_enabled", "category__name", "off_message")
    found = {name: (key, is_enabled, category) for name, key, is_enabled, category, _ in rows}
    for name in names:
        if name not in found:
            raise not_there("names", "tool", name)
    require(actor, Right.CATALOGUE, {category for _, _, category in found.values()})
    changed = {name: key for name, (key, is_enabled, _) in sorted(found.items()) if is_enabled != enabled}
    if not changed:
        return 0
    by_admin = actor.has_access(Access.ADMIN)
    Tool.objects.filter(pk__in=changed.values()).update(is_enabled=enabled, off_by_admin=by_admin, off_message=line)
    # No one row is the target: the label names them, the lists are complete.
    several = Tool(organisation_id=actor.organisation_id, name=", ".join(changed))
    names_changed = {"tools": list(changed)}
    off_messages = {name: text for name, *_, text in rows if text and name in changed}
    record(
        "tool.enable" if enabled else "tool.disable",
        several,
        actor=actor,
        before=names_changed | {"is_enabled": not enabled} | ({"off_messages": off_messages} if off_messages else {}),
        after=names_changed | {"is_enabled": enabled} | ({"off_message": line} if line else {}),
    )
    touch_registry(actor.organisation_id)
    return len(changed)


def write_versions(
    pairs: Iterable[tuple[Tool, Definition]],
    *,
    actor: Membership | None,
    status: VersionStatus = VersionStatus.APPROVED,
    agent: Agent | None = None,
) -> list[ToolVersion]:
    """Write the next version of each tool, in the caller's transaction and without an audit row. An approved one is the
    tool's current one from now on, and the one before is retired. Raises ToolRefused for what its kind cannot run."""
    pairs = list(pairs)
    for tool, content in pairs:
        check_of_kind(tool.kind, content)
    numbers = _last_numbers([tool for tool, _ in pairs])
    wires = [tool_wire(content.name, content.description, content.parameters) for _, content in pairs]
    versions = ToolVersion.objects.bulk_create(
        ToolVersion(
            organisation_id=tool.organisation_id,
            tool=tool,
            number=numbers.get(tool.pk, 0) + 1,
            description=content.description,
            parameters=content.parameters,
            wire=wire,
            sha256=sha256_hex(wire),
            tokens=tokens,
            effect=content.effect,
            on_crash=content.on_crash,
            timeout=content.timeout,
            max_result_chars=content.max_result_chars,
            instructions=content.instructions,
            untrusted_output=content.untrusted_output,
            in_untrusted=content.in_untrusted,
            implementation=json.loads(canonical_json(content.implementation)),
            human_format=content.human_format,
            status=status,
            made_by_agent=agent,
            created_by=actor,
        )
        for (tool, content), wire, tokens in zip(pairs, wires, count_each(wires), strict=True)
    )
    _note_helpers([version for version in versions if version.tool.kind == ToolKind.PYTHON])
    if status == VersionStatus.APPROVED:
        make_each_current(list(zip((tool for tool, _ in pairs), versions, strict=True)))
    return versions


def _note_helpers(versions: Collection[ToolVersion]) -> None:
    """Note which versions of helper modules these import. Two queries, none where they import none."""
    wanted = [(version, version.implementation.get("helpers") or {}) for version in versions]
    names = {name for _, helpers in wanted for name in helpers}
    if not names:
        return
    rows = HelperVersion.objects.filter(module__name__in=names).values_list("module__name", "number", "pk")
    keys = {(name, number): key for name, number, key in rows}
    HelperUse.objects.bulk_create(
        HelperUse(organisation_id=version.organisation_id, tool_version=version, helper_version_id=keys[each])
        for version, helpers in wanted
        for each in helpers.items()
        if each in keys
    )


def check_of_kind(kind: str, content: Definition) -> None:
    """Raise ToolRefused unless a tool of this kind can run the content."""
    try:
        if kind in CHECKS:
            CHECKS[kind](content)
    except ChangeRefused as error:
        raise ToolRefused(error.field, str(error), code=error.code) from error


def make_current(tool: Tool, version: ToolVersion) -> None:
    """Put an approved version in force, and retire the one that was. In the caller's transaction, without an audit
    row."""
    make_each_current([(tool, version)])


def make_each_current(pairs: Collection[tuple[Tool, ToolVersion]]) -> None:
    """Put each of these versions in force, and retire those that were: two queries for some hundred of them."""
    before = [
        tool.current_version_id
        for tool, version in pairs
        if tool.current_version_id is not None and tool.current_version_id != version.pk
    ]
    if before:
        ToolVersion.objects.filter(pk__in=before).update(status=VersionStatus.RETIRED)
    for tool, version in pairs:
        tool.current_version = version
    Tool.objects.bulk_update([tool for tool, _ in pairs], ["current_version"])


def _last_numbers(tools: Collection[Tool]) -> dict[int, int]:
    """Return the number of the newest version of each, whatever its status. One query."""
    rows = ToolVersion.objects.filter(tool__in=tools).values("tool").annotate(last=Max("number"))
    return dict(rows.values_list("tool", "last"))


def definition_of(tool: Tool, version: ToolVersion) -> Definition:
    """The content of a version that is there."""
    return Definition(tool.name, version.description, version.parameters, *(getattr(version, each) for each in KNOBS))


def same_content(version: ToolVersion, content: Definition) -> bool:
    wire = tool_wire(content.name, content.description, content.parameters)
    return version.wire == wire and all(getattr(version, each) == getattr(content, each) for each in KNOBS)


def audited_content(content: Definition) -> dict[str, Any]:
    """Return the content of a version as the audit keeps it."""
    return {
        "description": content.description,
        "parameters": json.loads(canonical_json(content.parameters)),
        "effect": content.effect,
        "on_crash": content.on_crash,
        "timeout": content.timeout,
        "instructions": content.instructions,
        "untrusted_output": content.untrusted_output,
        "in_untrusted": content.in_untrusted,
    } | ({"implementation": content.implementation} if content.implementation else {})
