"""The audited writes of HTTP tools: one is added, or gets its next version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from capabilities.catalogue.tools.recipients.writes import NOBODY, Recipients, give_tools
from capabilities.catalogue.tools.writes import (
    Definition,
    Origin,
    ToolRefused,
    check_of_kind,
    check_tool_name,
    create_tool,
    definition_of,
    update_tool,
)
from capabilities.catalogue.versions.rules import changes_code, status_of_new
from capabilities.common.refused import not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import ChangeForbidden, configuration_write, may_administer, require
from capabilities.contract.envelope import Envelope
from capabilities.contract.http_tool import PLACEHOLDER, read_implementation
from capabilities.contract.knobs import KNOBS
from capabilities.contract.trust import IN_UNTRUSTED
from capabilities.contract.warnings import normalised, normalised_value
from capabilities.models import Category, StoredCredential, Tool, ToolKind, ToolVersion
from capabilities.running.egress import origin_of
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

EFFECTS = ("read", "write", "external")
ON_CRASH = ("never", "retry", "retry_with_key")


@dataclass(frozen=True)
class HttpToolContent:
    """An HTTP tool as somebody wrote it: its next version's content, and the name of the credential that signs its
    calls, empty for none. `category` is the name of one, for a new tool."""

    definition: Definition
    credential: str = ""
    category: str = ""


@configuration_write("name")
def create_http_tool(content: HttpToolContent, *, to: Recipients = NOBODY, actor: Membership) -> Tool:
    """Add an HTTP tool. Needs the right `catalogue` for its category. Its first version is in force at once where the
    actor has the right `approve_code` for it, and waits for somebody who has it otherwise. `to` gets it.

    Raises ToolRefused and ChangeRefused with the field: those of the request are called `implementation.…`.
    """
    category = category_for(content, actor)
    definition = checked(content.definition)
    credential = credential_named(content.credential, definition)
    status = status_of_new(ToolKind.HTTP, actor, author=None, changes_code=True, category=category.name)
    origin = Origin(ToolKind.HTTP, credential=credential)
    tool = create_tool(category, definition, actor=actor, origin=origin, status=status)
    give_tools([tool.name], to, actor=actor)
    return tool


@configuration_write()
def update_http_tool(tool: Tool, content: HttpToolContent, *, actor: Membership) -> ToolVersion:
    """Give an HTTP tool its next version, and another credential. Needs the right `catalogue` for its category.

    The version is in force at once for an actor with the right `approve_code`, and where nothing but words changes;
    else it waits. The credential is no part of a version, so another one needs `approve_code`: ChangeForbidden. Returns
    the current version where nothing of it changes. Raises PermissionDenied without the right; ToolRefused for a tool
    of another kind, and for content that is not taken.
    """
    require(actor, Right.CATALOGUE, [tool.category.name])
    tool.refresh_from_db(fields=["kind", "credential", "current_version"])
    if tool.kind != ToolKind.HTTP:
        raise ToolRefused("name", f"{tool} is no HTTP tool.")
    definition = checked(content.definition)
    credential = credential_named(content.credential, definition)
    _set_credential(tool, credential, actor)
    changes = changes_code(tool, definition)
    status = status_of_new(ToolKind.HTTP, actor, author=None, changes_code=changes, category=tool.category.name)
    return update_tool(tool, definition, actor=actor, status=status)


def category_for(content: HttpToolContent, actor: Membership) -> Category:
    """Return the new tool's category. Raises ChangeRefused where there is none of this name, or a tool of its name
    already, and PermissionDenied where the actor may not add to it. Two queries."""
    category = Category.objects.filter(name=content.category).first()
    if category is None:
        raise not_there("category", "category", content.category)
    require(actor, Right.CATALOGUE, [category.name])
    check_tool_name(content.definition.name, Origin(ToolKind.HTTP), organisation_id=category.organisation_id)
    return category


def _set_credential(tool: Tool, credential: StoredCredential | None, actor: Membership) -> None:
    """Sign the tool's calls with another credential, with an audit row. Raises ChangeForbidden without
    `approve_code`."""
    before = tool.credential
    if before == credential:
        return
    if not may_administer(actor, Right.APPROVE_CODE, [tool.category.name]):
        raise ChangeForbidden("credential", "To sign the calls with another credential needs the right approve_code.")
    Tool.objects.filter(pk=tool.pk).update(credential=credential)
    tool.credential = credential
    record(
        "tool.credential",
        tool,
        actor=actor,
        before={"credential": before.name if before else ""},
        after={"credential": credential.name if credential else ""},
    )
    touch_registry(tool.organisation_id)


def checked(definition: Definition) -> Definition:
    """The content as it is stored: its text for models without what nobody sees, its request in full. Raises
    ToolRefused with the field for what cannot be saved."""
    found = replace(
        definition,
        description=normalised(definition.description).strip(),
        parameters=normalised_value(definition.parameters),
        instructions=normalised(definition.instructions),
    )
    found.check()
    check_of_kind(ToolKind.HTTP, found)
    for name, known in (("effect", EFFECTS), ("on_crash", ON_CRASH), ("in_untrusted", IN_UNTRUSTED)):
        if getattr(found, name) not in known:
            raise ToolRefused(name, f"This is one of {', '.join(known)}.")
    for name, knob in (("timeout", KNOBS["timeout_sec"]), ("max_result_chars", KNOBS["max_result_chars"])):
        if knob.read(getattr(found, name)).kind:
            raise ToolRefused(name, f"This is a number from {knob.range_text}.")
    return replace(found, implementation=read_implementation(found.implementation).as_json())


def credential_named(name: str, definition: Definition) -> StoredCredential | None:
    """The credential of this name, None for no name. Raises ChangeRefused where there is none, or where it may not be
    sent to the tool's address. One query where there is a name."""
    if not name:
        return None
    credential = StoredCredential.objects.filter(name=name).first()
    if credential is None:
        raise not_there("credential", "credential", name)
    origin = origin_of(PLACEHOLDER.sub("x", str(definition.implementation.get("url", ""))))
    if origin not in credential.origins:
        origins = ", ".join(credential.origins) or "nowhere"
        raise ToolRefused("credential", f"{credential} is sent to {origins} only, and not to {origin}.")
    return credential


def content_of(tool: Tool, version: ToolVersion) -> HttpToolContent:
    """Return the stored content of a tool. One query where it has a credential that was not read yet."""
    credential = tool.credential.name if tool.credential else ""
    return HttpToolContent(definition_of(tool, version), credential, tool.category.name)


#: Limits of a new tool's call, where nobody says otherwise.
USUAL = Envelope("never", 20.0, 40_000, untrusted_output=True)
