"""REST: the organisation that a token belongs to, and its settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from zoneinfo import available_timezones

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from toolhub.tenants.models import Organisation, Right
from toolhub.tenants.organisation.writes import MAX_NAME, OrganisationContent, update_organisation
from toolhub.tenants.people.api import refused
from toolhub.tenants.people.writes import Forbidden
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, unknown
from toolhub.tenants.times import LANGUAGES


class OrganisationIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME, required=False)
    time_zone = serializers.CharField(
        max_length=64, required=False, help_text="An IANA name such as `Europe/Berlin`. Needs the right `budgets`."
    )
    date_language = serializers.ChoiceField(LANGUAGES, required=False, help_text="How pages write dates.")
    has_assistant = serializers.BooleanField(
        required=False,
        help_text="Whether it has the personal assistant. What members keep with it stays while it is off. Needs the "
        "right `catalogue`.",
    )


class OrganisationOut(serializers.Serializer[Organisation]):
    slug = serializers.CharField(help_text="Its name in addresses.")
    name = serializers.CharField()
    time_zone = serializers.CharField(
        help_text="As an IANA name: pages show times in it, and days and months begin by it. REST answers in UTC."
    )
    date_language = serializers.CharField(help_text="How pages write dates.")
    has_assistant = serializers.BooleanField(help_text="Whether it has the personal assistant.")


class OrganisationDetail(APIView):
    @extend_schema(operation_id="organisation_read", summary="The organisation", responses={200: OrganisationOut})
    def get(self, request: Request) -> Response:
        """The organisation of the token, with its settings."""
        return Response(OrganisationOut(api_member(request).organisation).data)

    @extend_schema(
        operation_id="organisation_update",
        summary="Change the organisation",
        request=OrganisationIn,
        responses={200: OrganisationOut, 400: ErrorOut},
    )
    def patch(self, request: Request) -> Response:
        """Fields that are left out stay. Needs the right `members`."""
        member = api_member(request, right=Right.MEMBERS)
        body = checked(OrganisationIn, request)
        if body.get("time_zone", "UTC") not in available_timezones():
            raise unknown("time_zone", "Give the name of a time zone, such as Europe/Berlin.")
        try:
            content = OrganisationContent(**asdict(OrganisationContent.of(member.organisation)) | body)
            organisation = update_organisation(content, actor=member)
        except Forbidden as error:
            raise refused(error) from error
        return Response(OrganisationOut(organisation).data)
