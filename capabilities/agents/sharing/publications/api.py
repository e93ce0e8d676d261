"""REST: toolkits that organisations published."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.sharing.publications.forms import PublicationsAddress
from capabilities.agents.sharing.publications.queries import (
    WHOSE,
    listed_publications,
    own_publication_or_404,
    publication_or_404,
    with_marks,
)
from capabilities.agents.sharing.publications.writes import import_publication, publish_toolkit, withdraw_publication
from capabilities.catalogue.imports.api import ImportDetailOut, shown
from capabilities.common.api import refusals
from capabilities.common.refused import not_there
from capabilities.models import Audience, Publication, Toolkit
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page


class PublicationOut(serializers.Serializer[Publication]):
    id = serializers.UUIDField(source="public_id")
    toolkit = serializers.CharField(source="toolkit_name")
    number = serializers.IntegerField(help_text="1, 2, ... of this toolkit.")
    publisher = serializers.CharField(source="publisher_name")
    description = serializers.CharField(help_text="Text from outside, where another organisation published it.")
    sha256 = serializers.CharField(help_text="Of the content, as the file says it.")
    summary: Any = serializers.JSONField(help_text="Tools by kind, modules, and what was left out, as numbers.")
    is_own = serializers.BooleanField()
    audience: Any = serializers.ChoiceField(
        Audience.choices, help_text="`installation`: every organisation here; `address`: whoever has the id."
    )
    published_at = serializers.DateTimeField()
    withdrawn_at = serializers.DateTimeField(allow_null=True)
    imports = serializers.SerializerMethodField(help_text="How often others imported it; null for another’s.")

    def get_imports(self, row: Publication) -> int | None:
        return row.import_count if row.is_own else None  # type: ignore[attr-defined]


class PublicationDetailOut(PublicationOut):
    document = serializers.CharField(help_text="The file.")


class PublicationIn(serializers.Serializer[Any]):
    toolkit = serializers.CharField(max_length=64, help_text="Its name.")
    audience: Any = serializers.ChoiceField(Audience.choices)


class PublicationList(APIView):
    @extend_schema(
        operation_id="publications_list",
        summary="Published toolkits",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("whose", str, enum=list(WHOSE), description="Only own ones, or only those of others."),
            OpenApiParameter("q", str, description="Only those with this in the name of toolkit or publisher."),
        ],
        responses=paged(PublicationOut),
    )
    def get(self, request: Request) -> Response:
        """The newest first: own ones, and those of others that are for every organisation here. Needs the right
        `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        rows = listed_publications(member, **PublicationsAddress(request.query_params).filters).order_by()
        return Response(
            page(
                request,
                rows,
                "pk",
                lambda row: PublicationOut(with_marks(row, member)).data,
                filters=("whose", "q"),
                newest_first=True,
            )
        )

    @extend_schema(
        operation_id="publications_create",
        summary="Publish a toolkit",
        request=PublicationIn,
        responses={201: PublicationOut, 409: ErrorOut},
    )
    def post(self, request: Request) -> Response:
        """A copy of the toolkit as it is now. Needs the rights `catalogue` and `approve_code` for every category."""
        member = api_member(request, right=Right.CATALOGUE)
        body = checked(PublicationIn, request)
        with refusals():
            toolkit = Toolkit.objects.filter(name=body["toolkit"]).first()
            if toolkit is None:
                raise not_there("toolkit", "toolkit", body["toolkit"])
            publication = publish_toolkit(toolkit, body["audience"], actor=member)
        return Response(PublicationOut(with_marks(publication, member)).data, status.HTTP_201_CREATED)


class PublicationDetail(APIView):
    @extend_schema(
        operation_id="publications_read",
        summary="One published toolkit, with its file",
        responses={200: PublicationDetailOut, 404: ErrorOut},
    )
    def get(self, request: Request, publication_id: UUID) -> Response:
        """An own one, or one that is not withdrawn: who has its id may read it. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        return Response(PublicationDetailOut(publication_or_404(member, publication_id)).data)

    @extend_schema(
        operation_id="publications_withdraw",
        summary="Withdraw a published toolkit",
        responses={204: None, 404: ErrorOut},
    )
    def delete(self, request: Request, publication_id: UUID) -> Response:
        """Nobody else reads it any more; what others imported stays theirs. Needs the rights that publishing needs."""
        member = api_member(request, right=Right.CATALOGUE)
        with refusals():
            withdraw_publication(own_publication_or_404(member, publication_id), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PublicationImport(APIView):
    @extend_schema(
        operation_id="publications_import",
        summary="Import a published toolkit",
        request=None,
        responses={202: ImportDetailOut, 404: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request, publication_id: UUID) -> Response:
        """A worker reads the copy; what it finds waits for a decision, and nothing of it is a tool before. Needs the
        right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        publication = publication_or_404(member, publication_id)
        with refusals():
            tool_import = import_publication(publication, actor=member)
        location = {"Location": f"/api/v1/imports/{tool_import.public_id}"}
        return Response(shown(tool_import), status.HTTP_202_ACCEPTED, headers=location)
