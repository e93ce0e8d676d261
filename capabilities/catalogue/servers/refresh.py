"""Repeated reading of servers: which are due, what changed at them, and what follows. Never a silent update.

A tool whose definition is another one now is kept back, with the new definition as a version that waits; one that is
gone is kept back; new ones wait in an import. One worker reads a server at a time, by a conditional UPDATE.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, transaction
from django.db.models import Count, Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from capabilities.catalogue.imports.definitions import read_text
from capabilities.catalogue.imports.found import FoundTool, ReadSource, SourceRefused
from capabilities.catalogue.imports.matching import (
    SourceContent,
    content_at_source,
    content_of,
    contents_at_source,
    effect_kept,
    known_tools,
    next_content,
    speaks_of,
    tools_of_server,
)
from capabilities.catalogue.imports.reading import store_found
from capabilities.catalogue.servers.tool_lists import LIST_SECONDS, ServerNotRead, ask_for_tools, reader_of
from capabilities.catalogue.tools.writes import Definition, ToolRefused, write_versions
from capabilities.common.confined import ConfinedError
from capabilities.common.moments import from_now
from capabilities.common.registry_version import touch_registry
from capabilities.common.text import storable, storable_json
from capabilities.contract.warnings import warnings_of
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import (
    MAX_QUARANTINE,
    RELEASED,
    UNDECIDED,
    ImportedTool,
    ImportSource,
    ImportStatus,
    McpServer,
    Tool,
    ToolImport,
    ToolVersion,
    VersionStatus,
    kept_back,
)
from capabilities.running.mcp_client.answers import Listing
from capabilities.running.mcp_client.limits import MOST_CONNECT_SECONDS
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

logger = logging.getLogger(__name__)

#: Seconds between two readings: bounds of what a server asks for, what is meant where it says nothing, and the least
#: after it told of a change.
SHORTEST, LONGEST, USUAL, AFTER_WORD = 300.0, 86_400.0, 3_600.0, 60.0
#: Seconds that a reading is one worker's: longer than it may take.
LEASE_SECONDS = (LIST_SECONDS + MOST_CONNECT_SECONDS) * 3 + 60.0
#: Characters of what a server says of itself and of its use.
MAX_INSTRUCTIONS, MAX_FACTS, MAX_ERROR = 20_000, 5_000, 500
#: Tools that an audit entry names.
RECORDED = 100
#: Versions that readings make of one tool within a day: one that changes more often is kept back without another.
MOST_A_DAY = 10
GONE = "Its server does not offer it any more."
BACK = "It changed at its server, and changed back."
AGAIN = "The server changed it again."
TAKEN_BACK = "The server took the change back."
READ_AGAIN = "The server was read again."
SWITCHED_OFF = "The server is switched off: switch it on first."
MOVED = "The server was changed while it was read: read it again."
FELL_OVER = "It could not be read: the service ran into a mistake of its own. It is in the log."


@dataclass
class Changes:
    """Changes that a reading found: names of our tools, and of definitions that are none yet."""

    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    #: Gone before, and offered again as they were.
    back: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    #: Name that the server gave itself before, where that is another one.
    renamed_from: str = ""

    def as_json(self) -> dict[str, Any]:
        lists = {name: getattr(self, name)[:RECORDED] for name in ("changed", "gone", "back", "new")}
        return {name: value for name, value in (lists | {"renamed_from": self.renamed_from}).items() if value}


# -- Which are due ----------------------------------------------------------------------------------------------------


def claim_due(full: Collection[int] = ()) -> tuple[int, int] | None:
    """Return key and organisation of a server that is due, from now on this caller's to read; None where none is.

    `full`: organisations of which no server is taken now. Two statements.
    """
    free = Q(refreshing_until=None) | Q(refreshing_until__lt=Now())
    with system_scope():
        due = McpServer.objects.filter(free, is_enabled=True, refresh_at__lte=Now())
        for key, organisation_id in (
            due.exclude(organisation_id__in=list(full))
            .order_by("refresh_at", "pk")
            .values_list("pk", "organisation_id")[:3]
        ):
            if due.filter(pk=key).update(refreshing_until=from_now(LEASE_SECONDS)):
                return key, organisation_id
    return None


def refresh_server(key: int, organisation_id: int, stopped: threading.Event | None = None) -> None:
    """Read a server that was claimed, and note what changed or why it could not be read. Raises only where the database
    is out of reach."""
    with organisation_scope(organisation_id):
        server = McpServer.objects.select_related("credential", "organisation").filter(pk=key, is_enabled=True).first()
        if server is None:
            return
        try:
            reader = reader_of(server)
            listing = ask_for_tools(server, reader, stopped=stopped)
            note_listing(server, listing, source_of(server, listing), imports_new=True)
        except (DatabaseError, InterfaceError):
            raise
        except (ServerNotRead, SourceRefused, ConfinedError) as error:
            if stopped is None or not stopped.is_set():
                note_failure(server, str(error))
        except Exception:
            logger.exception("The server %s of organisation %s could not be read", server.name, organisation_id)
            note_failure(server, FELL_OVER)
        finally:
            McpServer.objects.filter(pk=key).update(refreshing_until=None)


def note_word(keys: Collection[int]) -> None:
    """Note that the lists of these servers changed: the servers are read soon, however often they say so."""
    if not keys:
        return
    soon = timezone.now()
    with system_scope():
        servers = McpServer.objects.filter(pk__in=list(keys), is_enabled=True)
        just_read = servers.filter(refreshed_at__gt=soon - timedelta(seconds=AFTER_WORD))
        for server in just_read.only("organisation_id", "refreshed_at", "refresh_at"):
            assert server.refreshed_at is not None
            McpServer.objects.filter(pk=server.pk).update(
                refresh_at=server.refreshed_at + timedelta(seconds=AFTER_WORD)
            )
        servers.exclude(refreshed_at__gt=soon - timedelta(seconds=AFTER_WORD)).update(refresh_at=Now())


# -- Reading for people -----------------------------------------------------------------------------------------------


def read_for_import(tool_import: ToolImport) -> ReadSource:
    """Read a server for imports: its tools, for a person to review. What changed is noted on the way. Raises
    SourceRefused where it is switched off, cannot be read, or was changed meanwhile."""
    assert tool_import.server_id is not None
    server = McpServer.objects.select_related("credential", "organisation").get(pk=tool_import.server_id)
    if not server.is_enabled:
        raise SourceRefused(SWITCHED_OFF)
    try:
        listing = ask_for_tools(server, tool_import.membership)
    except ServerNotRead as error:
        note_failure(server, str(error))
        raise SourceRefused(str(error)) from error
    source = source_of(server, listing)
    if note_listing(server, listing, source, reader=tool_import.membership) is None:
        raise SourceRefused(MOVED)
    tool_import.title = server.title
    return source


def source_of(server: McpServer, listing: Listing) -> ReadSource:
    """Return the server's offer as imports take it, read in a child process. Raises SourceRefused and ConfinedError."""
    answer = {"tools": [each.definition for each in listing.tools], "protocolVersion": listing.protocol}
    source = read_text(json.dumps(answer), server.organisation_id, server=server.name)
    return replace(source, summary={**source.summary, "note": listing.note}) if listing.note else source


