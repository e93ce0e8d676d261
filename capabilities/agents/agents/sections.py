"""The sections of an agent, on its page and on its form: a line on the state of each, and when tools are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.humanize.templatetags.humanize import intcomma

from capabilities.agents.agents.drafts import AgentDraft
from capabilities.choosing.pipeline.stages import adds_tools, searches_tools
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import Agent, AgentScope, ClientApprovals, LoadingMode, Offer, RoutingMode

TITLES = {
    "name": "Name",
    "model": "Model",
    "prompt": "Prompt",
    "tools": "Tools",
    "sending": "What is sent when",
    "rights": "Rights",
}
#: Characters of a prompt, and names of roles, in a line.
PROMPT_BEGINS, ROLES_NAMED = 60, 3


@dataclass(frozen=True)
class Section:
    """A part of an agent's page; its key is the anchor."""

    key: str
    summary: str

    @property
    def title(self) -> str:
        return TITLES[self.key]


@dataclass(frozen=True)
class Column:
    """A moment or step of a picture, with its boxes: words, and `sent`, `new` or `off`."""

    title: str
    boxes: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Picture:
    """When tools are sent: a sentence, and columns that stand beside each other."""

    title: str
    sentence: str
    columns: Sequence[Column]

    @property
    def words(self) -> str:
        """The columns for who does not see them."""
        return " ".join(f"{each.title}: {', '.join(words for words, _ in each.boxes)}." for each in self.columns)


def sections_of(draft: AgentDraft, prompt_tokens: int | None) -> list[Section]:
    """Return the sections in their order. Without `prompt_tokens`, nothing is said of the prompt. No query where the
    model, the second one and their providers are at hand."""
    agent = draft.agent
    model = resolve_model(agent.model, agent)
    found = [
        Section("name", f"{agent.name or 'No name yet'}, {'on' if agent.is_enabled else 'switched off'}."),
        Section("model", _of_model(agent, model)),
        Section("prompt", _of_prompt(agent.prompt, prompt_tokens or 0)),
        Section("tools", _of_tools(draft)),
        Section("sending", f"{_LOADING[_loading_key(draft, model)][0]}; {_ROUTING[routing_of(agent)][0]}."),
        Section("rights", _of_rights(draft)),
    ]
    return [each for each in found if each.key != "prompt" or prompt_tokens is not None]


def _of_model(agent: Agent, model: ResolvedModel) -> str:
    second = f", then {agent.fallback_model.name}" if agent.fallback_model else ""
    answer, rounds = intcomma(model.max_output_tokens), intcomma(model.max_rounds)
    return (
        f"{model.name} of {model.provider.name}{second}; replies of at most {answer} tokens, {rounds} rounds at most."
    )


def _of_prompt(prompt: str, tokens: int) -> str:
    if not prompt.strip():
        return "None: the model gets no instructions of yours."
    begins = " ".join(prompt[: 4 * PROMPT_BEGINS].split())
    if len(begins) > PROMPT_BEGINS:
        begins = f"{begins[:PROMPT_BEGINS].rstrip()}…"
    return f"{_number(tokens, 'token')}: “{begins}”"


def _of_tools(draft: AgentDraft) -> str:
    agent, marks = draft.agent, []
    for word, names in (("deferred", draft.deferred), ("pinned", draft.pinned)):
        marks += [f"{len(names):,} {word}"] if names else []
    own = "Every tool of the catalogue" if agent.has_every_tool else _number(len(draft.own), "tool") + " of its own"
    if marks:
        own += f" ({', '.join(marks)})"
    core = "starts with the core" if agent.starts_with_core else "without the core"
    kits = "no toolkits"
    if draft.toolkits:
        kits = f"{_number(len(draft.toolkits), 'toolkit')}, {len(draft.initial):,} initial"
    return f"{own}; {core}; {kits}."


def _of_rights(draft: AgentDraft) -> str:
    agent, offered = draft.agent, "everybody"
    if agent.offered_to == Offer.ROLES:
        offered = ", ".join(draft.rooms[:ROLES_NAMED]) or "nobody: name a role"
        offered += f" and {len(draft.rooms) - ROLES_NAMED:,} more" if len(draft.rooms) > ROLES_NAMED else ""
    keys = "only the member’s own credentials" if agent.scope == AgentScope.MEMBER else "shared credentials too"
    hides = agent.client_approvals == ClientApprovals.HIDE
    clients = "API clients go without tools that ask a person" if hides else "calls that ask wait for an answer"
    return f"Offered to {offered}; {keys}; {clients}."


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# -- What is sent when ------------------------------------------------------------------------------------------------

