"""Rules of versions: which new one is in force at once and which waits, and who may decide on one that waits."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from capabilities.catalogue.tools.writes import KNOBS, Definition, definition_of
from capabilities.common.rights import may_administer
from capabilities.models import HelperVersion, Tool, ToolKind, ToolVersion, VersionStatus
from toolhub.tenants.identity.linked_accounts import linked_members
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right

#: Fields of a version that are words for models and people, and change nothing of what a call does.
WORDS = frozenset({"description", "instructions", "human_format"})
#: Kinds whose implementation is code that somebody wrote here.
CODE = frozenset({ToolKind.PYTHON})


def status_of_new(
    kind: str,
    actor: Membership | None,
    *,
    author: Membership | None,
    changes_code: bool,
    category: str = EVERY_CATEGORY,
) -> VersionStatus:
    """Return APPROVED where a new version is in force at once, else PENDING. At most one query.

    `actor` makes the change, None for the service itself; `author` is the member in whose turn an agent wrote it, None
    where no agent did. `changes_code`: see `changes_code` below; False is for a version that is in force and of which
    only words change. A right that is limited to the tool's `category` counts with it.
    """
    if kind == ToolKind.BUILTIN:
        return VersionStatus.APPROVED
    if author is not None or actor is None:
        return VersionStatus.PENDING
    if not changes_code:
        return VersionStatus.APPROVED
    if kind in CODE:
        return VersionStatus.PENDING
    may = may_administer(actor, Right.APPROVE_CODE, [category])
    return VersionStatus.APPROVED if may else VersionStatus.PENDING


def changes_code(tool: Tool, definition: Definition) -> bool:
    """Return whether the content changes more than words of what is in force. True where nothing is in force."""
    version = tool.current_version
    return version is None or bool(differing(definition_of(tool, version), definition) - WORDS)


def differing(before: Definition, after: Definition) -> set[str]:
    """Return the names of the fields that differ."""
    return {name for name in ("description", "parameters", *KNOBS) if getattr(before, name) != getattr(after, name)}


def may_decide(member: Membership, category: str) -> bool:
    """Return whether the member decides on versions of tools of this category."""
    return may_administer(member, Right.APPROVE_CODE, [category])


def check_changes_versions(member: Membership) -> None:
    """Raise PermissionDenied for a member who changes no tool's versions, before a row is looked for."""
    if not (member.reach(Right.APPROVE_CODE) or member.reach(Right.CATALOGUE)):
        raise PermissionDenied("This needs the admin right approve_code.")


def why_not_approve(member: Membership, tool: Tool, version: ToolVersion) -> str:
    """Return why a member with the right may not approve this version; "" where he or she may.

    Code is approved by somebody else than who wrote it: an agent's by somebody else than the member of the turn. An
    account that links join to the author's counts as the author's. At most four queries.
    """
    by_agent = version.made_by_agent_id is not None
    return why_own(member, version.created_by, by_agent=by_agent) if tool.kind in CODE or by_agent else ""


def why_own(member: Membership, author: Membership | None, *, by_agent: bool = False) -> str:
    """Return why the member may not approve what this author wrote; "" where he or she may. At most four queries."""
    if author is None:
        return ""
    if author.user_id == member.user_id:
        if by_agent:
            return "An agent wrote it in a turn of yours: somebody else has to approve it."
        return "You wrote it: somebody else has to approve it."
    if author.user_id in {each.user_id for each in linked_members(member)}:
        return f"{author}, who wrote it, and you are linked by invitations or reset links: somebody else has to decide."
    return ""


def why_not_release(tool: Tool) -> str:
    """Return why nobody can use the version in force of a tool that is kept back again as it is; "" where somebody can.
    The server is at hand."""
    if not tool.quarantine:
        return f"{tool} is not kept back."
    if tool.current_version_id is None:
        return f"{tool} has no version in force."
    if not tool.is_offered:
        server = tool.server.title if tool.server else "gone"
        return (
            f"The server {server} does not offer the version in force: approve the version that waits, or read the"
            " server again."
        )
    return ""


def helper_missing(version: ToolVersion) -> str:
    """Return which helper module's version has to be approved first; "" for none. One query where it uses some.

    A module that is out of use stays with the tools that are in force with it: it comes into no other.
    """
    wanted = {str(name): number for name, number in (version.implementation.get("helpers") or {}).items()}
    if not wanted:
        return ""
    usable = (VersionStatus.APPROVED, VersionStatus.RETIRED)
    rows = HelperVersion.objects.filter(module__name__in=wanted, status__in=usable)
    usable_now = {
        (name, number): status == VersionStatus.APPROVED or current is not None
        for name, number, status, current in rows.values_list(*_OF_HELPER)
    }
    before = version.tool.current_version
    kept = (before.implementation.get("helpers") or {}) if before else {}
    for name, number in sorted(wanted.items()):
        if (name, number) not in usable_now:
            return f"It uses version {number} of the module {name}, which is not approved: decide on that one first."
        if not usable_now[name, number] and kept.get(name) != number:
            return f"It uses the module {name}, which is out of use: roll that one back first."
    return ""


_OF_HELPER = ("module__name", "number", "status", "module__current_version")
