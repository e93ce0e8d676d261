"""Previews of what changes who may use what. Provided by the room `sessions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from capabilities.common.previews import Impact
from capabilities.models import Grant, Role
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided


@Provided
def impact_of_roles(change: Callable[[], object], roles: Iterable[Role]) -> Impact:
    """Preview a write of roles: its changes over all members, and for these roles one by one. Raises what it raises."""
    raise NotImplementedError


@Provided
def impact_of_revoking(grant: Grant, actor: Membership) -> Impact:
    """Preview what a grant's member gains and loses when this actor revokes it."""
    raise NotImplementedError