def note_failure(server: McpServer, sentence: str) -> None:
    """Note that the server could not be read. It is asked again after as long as it has been failing, within bounds."""
    since = server.failing_since or timezone.now()
    pause = min(LONGEST, max(SHORTEST, (timezone.now() - since).total_seconds()))
    again = from_now(pause) if server.refreshed_at is not None or server.refresh_at is not None else None
    _same_place(server).update(
        error=storable(sentence, MAX_ERROR), failing_since=Coalesce(F("failing_since"), Now()), refresh_at=again
    )


def _same_place(server: McpServer) -> Any:
    """Return a query for the server, while it still leads to where it was read."""
    names = ("transport", "url", "stdio_name", "credential_id")
    return McpServer.objects.filter(pk=server.pk, **{name: getattr(server, name) for name in names})


# -- What changed -----------------------------------------------------------------------------------------------------


@transaction.atomic
def note_listing(
    server: McpServer,
    listing: Listing,
    source: ReadSource,
    *,
    reader: Membership | None = None,
    imports_new: bool = False,
) -> Changes | None:
    """Put on record a server's listing, and keep back each of its tools that is not what was accepted. None where the
    server leads elsewhere by now: then nothing is written. `source` is what `source_of` made of the listing.

    `reader`: who had it read. `imports_new`: definitions that no tool has come from wait in an import from then on.
    """
    hold_organisation(server.organisation_id)
    before = _same_place(server).filter(is_enabled=True).first()
    if before is None:
        return None
    digest = sha256_hex(canonical_json(sorted(canonical_json(dict(each.definition)) for each in listing.tools)))
    _write_facts(before, listing, digest, reader)
    found = {each.original_name: each for each in reversed(source.found) if not each.refused}
    refusals = {each.original_name: each.refused for each in source.found if each.refused}
    own = tools_of_server(server.pk)
    changes = Changes(
        new=[name for name in found if name not in own], renamed_from=_renamed_from(before, listing.server_info)
    )
    _compare(before, own, found, refusals, changes)
    if changes.renamed_from:
        _keep_back_renamed(before, changes.renamed_from, listing.server_info)
    difference = changes.as_json()
    if imports_new and changes.new and digest != before.list_sha256:
        _import_new(before, source)
    if difference and (digest != before.list_sha256 or difference.keys() - {"new"}):
        record("mcp_server.read", before, actor=reader, after=difference)
    if changes.changed or changes.gone or changes.back or changes.renamed_from:
        touch_registry(server.organisation_id)
    return changes


