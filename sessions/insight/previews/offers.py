"""Previews of a change of an agent, a toolkit or a policy, before it is saved: tools won and lost, sessions, tokens.

The change is written by the function that saves it, what it makes is read, and it is taken back: so a preview says what
saving does, and refuses what saving refuses. Only the configuration is read in there; what it means for members and
sessions is worked out afterwards, by the selection of a turn. The number of queries is the same whatever the number of
agents, sessions, members and tools.

Tools that are switched off or need set-up are offered to nobody here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db.models import Exists, OuterRef, Q

from capabilities.access.policies.writes import PolicyContent, ProfileContent, save_policy, update_profile
from capabilities.agents.agents.writes import AgentContent, update_agent
from capabilities.agents.toolkits.writes import ToolkitContent, overrides_in_words, update_toolkit
from capabilities.catalogue.tools.recipients.writes import Recipients
from capabilities.choosing.pipeline.permissions import MemberPermissions, permissions_of
from capabilities.common.taken_back import taken_back
from capabilities.contract.spec import ToolSpec
from capabilities.models import (
    Agent,
    AgentToolkit,
    ClientApprovals,
    Policy,
    PolicyProfile,
    Provider,
    Toolkit,
    ToolsMode,
)
from sessions.insight.previews.concerned import (
    SESSIONS_LOOKED_AT,
    Bits,
    Difference,
    Grouped,
    grouped,
    live_sessions,
    members_in,
    number_of,
    read_permissions,
    sessions_text,
    some_of,
    tokens_text,
    usable_by,
)
from sessions.insight.previews.roles import agents_of, sent_by
from sessions.models import ChatSession, Turn
from sessions.selection.bulk import NO_SHELF, AgentTools, Setup, Shelf, read_setup, read_shelf
from sessions.selection.holdings import Load, loads_in
from sessions.selection.queries import Selection
from toolhub.tenants.models import Membership

AGENTS_SHOWN = 8
OVERRIDES_SHOWN = 12


@dataclass(frozen=True)
class AgentChange:
    """One agent by itself: what it sends at the start of a session, and what could be loaded beside, by name."""

    name: str
    sent: tuple[str, ...]
    no_longer_sent: tuple[str, ...]
    loadable: tuple[str, ...]
    no_longer_loadable: tuple[str, ...]
    #: Tokens of what a new session of the actor's sends with its first turn.
    tokens_before: int
    tokens_after: int
    #: Number of tools of that first turn that would not fit into one request.
    over_limit: int = 0

    @property
    def is_one(self) -> bool:
        """True where anything about it changes."""
        return any((self.sent, self.no_longer_sent, self.loadable, self.no_longer_loadable, self.tokens))

    @property
    def tokens(self) -> int:
        return self.tokens_after - self.tokens_before

    @property
    def tokens_text(self) -> str:
        return tokens_text(self.tokens)

    @property
    def lines(self) -> list[tuple[str, str, bool]]:
        """Lines of what changes: words, names, and whether it is won."""
        found = [
            ("sends at the start", self.sent, True),
            ("no longer sends at the start", self.no_longer_sent, False),
            ("can load", self.loadable, True),
            ("can no longer load", self.no_longer_loadable, False),
        ]
        return [(f"{words} {len(names):,}:", some_of(names), is_won) for words, names, is_won in found if names]


@dataclass(frozen=True)
class OverrideChange:
    """A tool that stays, with another timeout or another length of its results."""

    tool: str
    before: str
    after: str


@dataclass(frozen=True)
class OfferImpact:
    """Impact of saving an agent, a toolkit or a policy."""

    #: Template that pages draw it with.
    template: ClassVar[str] = "sessions/insight/previews/_offer_impact.html"

    #: True where anything but words differs from what is stored; if not, nothing changes for anybody.
    is_felt: bool
    #: The first agents concerned, by name, and how many more there are.
    agents: tuple[AgentChange, ...] = ()
    other_agents: int = 0
    concerned: Grouped = field(default_factory=Grouped)
    #: Members with a live session with one of these agents for whom nothing changes.
    unchanged: int = 0
    #: Live sessions that are sent other tools, or the same ones with other overrides, with their next turn.
    sessions: int = 0
    #: Loads that these have and would lose.
    dropped: int = 0
    overrides: tuple[OverrideChange, ...] = ()
    other_overrides: int = 0
    #: Live sessions of these agents beyond those that were looked at, the ones used last.
    not_looked_at: int = 0
    #: Changes for clients of OpenAI's API, a sentence for each agent.
    of_clients: tuple[str, ...] = ()

    @property
    def changes_somebody(self) -> bool:
        return self.is_felt or bool(self.of_clients)

    @property
    def members(self) -> int:
        return self.concerned.members

    @property
    def sentence(self) -> str:
        """Sentence such as `1 member loses docker; 2 live sessions change at their next turn; 1 load is dropped; -90
        tokens for Ops.`."""
        parts = [self.concerned.sentence, *sessions_text(self.sessions, self.not_looked_at)]
        if self.dropped:
            parts.append(f"{number_of(self.dropped, 'load')} {'is' if self.dropped == 1 else 'are'} dropped")
        overrides = len(self.overrides) + self.other_overrides
        if overrides:
            parts.append(f"{number_of(overrides, 'tool')} with other overrides")
        parts += [f"{each.tokens_text} tokens at the start for {each.name}" for each in self.agents[:3] if each.tokens]
        return " ".join(("; ".join(parts) + ".", *self.of_clients))


def impact_of_agent(agent: Agent, content: AgentContent, *, actor: Membership) -> OfferImpact:
    """Preview saving this content of an agent. Raises ChangeRefused for what could not be saved."""
    return impact_of_offers(lambda: update_agent(_again(agent), content, actor=actor), [agent.pk], actor=actor)


def impact_of_toolkit(toolkit: Toolkit, content: ToolkitContent, *, actor: Membership) -> OfferImpact:
    """Preview saving this content of a toolkit, over all agents that may load it: where there is none, nothing changes
    for anybody."""
    again = Toolkit.objects.get(pk=toolkit.pk)
    return impact_of_offers(lambda: update_toolkit(again, content, actor=actor), agents_with(toolkit), actor=actor)


def impact_of_giving(change: Callable[[], object], to: Recipients, *, actor: Membership) -> OfferImpact:
    """Preview a write that gives tools to these, over their agents, those that may load the toolkit, and those that
    have every tool."""
    agents = Agent.objects.filter(
        Q(slug__in=to.agents) | Q(tools_mode=ToolsMode.ALL) | Q(agent_toolkits__toolkit__name=to.toolkit)
    )
    keys = list(agents.order_by("pk").distinct().values_list("pk", flat=True))
    return impact_of_offers(change, keys, actor=actor, adds_tools=True)


def impact_of_policy(provider: Provider | None, content: PolicyContent, *, actor: Membership) -> OfferImpact:
    """Preview saving the organisation's policy, or this provider's, over all agents that it is about."""
    return impact_of_offers(
        lambda: save_policy(provider, content, actor=actor),
        agents_under([provider.pk if provider else None]),
        actor=actor,
    )


def impact_of_profile(profile: PolicyProfile, content: ProfileContent, *, actor: Membership) -> OfferImpact:
    """Preview saving a profile, over all agents that are under a policy with it."""
    again = PolicyProfile.objects.get(pk=profile.pk)
    users = list(Policy.objects.filter(profile=profile).values_list("provider_id", flat=True))
    return impact_of_offers(lambda: update_profile(again, content, actor=actor), agents_under(users), actor=actor)


def agents_under(providers: Collection[int | None]) -> list[int]:
    """Keys of the agents whose model is one of these providers'; None is the organisation's policy, which is about
    all. One query, none for none."""
    if not providers:
        return []
    agents = Agent.objects.order_by("pk")
    if None not in providers:
        agents = agents.filter(model__provider__in=providers)
    return list(agents.values_list("pk", flat=True))


def agents_with(toolkit: Toolkit) -> list[int]:
    """Keys of the agents that may load it. One query."""
    return list(AgentToolkit.objects.filter(toolkit=toolkit).values_list("agent_id", flat=True))


def impact_of_offers(
    change: Callable[[], object], agents: Collection[int], *, actor: Membership, adds_tools: bool = False
) -> OfferImpact:
    """Preview this write for these agents (and one that it adds). Raises what the write raises.

    `adds_tools`: the write adds tools as well, which are only there until it is taken back: one query more.
    """
    before, added = read_setup(agents), NO_SHELF
    with taken_back():
        made = change()
        after = read_setup([*agents, made.pk] if isinstance(made, Agent) and made.pk not in agents else agents)
        if adds_tools:
            added = read_shelf(
                after.tools, after.categories, every=after.has_every_tool, with_definitions=after.counts_anew
            )
    return _impact(before, after, actor, added)


def _again(agent: Agent) -> Agent:
    """A second one to write on."""
    return Agent.objects.for_display().get(pk=agent.pk)


def _agent_change(
    before: AgentTools | None,
    after: AgentTools | None,
    bits: Bits[ToolSpec],
    actor: Membership,
    permissions: MemberPermissions,
) -> AgentChange:
    sides = (before, after)
    was, will = (bits.of(side.starts_with) if side else 0 for side in sides)
    could, can = (bits.of(side.reaches) & ~bits.of(side.starts_with) if side else 0 for side in sides)
    sent_before, sent_after = (side.starting_selection(actor, permissions) if side else None for side in sides)
    either = after or before
    assert either is not None, "an agent is there before or after"
    return AgentChange(
        str(either.agent),
        bits.names(will & ~was),
        bits.names(was & ~will),
        bits.names(can & ~could),
        bits.names(could & ~can),
        sent_before.tokens if sent_before else 0,
        sent_after.tokens if sent_after else 0,
        len(sent_after.over_limit) if sent_after else 0,
    )


def _override_changes(pairs: Iterable[tuple[AgentTools, AgentTools]], shelf: Shelf) -> list[OverrideChange]:
    """Tools that stay in an agent's reach, under other overrides. Each change once, by name."""
    found = {
        (shelf.specs[tool].name, overrides, after.overrides[tool])
        for before, after in pairs
        for tool, overrides in before.overrides.items()
        if after.overrides.get(tool, overrides) != overrides
    }
    changes = [OverrideChange(name, *map(overrides_in_words, values)) for name, *values in found]
    return sorted(changes, key=lambda each: (each.tool, each.before, each.after))


