"""The audited writes of agents: what a turn talks to, and the tools it starts with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import PROTECT

from capabilities.agents.toolkits.writes import check_once, listed, shared_tools, shared_tools_in, toolkit_conflicts
from capabilities.common.columns import audited, check_columns, columns_of, default_of
from capabilities.common.names import check_name_imitates
from capabilities.common.refused import ChangedMeanwhile, ChangeRefused, check_no_rule, check_slug, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.short_names import free_short_name
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.language_models.providers.knobs import KNOBS, check_knobs
from capabilities.models import (
    Agent,
    AgentRoom,
    AgentScope,
    AgentTool,
    AgentToolkit,
    ApprovalRule,
    LanguageModel,
    Offer,
    Role,
    Tool,
    Toolkit,
)
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: Fields of an agent that must agree with each other; changes by others meanwhile do not keep it from being renamed.
TOGETHER = ("tools", "tools_mode", "starts_with_core", "scope", "allowed_toolkits", "initial_toolkits")
#: More than any provider takes in one request.
MAX_OWN_TOOLS = 1_000
MAX_TOOLKITS = 500
MAX_ROLE = 200
MAX_ROOMS = 100
MAX_PROMPT = 100_000


@dataclass(frozen=True)
class AgentContent:
    """Fields of an agent, as its form sends them. A list that is None leaves what is stored; a limit that is None, and
    an empty setting of its calls, is left to the model.

    `tools` are names, in the order they are sent (before the others, where every tool is the agent's own);
    `deferred_tools` are those of them that are not sent before they are
    loaded by name, `pinned_tools` those that routing never leaves out. `allowed_toolkits` are names in the order in
    which the initial ones of them are sent.
    """

    slug: str
    name: str
    model: LanguageModel
    description: str = ""
    #: One line on what it does, for people and for other agents.
    role: str = ""
    prompt: str = ""
    offered_to: str = default_of(Agent, "offered_to")
    #: Short names of the roles whose members it is offered to.
    rooms: tuple[str, ...] | None = None
    starts_with_core: bool = default_of(Agent, "starts_with_core")
    tools_mode: str = default_of(Agent, "tools_mode")
    tools: tuple[str, ...] | None = None
    deferred_tools: tuple[str, ...] | None = None
    pinned_tools: tuple[str, ...] | None = None
    allowed_toolkits: tuple[str, ...] | None = None
    initial_toolkits: tuple[str, ...] | None = None
    loading_mode: str = default_of(Agent, "loading_mode")
    scope: str = default_of(Agent, "scope")
    routing_mode: str = default_of(Agent, "routing_mode")
    routing_tokens: int | None = None
    max_rounds: int | None = None
    client_approvals: str = default_of(Agent, "client_approvals")
    is_enabled: bool = default_of(Agent, "is_enabled")
    #: Takes over where the model is overloaded, out of credit or gone.
    fallback_model: LanguageModel | None = None
    reasoning_effort: str = ""
    max_output_tokens: int | None = None
    temperature: float | None = None
    parallel_tool_calls: bool | None = None


#: Fields of the content that are the agent's own columns, and not lists of other rows.
COLUMNS = columns_of(Agent)


def agent_content(agent: Agent) -> AgentContent:
    """Return the agent's content as it is stored; its lists are None, so that a write leaves them as they are."""
    return AgentContent(**{name: getattr(agent, name) for name in COLUMNS})


@configuration_write()
def create_agent(content: AgentContent, *, actor: Membership) -> Agent:
    """Raises ChangeRefused for a short name in use, and for tools and toolkits that are not there or do not agree."""
    require(actor, Right.AGENTS)
    agent = Agent(organisation_id=actor.organisation_id)
    _write(agent, content)
    _write_tools(agent, content)
    _write_toolkits(agent, content)
    _write_rooms(agent, content)
    _check_together(agent)
    record("agent.create", agent, actor=actor, after=_audited(agent))
    touch_registry(agent.organisation_id)
    return agent


@configuration_write()
def update_agent(agent: Agent, content: AgentContent, *, actor: Membership, stamp: str | None = None) -> Agent:
    """Its sessions' next turns begin with this. Raises ChangedMeanwhile where the agent is not as `stamp` says."""
    require(actor, Right.AGENTS)
    if stamp is not None:
        list(Agent.objects.select_for_update().filter(pk=agent.pk).values_list("pk"))
        if agent_stamp(agent) != stamp:
            raise ChangedMeanwhile("The agent has been changed in the meantime.")
    before = _audited(agent)
    _write(agent, content)
    _write_tools(agent, content)
    _write_toolkits(agent, content)
    _write_rooms(agent, content)
    after = _audited(agent)
    if any(before[name] != after[name] for name in TOGETHER):
        _check_together(agent)
    if before != after:
        record("agent.update", agent, actor=actor, before=before, after=after)
        touch_registry(agent.organisation_id)
    return agent


@configuration_write("agent")
def delete_agent(agent: Agent, *, actor: Membership) -> None:
    """Raises ChangeRefused while a session names it: what was said with it stays readable."""
    require(actor, Right.AGENTS)
    check_no_rule("agent", ApprovalRule.objects.filter(agent=agent))
    if is_used(agent):
        raise ChangeRefused("agent", f"Sessions use {agent}: switch it off instead.", code="in_use")
    record("agent.delete", agent, actor=actor, before=_audited(agent))
    agent.delete()
    touch_registry(actor.organisation_id)


def agent_stamp(agent: Agent) -> str:
    """Return a hash of the agent as it is stored; it differs after any change. Four queries."""
    stored = Agent.objects.select_related("model").filter(pk=agent.pk).first()
    return sha256_hex(canonical_json(_audited(stored) if stored is not None else None))


def is_used(agent: Agent) -> bool:
    """Return whether any row that must stay names the agent. A query for each table that could."""
    relations = [relation for relation in Agent._meta.related_objects if relation.on_delete is PROTECT]
    return any(
        relation.related_model._base_manager.filter(**{relation.field.name: agent}).exists() for relation in relations
    )


def own_tools(agent: Agent) -> list[str]:
    """Names, in their order. One query."""
    return list(own_lines(agent))


def deferred_tools(agent: Agent) -> list[str]:
    """Names of those of its own that are not sent before they are loaded. One query."""
    return [name for name, line in own_lines(agent).items() if line.is_deferred]


def pinned_tools(agent: Agent) -> list[str]:
    """Names of those of its own that routing never leaves out. One query."""
    return [name for name, line in own_lines(agent).items() if line.is_pinned]


def allowed_toolkits(agent: Agent) -> dict[str, bool]:
    """Names, in their order, and whether each is initial. One query."""
    lines = AgentToolkit.objects.filter(agent=agent).order_by("position", "toolkit__name")
    return dict(lines.values_list("toolkit__name", "is_initial"))


@dataclass(frozen=True)
class OwnLine:
    """Marks of one of an agent's own tools."""

    is_deferred: bool = False
    is_pinned: bool = False


def own_lines(agent: Agent) -> dict[str, OwnLine]:
    """The agent's own tools by name, in their order. One query."""
    lines = AgentTool.objects.filter(agent=agent).order_by("position", "tool__category__name", "tool__name")
    rows = lines.values_list("tool__name", "is_deferred", "is_pinned")
    return {name: OwnLine(is_deferred, is_pinned) for name, is_deferred, is_pinned in rows}


def _write(agent: Agent, content: AgentContent) -> None:
    """Check the content and write the agent's own columns. Raises ChangeRefused."""
    slug = content.slug or agent.slug or free_short_name(Agent.every.all(), "slug", content.name)
    check_slug(slug)
    if Agent.every.filter(slug=slug).exclude(pk=agent.pk).exists():
        raise ChangeRefused("slug", f"There is an agent {slug} already.", code="taken")
    if content.name != agent.name:
        check_name_imitates(Agent.every.exclude(pk=agent.pk), "the agent", content.name)
    if len(content.prompt) > MAX_PROMPT:
        raise ChangeRefused("prompt", f"Keep the prompt under {MAX_PROMPT:,} characters.")
    if content.fallback_model == content.model:
        raise ChangeRefused("fallback_model", "Choose another model than the first, or none.")
    if len(content.role) > MAX_ROLE or not content.role.isprintable():
        raise ChangeRefused("role", f"Write one line of at most {MAX_ROLE} characters.")
    check_columns(Agent, content, COLUMNS)
    if agent.model_id != content.model.pk or any(getattr(agent, name) != getattr(content, name) for name in KNOBS):
        check_knobs(content, content.model.context_window)
    for name in COLUMNS:
        setattr(agent, name, getattr(content, name))
    agent.slug = slug
    agent.save()


def _write_tools(agent: Agent, content: AgentContent) -> None:
    """A tool that stays keeps whether it is deferred or pinned, unless the content says it."""
    stored = own_lines(agent)
    names = list(stored) if content.tools is None else list(dict.fromkeys(content.tools))
    if len(names) > MAX_OWN_TOOLS:
        raise ChangeRefused("tools", f"An agent has at most {MAX_OWN_TOOLS:,} tools of its own.")
    keys = dict(Tool.objects.filter(name__in=names).values_list("name", "pk"))
    for name in names:
        if name not in keys:
            raise not_there("tools", "tool", name)
    deferred = {name for name, line in stored.items() if line.is_deferred}
    if content.deferred_tools is not None:
        deferred = set(content.deferred_tools)
        _check_deferred(content.deferred_tools, names)
    pinned = {name for name, line in stored.items() if line.is_pinned} - deferred
    if content.pinned_tools is not None:
        pinned = set(content.pinned_tools)
        _check_pinned(content.pinned_tools, names, deferred)
    wanted = {name: OwnLine(name in deferred, name in pinned) for name in names}
    if list(stored.items()) != list(wanted.items()):
        AgentTool.objects.filter(agent=agent).delete()
        AgentTool.objects.bulk_create(
            AgentTool(
                organisation_id=agent.organisation_id,
                agent=agent,
                tool_id=keys[name],
                position=number,
                is_deferred=line.is_deferred,
                is_pinned=line.is_pinned,
            )
            for number, (name, line) in enumerate(wanted.items(), start=1)
        )


def _check_deferred(deferred: Sequence[str], names: Collection[str]) -> None:
    for name in deferred:
        if name not in names:
            if not Tool.objects.filter(name=name).exists():
                raise not_there("deferred_tools", "tool", name)
            raise ChangeRefused("deferred_tools", f"{name} is none of its own tools: only those can be deferred.")
    both = Toolkit.objects.filter(name__in=deferred).values_list("name", flat=True).first()
    if both is not None:
        raise ChangeRefused("deferred_tools", f"{both} is a toolkit too: loaded by its name, it would be that one.")


def _check_pinned(pinned: Sequence[str], names: Collection[str], deferred: Collection[str]) -> None:
    for name in pinned:
        if name not in names:
            if not Tool.objects.filter(name=name).exists():
                raise not_there("pinned_tools", "tool", name)
            raise ChangeRefused("pinned_tools", f"{name} is none of its own tools: only those can be pinned.")
        if name in deferred:
            raise ChangeRefused("pinned_tools", f"{name} is deferred: once it is loaded it is sent with each message.")


def _write_toolkits(agent: Agent, content: AgentContent) -> None:
    """Write the toolkits that the agent may load, where they changed. Raises ChangeRefused."""
    stored = allowed_toolkits(agent)
    allowed, initial = content.allowed_toolkits, content.initial_toolkits
    if allowed is None:
        allowed = tuple(stored)
    if initial is None:
        initial = tuple(name for name, is_initial in stored.items() if is_initial)
    if len(allowed) > MAX_TOOLKITS:
        raise ChangeRefused("allowed_toolkits", f"An agent may load at most {MAX_TOOLKITS:,} toolkits.")
    keys = _known_toolkits(allowed, initial)
    for name in initial:
        if name not in allowed:
            raise ChangeRefused("initial_toolkits", f"{name} is initial, but not among the allowed toolkits.")
    wanted = {name: name in initial for name in allowed}
    if list(stored.items()) != list(wanted.items()):
        AgentToolkit.objects.filter(agent=agent).delete()
        AgentToolkit.objects.bulk_create(
            AgentToolkit(
                organisation_id=agent.organisation_id,
                agent=agent,
                toolkit_id=keys[name],
                is_initial=is_initial,
                position=number,
            )
            for number, (name, is_initial) in enumerate(wanted.items(), start=1)
        )


def rooms_of(agent: Agent) -> list[str]:
    """Short names of the roles whose members the agent is offered to, by name. One query."""
    return list(AgentRoom.objects.filter(agent=agent).order_by("role__slug").values_list("role__slug", flat=True))


def _write_rooms(agent: Agent, content: AgentContent) -> None:
    """An agent that is offered to everybody has no rooms."""
    wanted = rooms_of(agent) if content.rooms is None else sorted(set(content.rooms))
    if agent.offered_to == Offer.EVERYBODY:
        if content.rooms:
            raise ChangeRefused("rooms", "Rooms count for an agent that is offered to roles: set offered_to to roles.")
        wanted = []
    if len(wanted) > MAX_ROOMS:
        raise ChangeRefused("rooms", f"An agent is offered to at most {MAX_ROOMS} roles.")
    roles = dict(Role.objects.filter(slug__in=wanted).values_list("slug", "pk"))
    for slug in wanted:
        if slug not in roles:
            raise not_there("rooms", "role", slug)
    AgentRoom.objects.filter(agent=agent).exclude(role__in=list(roles.values())).delete()
    stored = set(rooms_of(agent))
    AgentRoom.objects.bulk_create(
        AgentRoom(organisation_id=agent.organisation_id, agent=agent, role_id=roles[slug])
        for slug in wanted
        if slug not in stored
    )


def _known_toolkits(allowed: Sequence[str], initial: Sequence[str]) -> dict[str, int]:
    """Keys by name. Raises ChangeRefused for a name that is there twice, or of no toolkit."""
    for field, names in (("allowed_toolkits", allowed), ("initial_toolkits", initial)):
        check_once(field, names)
    keys = dict(Toolkit.objects.filter(name__in={*allowed, *initial}).values_list("name", "pk"))
    for field, names in (("allowed_toolkits", allowed), ("initial_toolkits", initial)):
        for name in names:
            if name not in keys:
                raise not_there(field, "toolkit", name)
    return keys


def _check_together(agent: Agent) -> None:
    """Raise ChangeRefused where the agent's tools and toolkits do not agree with its scope, or with each other."""
    if agent.scope == AgentScope.MEMBER:
        _check_scope(agent)
    for conflict in toolkit_conflicts([agent]):
        raise ChangeRefused("initial_toolkits", f"{conflict}: make them the same, or begin with one.")


def _check_scope(agent: Agent) -> None:
    """Core tools of that kind are no reason: they are just not sent to such an agent."""
    shared = "act with a credential that the organisation shares, and this agent only with the member’s own"
    own = shared_tools(Tool.objects.filter(agent_tools__agent=agent))
    if own:
        raise ChangeRefused("tools", f"These tools {shared}: {listed(own)}.")
    toolkits = AgentToolkit.objects.filter(agent=agent).values_list("toolkit_id", flat=True)
    loaded = shared_tools_in(list(toolkits))
    if loaded:
        raise ChangeRefused("allowed_toolkits", f"They hold tools that {shared}: {listed(loaded)}.")


def _audited(agent: Agent) -> dict[str, Any]:
    own, toolkits = own_lines(agent), allowed_toolkits(agent)
    return audited(agent, COLUMNS) | {
        "rooms": rooms_of(agent),
        "tools": list(own),
        "deferred_tools": [name for name, line in own.items() if line.is_deferred],
        "pinned_tools": [name for name, line in own.items() if line.is_pinned],
        "allowed_toolkits": list(toolkits),
        "initial_toolkits": [name for name, is_initial in toolkits.items() if is_initial],
    }