def _write_facts(before: McpServer, listing: Listing, digest: str, reader: Membership | None) -> None:
    """Write what the server said of itself, and when it is read again."""
    seconds = USUAL if listing.ttl is None else min(LONGEST, max(SHORTEST, listing.ttl))
    columns: dict[str, Any] = {
        "protocol": storable(listing.protocol, 16),
        "server_info": storable_json(dict(listing.server_info), MAX_FACTS) or {},
        "instructions": storable(listing.instructions, MAX_INSTRUCTIONS),
        "server_capabilities": storable_json(dict(listing.capabilities), MAX_FACTS) or {},
        "list_sha256": digest,
        "refreshed_at": Now(),
        "refresh_at": from_now(seconds),
        "error": "",
        "failing_since": None,
    }
    if reader is not None:
        columns["read_by"] = reader
    McpServer.objects.filter(pk=before.pk).update(**columns)


def _renamed_from(before: McpServer, info: Mapping[str, Any]) -> str:
    """Return the server's own name at the reading before, where that is another one; else ""."""
    name_before = before.server_info.get("name") if isinstance(before.server_info, dict) else None
    return str(name_before) if name_before and name_before != info.get("name") else ""


def _compare(
    server: McpServer,
    own: Mapping[str, Tool],
    found: Mapping[str, FoundTool],
    refusals: Mapping[str, str],
    changes: Changes,
) -> None:
    """Keep back what changed or is gone, and let go what is back. A fixed number of queries, and some for each tool
    that is not what it was."""
    in_force = {name: tool for name, tool in own.items() if tool.current_version is not None}
    accepted = contents_at_source(in_force.values())
    changed: list[tuple[Tool, FoundTool]] = []
    for name, tool in in_force.items():
        offered = found.get(name)
        if offered is None:
            _note_gone(tool, refusals.get(name, ""), changes)
        elif accepted[tool.pk] == content_at_source(offered.description, offered.parameters, offered.implementation):
            _note_same(tool, changes)
        else:
            changed.append((tool, offered))
    _note_changed(server, changed, accepted, changes)


def _note_gone(tool: Tool, flaw: str, changes: Changes) -> None:
    reason = f"Its definition at the server cannot be used: {flaw}" if flaw else GONE
    if not tool.is_offered and tool.quarantine:
        return
    # What it is kept back for already stays: only one that was gone and nothing else is let go by itself.
    _keep_back(tool, tool.quarantine or reason)
    _reject_waiting([tool], reason)
    changes.gone.append(tool.name)