# -- Members and sessions ---------------------------------------------------------------------------------------------


def _impact(before: Setup, after: Setup, actor: Membership, added: Shelf) -> OfferImpact:
    """Sixteen queries, whatever there is."""
    of_clients = _of_clients(before, after)
    if before.content == after.content and not (added.specs and after.has_every_tool):
        return OfferImpact(is_felt=False, of_clients=of_clients)
    talks = _talks_with({*before.agents, *after.agents})
    members = Membership.objects.filter(pk__in={each.member for each in talks.values()})
    people, everybody = members_in(members), read_permissions(members)
    looked_at = ChatSession.objects.filter(pk__in=list(talks)[:SESSIONS_LOOKED_AT])
    loads = loads_in(looked_at)
    loaded = {key for rows in loads.values() for load, _ in rows for key in load.bundle.category_ids}
    shelf = read_shelf(
        before.tools | after.tools,
        before.categories | after.categories | loaded,
        every=before.has_every_tool or after.has_every_tool,
        with_definitions=before.counts_anew or after.counts_anew,
    )
    shelf = shelf.joined(added)
    bits = Bits(shelf.specs, shelf.specs)
    old, new = agents_of(before, shelf), agents_of(after, shelf)
    differences = _differences(talks.values(), old, new, usable_by(everybody, people, bits), bits)
    touched = {member for member, difference in differences.items() if any(difference)}
    sessions = dropped = 0
    for session in looked_at:
        permissions, rows = everybody.of_member(session.membership_id), loads.get(session.pk, ())
        agents = sorted(talks[session.pk].agents)
        was, will = (_selections(side, agents, session, permissions, rows) for side in (old, new))
        changes = [sent_by(each) for each in was] != [sent_by(each) for each in will]
        dropped += len(_fallen(will) - _fallen(was))
        sessions += changes
        if changes:
            touched.add(session.membership_id)
    permissions = permissions_of(actor)
    found = [_agent_change(old.get(key), new.get(key), bits, actor, permissions) for key in dict.fromkeys([*old, *new])]
    changed = [each for each in found if each.is_one]
    overrides = _override_changes(((old[key], new[key]) for key in old.keys() & new.keys()), shelf)
    return OfferImpact(
        True,
        tuple(changed[:AGENTS_SHOWN]),
        len(changed[AGENTS_SHOWN:]),
        grouped(differences, bits, people),
        len(people) - len(touched),
        sessions,
        dropped,
        tuple(overrides[:OVERRIDES_SHOWN]),
        len(overrides[OVERRIDES_SHOWN:]),
        max(0, len(talks) - SESSIONS_LOOKED_AT),
        of_clients,
    )


