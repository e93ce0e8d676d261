"""Tokens and money that each round of an agent takes before anything is said: definitions and prompt.

The tools are those of the selection that the turn runs, for an agent as it is stored and for one that is being edited.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from django.utils import timezone

from capabilities.agents.agents.drafts import AgentDraft
from capabilities.choosing.pipeline.candidates import Bundle, Offer
from capabilities.choosing.pipeline.permissions import permissions_at_version
from capabilities.choosing.pipeline.policies import Policies, policies_for
from capabilities.choosing.pipeline.routing import is_routed
from capabilities.common.memory import Memory
from capabilities.common.tokens import count_each
from capabilities.contract.envelope import Overrides, overrides_of
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.prices import PricedUse, cost_of
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent, Tool, Toolkit, ToolkitTool
from sessions.selection.bulk import AgentTools, Setup, Shelf, read_shelf
from sessions.selection.examples import examples_for
from sessions.selection.queries import Selection, searches_for, system_text
from toolhub.tenants.models import Membership

#: Key of the one agent in the setup of a draft, which may have none yet.
DRAFT = 0


@dataclass(frozen=True)
class RoundCost:
    """Tokens of one round, and what they cost as input; the message and the answer come on top."""

    tools: int
    tool_tokens: int
    prompt_tokens: int
    #: Tokens of the instructions that tools bring along, behind the prompt.
    instruction_tokens: int
    #: Most tools that one request takes, and how many more there are.
    tool_limit: int
    over_limit: int
    #: Billionths of a dollar: as new input, and read from the provider's cache. None without a price.
    nano: int | None
    cached_nano: int | None
    #: Where messages decide: the one that this is for, and the tools and tokens if it needed them all.
    message: str = ""
    all_tools: int = 0
    all_tool_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.tool_tokens + self.prompt_tokens + self.instruction_tokens

    @property
    def is_cheaper_cached(self) -> bool:
        return self.cached_nano is not None and self.nano is not None and self.cached_nano < self.nano


def cost_of_round(agent: Agent, selection: Selection, message: str = "", *, at: int | None = None) -> RoundCost:
    """Return the cost of a round of the agent with these tools; `message` is the one that they were selected for.

    One query, none where the prices were read before `at` this registry version. `agent` has model and provider.
    """
    model = resolve_model(agent.model, agent)
    texts = (agent.prompt, system_text(agent.prompt, selection.instructions))
    prompt_tokens, system_tokens = count_each(texts, selection.encoding)
    tokens, now = selection.tokens + system_tokens, timezone.now()
    cost = cost_of(model, PricedUse(tokens), now, at)
    cached = cost_of(model, PricedUse(tokens, cached=tokens), now, at) if cost is not None else None
    return RoundCost(
        len(selection.tools),
        selection.tokens,
        prompt_tokens,
        system_tokens - prompt_tokens,
        model.tool_limit,
        len(selection.over_limit),
        cost.nano if cost is not None else None,
        cached.nano if cached is not None else None,
        message,
        len(selection.all_tools),
        selection.all_tokens,
    )


def cost_of_draft(draft: AgentDraft, member: Membership) -> RoundCost:
    """Return the cost of a round of the agent as its form has it, in a member's new session. At most eight queries, and
    four where this registry version of the organisation was read before: names that are no tool or toolkit count as
    nothing."""
    permissions, at = permissions_at_version(member)
    setup = drafted_setup(draft, policies_for(permissions, at))
    tools = AgentTools(setup, DRAFT, _shelf_of(setup, draft, at), _offers_of(setup, draft, at))
    message = example_for(tools.starts_with_for(permissions)) if is_routed(draft.agent) else ""
    selection = tools.starting_selection(member, permissions, message, at=at)
    return cost_of_round(draft.agent, selection, message, at=at)


def example_for(tools: Iterable[ToolSpec]) -> str:
    """Return a message that suits these tools."""
    return next(iter(examples_for(tool.name for tool in tools)), "Hello")


def drafted_setup(draft: AgentDraft, policies: Policies) -> Setup:
    """Return the draft as previews read agents, with the tools of those toolkits alone that its rounds may carry. Three
    queries."""
    keys = dict(Tool.objects.filter(name__in=draft.own).values_list("name", "pk"))
    lines = [(keys[name], line) for name, line in draft.own.items() if name in keys]
    own = {key: (place, line.is_deferred) for place, (key, line) in enumerate(lines, 1)}
    pinned = frozenset(key for key, line in lines if line.is_pinned)
    deferred = tuple(Bundle(name, tool_id=keys[name]) for name in draft.deferred if name in keys)
    allowed = _bundles_of(draft)
    kits: dict[int, dict[int, tuple[int, Overrides]]] = {kit: {} for kit in allowed}
    carried = [each.toolkit_id for each in _carried(draft, allowed)]
    listed = ToolkitTool.objects.filter(toolkit__in=carried).order_by("position", "tool__name")
    for kit, tool, *overrides in listed.values_list("toolkit_id", "tool_id", "timeout", "max_result_chars", "knobs"):
        kits[kit][tool] = (len(kits[kit]) + 1, overrides_of(*overrides))
    one = {DRAFT: draft.agent}, {DRAFT: own}, {DRAFT: deferred}, {DRAFT: allowed}
    return Setup(*one, kits, policies, {DRAFT: pinned})


def _carried(draft: AgentDraft, allowed: Mapping[int, Bundle]) -> list[Bundle]:
    """The toolkits whose tools a round may carry: the initial ones, and where the provider searches, all."""
    return [each for each in allowed.values() if each.is_initial or searches_for(draft.agent)]


def _bundles_of(draft: AgentDraft) -> dict[int, Bundle]:
    """The draft's toolkits by their key, in its order. One query."""
    rows = Toolkit.objects.filter(name__in=draft.toolkits)
    found: dict[str, tuple[int, str, set[int]]] = {}
    for key, name, text, category in rows.values_list("pk", "name", "description", "toolkit_categories__category_id"):
        categories = found.setdefault(name, (key, text, set()))[2]
        if category is not None:
            categories.add(category)
    return {
        found[name][0]: Bundle(name, found[name][0], frozenset(found[name][2]), None, is_initial, found[name][1])
        for name, is_initial in draft.toolkits.items()
        if name in found
    }


#: Few: what reaches ten thousand tools takes 20 MB.
_shelves: Memory[Shelf] = Memory(3)
_offers: Memory[dict[Hashable, Offer]] = Memory(3)


def _shelf_of(setup: Setup, draft: AgentDraft, at: int | None) -> Shelf:
    """Return the tools of the setup with their definitions. One query; none where they were read before `at` this
    registry version."""
    tools, every = frozenset(setup.tools), setup.has_every_tool
    categories = frozenset(key for each in _carried(draft, setup.allowed[DRAFT]) for key in each.category_ids)

    def read() -> Shelf:
        return read_shelf(tools, categories, every=every, with_definitions=True)

    key = (draft.agent.organisation_id, at, every, *(() if every else (tools, categories)))
    return read() if at is None else _shelves.get(key, read)


def _offers_of(setup: Setup, draft: AgentDraft, at: int | None) -> dict[Hashable, Offer]:
    """Return the offers that were built from the same lists at this registry version: the prompt and the model change
    none."""
    if at is None:
        return {}
    agent, own, allowed = draft.agent, tuple(setup.own[DRAFT].items()), tuple(setup.allowed[DRAFT].values())
    modes = (agent.starts_with_core, agent.tools_mode, agent.loading_mode)
    return _offers.get((agent.organisation_id, at, modes, own, setup.pinned[DRAFT], allowed), dict)
