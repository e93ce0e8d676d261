"""REST: tests of services and models. POST asks a worker for one; GET returns what the last one showed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.servers.queries import server_or_404, test_of_server
from capabilities.common.api import refusals
from capabilities.models import ConnectionTest, LanguageModel, Provider
from capabilities.running.services.writes import shown_service_or_404
from sessions.insight.connections.writes import (
    request_model_test,
    request_provider_test,
    request_server_test,
    request_service_test,
)
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import ErrorOut, api_member
from toolhub.tenants.rest.paging import only_parameters


class CheckOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    works = serializers.BooleanField(allow_null=True, help_text="Null: only said, or not to be seen.")
    detail = serializers.CharField(help_text="A sentence for people.")


class ListedModelOut(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Text from outside.")
    context_window = serializers.IntegerField(allow_null=True, help_text="Tokens; null where nobody says.")


class ConnectionTestOut(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["not_tested", "queued", "running", "works", "failed"])
    reason = serializers.CharField(help_text="Why it failed.")
    tested_at = serializers.DateTimeField(allow_null=True, help_text="When the result was there.")
    checks = CheckOut(many=True, help_text="Of a model: what works.")
    models = ListedModelOut(many=True, help_text="Of a provider: what agents could talk to, 500 at most.")


def shown(test: ConnectionTest | None) -> dict[str, Any]:
    """Build the API's body of the last test; `not_tested` for None: there is none since the last change."""
    if test is None:
        return {"status": "not_tested", "reason": "", "tested_at": None, "checks": [], "models": []}
    found = {name: test.findings.get(name, []) for name in ("checks", "models")}
    return {"status": test.status, "reason": test.reason, "tested_at": test.ended_at, **found}


def _accepted(test: ConnectionTest, location: str) -> Response:
    """Return 202 with the test as it stands, and where to read its result."""
    return Response(ConnectionTestOut(shown(test)).data, status.HTTP_202_ACCEPTED, headers={"Location": location})


class ServiceTest(APIView):
    @extend_schema(operation_id="services_test_read", summary="The last test of a service", responses=ConnectionTestOut)
    def get(self, request: Request, service: str) -> Response:
        """State of the last test: `not_tested` also after a change of what is set up. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        only_parameters(request)
        return Response(ConnectionTestOut(shown(shown_service_or_404(member.organisation, service).test)).data)

    @extend_schema(
        operation_id="services_test",
        summary="Test a service",
        request=None,
        responses={202: ConnectionTestOut, 409: ErrorOut},
    )
    def post(self, request: Request, service: str) -> Response:
        """A worker makes one call that only reads. 409 `conflict` if it is not set up, or too many are open."""
        member = api_member(request, right=Right.CATALOGUE)
        with refusals():
            test = request_service_test(shown_service_or_404(member.organisation, service), actor=member)
        return _accepted(test, reverse("api-service-test", args=[service]))


class ServerTest(APIView):
    @extend_schema(
        operation_id="mcp_servers_test_read", summary="The last test of an MCP server", responses=ConnectionTestOut
    )
    def get(self, request: Request, name: str) -> Response:
        """State of the last test: `not_tested` also after a change of the server. Needs the right `catalogue`."""
        api_member(request, right=Right.CATALOGUE, category=None)
        only_parameters(request)
        return Response(ConnectionTestOut(shown(test_of_server(server_or_404(name)))).data)

    @extend_schema(
        operation_id="mcp_servers_test",
        summary="Test an MCP server",
        request=None,
        responses={202: ConnectionTestOut, 409: ErrorOut},
    )
    def post(self, request: Request, name: str) -> Response:
        """A worker reads its list of tools, with the member's own account where each has one. Nothing is imported.
        409 `conflict` if it is switched off, or too many tests are open."""
        member = api_member(request, right=Right.CATALOGUE)
        server = server_or_404(name)
        with refusals():
            test = request_server_test(server, actor=member)
        return _accepted(test, reverse("api-mcp-server-test", args=[name]))


class ModelTest(APIView):
    @extend_schema(operation_id="models_test_read", summary="The last test of a model", responses=ConnectionTestOut)
    def get(self, request: Request, model_id: UUID) -> Response:
        """State of the last test: `not_tested` also after a change of the model or its provider. Needs the right
        `providers`."""
        api_member(request, right=Right.PROVIDERS)
        only_parameters(request)
        model = get_object_or_404(LanguageModel, public_id=model_id)
        return Response(ConnectionTestOut(shown(ConnectionTest.objects.filter(language_model=model).first())).data)

    @extend_schema(
        operation_id="models_test",
        summary="Test a model",
        request=None,
        responses={202: ConnectionTestOut, 409: ErrorOut},
    )
    def post(self, request: Request, model_id: UUID) -> Response:
        """A worker reads the provider's list of models, and sends the model one short message with one tool.
        409 `conflict` where too many tests are open."""
        member = api_member(request, right=Right.PROVIDERS)
        model = get_object_or_404(LanguageModel, public_id=model_id)
        with refusals():
            test = request_model_test(model, actor=member)
        return _accepted(test, reverse("api-model-test", args=[model_id]))


class ProviderTest(APIView):
    @extend_schema(operation_id="providers_test_read", summary="The models of a provider", responses=ConnectionTestOut)
    def get(self, request: Request, slug: str) -> Response:
        """Models as the last test read them; `not_tested` also after a change of the provider. Needs the right
        `providers`."""
        api_member(request, right=Right.PROVIDERS)
        only_parameters(request)
        provider = get_object_or_404(Provider.objects.defer("api_key"), slug=slug)
        return Response(ConnectionTestOut(shown(ConnectionTest.objects.filter(provider=provider).first())).data)

    @extend_schema(
        operation_id="providers_test",
        summary="Read a provider's models",
        request=None,
        responses={202: ConnectionTestOut, 409: ErrorOut},
    )
    def post(self, request: Request, slug: str) -> Response:
        """A worker reads its list of models. Models of it that are not listed any more are marked."""
        member = api_member(request, right=Right.PROVIDERS)
        provider = get_object_or_404(Provider.objects.defer("api_key"), slug=slug)
        with refusals():
            test = request_provider_test(provider, actor=member)
        return _accepted(test, reverse("api-provider-test", args=[slug]))


urlpatterns: list[URLPattern] = [
    path("services/<str:service>/test", ServiceTest.as_view(), name="api-service-test"),
    path("mcp-servers/<str:name>/test", ServerTest.as_view(), name="api-mcp-server-test"),
    path("providers/<str:slug>/test", ProviderTest.as_view(), name="api-provider-test"),
    path("models/<uuid:model_id>/test", ModelTest.as_view(), name="api-model-test"),
]
