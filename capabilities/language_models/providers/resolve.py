"""Resolved model of an agent's calls, with its provider and its limits: one value for a whole turn.

A turn resolves it once, when a worker takes it, and reads nothing of the rows behind it any more: what somebody changes
meanwhile counts from the next turn on. Pages and previews resolve the same value, so they show what a turn would do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.conf import settings

from capabilities.common.tokens import Tokenizer, tokenizer_of
from capabilities.contract.rendering import Rules, rules_named
from capabilities.language_models.providers.dialects import ChosenDialect, chosen_dialect
from capabilities.language_models.providers.knobs import KNOBS, most_output
from capabilities.language_models.providers.lessons import (
    Lesson,
    history_rules,
    learned_dialect,
    learned_rules,
    lessons_of,
    refuses_added_tools,
    refuses_tool_search,
    with_lesson,
)
from capabilities.language_models.providers.seeing import is_known_to_see
from capabilities.language_models.providers.vendors import Vendor, vendor_of
from capabilities.models import Agent, Dialect, LanguageModel, Provider

#: Share of the window that is left for the answer, and of that the part that an answer may take where nobody set it:
#: the rest is for what our count of the messages may be short of the provider's.
ANSWER_SHARE = 0.125
ANSWER_FILL = 0.75
#: Suffix of a model's name that makes it no other model: a date, a stage.
_STAGE = re.compile(r"(?:[-@:](?:\d{4}-\d{2}-\d{2}|\d{6,8}|latest|preview|exp))+\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ResolvedProvider:
    """Provider of a model: the address of its calls, and the key."""

    public_id: UUID
    slug: str
    name: str
    #: Empty for the offline model of this service.
    base_url: str
    is_enabled: bool
    #: As it is set: a dialect, or AUTO.
    dialect_setting: str
    #: None where the row was read without it, as pages do: such a value shows a model, and cannot call it.
    api_key: str | None = field(default=None, repr=False)
    #: Whether what routing sent stays in place for a session's later messages.
    keeps_routed_tools: bool = False
    #: Whether a person says that it takes tools in the middle of a conversation.
    takes_added_tools: bool = False
    #: Whether a person says that it searches tools itself.
    takes_tool_search: bool = False


@dataclass(frozen=True)
class Refused:
    """Refusal of a tool: the version and form that a model was sent, and its provider's words; no hash: in any form."""

    version_id: int
    sha256: str
    words: str


@dataclass(frozen=True)
class ResolvedModel:
    """A model with all that a call of it depends on: the model's own word first, then the agent's, then the provider's
    or the setting's."""

    provider: ResolvedProvider
    #: As it goes over the wire.
    name: str
    #: Tokens that a request and its answer may take together.
    context_window: int
    #: Tools that one request may carry.
    tool_limit: int
    #: Model calls that one turn may take.
    max_rounds: int
    #: The row, for what is learned of it.
    public_id: UUID
    #: Setting of the agent where it has one, else of the model; "" and None where neither has.
    reasoning_effort: str = ""
    temperature: float | None = None
    parallel_tool_calls: bool | None = None
    #: Tokens of one reply.
    max_output_tokens: int = 0
    #: As it is set: a dialect, AUTO, or "" for the provider's setting.
    dialect_setting: str = ""
    lessons: tuple[Lesson, ...] = ()
    #: The provider's count of an input for each token that we count, and how many calls that was learned from.
    token_factor: float = 1.0
    token_samples: int = 0
    #: Whether its provider refused tools, which are on record: `refused_tools.refusals_of`.
    refuses_tools: bool = False
    #: Those that it refused in this turn, by the key of the tool: they are not sent in it again, in whatever form.
    refused_now: Mapping[int, Refused] = field(default_factory=dict)
    #: Whether messages may hold images: as a person says, None where it goes by the model's name.
    images_setting: bool | None = None
    #: Names of the settings that a person chose: their refusal is shown, and never answered with another choice.
    chosen: frozenset[str] = frozenset()
    #: The names of what the client of a turn chose for its calls alone.
    by_client: frozenset[str] = frozenset()

    @cached_property
    def vendor(self) -> Vendor:
        return vendor_of(self.provider.base_url)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer that its tokens are counted with."""
        return tokenizer_of(self.name)

    @property
    def takes_images(self) -> bool:
        """True where its messages may hold images. The offline model of this service reads text alone."""
        if self.is_offline:
            return False
        return is_known_to_see(self.name) if self.images_setting is None else self.images_setting

    @cached_property
    def schema_rules(self) -> Rules:
        """Rules that render definitions of tools: those that a refusal taught, else the vendor's known ones."""
        return rules_named(learned_rules(self.lessons) or self.vendor.schema_rules)

    @cached_property
    def history_rules(self) -> dict[str, int]:
        """Rules by which it reads a conversation: the vendor's known ones, and those that refusals taught."""
        known = dict(self.vendor.history_rules)
        if "call_ids" not in known and self.vendor.key in ("openai", "azure") and self.dialect is Dialect.CHAT:
            known["call_ids"] = 40  # 64 in Responses, which no id of ours passes
        return {**known, **history_rules(self.lessons)}

    @cached_property
    def chosen_dialect(self) -> ChosenDialect:
        """Dialect of its requests, and why."""
        return chosen_dialect(
            self.name,
            self.provider.base_url,
            on_model=self.dialect_setting,
            on_provider=self.provider.dialect_setting,
            learned=learned_dialect(self.lessons),
        )

    @property
    def dialect(self) -> Dialect:
        return self.chosen_dialect.dialect

    @property
    def why_no_added_tools(self) -> str:
        """Why tools cannot be added to its conversation: it is spoken to in another `dialect`, the `provider` is not
        known to take them, or it `refused` them. Empty where they can."""
        if self.dialect is not Dialect.RESPONSES:
            return "dialect"
        if not (self.provider.takes_added_tools or self.vendor.takes_added_tools):
            return "provider"
        return "refused" if refuses_added_tools(self.lessons) else ""

    @property
    def why_no_tool_search(self) -> str:
        """Why its provider does not search tools for it: it is spoken to in another `dialect`, the `provider` or the
        `model` is not known to do that, or it `refused` to. Empty where it does."""
        if self.dialect is not Dialect.RESPONSES:
            return "dialect"
        if not self.provider.takes_tool_search and not self.vendor.searches_tools(self.name):
            return "model" if self.vendor.searching_models else "provider"
        return "refused" if refuses_tool_search(self.lessons) else ""

    @property
    def is_offline(self) -> bool:
        """True for the offline model of this service."""
        return not self.provider.base_url

    @cached_property
    def answer_reserve(self) -> int:
        """Tokens of the window that a request leaves for its answer: no more than half."""
        return min(
            max(int(self.context_window * ANSWER_SHARE), self.max_output_tokens), most_output(self.context_window)
        )

    @cached_property
    def origin(self) -> str:
        """Identity of the model that a reply comes from: its provider's row, a hash of the address there, and its name.
        At one gateway, the path says whose models answer."""
        address = sha256(self.provider.base_url.encode()).hexdigest()[:16]
        return f"{self.provider.public_id} {address} {self.name}"

    def takes_extras_of(self, origin: str) -> bool:
        """Return whether unread parts of a reply from there go back to this model: the same provider, and the same
        family."""
        return bool(origin) and model_family(origin) == model_family(self.origin)

    def with_lesson(self, lesson: Lesson) -> ResolvedModel:
        return replace(self, lessons=with_lesson(self.lessons, lesson))


