"""REST: the catalogue, and who may use it. Read only."""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.active import rights_of
from capabilities.models import (
    Agent,
    Category,
    Grant,
    LanguageModel,
    Provider,
    Role,
    RoleRule,
    Tool,
    ToolVersion,
)
from capabilities.secrets import masked
from toolhub.tenants.api import api_member, paged, unknown
from toolhub.tenants.models import Right
from toolhub.tenants.paging import PAGE_PARAMETERS, page


class CategoryOut(serializers.Serializer[Category]):
    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    keywords = serializers.ListField(child=serializers.CharField())
    is_core = serializers.BooleanField()


class ToolOut(serializers.Serializer[Tool]):
    name = serializers.CharField()
    category = serializers.CharField(source="category.name")
    kind = serializers.CharField()
    is_enabled = serializers.BooleanField()
    description = serializers.CharField(source="current_version.description", default="")
    parameters: Any = serializers.JSONField(source="current_version.parameters", default=dict)
    effect = serializers.CharField(source="current_version.effect", default="")
    tokens = serializers.IntegerField(source="current_version.tokens", default=0)
    version = serializers.IntegerField(source="current_version.number", default=0)


class ToolVersionOut(serializers.Serializer[ToolVersion]):
    number = serializers.IntegerField()
    description = serializers.CharField()
    parameters: Any = serializers.JSONField()
    sha256 = serializers.CharField()
    tokens = serializers.IntegerField()
    effect = serializers.CharField()
    on_crash = serializers.CharField()
    timeout = serializers.FloatField(help_text="Seconds.")
    max_result_chars = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class AgentOut(serializers.Serializer[Agent]):
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    model = serializers.CharField(source="model.name")
    provider = serializers.CharField(source="model.provider.slug")
    starts_with_core = serializers.BooleanField()
    tools = serializers.SerializerMethodField(help_text="Its own, beside the core categories.")
    max_rounds = serializers.IntegerField(allow_null=True)
    is_enabled = serializers.BooleanField()

    def get_tools(self, agent: Agent) -> list[str]:
        return [tool.name for tool in agent.tools.all()]


class ProviderOut(serializers.Serializer[Provider]):
    slug = serializers.CharField()
    name = serializers.CharField()
    base_url = serializers.CharField(help_text="Empty: the offline model.")
    api_key = serializers.SerializerMethodField(help_text="Masked.")
    tool_limit = serializers.IntegerField()
    is_enabled = serializers.BooleanField()

    def get_api_key(self, provider: Provider) -> str:
        return masked(provider.api_key)


class LanguageModelOut(serializers.Serializer[LanguageModel]):
    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    provider = serializers.CharField(source="provider.slug")
    context_window = serializers.IntegerField(help_text="Tokens.")
    tool_limit = serializers.IntegerField(allow_null=True)
    max_rounds = serializers.IntegerField(allow_null=True)


class RuleOut(serializers.Serializer[RoleRule]):
    category = serializers.CharField(source="category.name", allow_null=True, default=None)
    tool = serializers.CharField(source="tool.name", allow_null=True, default=None)
    effect = serializers.CharField()


class RoleOut(serializers.Serializer[Role]):
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    mode = serializers.CharField()
    rules = RuleOut(many=True)


class GrantOut(serializers.Serializer[Grant]):
    id = serializers.IntegerField(source="pk")
    member = serializers.IntegerField(source="membership_id")
    category = serializers.CharField(source="category.name", allow_null=True, default=None)
    tool = serializers.CharField(source="tool.name", allow_null=True, default=None)
    effect = serializers.CharField()
    reason = serializers.CharField()
    expires_at = serializers.DateTimeField(allow_null=True)


class RegistryToolOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    category = serializers.CharField()
    description = serializers.CharField()
    parameters: Any = serializers.JSONField()
    tokens = serializers.IntegerField()
    reason = serializers.CharField(help_text="What allows it to you.")


class RegistryOut(serializers.Serializer[Any]):
    version = serializers.IntegerField(help_text="Rises when what the organisation's members may call has changed.")
    tools = RegistryToolOut(many=True)


class CategoryList(APIView):
    @extend_schema(
        operation_id="categories_list",
        summary="Categories",
        parameters=PAGE_PARAMETERS,
        responses=paged(CategoryOut),
    )
    def get(self, request: Request) -> Response:
        """The catalogue's categories, by name."""
        api_member(request)
        return Response(page(request, Category.objects.all(), "name", lambda row: CategoryOut(row).data))


class ToolList(APIView):
    @extend_schema(
        operation_id="tools_list",
        summary="Tools",
        parameters=[*PAGE_PARAMETERS, OpenApiParameter("category", str, description="Only tools of this category.")],
        responses=paged(ToolOut),
    )
    def get(self, request: Request) -> Response:
        """The organisation's tools, by name."""
        api_member(request)
        rows = Tool.objects.select_related("category", "current_version")
        name = request.query_params.get("category")
        if name is not None:
            category = Category.objects.filter(name=name[:64].replace("\x00", "")).first()
            if category is None:
                raise unknown("category", "There is no such category.")
            rows = rows.filter(category=category)
        return Response(page(request, rows, "name", lambda row: ToolOut(row).data, filters=("category",)))


