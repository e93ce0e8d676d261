"""Models of providers, their language models, and the agents on top that a turn talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Exists, OuterRef, Q

from capabilities.common.columns import between
from capabilities.common.secrets import EncryptedTextField
from capabilities.models.catalogue import Tool
from capabilities.models.permissions import Role
from capabilities.models.set_aside import PresentManager, SetAside
from toolhub.tenants.models import AdminRight, Membership, Right, slug_validator
from toolhub.tenants.rows.guarded import PublicModel, TenantModel, TenantQuerySet

if TYPE_CHECKING:
    from django.db.models.expressions import Combinable

    from capabilities.models.services import ConnectionTest


#: Bounds of what is typed in.
MAX_CONTEXT_WINDOW = 100_000_000
MAX_TOOL_LIMIT = 100_000
#: Model calls of one turn.
MAX_ROUNDS = 25
MAX_TEMPERATURE = 2.0


class Dialect(models.TextChoices):
    """Dialect in which a model is addressed."""

    CHAT = "chat", "Chat completions"
    RESPONSES = "responses", "Responses"


#: Values that may be set: a dialect, or the choice by what is known of the provider and the model.
AUTO = "auto"
DIALECT_SETTINGS = ((AUTO, "Automatic"), *Dialect.choices)


class CallKnobs(models.Model):
    """Settings that each call of a model carries beside its conversation. Empty: whatever stands behind counts."""

    reasoning_effort = models.CharField(
        max_length=20,
        blank=True,
        default="",
        help_text="For example low, medium, high; each model has its own.",
    )
    max_output_tokens = models.PositiveIntegerField(
        "most tokens of a reply",
        null=True,
        blank=True,
        validators=between(1, MAX_CONTEXT_WINDOW // 2),
        help_text="Tokens of one reply, what the model thinks included; half of the context window at most.",
    )
    temperature = models.FloatField(null=True, blank=True, validators=between(0, MAX_TEMPERATURE))
    parallel_tool_calls = models.BooleanField(
        null=True, blank=True, help_text="Whether one reply may hold several tool calls."
    )

    class Meta:
        abstract = True


class Provider(PublicModel):
    """An OpenAI-compatible address, and the key for it."""

    slug = models.CharField(max_length=63, validators=[slug_validator])
    name = models.CharField(max_length=100)
    #: Up to and with the version part: https://api.openai.com/v1. Empty: the offline model of this service.
    base_url = models.URLField(max_length=500, blank=True)
    api_key = EncryptedTextField(blank=True, default="")
    #: Tools that one request may carry: 128 at OpenAI.
    tool_limit = models.PositiveIntegerField(
        "most tools in one request", default=128, validators=between(0, MAX_TOOL_LIMIT)
    )
    dialect = models.CharField(
        "API that its models are called with",
        max_length=12,
        choices=DIALECT_SETTINGS,
        default=AUTO,
        help_text="The API that its models are called with; `auto`: as is known of the vendor, and learned.",
    )
    keeps_routed_tools = models.BooleanField(
        "keep the tools of earlier messages in a session, so that the provider’s prompt cache holds",
        default=False,
        help_text="Whether the tools that one message of a session needed stay for its later ones, so that the "
        "provider's prompt cache holds.",
    )
    takes_added_tools = models.BooleanField(
        "takes tools that are added in the middle of a conversation (additional_tools of Responses)",
        default=False,
        help_text="Whether it takes tools in the middle of a conversation (`additional_tools` of Responses), which the "
        "loading mode `native` of agents asks for. OpenAI's own address does, whatever is said here.",
    )
    takes_tool_search = models.BooleanField(
        "searches tools itself (tool_search of Responses)",
        default=False,
        help_text="Whether it searches tools itself (`tool_search` of Responses), which the loading mode "
        "`native_search` of agents asks for. OpenAI's own address does with gpt-5.4 and later, whatever is said here.",
    )
    is_enabled = models.BooleanField("switched on", default=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "slug"], name="provider_slug_once"),)

    def __str__(self) -> str:
        return self.name


class LanguageModel(CallKnobs, PublicModel):
    """One model of a provider, under the name that goes over the wire."""

    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="models", editable=False)
    name = models.CharField(max_length=200)
    #: Tokens.
    context_window = models.PositiveIntegerField(default=128_000, validators=between(1_000, MAX_CONTEXT_WINDOW))
    #: The model's own number, where it differs from its provider's.
    tool_limit = models.PositiveIntegerField(
        "most tools in one request", null=True, blank=True, validators=between(0, MAX_TOOL_LIMIT)
    )
    #: Model calls a turn may take; it beats an agent's own number, the setting TOOLHUB_MAX_ROUNDS stands behind both.
    max_rounds = models.PositiveIntegerField("most rounds", null=True, blank=True, validators=between(1, MAX_ROUNDS))
    dialect = models.CharField(
        "API that it is called with",
        max_length=12,
        choices=DIALECT_SETTINGS,
        blank=True,
        default="",
        help_text="Empty: the setting of its provider.",
    )
    takes_images = models.BooleanField(
        null=True,
        blank=True,
        help_text="Whether messages to it may hold images; null: as is known of the model by its name.",
    )
    #: Lessons of the provider's refusals, see `capabilities/language_models/providers/lessons.py`.
    learned = models.JSONField(default=list, blank=True, editable=False)
    #: The provider's count of an input's tokens for each token that we count, and the calls that it was learned from.
    token_factor = models.FloatField(default=1.0, editable=False)
    token_samples = models.PositiveIntegerField(default=0, editable=False)
    #: Whether a `ToolRefusal` says that its provider refused a tool: others cost no query.
    refuses_tools = models.BooleanField(default=False, editable=False)
    #: When the provider's list of models was first read without it; None while it is listed, or the list was not read.
    missing_since = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["provider", "name"], name="model_name_once"),)
        indexes = (models.Index(fields=["organisation", "id"], name="models_of_organisation"),)

    def __str__(self) -> str:
        return f"{self.provider.name}: {self.name}"

    @property
    def connection_test(self) -> ConnectionTest | None:
        """Result of the last test, from rows that were fetched with the model; None before one and after a change."""
        return next(iter(self.connection_tests.all()), None)


class LoadingMode(models.TextChoices):
    """Loading mode: the time from which a load or unload shows in the tools that are sent."""

    #: With the session's next turn; the tools of a turn stay as they are.
    NEXT_REQUEST = "next_request", "With the next message"
    #: With the next model call of the same turn, never within the batch of calls that loaded it.
    SAME_RUN = "same_run", "In the same turn"
    #: As SAME_RUN, added to the conversation where the provider takes that: what was sent before stays as it is.
    NATIVE = "native", "In the same turn, added to the conversation"
    #: As NATIVE, and the provider itself searches what can be loaded, where it does that: the model loads nothing.
    NATIVE_SEARCH = "native_search", "Found by the provider’s own search"
    #: Never: what can be loaded is searched with `search_tools` and called with `call_tool`.
    CONSTANT = "constant", "Never: search and call"

    @property
    def is_in_turn(self) -> bool:
        """True where it shows with the next model call of the same turn."""
        return self in (LoadingMode.SAME_RUN, LoadingMode.NATIVE, LoadingMode.NATIVE_SEARCH)

    @property
    def is_native(self) -> bool:
        """True where loaded tools are added to the conversation, where the provider takes that."""
        return self in (LoadingMode.NATIVE, LoadingMode.NATIVE_SEARCH)


class RoutingMode(models.TextChoices):
    """Way in which an agent's tools are narrowed down to those that a message needs."""

    OFF = "off", "Off: every tool goes along"
    #: The tools of the categories whose keywords stand in the message.
    KEYWORDS = "keywords", "Keywords of categories"
    #: Keywords, and the words of names and descriptions, into a token budget.
    HYBRID = "hybrid", "Keywords and ranking"


