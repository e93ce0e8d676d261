"""REST: agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.agents.writes import (
    MAX_OWN_TOOLS,
    MAX_PROMPT,
    MAX_ROOMS,
    MAX_TOOLKITS,
    AgentContent,
    agent_content,
    create_agent,
    delete_agent,
    update_agent,
)
from capabilities.common.api import MADE_FROM_NAME, SlugField, checked_part, refusals
from capabilities.common.columns import column, columns_of
from capabilities.common.dry_run import with_dry_run
from capabilities.language_models.providers.api import CallsIn, CallsOut
from capabilities.language_models.providers.knobs import KNOBS
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    LanguageModel,
    Provider,
)
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import api_member, checked, paged, unknown
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

_FIRST = (
    *KNOBS,
    *("slug", "name", "description", "role", "offered_to", "rooms"),
    *("model", "provider", "fallback_model", "fallback_provider", "starts_with_core", "tools_mode"),
)
_LISTS = ("tools", "deferred_tools", "pinned_tools", "allowed_toolkits", "initial_toolkits")


class AgentOut(CallsOut):
    rooms = serializers.SerializerMethodField(help_text="Where it is offered to roles: their short names.")
    model = serializers.CharField(source="model.name")
    provider = serializers.CharField(source="model.provider.slug")
    fallback_model = serializers.SerializerMethodField(
        help_text="Goes on with a turn where the model is overloaded, out of credit or gone. Empty: none."
    )
    fallback_provider = serializers.SerializerMethodField()
    tools = serializers.SerializerMethodField(help_text="Its own, in their order, beside the core categories.")
    deferred_tools = serializers.SerializerMethodField(help_text="Of its own, those that are not sent unless loaded.")
    pinned_tools = serializers.SerializerMethodField(help_text="Of its own, those that routing never leaves out.")
    allowed_toolkits = serializers.SerializerMethodField(help_text="What its sessions may load, in their order.")
    initial_toolkits = serializers.SerializerMethodField(help_text="Of the allowed, those that are always loaded.")
    role = serializers.CharField(help_text=column(Agent, "role").help_text)
    loading_mode = serializers.CharField()
    scope = serializers.CharField()

    class Meta:
        model = Agent
        fields = tuple(name for name in columns_of(Agent, *_FIRST, *_LISTS) if name != "prompt")

    def get_fallback_model(self, agent: Agent) -> str:
        return agent.fallback_model.name if agent.fallback_model else ""

    def get_fallback_provider(self, agent: Agent) -> str:
        return agent.fallback_model.provider.slug if agent.fallback_model else ""

    def get_rooms(self, agent: Agent) -> list[str]:
        return sorted(role.slug for role in agent.rooms.all())

    def get_tools(self, agent: Agent) -> list[str]:
        return [line.tool.name for line in agent.agent_tools.all()]

    def get_deferred_tools(self, agent: Agent) -> list[str]:
        return [line.tool.name for line in agent.agent_tools.all() if line.is_deferred]

    def get_pinned_tools(self, agent: Agent) -> list[str]:
        return [line.tool.name for line in agent.agent_tools.all() if line.is_pinned]

    def get_allowed_toolkits(self, agent: Agent) -> list[str]:
        return [line.toolkit.name for line in agent.agent_toolkits.all()]

    def get_initial_toolkits(self, agent: Agent) -> list[str]:
        return [line.toolkit.name for line in agent.agent_toolkits.all() if line.is_initial]


class AgentDetailOut(AgentOut):
    prompt = serializers.SerializerMethodField(help_text="Null without the right `agents`.")

    class Meta(AgentOut.Meta):
        fields = (*AgentOut.Meta.fields, "prompt")

    def get_prompt(self, agent: Agent) -> str | None:
        return agent.prompt if self.context["sees_prompt"] else None


class AgentIn(CallsIn):
    slug = SlugField(default="", help_text=MADE_FROM_NAME)
    description = serializers.CharField(max_length=2_000, allow_blank=True, default="")
    rooms = serializers.ListField(
        child=serializers.CharField(max_length=63),
        max_length=MAX_ROOMS,
        default=list,
        help_text="Short names of roles, where it is offered to roles.",
    )
    prompt = serializers.CharField(max_length=MAX_PROMPT, allow_blank=True, trim_whitespace=False, default="")
    provider = serializers.CharField(max_length=63, help_text="Short name of the provider.")
    model = serializers.CharField(max_length=200, help_text="Name of one of its models.")
    fallback_provider = serializers.CharField(
        max_length=63, allow_blank=True, default="", help_text="Empty: the provider of the first model."
    )
    fallback_model = serializers.CharField(
        max_length=200,
        allow_blank=True,
        default="",
        help_text="Goes on with a turn where the model is overloaded, out of credit or gone. Empty: none.",
    )
    tools = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=MAX_OWN_TOOLS,
        default=list,
        help_text="Its own, in the order they are sent.",
    )
    deferred_tools = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=MAX_OWN_TOOLS,
        default=list,
        help_text="Of its own, those that are not sent unless loaded by name.",
    )
    pinned_tools = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=MAX_OWN_TOOLS,
        default=list,
        help_text="Of its own, those that are sent whatever the message.",
    )
    allowed_toolkits = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=MAX_TOOLKITS,
        default=list,
        help_text="What its sessions may load. Initial ones are sent in this order.",
    )
    initial_toolkits = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=MAX_TOOLKITS,
        default=list,
        help_text="Of the allowed, those that are loaded with the first turn, and stay.",
    )

    class Meta:
        model = Agent
        fields = columns_of(
            Agent,
            *KNOBS,
            *("slug", "name", "description", "role", "offered_to", "rooms", "prompt"),
            *("provider", "model", "fallback_provider", "fallback_model", "starts_with_core", "tools_mode"),
            *_LISTS,
        )


def shown_agents(member: Membership) -> QuerySet[Agent]:
    """Return the agents that the member sees."""
    own = AgentTool.objects.select_related("tool").order_by("position", "tool__category__name", "tool__name")
    toolkits = AgentToolkit.objects.select_related("toolkit").order_by("position", "toolkit__name")
    return (
        Agent.objects.seen_by(member)
        .select_related("model__provider", "fallback_model__provider")
        .defer("model__provider__api_key", "fallback_model__provider__api_key")
        .prefetch_related(Prefetch("agent_tools", own), Prefetch("agent_toolkits", toolkits), "rooms")
    )


class AgentList(APIView):
    @extend_schema(operation_id="agents_list", summary="Agents", parameters=PAGE_PARAMETERS, responses=paged(AgentOut))
    def get(self, request: Request) -> Response:
        """List the agents that your sessions can talk to. With the right `agents`, every agent."""
        member = api_member(request)
        return Response(page(request, shown_agents(member), "slug", lambda row: AgentOut(row).data))

    @with_dry_run("agent")
    @extend_schema(
        operation_id="agents_create", summary="Add an agent", request=AgentIn, responses={201: AgentDetailOut}
    )
    def post(self, request: Request) -> Response:
        """Needs the right `agents`."""
        member = api_member(request, right=Right.AGENTS)
        body = checked(AgentIn, request)
        provider = body.pop("provider")
        body["model"] = _named_model(provider, body["model"])
        body["fallback_model"] = _named_fallback(body.pop("fallback_provider") or provider, body["fallback_model"])
        with refusals():
            agent = create_agent(AgentContent(**_with_tuples(body)), actor=member)
        return Response(_agent_out(member, agent.slug), status.HTTP_201_CREATED)


class AgentDetail(APIView):
    @extend_schema(operation_id="agents_read", summary="One agent", responses=AgentDetailOut)
    def get(self, request: Request, slug: str) -> Response:
        """Return one agent; with its prompt, for who has the right `agents`."""
        member = api_member(request)
        return Response(_agent_out(member, slug, sees_prompt=member.has_right(Right.AGENTS)))

    @with_dry_run("agent")
    @extend_schema(operation_id="agents_update", summary="Change an agent", request=AgentIn, responses=AgentDetailOut)
    def patch(self, request: Request, slug: str) -> Response:
        """Change an agent; what is left out stays. Sessions have the change from their next turn on."""
        member = api_member(request, right=Right.AGENTS)
        agent = get_object_or_404(shown_agents(member), slug=slug)
        body = checked_part(AgentIn, request)
        if "provider" in body or "model" in body:
            provider = body.pop("provider", agent.model.provider.slug)
            body["model"] = _named_model(provider, body.get("model", agent.model.name))
        if "fallback_provider" in body or "fallback_model" in body:
            stored = agent.fallback_model
            second = body.pop("fallback_provider", "") or (stored or body.get("model", agent.model)).provider.slug
            body["fallback_model"] = _named_fallback(second, body.get("fallback_model", stored.name if stored else ""))
        with refusals():
            update_agent(agent, replace(agent_content(agent), **_with_tuples(body)), actor=member)
        return Response(_agent_out(member, agent.slug))

    @with_dry_run("agent")
    @extend_schema(operation_id="agents_delete", summary="Remove an agent", responses={204: None})
    def delete(self, request: Request, slug: str) -> Response:
        """Refused (409 `in_use`) while a session names it: switch it off instead."""
        member = api_member(request, right=Right.AGENTS)
        agent = get_object_or_404(shown_agents(member), slug=slug)
        with refusals():
            delete_agent(agent, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _agent_out(member: Membership, slug: str, *, sees_prompt: bool = True) -> Any:
    agent = get_object_or_404(shown_agents(member), slug=slug)
    return AgentDetailOut(agent, context={"sees_prompt": sees_prompt}).data


def _named_fallback(provider: str, name: str) -> LanguageModel | None:
    return _named_model(provider, name, of="fallback_") if name else None


def _named_model(provider: str, name: str, of: str = "") -> LanguageModel:
    language_models = LanguageModel.objects.select_related("provider").defer("provider__api_key")
    found = {model.name: model for model in language_models.filter(provider__slug=provider)}
    if not found and not Provider.objects.filter(slug=provider).exists():
        raise unknown(f"{of}provider", "There is no such provider.")
    if name not in found:
        raise unknown(f"{of}model", "This provider has no such model.")
    return found[name]


def _with_tuples(body: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in body.items()}
