"""REST: what the organisation set up of the world outside. Secrets go in and never come out."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import refusals
from capabilities.running.services.writes import (
    MAX_VALUE,
    ShownService,
    clear_service,
    save_service,
    shown_service_or_404,
    shown_services,
)
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import only_parameters


class ServiceFieldOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="field.name")
    label = serializers.CharField(source="field.label")  # type: ignore[assignment]
    help = serializers.CharField(source="field.help")
    default = serializers.CharField(source="field.default")
    is_secret = serializers.BooleanField(source="field.is_secret")
    is_required = serializers.BooleanField(source="field.is_required")
    value = serializers.CharField(help_text="Of a secret: its mask.")


class ServiceOut(serializers.Serializer[ShownService]):
    name = serializers.CharField()
    title = serializers.CharField()
    description = serializers.CharField()
    state = serializers.ChoiceField(choices=["ready", "needs_set_up", "off_here", "unknown"])
    tools = serializers.IntegerField(help_text="How many need it.")
    fields = ServiceFieldOut(many=True)  # type: ignore[assignment]


class ServiceIn(serializers.Serializer[Any]):
    values = serializers.DictField(
        child=serializers.CharField(max_length=MAX_VALUE, allow_blank=True),
        help_text="By name of the field. An empty secret keeps the stored one; any other empty value is cleared.",
    )


class ServiceList(APIView):
    @extend_schema(operation_id="services_list", summary="Services", responses=paged(ServiceOut))
    def get(self, request: Request) -> Response:
        """List the services that tools need, and whether each is set up. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        only_parameters(request)
        return Response(
            {"results": [ServiceOut(each).data for each in shown_services(member.organisation)], "next": None}
        )


class ServiceDetail(APIView):
    @extend_schema(operation_id="services_read", summary="One service", responses=ServiceOut)
    def get(self, request: Request, service: str) -> Response:
        """Return one service. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        return Response(ServiceOut(shown_service_or_404(member.organisation, service)).data)

    @extend_schema(operation_id="services_set", summary="Set a service up", request=ServiceIn, responses=ServiceOut)
    def put(self, request: Request, service: str) -> Response:
        """Set up the service. A stored secret never goes to another host than it was entered for: give it again with a
        new address."""
        member = api_member(request, right=Right.CATALOGUE)
        spec = shown_service_or_404(member.organisation, service).spec
        with refusals():
            save_service(spec, checked(ServiceIn, request)["values"], actor=member)
        return Response(ServiceOut(shown_service_or_404(member.organisation, service)).data)

    @extend_schema(operation_id="services_clear", summary="Forget what was set up", responses={204: None})
    def delete(self, request: Request, service: str) -> Response:
        """Forget what was set up, the credentials too; its tools are not sent from then on."""
        member = api_member(request, right=Right.CATALOGUE)
        clear_service(shown_service_or_404(member.organisation, service).spec, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)