class ToolsMode(models.TextChoices):
    """Choice of the tools that are an agent's own."""

    LISTED = "listed", "Those of its list"
    #: Each tool of the catalogue, those that come later too; its list says their order, and which are deferred.
    ALL = "all", "Every tool of the catalogue"


#: Tokens of definitions that routing may fill.
MIN_ROUTING_TOKENS = 100
MAX_ROUTING_TOKENS = 100_000


class AgentScope(models.TextChoices):
    """Owner of the credentials that an agent's tools may act with."""

    ORGANISATION = "organisation", "The organisation’s"
    #: No tool that acts with a credential that the whole organisation shares.
    MEMBER = "member", "Only the member’s own"


class ClientApprovals(models.TextChoices):
    """Treatment of calls that a person must answer, in turns of a client of `/v1`."""

    #: The turn waits, and its client gets a sentence with the address where somebody answers.
    ASK = "ask", "Say where to answer"
    #: Nobody is asked: tools of which every call asks are left out, and a call that asks is refused.
    HIDE = "hide", "Leave these tools out"


class Offer(models.TextChoices):
    """Members that an agent is offered to. Nobody else sees it, talks to it or has another agent call it."""

    EVERYBODY = "everybody", "Everybody"
    #: The members of the roles that its rooms name; without a room: nobody.
    ROLES = "roles", "Members of roles"