def _of_clients(before: Setup, after: Setup) -> tuple[str, ...]:
    """Return a sentence for each agent whose handling of clients' approvals changes. No query."""
    hides = {
        key: agent.client_approvals == ClientApprovals.HIDE
        for key, agent in after.agents.items()
        if key in before.agents and before.agents[key].client_approvals != agent.client_approvals
    }
    sentences = {
        True: "Clients of OpenAI’s API go without the tools of {} that ask a person: Explain lists them.",
        False: "Clients of OpenAI’s API get the tools of {} that ask a person, and are told where to answer.",
    }
    return tuple(sentences[is_hidden].format(after.agents[key]) for key, is_hidden in hides.items())


def _differences(
    talks: Iterable[LiveSession],
    old: Mapping[int, AgentTools],
    new: Mapping[int, AgentTools],
    usable: Mapping[int, int],
    bits: Bits[ToolSpec],
) -> dict[int, Difference]:
    """Return for each member the bits of the tools won and lost, of what the agents that they talk to have or could
    load."""
    was, will = ({key: bits.of(each.reaches) for key, each in side.items()} for side in (old, new))
    found: dict[int, Difference] = dict.fromkeys(usable, (0, 0))
    for each in talks:
        for key in each.agents:
            if each.member in found:
                could, can = was.get(key, 0), will.get(key, 0)
                won, lost = found[each.member]
                found[each.member] = (
                    won | can & ~could & usable[each.member],
                    lost | could & ~can & usable[each.member],
                )
    return found


