"""The single changes that would let a tool through: each is tried by running the selection, and told only if it works.

REMEDIES is the table: the stage that stops the tool, a word for programs, the right that it takes, and a function that
finds the ways to do it. A way says what the selection would be read from, and has the write that does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from capabilities.access.grants.writes import GrantContent, give_grant, revoke_grant
from capabilities.access.roles.writes import Rule, rules_of, set_role_rules
from capabilities.agents.writes import agent_content, allowed_toolkits, deferred_tools, own_tools, update_agent
from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.contract.permission import Decision, Rights
from capabilities.models import Agent, AgentScope, Effect, Grant, LanguageModel, Role, RoleMode, Tool
from capabilities.pipeline.candidates import Bundle, Row
from capabilities.providers.writes import model_content, save_model
from capabilities.registry import registry
from capabilities.services.writes import service_title
from sessions.explain.answers import GrantLine, Reasons
from sessions.explain.inputs import Inputs
from sessions.loading import writes as loading
from sessions.loading.loadable import LoadTarget, why_not
from sessions.loading.queries import load_for
from sessions.loading.writes import By
from sessions.models import LoadSource
from sessions.selection.reach import Load
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

#: Does the change as this member, by the function that pages and routes call. Raises what that raises.
Write = Callable[[Membership], Any]


@dataclass(frozen=True)
class Page:
    """Where the change is done: name of the page, its arguments after the organisation's, and its query."""

    view: str
    args: tuple[str | int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One thing to change: a word for programs, what to say after "Would be sent if", and the page where it is done."""

    code: str
    text: str
    view: str
    args: tuple[str | int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    #: The admin right that it takes, if one.
    right: Right | None = None
    #: What it is done to, where Explain can do it itself: kind and name of what is loaded.
    target: str = ""
    #: None where a page asks for more.
    write: Write | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """What a button says that does it; empty for what is done on a page of its own."""
        return LABELS.get(self.code, "")


@dataclass(frozen=True)
class Way:
    """One way to make a change."""

    text: str
    page: Page
    #: What the selection would be read from; None where the change would be refused.
    inputs: Callable[[], Inputs | None]
    write: Write | None = None
    target: str = ""
    #: What of it was tried for one tool counts for the others of the page.
    key: object = None


@dataclass(frozen=True)
class Blocked:
    """What a remedy is looked for: a tool that one stage stops, for a member, in a session or for a new one."""

    inputs: Inputs
    member: Membership
    tool: Reasons
    in_session: bool


@dataclass(frozen=True)
class Remedy:
    """One line of the table. `stage` is the one that stops the tool."""

    stage: str
    code: str
    right: Right | None
    ways: Callable[[Blocked], Iterator[Way]]


class Remedies:
    """For the tools of one page."""

    def __init__(self, inputs: Inputs, member: Membership, *, in_session: bool) -> None:
        self.inputs = inputs
        self.member = member
        self.in_session = in_session
        self._tried: dict[object, frozenset[int]] = {}

    def of(self, tool: Reasons) -> tuple[Change, ...]:
        """None for a tool that is sent, and for one that two stages stop, beside the limit."""
        stops = {cell.stage for cell in tool.stops} - {"limit"}
        if tool.is_sent or len(stops) > 1:
            return ()
        stage, blocked = next(iter(stops), "limit"), Blocked(self.inputs, self.member, tool, self.in_session)
        return tuple(
            Change(
                remedy.code,
                way.text,
                way.page.view,
                way.page.args,
                way.page.query,
                remedy.right,
                way.target,
                way.write,
            )
            for remedy in REMEDIES
            if remedy.stage == stage
            for way in remedy.ways(blocked)
            if tool.spec.tool_id in self._sent(remedy.code, way)
        )

    def _sent(self, code: str, way: Way) -> frozenset[int]:
        """Keys of what the selection sends then."""
        if way.key is not None and (code, way.key) in self._tried:
            return self._tried[code, way.key]
        inputs = way.inputs()
        sent = inputs.sent if inputs is not None else frozenset()
        if way.key is not None:
            self._tried[code, way.key] = sent
        return sent


# -- The catalogue ----------------------------------------------------------------------------------------------------


def _switch_on(blocked: Blocked) -> Iterator[Way]:
    spec = blocked.tool.spec
    yield Way(
        "it is switched on in the catalogue",
        Page("tool_detail", (spec.name,)),
        partial(_with_rows, blocked, lambda row: row.spec.tool_id == spec.tool_id, is_enabled=True),
        lambda actor: set_tool_enabled(_tool(spec.name), True, actor=actor),
    )


def _set_up(blocked: Blocked) -> Iterator[Way]:
    name = blocked.tool.spec.service
    service = registry.services.get(name)
    if service is not None and service.is_available:
        yield Way(
            f"{service_title(name)} is set up for the organisation",
            Page("service_update", (name,)),
            partial(_with_rows, blocked, lambda row: row.spec.service == name, is_ready=True),
        )


def _with_rows(blocked: Blocked, is_meant: Callable[[Row], bool], **fields: Any) -> Inputs | None:
    """With these facts of some tools; nothing where the tool would not fit in."""
    if not blocked.inputs.has_room_for(blocked.tool.spec):
        return None
    keys = frozenset(key for key, row in blocked.inputs.rows.items() if is_meant(row))
    return blocked.inputs.changed(
        keys, row=lambda row: replace(row, spec=replace(row.spec, **fields)) if is_meant(row) else row
    )


# -- The agent --------------------------------------------------------------------------------------------------------


def _widen(blocked: Blocked) -> Iterator[Way]:
    agent = blocked.inputs.agent
    yield _of_agent(
        blocked,
        f"the agent {agent} may act with the organisation’s credentials",
        partial(_with_scope, blocked),
        lambda stored: {"scope": AgentScope.ORGANISATION},
    )


def _with_scope(blocked: Blocked) -> Inputs:
    agent = copy(blocked.inputs.agent)
    agent.scope = AgentScope.ORGANISATION
    shared = frozenset(key for key, row in blocked.inputs.rows.items() if row.spec.acts_as_organisation)
    return blocked.inputs.changed(shared, agent=agent)


def _load(blocked: Blocked, *, toolkits: bool) -> Iterator[Way]:
    if not blocked.in_session:
        return
    session = blocked.inputs.session
    for bundle in _bundles_with(blocked):
        if (bundle.toolkit_id is not None) is toolkits:
            what = f"toolkit {bundle.name}" if toolkits else "it"
            yield Way(
                f"{what} is loaded in this session",
                Page("session_detail", (str(session.pk),)),
                partial(_with_load, blocked.inputs, bundle),
                partial(_load_now, blocked.inputs, bundle.name),
                f"{bundle.kind}:{bundle.name}",
                bundle,
            )


def _load_now(inputs: Inputs, name: str, actor: Membership) -> Any:
    return load_for(LoadTarget(inputs.session, inputs.agent), actor=actor, toolkit=name)


def _with_load(inputs: Inputs, bundle: Bundle) -> Inputs | None:
    """None where it is loaded, or loading it is refused."""
    if bundle in inputs.holdings.bundles or inputs.is_constant or why_not(inputs.reading, bundle) is not None:
        return None
    loads = (*inputs.lasting_loads, Load(0, inputs.agent.pk, bundle, LoadSource.PERSON))
    found = inputs.changed(inputs.brought_by(bundle), holdings=replace(inputs.holdings, loads=loads))
    return None if found.clashes_with(bundle) else found


def _begin_with(blocked: Blocked) -> Iterator[Way]:
    for bundle in _bundles_with(blocked):
        if bundle.toolkit_id is not None:
            name = bundle.name
            yield _of_agent(
                blocked,
                f"the agent {blocked.inputs.agent} begins with toolkit {name}",
                partial(_with_initial, blocked.inputs, bundle),
                partial(_initial_with, name),
                bundle,
            )


def _initial_with(name: str, stored: Agent) -> dict[str, Any]:
    initial = [each for each, is_initial in allowed_toolkits(stored).items() if is_initial]
    return {"initial_toolkits": (*initial, name)}


def _with_initial(inputs: Inputs, bundle: Bundle) -> Inputs | None:
    """None where another side disagrees with it, or the agent may not act with what is in it."""
    is_shared = any(each.spec.acts_as_organisation for each in inputs.reading.offer.tools_of(bundle))
    if is_shared and inputs.agent.scope == AgentScope.MEMBER:
        return None
    initial = replace(bundle, is_initial=True)
    allowed = tuple(initial if each == bundle else each for each in inputs.holdings.allowed)
    loads = tuple(replace(load, bundle=initial) if load.bundle == bundle else load for load in inputs.lasting_loads)
    holdings = replace(inputs.holdings, allowed=allowed, loads=loads)
    found = inputs.changed(inputs.brought_by(bundle), holdings=holdings)
    return None if found.clashes_with(bundle) else found


def _send_at_once(blocked: Blocked) -> Iterator[Way]:
    spec = blocked.tool.spec
    row = blocked.inputs.rows.get(spec.tool_id)
    if row is not None and row.is_deferred:
        yield _of_agent(
            blocked,
            f"the agent {blocked.inputs.agent} no longer defers it",
            partial(_with_own, blocked, row.place),
            lambda stored: {"deferred_tools": tuple(each for each in deferred_tools(stored) if each != spec.name)},
        )


def _add(blocked: Blocked) -> Iterator[Way]:
    spec = blocked.tool.spec
    row = blocked.inputs.rows.get(spec.tool_id)
    if row is None or row.place is None:
        places = [each.place for each in blocked.inputs.rows.values() if each.place is not None]
        yield _of_agent(
            blocked,
            f"it is one of the agent {blocked.inputs.agent}’s own tools",
            partial(_with_own, blocked, max(places, default=0) + 1),
            lambda stored: {"tools": (*own_tools(stored), spec.name)},
        )


def _with_own(blocked: Blocked, place: int | None) -> Inputs | None:
    spec, inputs = blocked.tool.spec, blocked.inputs
    if spec.is_meta:
        return None
    row = replace(inputs.rows.get(spec.tool_id) or Row(spec, False, None, False), place=place, is_deferred=False)
    found = inputs.changed()
    return replace(found, rows={**found.rows, spec.tool_id: row}, offer=None)


def _of_agent(
    blocked: Blocked,
    text: str,
    inputs: Callable[[], Inputs | None],
    content: Callable[[Agent], dict[str, Any]],
    key: object = None,
) -> Way:
    agent = blocked.inputs.agent
    return Way(text, Page("agent_update", (agent.slug,)), inputs, partial(_update_agent, agent.pk, content), key=key)


def _update_agent(key: int, content: Callable[[Agent], dict[str, Any]], actor: Membership) -> Agent:
    stored = Agent.objects.for_display().get(pk=key)
    return update_agent(stored, replace(agent_content(stored), **content(stored)), actor=actor)


def _bundles_with(blocked: Blocked) -> list[Bundle]:
    """The first ones that the agent may load, and that hold the tool."""
    reading = blocked.inputs.reading
    ways = [way.bundle for way in reading.offer.ways if way.spec.tool_id == blocked.tool.spec.tool_id]
    return [each for each in ways if each is not None and each in reading.holdings.loadable][:TRIED]


# -- Permission -------------------------------------------------------------------------------------------------------


def _revoke(blocked: Blocked) -> Iterator[Way]:
    """One grant that denies; where two do, to revoke one is not enough."""
    tool = blocked.tool
    denies = [each for each in tool.listed.grants if each.effect != Effect.ALLOW]
    if len(denies) != 1:
        return
    deny = denies[0]
    what = "it" if deny.tool_id is not None else f"the category {tool.spec.category_title}"
    yield Way(
        f"the grant that denies {what} to {blocked.member} is revoked",
        Page("grant_list", query={"q": tool.spec.name if deny.tool_id is not None else tool.spec.category}),
        partial(_with_rights, blocked, _without(blocked.inputs.permissions.rights, deny, tool), deny.category_id),
        lambda actor: revoke_grant(_grant(deny.id), actor=actor),
    )


def _allow_in_role(blocked: Blocked) -> Iterator[Way]:
    spec, rights = blocked.tool.spec, blocked.inputs.permissions.rights
    listed = [role for role in rights.roles if role.mode == RoleMode.LISTED] if _may_act(blocked.member) else []
    for role in listed[:TRIED]:
        opened = replace(role, tools={**role.tools, spec.tool_id: "allow"})
        roles = tuple(opened if each is role else each for each in rights.roles)
        yield Way(
            f"the role {role.slug} allows it",
            Page("role_detail", (role.slug,)),
            partial(_with_rights, blocked, replace(rights, roles=roles)),
            partial(_allow_in, role.slug, spec.name),
        )


def _allow_in(slug: str, name: str, actor: Membership) -> None:
    role = Role.objects.get(slug=slug)
    rules = [each for each in rules_of(role) if each.tool != name]
    set_role_rules(role, [*rules, Rule(Effect.ALLOW, tool=name)], actor=actor)


def _give(blocked: Blocked) -> Iterator[Way]:
    spec, rights, member = blocked.tool.spec, blocked.inputs.permissions.rights, blocked.member
    said: dict[int, Decision] = {**rights.tool_grants, spec.tool_id: "allow"}
    if _may_act(member):
        yield Way(
            f"a grant allows it to {member}",
            Page("grant_create", query={"tool": spec.name, "member": member.user.email}),
            partial(_with_rights, blocked, replace(rights, tool_grants=said)),
            lambda actor: give_grant(GrantContent(member.public_id, Effect.ALLOW, tool=spec.name), actor=actor),
        )


def _may_act(member: Membership) -> bool:
    return member.user.is_active and member.ended_at is None


def _with_rights(blocked: Blocked, rights: Rights, category_id: int | None = None) -> Inputs | None:
    """`category_id`: the category whose other tools the change opens too. The first right of a member who had none
    opens the tools that load others."""
    inputs, spec = blocked.inputs, blocked.tool.spec
    if not inputs.has_room_for(spec):
        return None
    opened = (key for key, row in inputs.rows.items() if row.spec.category_id == category_id)
    return inputs.changed(frozenset({spec.tool_id, *opened}), permissions=replace(inputs.permissions, rights=rights))


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


# -- Room -------------------------------------------------------------------------------------------------------------


def _raise_limit(blocked: Blocked) -> Iterator[Way]:
    """So many that it fits in behind what comes before it. Of that only what is sent now is looked at, and one more."""
    model, limit = blocked.inputs.agent.model, blocked.inputs.place_of(blocked.tool.spec) + 1
    yield Way(
        f"the model {model.name} takes {limit:,} tools or more",
        Page("model_update", (model.provider.slug, str(model.public_id))),
        partial(_with_room_for, blocked),
        partial(_save_limit, model, limit),
    )


def _with_room_for(blocked: Blocked) -> Inputs:
    agent = copy(blocked.inputs.agent)
    agent.model = copy(agent.model)
    agent.model.tool_limit = blocked.inputs.situation.model.tool_limit + 1
    return blocked.inputs.changed(frozenset({blocked.tool.spec.tool_id}), agent=agent)


def _save_limit(model: LanguageModel, limit: int, actor: Membership) -> LanguageModel:
    content = replace(model_content(model), tool_limit=limit)
    return save_model(model.provider, copy(model), content, actor=actor)


def _unload(blocked: Blocked) -> Iterator[Way]:
    inputs = blocked.inputs
    loads = [load for load in inputs.holdings.loads if not load.bundle.is_initial]
    for load in loads[:TRIED] if blocked.in_session else []:
        rest = tuple(each for each in inputs.holdings.loads if each != load)
        bundle = load.bundle
        yield Way(
            f"{bundle.source} is unloaded in this session",
            Page("session_detail", (str(inputs.session.pk),)),
            partial(inputs.changed, frozenset(inputs.rows), holdings=replace(inputs.holdings, loads=rest)),
            partial(_unload_now, inputs, bundle),
            f"{bundle.kind}:{bundle.name}",
            load,
        )


def _unload_now(inputs: Inputs, bundle: Bundle, actor: Membership) -> Any:
    return loading.unload(LoadTarget(inputs.session, inputs.agent), bundle.name, by=By(actor), kind=bundle.kind)


def _tool(name: str) -> Tool:
    return Tool.objects.select_related("category").get(name=name)


def _grant(key: int) -> Grant:
    return Grant.objects.select_related("tool__category", "category", "membership__user").get(pk=key)


REMEDIES = (
    Remedy("loaded", "load_toolkit", None, partial(_load, toolkits=True)),
    Remedy("loaded", "load_tool", None, partial(_load, toolkits=False)),
    Remedy("loaded", "make_initial", Right.AGENTS, _begin_with),
    Remedy("loaded", "send_at_once", Right.AGENTS, _send_at_once),
    Remedy("loaded", "add_tool", Right.AGENTS, _add),
    Remedy("enabled", "switch_on", Right.CATALOGUE, _switch_on),
    Remedy("set-up", "set_up", Right.CATALOGUE, _set_up),
    Remedy("scope", "widen_scope", Right.AGENTS, _widen),
    Remedy("grants", "revoke_grant", Right.ROLES, _revoke),
    Remedy("role", "allow_in_role", Right.ROLES, _allow_in_role),
    Remedy("role", "give_grant", Right.ROLES, _give),
    Remedy("limit", "raise_limit", Right.PROVIDERS, _raise_limit),
    Remedy("limit", "unload", None, _unload),
)