class AgentManager(PresentManager["Agent"]):
    def offered_to(self, member: Membership | Combinable | int) -> TenantQuerySet[Agent]:
        """Agents that the member may talk to, if they are switched on."""
        return self.get_queryset().filter(offered_to(member))

    def seen_by(self, member: Membership, *rights: Right) -> TenantQuerySet[Agent]:
        """Agents that are offered to the member; all of them for whoever administers agents, or holds one of these
        rights, whose pages name agents. No query of its own."""
        if member.ended_at is None and member.holds_by_access(Right.AGENTS):
            return self.get_queryset()
        delegated = AdminRight.objects.filter(membership=member, right__in=(Right.AGENTS, *rights))
        return self.get_queryset().filter(offered_to(member) | Q(Exists(delegated)))

    def for_display(self) -> TenantQuerySet[Agent]:
        """By name, with model and provider at hand; keys stay where they are."""
        agents = self.get_queryset().select_related("model__provider").defer("model__provider__api_key")
        return agents.order_by("name", "pk")


class Agent(SetAside, CallKnobs, PublicModel):
    """Agent that a turn talks to: a prompt, a model, the tools it starts with, and the toolkits it may load."""

    slug = models.CharField(max_length=63, validators=[slug_validator])
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    role = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="One line on what it does, for people and for other agents.",
    )
    offered_to = models.CharField(
        max_length=16,
        choices=Offer,
        default=Offer.EVERYBODY,
        help_text="`roles`: the members of the roles that `rooms` names, and nobody without one. Others do not see it.",
    )
    #: The roles whose members it is offered to, where it is offered to roles.
    rooms = models.ManyToManyField(Role, through="capabilities.AgentRoom", related_name="+")
    prompt = models.TextField(blank=True)
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="agents")
    #: Takes over where `model` is overloaded, out of credit or gone.
    fallback_model = models.ForeignKey(
        LanguageModel, on_delete=models.PROTECT, related_name="fallback_agents", null=True, blank=True
    )
    starts_with_core = models.BooleanField("starts with the tools of the core categories", default=True)
    tools = models.ManyToManyField(Tool, through="capabilities.AgentTool", related_name="agents")
    tools_mode = models.CharField(
        "tools of its own",
        max_length=8,
        choices=ToolsMode,
        default=ToolsMode.LISTED,
        help_text="`all`: every tool of the catalogue is its own, those that come later too; `tools` are then sent "
        "first, in their order.",
    )
    loading_mode = models.CharField(
        "when a load takes effect",
        max_length=16,
        choices=LoadingMode,
        default=LoadingMode.NEXT_REQUEST,
        help_text="When a load shows in what is sent. `native`: as `same_run`, added to the conversation where the "
        "provider takes that, so that its prompt cache holds. `native_search`: the same, and the provider itself "
        "searches what could be loaded, where it does that.",
    )
    scope = models.CharField(
        "credentials",
        max_length=16,
        choices=AgentScope,
        default=AgentScope.ORGANISATION,
        help_text="`member`: no tool that acts with a credential that the organisation shares.",
    )
    routing_mode = models.CharField(
        "tools that are sent with a message",
        max_length=16,
        choices=RoutingMode,
        default=RoutingMode.OFF,
        help_text="Which tools a message is sent with: all; those of the categories whose keywords stand in it; or "
        "those that rank best for its words too. Where sent tools never change (`constant`), all.",
    )
    routing_tokens = models.PositiveIntegerField(
        "tokens of tools for a message",
        null=True,
        blank=True,
        validators=between(MIN_ROUTING_TOKENS, MAX_ROUTING_TOKENS),
        help_text="Tokens of definitions that ranking fills; null: 1,000, or 2,500 above 300 tools.",
    )
    client_approvals = models.CharField(
        "tools that ask a person, for clients of OpenAI’s API",
        max_length=8,
        choices=ClientApprovals,
        default=ClientApprovals.ASK,
        help_text="Where a call of a turn through `/v1` must be answered by a person. `ask`: the turn waits, and its "
        "client gets a sentence with the address. `hide`: tools of which every call asks are left out, and a call that "
        "asks is refused.",
    )
    max_rounds = models.PositiveIntegerField("most rounds", null=True, blank=True, validators=between(1, MAX_ROUNDS))
    #: Tokens that 95 of 100 of its latest replies took at most; empty until enough of them are known.
    output_p95 = models.PositiveIntegerField(null=True, blank=True, editable=False)
    is_enabled = models.BooleanField("switched on", default=True)

    #: Whether it was switched on when it was set aside.
    was_enabled = models.BooleanField(default=False, editable=False)

    objects = AgentManager()  # type: ignore[misc]

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (models.UniqueConstraint(fields=["organisation", "slug"], name="agent_slug_once"),)

    def __str__(self) -> str:
        return self.name

    @property
    def has_every_tool(self) -> bool:
        """True where each tool of the catalogue is the agent's own."""
        return self.tools_mode == ToolsMode.ALL