def _selections(
    side: Mapping[int, AgentTools],
    agents: Iterable[int],
    session: ChatSession,
    permissions: MemberPermissions,
    rows: Collection[tuple[Load, bool]],
) -> list[Selection]:
    return [side[key].selection(session, permissions, rows) for key in agents if key in side]


def _fallen(selections: Iterable[Selection]) -> set[int]:
    """Keys of the loads that the next turn drops."""
    return {load.id for each in selections for load, _ in each.stale}


@dataclass(frozen=True)
class LiveSession:
    """Live session that talks with some of the agents concerned."""

    member: int
    agents: set[int]


def _talks_with(agents: Collection[int]) -> dict[Any, LiveSession]:
    """Live sessions, of members who may sign in, that begin with one of these agents or have talked to one; by key, the
    one used last first. Two queries."""
    talked = Exists(Turn.objects.filter(session=OuterRef("pk"), agent__in=agents))
    live = live_sessions().filter(membership__ended_at=None, membership__user__is_active=True)
    live = live.filter(Q(agent__in=agents) | Q(talked))
    rows = live.order_by("-active_at", "pk").values_list("pk", "membership_id", "agent_id")
    found = {key: LiveSession(member, {agent} & set(agents)) for key, member, agent in rows}
    turns = Turn.objects.filter(agent__in=agents, session__in=live.order_by().values("pk")).order_by()
    for key, agent in turns.values_list("session_id", "agent_id").distinct():
        if key in found:
            found[key].agents.add(agent)
    return found
