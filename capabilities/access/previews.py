"""Previews of what changes who may use what. Provided by the room `sessions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from capabilities.common.previews import Impact
from capabilities.common.provided import Provided
from capabilities.models import Grant, Role
from toolhub.tenants.models import Membership

#: Preview of a write of roles: its changes over all members, and for these roles one by one. Raises what it raises.
impact_of_roles: Provided[[Callable[[], object], Iterable[Role]], Impact] = Provided("previews of roles")
#: Gains and losses of a grant's member when this actor revokes it.
impact_of_revoking: Provided[[Grant, Membership], Impact] = Provided("previews of revoking a grant")
