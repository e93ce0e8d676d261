"""The stored rows of what model calls carried."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from capabilities.choosing.pipeline.stages import Selection, Verdict
from capabilities.common.memory import Memory
from capabilities.common.tokens import O200K, count_tokens
from capabilities.contract.wire import canonical_json, sha256_hex
from sessions.models import ToolSet, VerdictSet, name_of
from sessions.selection.schema_cache import Found, note

#: Seconds that a row is remembered without a look at the database. What is removed was out of use for far longer
#: (`unused_sets`).
REMEMBERED_SECONDS = 3600.0
#: Rows of tool sets are never changed, but for the mark of one that is out of use.
_kept: Memory[ToolSet] = Memory(256)
#: Characters of a set with tools of a client that a process keeps: those of one client could fill its memory else.
MOST_KEPT = 100_000


def keep_tool_set(
    selection: Selection, organisation_id: int, client_tools: Sequence[Mapping[str, Any]] = ()
) -> ToolSet:
    """The stored row of these tool versions under these overrides, counted by this encoding, and of the tools that a
    client of the gateway brought; made the first time. One or two queries, none where this process knows it, as it does
    unless the client's are long."""
    version_ids = [tool.version_id for tool in selection.tools]
    definitions = [dict(tool) for tool in client_tools]
    of_client = [canonical_json(tool) for tool in definitions]
    searched = [
        [each.name, each.description, [tool.version_id for tool in each.tools]] for each in selection.namespaces
    ]
    rendered = [sha256_hex(tool.rendered) if tool.rendered else "" for tool in selection.all_sent]
    as_rendered = ["rendered", *rendered] if any(rendered) else []
    beside = [
        each for each in (selection.overrides, _other_encoding(selection), definitions, searched, as_rendered) if each
    ]
    key = sha256_hex(canonical_json([version_ids, *beside] if beside else version_ids))
    found = Found.HERE

    def stored() -> ToolSet:
        nonlocal found
        tool_set, found = _stored(selection, organisation_id, key, definitions, of_client)
        return tool_set

    if sum(map(len, of_client)) > MOST_KEPT:
        tool_set = stored()
    else:
        tool_set = _kept.get((organisation_id, key, _hour()), stored)
        _wires.get((organisation_id, tool_set.pk), lambda: tool_set.wire)
    note(organisation_id, found)
    return tool_set


_by_row: Memory[ToolSet | None] = Memory(256)


def tool_set_of(tool_set_id: int, organisation_id: int) -> ToolSet | None:
    """The stored row with this key. One query, none where this process read it lately."""
    return _by_row.get((organisation_id, tool_set_id), lambda: ToolSet.objects.filter(pk=tool_set_id).first())


#: The bytes of those that were sent last, by the key of the row.
_wires: Memory[str] = Memory(256)


def wire_of(tool_set_id: int, organisation_id: int) -> str:
    """The bytes of a stored set; empty where there is none. One query, none where this process sent it lately."""

    def read() -> str:
        return ToolSet.objects.filter(pk=tool_set_id).values_list("wire", flat=True).first() or ""

    return _wires.get((organisation_id, tool_set_id), read)


def _other_encoding(selection: Selection) -> str:
    """Return the encoding that counts the tokens, where it is not the usual one; else ""."""
    return "" if selection.encoding == O200K else selection.encoding


def _stored(
    selection: Selection,
    organisation_id: int,
    key: str,
    definitions: Sequence[Mapping[str, Any]],
    of_client: Sequence[str],
) -> tuple[ToolSet, Found]:
    version_ids, overrides = [tool.version_id for tool in selection.tools], selection.overrides
    wire = "[" + ",".join([*(tool.sent for tool in selection.tools), *of_client, *selection.searched]) + "]"
    tool_set, is_new = _in_use(
        ToolSet,
        organisation_id,
        key,
        {
            "sha256": sha256_hex(wire),
            "wire": wire,
            "tokens": selection.tokens + sum(count_tokens(text, selection.encoding) for text in of_client),
            "client_tools": [name_of(tool) for tool in definitions],
            "version_ids": version_ids,
            "searched_ids": [tool.version_id for tool in selection.searched_tools],
            "overrides": overrides,
            "instructions": selection.instructions,
        },
    )
    return tool_set, Found.NOWHERE if is_new else Found.STORED


def _in_use(table: Any, organisation_id: int, key: str, values: Mapping[str, Any]) -> tuple[Any, bool]:
    """The row with this key, unmarked, and whether it is new: one that was removed after the look is stored anew. One
    query for a row that is there and not marked."""
    while True:
        row, is_new = table.objects.get_or_create(organisation_id=organisation_id, key=key, defaults=dict(values))
        if row.unused_since is None or table.objects.filter(pk=row.pk).update(unused_since=None):
            return row, is_new


def _hour() -> int:
    """Return the number of the current period of REMEMBERED_SECONDS, as part of a key."""
    return int(time.monotonic() // REMEMBERED_SECONDS)


#: Rows of verdicts are never changed either.
_verdicts: Memory[VerdictSet] = Memory(64)


def keep_verdicts(verdicts: Sequence[Verdict], organisation_id: int) -> VerdictSet:
    """The stored row of these verdicts; made the first time. One or two queries, none where this process knows it."""
    content = [{"tool": each.tool, "stage": each.stage, "kept": each.kept, "reason": each.reason} for each in verdicts]
    key = sha256_hex(canonical_json(content))

    def stored() -> VerdictSet:
        verdict_set: VerdictSet = _in_use(VerdictSet, organisation_id, key, {"verdicts": content})[0]
        return verdict_set

    return _verdicts.get((organisation_id, key, _hour()), stored)
