"""Previews of switching tools off. Provided by the room `sessions`."""

from __future__ import annotations

from collections.abc import Collection

from capabilities.common.previews import Impact
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided


@Provided
def impact_of_switching_off(names: Collection[str], *, actor: Membership) -> Impact:
    """Preview what other members lose where tools are switched off."""
    raise NotImplementedError