class ToolDetail(APIView):
    @extend_schema(operation_id="tools_read", summary="One tool", responses=ToolOut)
    def get(self, request: Request, name: str) -> Response:
        """A tool at its current version."""
        api_member(request)
        rows = Tool.objects.select_related("category", "current_version")
        return Response(ToolOut(get_object_or_404(rows, name=name)).data)


class ToolVersions(APIView):
    @extend_schema(
        operation_id="tool_versions_list",
        summary="Versions of a tool",
        parameters=PAGE_PARAMETERS,
        responses=paged(ToolVersionOut),
    )
    def get(self, request: Request, name: str) -> Response:
        """What the tool was and is, newest first."""
        api_member(request)
        tool = get_object_or_404(Tool, name=name)
        rows = ToolVersion.objects.filter(tool=tool)
        return Response(page(request, rows, "pk", lambda row: ToolVersionOut(row).data, newest_first=True))


class AgentList(APIView):
    @extend_schema(operation_id="agents_list", summary="Agents", parameters=PAGE_PARAMETERS, responses=paged(AgentOut))
    def get(self, request: Request) -> Response:
        """What a session can talk to."""
        api_member(request)
        rows = Agent.objects.select_related("model__provider").prefetch_related("tools")
        return Response(page(request, rows, "slug", lambda row: AgentOut(row).data))


class ProviderList(APIView):
    @extend_schema(
        operation_id="providers_list", summary="Providers", parameters=PAGE_PARAMETERS, responses=paged(ProviderOut)
    )
    def get(self, request: Request) -> Response:
        """Where the models are. Needs the right `providers`; keys are masked."""
        api_member(request, right=Right.PROVIDERS)
        return Response(page(request, Provider.objects.all(), "slug", lambda row: ProviderOut(row).data))


class LanguageModelList(APIView):
    @extend_schema(
        operation_id="models_list", summary="Models", parameters=PAGE_PARAMETERS, responses=paged(LanguageModelOut)
    )
    def get(self, request: Request) -> Response:
        """The providers' models. Needs the right `providers`."""
        api_member(request, right=Right.PROVIDERS)
        rows = LanguageModel.objects.select_related("provider")
        return Response(page(request, rows, "pk", lambda row: LanguageModelOut(row).data))


class RoleList(APIView):
    @extend_schema(operation_id="roles_list", summary="Roles", parameters=PAGE_PARAMETERS, responses=paged(RoleOut))
    def get(self, request: Request) -> Response:
        """What members with a role may use. Needs the right `roles`."""
        api_member(request, right=Right.ROLES)
        rules = RoleRule.objects.select_related("category", "tool").order_by("pk")
        rows = Role.objects.prefetch_related(Prefetch("rules", rules))
        return Response(page(request, rows, "slug", lambda row: RoleOut(row).data))


class GrantList(APIView):
    @extend_schema(operation_id="grants_list", summary="Grants", parameters=PAGE_PARAMETERS, responses=paged(GrantOut))
    def get(self, request: Request) -> Response:
        """Members' own allows and denies, expired ones too. Needs the right `roles`."""
        api_member(request, right=Right.ROLES)
        rows = Grant.objects.select_related("category", "tool")
        return Response(page(request, rows, "pk", lambda row: GrantOut(row).data))


class RegistryView(APIView):
    @extend_schema(operation_id="registry_read", summary="My tools", responses=RegistryOut)
    def get(self, request: Request) -> Response:
        """The tools that you may use now, with what allows each (ZK-43)."""
        member = api_member(request)
        rights = rights_of(member)
        rows = (
            Tool.objects.filter(is_enabled=True, current_version__isnull=False)
            .select_related("category", "current_version")
            .order_by("name")
        )
        answers = [(row, rights.decide(row.pk, row.category_id)) for row in rows]
        tools = [ToolOut(row).data | {"reason": answer.reason} for row, answer in answers if answer.allowed]
        body = {"version": member.organisation.registry_version, "tools": tools}
        return Response(RegistryOut(body).data)


urlpatterns: list[URLPattern] = [
    path("categories", CategoryList.as_view(), name="api-categories"),
    path("tools", ToolList.as_view(), name="api-tools"),
    path("tools/<str:name>", ToolDetail.as_view(), name="api-tool"),
    path("tools/<str:name>/versions", ToolVersions.as_view(), name="api-tool-versions"),
    path("agents", AgentList.as_view(), name="api-agents"),
    path("providers", ProviderList.as_view(), name="api-providers"),
    path("models", LanguageModelList.as_view(), name="api-models"),
    path("roles", RoleList.as_view(), name="api-roles"),
    path("grants", GrantList.as_view(), name="api-grants"),
    path("registry", RegistryView.as_view(), name="api-registry"),
]