def resolve_model(model: LanguageModel, agent: Agent | None = None) -> ResolvedModel:
    """The model as this agent calls it; without one, as it is by itself. No query where the provider is at hand.

    The agent's settings of calls are meant for its own model: another one that takes over goes by itself.
    """
    provider, of_agent = model.provider, agent.max_rounds if agent else None
    own = agent if agent is not None and agent.model_id == model.pk else None
    knobs = {name: _knob(name, own, model) for name in KNOBS}
    return ResolvedModel(
        provider=resolve_provider(provider),
        name=model.name,
        context_window=model.context_window,
        tool_limit=provider.tool_limit if model.tool_limit is None else model.tool_limit,
        max_rounds=model.max_rounds or of_agent or int(settings.TOOLHUB_MAX_ROUNDS),
        public_id=model.public_id,
        reasoning_effort=knobs["reasoning_effort"] or "",
        temperature=knobs["temperature"],
        parallel_tool_calls=knobs["parallel_tool_calls"],
        max_output_tokens=min(
            # The window may have become smaller since an agent's number was set.
            knobs["max_output_tokens"] or default_output(model.context_window),
            most_output(model.context_window),
        ),
        dialect_setting=model.dialect,
        lessons=lessons_of(model.learned),
        token_factor=model.token_factor,
        token_samples=model.token_samples,
        refuses_tools=model.refuses_tools,
        images_setting=model.takes_images,
        chosen=frozenset(name for name, value in knobs.items() if value not in (None, "")) | _chosen_dialect(model),
    )


def default_output(context_window: int) -> int:
    """Tokens of one reply where nobody set a number."""
    return int(context_window * ANSWER_SHARE * ANSWER_FILL)


def _knob(name: str, agent: Agent | None, model: LanguageModel) -> Any:
    """The agent's, else the model's."""
    of_agent = getattr(agent, name) if agent else None
    return getattr(model, name) if of_agent in (None, "") else of_agent


def _chosen_dialect(model: LanguageModel) -> frozenset[str]:
    is_chosen = (model.dialect or model.provider.dialect) in Dialect.values
    return frozenset({"dialect"}) if is_chosen else frozenset()


def provider_of(origin: str) -> UUID | None:
    """The public id of the provider in a model's origin; None where it is none."""
    try:
        return UUID(origin.partition(" ")[0])
    except ValueError:
        return None


def model_family(name: str) -> str:
    """A model's name, or its origin, without what does not make it another one: a date or a stage behind it."""
    return _STAGE.sub("", name)


def resolve_provider(provider: Provider) -> ResolvedProvider:
    """No query: a key that was not read is left out."""
    has_key = "api_key" not in provider.get_deferred_fields()
    return ResolvedProvider(
        public_id=provider.public_id,
        slug=provider.slug,
        name=provider.name,
        base_url=provider.base_url,
        is_enabled=provider.is_enabled,
        dialect_setting=provider.dialect,
        api_key=provider.api_key if has_key else None,
        keeps_routed_tools=provider.keeps_routed_tools,
        takes_added_tools=provider.takes_added_tools,
        takes_tool_search=provider.takes_tool_search,
    )
