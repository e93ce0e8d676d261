"""The runtime settings that a turn's calls are under."""

from __future__ import annotations

from capabilities.choosing.pipeline.runtime_layers import Layers, layers_for
from sessions.loop.conversation.running import RunningTurn


def layers_of(turn: RunningTurn) -> Layers:
    """Return the layers of the turn's organisation, of the provider that answers it now, and of its agent. One query;
    none where they were read at the turn's registry version."""
    return layers_for(
        turn.row.organisation_id,
        provider_id=turn.model.provider.public_id,
        agent_id=turn.row.agent_id,
        at=turn.registry_version,
    )
