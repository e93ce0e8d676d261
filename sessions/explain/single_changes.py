"""The single changes that would let a tool through: each is tried on the selection first, and told only if it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from capabilities.contract.permission import Decision, Rights
from capabilities.models import AgentScope, Effect, RoleMode
from capabilities.pipeline.candidates import Bundle
from capabilities.pipeline.permissions import Standing
from capabilities.pipeline.specs import ToolSpec
from capabilities.registry import registry
from capabilities.services.writes import service_title
from sessions.explain.answers import GrantLine, Reasons
from sessions.explain.whatif import World, with_scope
from toolhub.tenants.models import Membership, Right

#: Roles, toolkits and loads that are tried for one tool, at most.
TRIED = 3
#: The changes that Explain does itself. Others are previewed, or ask for more, on a page of their own.
LABELS = {
    "switch_on": "Switch on",
    "load_toolkit": "Load",
    "load_tool": "Load",
    "unload": "Unload",
    "revoke_grant": "Revoke",
}


@dataclass(frozen=True)
class Change:
    """One thing to change: a word for programs, what to say after "Would be sent if", and the page where it is done."""

    code: str
    text: str
    #: Name of the page and its arguments after the organisation's.
    view: str
    args: tuple[str | int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    #: The admin right that it takes, if one.
    right: Right | None = None
    #: What it is done to, where Explain can do it itself: kind and name of what is loaded, or the key of a grant.
    target: str = ""
    row: int = 0

    @property
    def label(self) -> str:
        """What a button says that does it; empty for what is done on a page of its own."""
        return LABELS.get(self.code, "")


class Changes:
    """For the tools of one page: what was tried once, for one of them, counts for the others."""

    def __init__(self, world: World, member: Membership, *, in_session: bool) -> None:
        self.world = world
        self.member = member
        self.in_session = in_session
        self._tried: dict[object, frozenset[int]] = {}

    def of(self, tool: Reasons) -> tuple[Change, ...]:
        """None for a tool that is sent, and for one that two stages stop, beside the limit."""
        stops = {cell.stage for cell in tool.stops} - {"limit"}
        if tool.is_sent or len(stops) > 1:
            return ()
        ways = {
            "loaded": self._brought,
            "enabled": self._switched_on,
            "set-up": self._set_up,
            "scope": self._widened,
            "grants": self._revoked,
            "role": self._opened,
        }
        stage = next(iter(stops), "limit")
        if stage == "limit":
            return tuple(self._more_room(tool.spec))
        return tuple(ways[stage](tool)) if stage in ways else ()

    # -- The catalogue ------------------------------------------------------------------------------------------------

    def _switched_on(self, tool: Reasons) -> Iterator[Change]:
        if self.world.sends(
            tool.spec, revised=lambda spec: replace(spec, is_enabled=spec.is_enabled or _is(spec, tool))
        ):
            yield Change(
                "switch_on",
                "it is switched on in the catalogue",
                "tool_detail",
                (tool.spec.name,),
                right=Right.CATALOGUE,
            )

    def _set_up(self, tool: Reasons) -> Iterator[Change]:
        name = tool.spec.service
        service = registry.services.get(name)

        def needs(spec: ToolSpec) -> bool:
            return spec.service == name

        if service is None or not service.is_available:
            return
        if self.world.sends(
            tool.spec, touched=needs, revised=lambda spec: replace(spec, is_ready=spec.is_ready or needs(spec))
        ):
            text = f"{service_title(name)} is set up for the organisation"
            yield Change("set_up", text, "service_update", (name,), right=Right.CATALOGUE)

    # -- The agent ----------------------------------------------------------------------------------------------------

    def _widened(self, tool: Reasons) -> Iterator[Change]:
        wide = with_scope(self.world, AgentScope.ORGANISATION)
        if self.world.sends(tool.spec, situation=wide, touched=lambda spec: spec.acts_as_organisation):
            text = f"the agent {self.world.agent} may act with the organisation’s credentials"
            yield self._of_agent("widen_scope", text)

    def _brought(self, tool: Reasons) -> Iterator[Change]:
        spec, agent = tool.spec, self.world.agent
        row = self.world.rows.get(spec.tool_id)
        for bundle in self._bundles_with(spec):
            if self.in_session and spec.tool_id in self._once("load", bundle):
                what = f"toolkit {bundle.name}" if bundle.toolkit_id is not None else "it"
                code = "load_toolkit" if bundle.toolkit_id is not None else "load_tool"
                yield Change(
                    code,
                    f"{what} is loaded in this session",
                    "session_detail",
                    (str(self.world.session.pk),),
                    target=f"{bundle.kind}:{bundle.name}",
                )
            if bundle.toolkit_id is not None and spec.tool_id in self._once("initial", bundle):
                yield self._of_agent("make_initial", f"the agent {agent} begins with toolkit {bundle.name}")
        if row is not None and row.place is not None and not row.is_deferred:
            return
        if self.world.sends_as_own(spec):
            if row is not None and row.is_deferred:
                yield self._of_agent("send_at_once", f"the agent {agent} no longer defers it")
            else:
                yield self._of_agent("add_tool", f"it is one of the agent {agent}’s own tools")

    def _bundles_with(self, spec: ToolSpec) -> list[Bundle]:
        """The first ones that the agent may load, and that hold the tool."""
        ways = [way.bundle for way in self.world.reading.offer.ways if way.spec.tool_id == spec.tool_id]
        loadable = self.world.holdings.loadable
        return [each for each in ways if each is not None and each in loadable][:TRIED]

    def _once(self, how: str, bundle: Bundle) -> frozenset[int]:
        key = (how, bundle)
        if key not in self._tried:
            is_there = bundle in self.world.holdings.bundles
            if how == "initial":
                self._tried[key] = self.world.with_initial(bundle)
            else:
                self._tried[key] = frozenset() if is_there else self.world.with_load(bundle)
        return self._tried[key]

    def _of_agent(self, code: str, text: str) -> Change:
        return Change(code, text, "agent_update", (self.world.agent.slug,), right=Right.AGENTS)

    # -- Permission ---------------------------------------------------------------------------------------------------

    def _revoked(self, tool: Reasons) -> Iterator[Change]:
        """One grant that denies; where two do, to revoke one is not enough."""
        denies = [each for each in tool.listed.grants if each.effect != Effect.ALLOW]
        if len(denies) != 1:
            return
        deny = denies[0]
        if self._sends_with(tool, _without(self.world.standing.rights, deny, tool), deny.category_id):
            what = "it" if deny.tool_id is not None else f"the category {tool.spec.category_title}"
            text = f"the grant that denies {what} to {self.member} is revoked"
            query = {"q": tool.spec.name if deny.tool_id is not None else tool.spec.category}
            yield Change("revoke_grant", text, "grant_list", query=query, right=Right.ROLES, row=deny.id)

    def _opened(self, tool: Reasons) -> Iterator[Change]:
        spec, rights = tool.spec, self.world.standing.rights
        if not self.member.user.is_active or self.member.ended_at is not None:
            return
        said: dict[int, Decision] = {spec.tool_id: "allow"}
        listed = [role for role in rights.roles if role.mode == RoleMode.LISTED]
        for role in listed[:TRIED]:
            opened = replace(role, tools={**role.tools, **said})
            roles = tuple(opened if each is role else each for each in rights.roles)
            if self._sends_with(tool, replace(rights, roles=roles)):
                yield Change(
                    "allow_in_role", f"the role {role.slug} allows it", "role_detail", (role.slug,), right=Right.ROLES
                )
        if self._sends_with(tool, replace(rights, tool_grants={**rights.tool_grants, **said})):
            text = f"a grant allows it to {self.member}"
            query = {"tool": spec.name, "member": self.member.user.email}
            yield Change("give_grant", text, "grant_create", query=query, right=Right.ROLES)

    def _sends_with(self, tool: Reasons, rights: Rights, category_id: int | None = None) -> bool:
        """`category_id`: the category whose other tools the change opens too. The first right of a member who had none
        opens the tools that load others."""
        world = self.world
        situation = replace(world.situation, standing=Standing(rights, world.standing.loads))
        return world.sends(
            tool.spec, situation=situation, touched=lambda spec: spec.category_id == category_id or spec.is_meta
        )

    # -- Room ---------------------------------------------------------------------------------------------------------

    def _more_room(self, spec: ToolSpec) -> Iterator[Change]:
        model, limit = self.world.agent.model, self.world.place_of(spec) + 1
        if self.world.sends_with_limit(spec, limit):
            text = f"the model {model.name} takes {limit:,} tools or more"
            args = (model.provider.slug, str(model.public_id))
            yield Change("raise_limit", text, "model_update", args, right=Right.PROVIDERS)
        loads = [load for load in self.world.holdings.loads if not load.bundle.is_initial]
        for load in loads[:TRIED] if self.in_session else []:
            key = ("unload", load)
            if key not in self._tried:
                self._tried[key] = self.world.without_load(load)
            if spec.tool_id in self._tried[key]:
                text = f"{load.bundle.source} is unloaded in this session"
                target = f"{load.bundle.kind}:{load.bundle.name}"
                yield Change("unload", text, "session_detail", (str(self.world.session.pk),), target=target)


def _is(spec: ToolSpec, tool: Reasons) -> bool:
    return spec.tool_id == tool.spec.tool_id


def _without(rights: Rights, deny: GrantLine, tool: Reasons) -> Rights:
    """The rights without one grant; what another one says of the same thing stands."""
    rest = [each for each in tool.listed.grants if each != deny]
    if deny.tool_id is not None:
        allowed = any(each.tool_id == deny.tool_id for each in rest)
        return replace(rights, tool_grants=_said(rights.tool_grants, deny.tool_id, allowed))
    allowed = any(each.category_id == deny.category_id for each in rest)
    return replace(rights, category_grants=_said(rights.category_grants, deny.category_id, allowed))


def _said(grants: Mapping[int, Decision], key: int | None, allowed: bool) -> dict[int, Decision]:
    rest: dict[int, Decision] = {each: said for each, said in grants.items() if each != key}
    return {**rest, key: "allow"} if allowed and key is not None else rest