START, LOADED = ("first tools", "sent"), ("loaded tools", "new")
#: By the mode in force: a few words, a sentence, and the boxes of each of MOMENTS.
_LOADING: dict[str, tuple[str, str, Sequence[tuple[tuple[str, str], ...]]]] = {
    "nothing": (
        "Nothing to load",
        "The agent has no toolkits and no deferred tools, so there is nothing that its model could load.",
        ((), (), ()),
    ),
    LoadingMode.NEXT_REQUEST: (
        "Loads show with the next message",
        "What the model loads in a turn is sent from the next message on.",
        ((), (), (LOADED,)),
    ),
    LoadingMode.SAME_RUN: (
        "Loads show in the same turn",
        "What the model loads is sent with the next round of the same turn.",
        ((), (LOADED,), (LOADED,)),
    ),
    LoadingMode.NATIVE: (
        "Loads are added to the conversation",
        "What the model loads is added to the conversation, so that the prompt cache keeps what was sent before.",
        ((), (("+ loaded tools", "new"),), (("+ loaded tools", "new"),)),
    ),
    LoadingMode.NATIVE_SEARCH: (
        "The provider searches what can be loaded",
        "The provider searches what can be loaded, and adds what it finds to the conversation.",
        ((("search", "off"),), (("+ found tools", "new"),), (("+ found tools", "new"),)),
    ),
    LoadingMode.CONSTANT: (
        "The sent tools never change",
        "The sent tools never change: the model searches for others, and calls them by name.",
        ((("others by name", "off"),),) * 3,
    ),
}
MOMENTS = ("This round", "Next round", "Next message")
#: By the mode in force: a few words, a sentence, and the boxes of what decides and what is sent.
_ROUTING: dict[str, tuple[str, str, tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    RoutingMode.OFF: (
        "every message with every tool",
        "Every message is sent with every tool.",
        ("nothing is left out",),
        (("every tool", "sent"),),
    ),
    RoutingMode.KEYWORDS: (
        "a message brings tools by keywords",
        "A message is sent with the tools of the categories whose keywords stand in it.",
        ("keywords",),
        (("tools of its categories", "sent"), ("pinned, loaded", "new")),
    ),
    RoutingMode.HYBRID: (
        "a message brings the tools that it needs",
        "A message is sent with the tools that fit its words best.",
        ("keywords", "ranking"),
        (("best tools", "sent"), ("pinned, loaded", "new")),
    ),
    "never": (
        "every message with every tool",
        "Every message is sent with every tool: routing has no effect where the sent tools never change.",
        ("nothing is left out",),
        (("every tool", "sent"),),
    ),
}


def loading_of(agent: Agent, model: ResolvedModel) -> LoadingMode:
    """Return the loading mode that is in force with this model, which may not take what the agent asks for."""
    mode = LoadingMode(agent.loading_mode)
    if mode == LoadingMode.NATIVE_SEARCH and not searches_tools(agent, model):
        mode = LoadingMode.NATIVE
    if mode == LoadingMode.NATIVE and not adds_tools(agent, model):
        mode = LoadingMode.SAME_RUN
    return mode


def _loading_key(draft: AgentDraft, model: ResolvedModel) -> str:
    mode = loading_of(draft.agent, model)
    return mode if draft.loads or mode == LoadingMode.CONSTANT else "nothing"


def routing_of(agent: Agent) -> str:
    """Return the routing mode that is in force; `never` where the sent tools never change."""
    if agent.routing_mode != RoutingMode.OFF and agent.loading_mode == LoadingMode.CONSTANT:
        return "never"
    return str(agent.routing_mode)


def pictures_of(draft: AgentDraft) -> list[Picture]:
    """Return when loaded tools are sent, and what a message brings, as it is in force with the agent's model."""
    agent = draft.agent
    _, sentence, boxes = _LOADING[_loading_key(draft, resolve_model(agent.model, agent))]
    loading = [Column(title, (START, *more)) for title, more in zip(MOMENTS, boxes, strict=True)]
    _, brings, deciding, sent = _ROUTING[routing_of(agent)]
    if agent.routing_tokens and routing_of(agent) == RoutingMode.HYBRID:
        brings = f"{brings.rstrip('.')}, up to {agent.routing_tokens:,} tokens."
    routing = [
        Column("Message", (("its words", "off"),)),
        Column("What decides", [(words, "off") for words in deciding]),
        Column("Sent", sent),
    ]
    return [Picture("Loading", sentence, loading), Picture("Routing", brings, routing)]