def _note_same(tool: Tool, changes: Changes) -> None:
    """Note a tool that is offered as it was accepted. One that was only gone is used again; one that changed and
    changed back waits for a person, and so does one whose server leads elsewhere."""
    if tool.is_offered:
        return
    columns: dict[str, Any] = {"is_offered": True}
    if tool.quarantine == GONE and tool.quarantined_by_id is None:
        columns |= RELEASED
        changes.back.append(tool.name)
    elif waiting := _waiting_by_service([tool]):
        ToolVersion.objects.filter(pk__in=[each.pk for each in waiting]).update(
            status=VersionStatus.REJECTED, status_reason=TAKEN_BACK, decided_at=Now()
        )
        columns |= kept_back(_reason_of(tool, BACK), tool.quarantined_by_id)
    Tool.objects.filter(pk=tool.pk).update(**columns)


def _note_changed(
    server: McpServer,
    changed: Sequence[tuple[Tool, FoundTool]],
    accepted: Mapping[int, SourceContent],
    changes: Changes,
) -> None:
    """Keep back the tools that changed at their server, and write the new definitions as versions that wait."""
    if not changed:
        return
    tools = [tool for tool, _ in changed]
    waiting = {each.tool_id: each for each in _waiting_by_service(tools)}
    decided, lately = _rejected_by_people(tools), _written_lately(tools)
    others = speaks_of(known_tools(), tools_of_server(server.pk).values())
    to_write: list[tuple[Tool, Definition]] = []
    warnings_by_tool: dict[int, str] = {}
    for tool, offered in changed:
        content, flaw = _next_content(server, tool, offered)
        reason = _what_changed(accepted[tool.pk], offered)
        if content is None:
            reason = f"Its definition at the server cannot be used: {flaw}"
        if tool.quarantine != _reason_of(tool, reason) or tool.is_offered:
            _keep_back(tool, reason)
            changes.changed.append(tool.name)
        wait = waiting.get(tool.pk)
        if wait is not None and content is not None and _same_content(wait, content):
            continue
        if wait is not None:
            _reject_waiting([tool], AGAIN)
        if content is None or lately.get(tool.pk, 0) >= MOST_A_DAY:
            continue
        if any(_same_content(each, content) for each in decided.get(tool.pk, ())):
            continue  # somebody said no to just this
        to_write.append((tool, content))
        found = warnings_of(
            offered.description, offered.parameters, other_names=others, annotations=offered.annotations
        )
        warnings_by_tool[tool.pk] = " ".join(each.text for each in (*found, *offered.warnings))
    for tool, version in zip(
        [tool for tool, _ in to_write],
        write_versions(to_write, actor=None, status=VersionStatus.PENDING),
        strict=True,
    ):
        if warnings_by_tool[tool.pk]:
            ToolVersion.objects.filter(pk=version.pk).update(status_reason=storable(warnings_by_tool[tool.pk], 500))
        record("tool.update", tool, actor=None, after={"version": version.number, "sha256": version.sha256})


def _next_content(server: McpServer, tool: Tool, offered: FoundTool) -> tuple[Definition | None, str]:
    """The tool's next version as the server has it, or why there can be none."""
    row = ImportedTool(
        original_name=offered.original_name,
        name=tool.name,
        description=offered.description,
        parameters=dict(offered.parameters),
        implementation=dict(offered.implementation),
        effect=effect_kept(tool, offered.effect),
    )
    content = next_content(tool, tool.current_version, content_of(row, ToolImport(title=server.title, server=server)))
    try:
        content.check()
    except ToolRefused as error:
        return None, str(error)
    return content, ""


def _same_content(version: ToolVersion, content: Definition) -> bool:
    return canonical_json([version.description, version.parameters, version.implementation]) == canonical_json(
        [content.description, content.parameters, content.implementation]
    )


