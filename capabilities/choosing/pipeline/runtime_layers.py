"""The layers of runtime settings around a call: what the installation, the organisation, a provider and an agent say.

`capabilities/contract/runtime.py` makes an envelope of them.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from capabilities.common.memory import Memory
from capabilities.contract.runtime import Layer, envelope_for
from capabilities.contract.spec import ToolSpec
from capabilities.models import RuntimeConfig, RuntimeLayer

Layers = tuple[Layer, ...]
_layers: Memory[Layers] = Memory(256)


def layers_for(
    organisation_id: int, *, provider_id: UUID | None = None, agent_id: int | None = None, at: int | None = None
) -> Layers:
    """The layers from the outermost to the innermost, of the organisation in scope. One query; none where they were
    read before `at` this registry version of the organisation. `provider_id` is its public one."""

    def read() -> Layers:
        mine = Q(layer=RuntimeLayer.ORGANISATION)
        if provider_id is not None:
            mine |= Q(provider__public_id=provider_id)
        if agent_id is not None:
            mine |= Q(agent=agent_id)
        rows = RuntimeConfig.objects.filter(mine).values_list("layer", "provider__name", "agent__name", "values")
        found = {layer: Layer(_title(layer, provider, agent), values) for layer, provider, agent, values in rows}
        return tuple(found[layer] for layer in RuntimeLayer if layer in found)

    if at is None:
        return (_installation(), *read())
    return (_installation(), *_layers.get((organisation_id, at, provider_id, agent_id), read))


def in_force(spec: ToolSpec, layers: Layers) -> ToolSpec:
    """The tool with its envelope under these layers. No query."""
    return spec.under(envelope_for(spec, layers).envelope)


def _installation() -> Layer:
    return _of_settings(settings.TOOLHUB_RESULT_SHARE, settings.TOOLHUB_MIN_RESULT_CHARS)


@lru_cache(maxsize=20)
def _of_settings(share: float, minimum: int) -> Layer:
    return Layer("installation", {"result_context_share_ratio": share, "result_min_chars": minimum})


def _title(layer: str, provider: str | None, agent: str | None) -> str:
    return {RuntimeLayer.PROVIDER: f"provider {provider}", RuntimeLayer.AGENT: f"agent {agent}"}.get(
        RuntimeLayer(layer), "organisation"
    )
