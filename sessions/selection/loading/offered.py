"""Tools at an address of the MCP server: an agent's whole reach, or a toolkit's tools, as far as its member may use
them.

The member, the agent and the toolkit alone decide: neither the session's loads, nor the words of a message, nor the
number of tools that a model takes change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from capabilities.choosing.pipeline.candidates import Candidate, offer_of
from capabilities.choosing.pipeline.permissions import permissions_at_version
from capabilities.choosing.pipeline.policies import policies_for
from capabilities.choosing.pipeline.stages import PERMITTING_STAGES, narrowed
from capabilities.contract.loading import CALL_TOOL, READ_RESULT, SEARCH_TOOLS
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.resolve import ResolvedModel
from capabilities.models import Agent
from sessions.selection.holdings import holdings_of
from sessions.selection.queries import new_session, situation_of
from toolhub.bounded_json import load_json
from toolhub.tenants.models import Membership

#: Meta-tools that an address may have. The others load tools into a conversation, and there is none.
OF_ADDRESS = (SEARCH_TOOLS, CALL_TOOL, READ_RESULT)


@dataclass(frozen=True)
class Offered:
    """The tools of an address that its member may use, in their order, and the names of all that it has."""

    candidates: tuple[Candidate, ...]
    names: frozenset[str]
    #: Tools of `OF_ADDRESS` that the member may use, by name.
    meta: dict[str, ToolSpec]

    @property
    def is_searched(self) -> bool:
        """True where there are so many tools that a client is shown how to find them, and not each."""
        can_search = SEARCH_TOOLS in self.meta and CALL_TOOL in self.meta
        return can_search and len(self.candidates) > settings.TOOLHUB_MCP_TOOLS

    @property
    def listed(self) -> list[ToolSpec]:
        """Tools that a client is shown. The tool that reads on in results is never there alone."""
        if not self.candidates:
            return []
        if self.is_searched:
            return [self.meta[name] for name in OF_ADDRESS if name in self.meta]
        return [*(each.spec for each in self.candidates), *self._reader]

    @property
    def _reader(self) -> list[ToolSpec]:
        return [self.meta[READ_RESULT]] if READ_RESULT in self.meta else []

    def has(self, name: str) -> bool:
        """Return whether a call of this name means something here, no matter which member may make it."""
        return name in self.names or name in {spec.name for spec in self.listed}

    def for_call(self, name: str, arguments: str) -> list[ToolSpec]:
        """The tools that a call needs at hand, as far as its member may use them now: the one that it names, the one
        that is called through it, and the one that reads on in the result."""
        wanted = {name, inner_name(arguments) if name == CALL_TOOL else name}
        meta = [spec for spec in self.listed if spec.is_meta and spec.name in (name, READ_RESULT)]
        return [*(each.spec for each in self.candidates if each.spec.name in wanted), *meta]


def offered_to(member_id: int, agent: Agent, toolkit: str = "", model: ResolvedModel | None = None) -> Offered:
    """Return the tools that this member finds at the address of the agent, or of this toolkit of it. Queries as
    `select_tools`."""
    permissions, at = permissions_at_version(member_id)
    session = new_session(Membership(pk=member_id, organisation_id=agent.organisation_id), agent)
    holdings = holdings_of(session, agent, at=at)
    bundles = [each for each in holdings.loadable if not toolkit or (each.name == toolkit and each.kind == "toolkit")]
    offer = offer_of(agent, bundles, meta=OF_ADDRESS, at=at)
    meta = [each for each in offer.candidates if each.spec.is_meta]
    own: Sequence[Candidate] = [each for each in offer.candidates if not each.spec.is_meta]
    if toolkit:
        own = [each for bundle in bundles for each in offer.tools_of(bundle)]
    situation = situation_of(session, agent, permissions, policies=policies_for(permissions, at), model=model, at=at)
    kept, _ = narrowed(situation, [*own, *meta], PERMITTING_STAGES)
    usable = tuple(each for each in kept if not each.spec.is_meta)
    found = {each.spec.name: each.spec for each in kept if each.spec.is_meta}
    return Offered(usable, frozenset(each.spec.name for each in own), found)


def inner_name(arguments: str) -> str:
    """The tool that a call of `call_tool` names; empty where it names none."""
    try:
        value: Any = load_json(arguments)
    except ValueError:
        return ""
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""
