"""REST of what members keep: the same routes for every kind, each described with the fields of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.assistant.records.kinds import kind_named, kinds
from capabilities.common.api import checked_part
from capabilities.contract.context import ToolError
from capabilities.running.assistant import assistants_routes
from capabilities.running.records.kind import Kind
from capabilities.running.records.own import owner_of, remove_row
from capabilities.running.records.queries import matching, row_or_404, rows_of
from toolhub.tenants.models import Access, Membership, Scope
from toolhub.tenants.rest.api import api_member, checked, paged, unknown
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page
from toolhub.tenants.rest.wire import Refused


@contextmanager
def refusals() -> Iterator[None]:
    """A refused write as the API tells it: 400 with its field; 409 where what is on record stands in the way."""
    try:
        yield
    except ToolError as error:
        field = getattr(error, "field", "")
        if not field:
            raise Refused("conflict", str(error)) from error
        raise ValidationError({field: ErrorDetail(str(error), code="invalid")}) from error


class RecordList(APIView):
    """The list of one kind. A subclass names the kind."""

    kind: Kind
    write_scope = Scope.CHAT

    def get(self, request: Request) -> Response:
        member = api_member(request)
        kind = self.kind
        rows = rows_of(kind, owner_of(member))
        query = request.query_params
        if q := query.get("q", ""):
            rows = rows.filter(matching(kind, q[:100]))
        if (name := query.get("state")) is not None and kind.states:
            state = kind.state(name)
            if state is None:
                raise ValidationError({"state": f"The state is one of {', '.join(each.name for each in kind.states)}."})
            rows = rows.filter(state.rows)
        if kind.parent and (text := query.get(kind.parent)) is not None:
            rows = rows.filter(**{kind.parent: _parent(kind, member, text)})
        return Response(
            page(request, rows, kind.key, self.shown, newest_first=kind.key == "number", filters=_filters(kind))
        )

    def shown(self, row: Any) -> Any:
        return self.kind.out(row).data


class RecordListWithPost(RecordList):
    """View of a list to which rows can be added by hand."""

    def post(self, request: Request) -> Response:
        member = api_member(request, at_least=Access.MEMBER)
        kind, owner = self.kind, owner_of(member)
        assert kind.body is not None
        assert kind.create is not None
        body = checked(kind.body, request)
        with refusals():
            row = kind.create(owner, **body)
        return Response(self.shown(row_or_404(kind, owner, row.public_id)), status.HTTP_201_CREATED)


class RecordDetail(APIView):
    """One row of one kind. A subclass names the kind."""

    kind: Kind
    write_scope = Scope.CHAT

    def get(self, request: Request, own_record: UUID) -> Response:
        return Response(self.shown(row_or_404(self.kind, owner_of(api_member(request)), own_record)))

    def delete(self, request: Request, own_record: UUID) -> Response:
        owner = owner_of(api_member(request))
        remove_row(owner, row_or_404(self.kind, owner, own_record))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def shown(self, row: Any) -> Any:
        return self.kind.out(row).data


class RecordDetailWithPatch(RecordDetail):
    """View of a row that can be changed."""

    def patch(self, request: Request, own_record: UUID) -> Response:
        kind, owner = self.kind, owner_of(api_member(request))
        assert kind.body is not None
        assert kind.change is not None
        row = row_or_404(kind, owner, own_record)
        body = checked_part(kind.body, request)
        with refusals():
            if body:
                kind.change(owner, row, **body)
        return Response(self.shown(row_or_404(kind, owner, own_record)))


def routes_of(kind: Kind) -> list[URLPattern]:
    """The list and the row of one kind, each described in the schema with the fields of the kind."""
    names = kind.name.replace("-", "_")
    of_list: dict[str, Any] = {
        "get": extend_schema(
            operation_id=f"data_{names}_list",
            summary=kind.title,
            description=f"Your own. {kind.purpose}",
            parameters=[*PAGE_PARAMETERS, *_parameters(kind)],
            responses=paged(kind.out),
        )
    }
    of_row: dict[str, Any] = {
        "get": extend_schema(
            operation_id=f"data_{names}_read", summary=f"One {kind.one}", description="Your own.", responses=kind.out
        ),
        "delete": extend_schema(
            operation_id=f"data_{names}_delete",
            summary=f"Delete a row of {kind.title.lower()}",
            description="For good, with everything in it.",
            responses={204: None},
        ),
    }
    if kind.create is not None:
        of_list["post"] = extend_schema(
            operation_id=f"data_{names}_create",
            summary=f"Add a row of {kind.title.lower()}",
            description="For yourself. 409 `conflict` where you have as many as there may be.",
            request=kind.body,
            responses={201: kind.out},
        )
    if kind.change is not None:
        of_row["patch"] = extend_schema(
            operation_id=f"data_{names}_update",
            summary=f"Change a row of {kind.title.lower()}",
            description="What is left out stays.",
            request=kind.body,
            responses=kind.out,
        )
    list_base = RecordListWithPost if kind.create is not None else RecordList
    row_base = RecordDetailWithPatch if kind.change is not None else RecordDetail
    list_view: type[APIView] = extend_schema_view(**of_list)(type(f"{names}_list", (list_base,), {"kind": kind}))
    row_view: type[APIView] = extend_schema_view(**of_row)(type(f"{names}_row", (row_base,), {"kind": kind}))
    return [
        path(f"data/{kind.name}", list_view.as_view(), name=f"api-data-{kind.name}"),
        path(f"data/{kind.name}/<uuid:own_record>", row_view.as_view(), name=f"api-data-{kind.name}-row"),
    ]


def _filters(kind: Kind) -> tuple[str, ...]:
    return ("q", *(("state",) if kind.states else ()), *((kind.parent,) if kind.parent else ()))


def _parameters(kind: Kind) -> list[OpenApiParameter]:
    found = [OpenApiParameter("q", str, description="Words that all occur in the row.")]
    if kind.states:
        found.append(OpenApiParameter("state", str, enum=[each.name for each in kind.states]))
    if kind.parent:
        found.append(OpenApiParameter(kind.parent, UUID, description=f"Only those of this {kind.parent}."))
    return found


def _parent(kind: Kind, member: Membership, text: str) -> Any:
    """The member's own row with this id. Raises the answer to an unknown one."""
    parent_kind = kind_named(kind.parent_kind)
    assert parent_kind is not None
    try:
        return row_or_404(parent_kind, owner_of(member), UUID(text))
    except (ValueError, Http404):
        raise unknown(kind.parent, f"You have no {parent_kind.one} with this id.") from None


urlpatterns = assistants_routes([route for kind in kinds() for route in routes_of(kind)])
