"""A turn goes on without the tools whose definitions its model's provider refuses: on record, and with an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from capabilities.choosing.pipeline.counts import sent_sha256
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.refused_tools import note_refusals
from capabilities.language_models.providers.resolve import Refused
from sessions.loop.clients.errors import ToolsRefused
from sessions.loop.conversation.running import RunningTurn
from sessions.models import ToolSet, name_of
from sessions.turns import ledger

#: Tools that one turn goes on without; a provider that refuses more refuses something else.
MOST = 32


def leave_out(turn: RunningTurn, refused: ToolsRefused, tool_sets: Sequence[ToolSet]) -> None:
    """Send the refused tools of these sets no more in this turn, and put them on record for the next ones. Raises the
    refusal where it names none of them, or one too many."""
    client_names = {name_of(tool) for tool in turn.row.asked.tools} if turn.row.asked is not None else set()
    of_client = client_names.intersection(refused.names) - turn.refused_tools
    versions = [key for each in tool_sets for key in each.callable_ids]
    specs = current_specs(versions, organisation_id=turn.row.organisation_id, at=turn.registry_version)
    known = turn.model.refused_now
    found = [spec for spec in specs if spec.name in refused.names and spec.tool_id not in known]
    if not (found or of_client) or len(known) + len(turn.refused_tools) + len(found) > MOST:
        raise refused
    turn.refused_tools |= of_client
    _note(turn, refused, found)
    names = [*(spec.name for spec in found), *sorted(of_client)]
    words = refused.refusal.words[:300]
    ledger.write_event(turn.claim, "tools_refused", {"model": turn.model.name, "tools": names, "because": words})
    message = f"{turn.model.provider.name} refuses the definition of {', '.join(names)}: {words}"
    ledger.add_note(turn.claim, f"{message.rstrip('.')}. The turn goes on without it.")


def _note(turn: RunningTurn, refused: ToolsRefused, specs: Sequence[ToolSpec]) -> None:
    if not specs:
        return
    words = refused.refusal.words
    sent = [(spec.tool_id, spec.version_id, sent_sha256(spec, turn.model)) for spec in specs]
    note_refusals(turn.model, sent, words)
    now = {tool_id: Refused(version_id, "", words[:300]) for tool_id, version_id, _ in sent}
    turn.model = replace(turn.model, refuses_tools=True, refused_now={**turn.model.refused_now, **now})
