"""Previews of what changes who may use what. Provided by the room `sessions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.access.roles.writes import Rule
from capabilities.common.previews import Impact
from capabilities.common.provided import Provided
from capabilities.models import Grant, Role


@dataclass(frozen=True)
class NewRole:
    """What a role would be; `role` as it is stored, or one that is not there yet."""

    role: Role
    mode: str
    #: None: as they are stored.
    rules: tuple[Rule, ...] | None
    #: Keys of the members who would get it, and of those who would lose it.
    given: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()


#: What saving these roles would change, over all members who have one of them, or would.
impact_of: Provided[[Sequence[NewRole]], Impact] = Provided("previews of roles")
#: What the member of a grant gains and loses when it is revoked.
impact_of_revoking: Provided[[Grant], Impact] = Provided("previews of revoking a grant")