def _what_changed(accepted: SourceContent, offered: FoundTool) -> str:
    """One sentence: which parts of its definition are not what was accepted."""
    now = content_at_source(offered.description, offered.parameters, offered.implementation)
    names = ("description", "arguments", "technical details", "settings")
    parts = [
        name
        for name, accepted_part, offered_part in zip(names, accepted, now, strict=True)
        if accepted_part != offered_part
    ]
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"Its {listed} changed at its server."


def _keep_back(tool: Tool, reason: str) -> None:
    tool.quarantine, tool.is_offered = _reason_of(tool, reason), False
    columns = kept_back(tool.quarantine, tool.quarantined_by_id)
    Tool.objects.filter(pk=tool.pk).update(**columns, is_offered=False)


def _reason_of(tool: Tool, reason: str) -> str:
    """Return why the tool is kept back; a reason that a person gave stays."""
    return tool.quarantine if tool.quarantined_by_id is not None else storable(reason, MAX_QUARANTINE)


def _keep_back_renamed(server: McpServer, name_before: str, info: Mapping[str, Any]) -> None:
    """Keep back the tools of a server that calls itself by another name: none is used before somebody looked."""
    name_now = str(info.get("name") or "nothing")
    reason = storable(f"Its server calls itself {name_now[:100]} now, and was {name_before[:100]}.", MAX_QUARANTINE)
    free = Tool.objects.filter(server=server, quarantine__in=("", GONE)).exclude(current_version=None)
    free.filter(quarantined_by=None).update(**kept_back(reason))


def _waiting_by_service(tools: Iterable[Tool]) -> list[ToolVersion]:
    """Return the versions that a reading made, and that wait."""
    return list(ToolVersion.objects.filter(tool__in=list(tools), status=VersionStatus.PENDING, created_by=None))


def _rejected_by_people(tools: Iterable[Tool]) -> dict[int, list[ToolVersion]]:
    found: dict[int, list[ToolVersion]] = {}
    rows = ToolVersion.objects.filter(tool__in=list(tools), status=VersionStatus.REJECTED, created_by=None)
    for version in rows.exclude(decided_by=None):
        found.setdefault(version.tool_id, []).append(version)
    return found


def _written_lately(tools: Iterable[Tool]) -> dict[int, int]:
    """Count by tool the versions that readings made of it within a day."""
    rows = ToolVersion.objects.filter(tool__in=list(tools), created_by=None, created_at__gt=from_now(-86_400.0))
    return dict(rows.values_list("tool").annotate(count=Count("pk")))


def _reject_waiting(tools: Iterable[Tool], reason: str) -> None:
    ToolVersion.objects.filter(pk__in=[each.pk for each in _waiting_by_service(tools)]).update(
        status=VersionStatus.REJECTED, status_reason=storable(reason, 500), decided_at=Now()
    )


# -- What is new ------------------------------------------------------------------------------------------------------


def _import_new(server: McpServer, source: ReadSource) -> None:
    """Make an import with what the server offers, in place of the one that an earlier reading made: that is closed, or
    removed where nobody decided on any of it. What somebody dismissed before, and that says the same, is dismissed."""
    earlier = ToolImport.objects.filter(server=server, membership=None, status=ImportStatus.REVIEW)
    decided = ImportedTool.objects.filter(tool_import=OuterRef("pk")).exclude(decided_by=None)
    earlier.exclude(Exists(decided)).delete()
    earlier.update(status=ImportStatus.CLOSED, reason=READ_AGAIN)
    tool_import = ToolImport.objects.create(
        organisation_id=server.organisation_id,
        source=ImportSource.MCP,
        title=server.title,
        server=server,
        status=ImportStatus.REVIEW,
        deadline_at=timezone.now(),
        ended_at=timezone.now(),
    )
    summary = store_found(tool_import, source)
    waits = ImportedTool.objects.filter(tool_import=tool_import, status__in=UNDECIDED).exists()
    status = ImportStatus.REVIEW if waits else ImportStatus.CLOSED
    ToolImport.objects.filter(pk=tool_import.pk).update(status=status, summary=summary)