class AgentTool(SetAside):
    """A tool of an agent's own, whatever its category."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="agent_tools")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="agent_tools")
    #: Its place among the agent's own; those with the same one stand by category and name.
    position = models.PositiveIntegerField(default=0)
    #: Not sent before it is loaded by its name.
    is_deferred = models.BooleanField(default=False)
    #: Sent whatever the message: routing does not look at it.
    is_pinned = models.BooleanField(default=False)

    class Meta(TenantModel.Meta):
        base_manager_name = "every"
        constraints = (models.UniqueConstraint(fields=["agent", "tool"], name="agent_tool_once"),)

    def __str__(self) -> str:
        return f"{self.agent}: {self.tool}"


class AgentRoom(TenantModel):
    """The agent is offered to the members of a role."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="agent_rooms")
    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="agent_rooms")

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["agent", "role"], name="agent_room_once"),)

    def __str__(self) -> str:
        return f"{self.agent}: {self.role}"


def offered_to(member: Membership | Combinable | int, agent: str = "") -> Q:
    """Rows whose agent is offered to the member: the one rule, for every door and for turns that are open.

    `agent` is the field that holds the agent; "" where the rows are agents. `member` may be a key, or an expression:
    the column of an outer row, or the parameter of a statement.
    """
    rooms = AgentRoom.objects.filter(agent=OuterRef(agent or "pk"), role__role_memberships__membership=member)
    to_everybody = {f"{agent}__offered_to" if agent else "offered_to": Offer.EVERYBODY}
    return Q(**to_everybody) | Q(Exists(rooms))


def is_offered(agent: Agent, member: Membership) -> bool:
    """Return whether the member may talk to the agent, if it is switched on. One query, none for one that is for
    everybody."""
    return agent.offered_to == Offer.EVERYBODY or Agent.objects.offered_to(member).filter(pk=agent.pk).exists()
