"""REST: what a session has loaded and could load, loading and unloading, and the history of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.choosing.pipeline.candidates import Bundle
from capabilities.models import Agent
from sessions.access import check_may_change_loads, check_may_touch, may_change_loads, session_or_404
from sessions.models import ChatSession, LoadedToolkit, LoadSource, Step
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadResult, LoadTarget
from sessions.selection.loading.queries import (
    LOADABLE_AT_ONCE,
    BundleRow,
    LoadablePart,
    NoSuchPart,
    history_of,
    load_for,
    loadable_categories,
    loads_of,
    sentence_of,
)
from sessions.selection.loading.writes import KINDS, By
from toolhub.tenants.models import Membership, Right, Scope
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged, unknown
from toolhub.tenants.rest.paging import (
    PAGE_PARAMETERS,
    integer_parameter,
    no_such_cursor,
    only_parameters,
    page,
    read_cursor,
    write_cursor,
)
from toolhub.tenants.rest.wire import Refused

KIND_PARAMETER = OpenApiParameter(
    "kind", str, description="Which, where a toolkit and a category of this name are loaded.", enum=KINDS
)
AGENT_PARAMETER = OpenApiParameter("agent", str, description="The slug of an agent; without it, the session's first.")
#: Status of the answer to a load that was not made; a missing name is the fault of a field.
STATUS_CODES = {"not_allowed": 403, "conflict": 409, "scope_incompatible": 409, "sticky": 409, "ambiguous": 409}


class LoadableOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=KINDS, help_text="`tool`: one of the agent's own that it loads by its name.")
    description = serializers.CharField()
    tools: Any = serializers.ListField(
        child=serializers.CharField(), help_text="Those that the session's member may use."
    )
    tokens = serializers.IntegerField(help_text="Of their definitions.")
    needs_set_up: Any = serializers.ListField(
        child=serializers.CharField(), help_text="Tools that are not sent before their service is set up."
    )
    loaded = serializers.BooleanField(source="is_loaded")
    sticky = serializers.BooleanField(source="is_sticky", help_text="The agent begins with it, and it stays.")
    source: Any = serializers.ChoiceField(choices=LoadSource.values, allow_null=True)
    loaded_by = serializers.UUIDField(allow_null=True, help_text="A member.")
    loaded_at = serializers.DateTimeField(allow_null=True)


class SessionToolkitsOut(serializers.Serializer[Any]):
    agent = serializers.CharField()
    shares_loads = serializers.BooleanField()
    results = LoadableOut(many=True)
    next = serializers.CharField(allow_null=True, help_text="Where the list goes on: `cursor` of the next request.")


class LoadIn(serializers.Serializer[Any]):
    toolkit = serializers.CharField(
        max_length=64, required=False, help_text="A toolkit, or a tool that the agent loads by its name."
    )
    category = serializers.CharField(
        max_length=64, required=False, help_text="In its place, a whole category; needs the right `load_categories`."
    )
    agent = serializers.CharField(
        max_length=63, required=False, help_text="The slug of an agent; without one, it is the session's first."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("toolkit" in attrs) == ("category" in attrs):
            raise ValidationError({"toolkit": "Name a toolkit or a category: exactly one of them."}, "invalid")
        return attrs


class LoadResultOut(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["loaded", "already_loaded", "unloaded", "not_loaded"])
    toolkit = serializers.CharField(help_text="The name that was asked for, of a category too.")
    message = serializers.CharField()
    tools = serializers.ListField(child=serializers.CharField(), required=False, help_text="What came with it.")
    needs_set_up = serializers.ListField(child=serializers.CharField(), required=False)
    takes_effect = serializers.ChoiceField(choices=["next_request", "next_round", "now"], required=False)


class CallOut(serializers.Serializer[Step]):
    turn = serializers.UUIDField(source="turn_id")
    step = serializers.IntegerField(source="index")


class LoadOut(serializers.Serializer[LoadedToolkit]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField(help_text="As it was when it was loaded.")
    agent = serializers.CharField(source="agent.slug")
    source: Any = serializers.ChoiceField(choices=LoadSource.values)
    loaded_by = serializers.UUIDField(
        source="loaded_by.public_id", allow_null=True, default=None, help_text="A member."
    )
    loaded_at = serializers.DateTimeField()
    call = CallOut(source="loaded_in", allow_null=True, help_text="The call that loaded it, if one did.")
    unloaded_at = serializers.DateTimeField(allow_null=True)
    unload_reason = serializers.CharField(help_text="Empty while it is loaded.")
    unloaded_by = serializers.UUIDField(
        source="unloaded_by.public_id", allow_null=True, default=None, help_text="A member."
    )
    unload_call = CallOut(source="unloaded_in", allow_null=True, help_text="The call that unloaded it, if one did.")


class SessionToolkits(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="session_toolkits_list",
        summary="What a session has loaded",
        parameters=[AGENT_PARAMETER, *PAGE_PARAMETERS],
        responses={200: SessionToolkitsOut, 400: ErrorOut, 404: ErrorOut},
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return an agent's loads in the session, and what it could load, for the session's member. Whole categories
        are listed for members who may load them. Loads stand on the first page, `limit` (here 15 by default, at most
        30) counts what could be loaded."""
        member = api_member(request)
        only_parameters(request, "agent", "cursor", "limit")
        session = session_or_404(member, session_id)
        agent = agent_of(member, session, request.query_params.get("agent"))
        categories = _categories_for(member, session, agent)
        part = _part(request)
        try:
            loads = loads_of(session, agent, categories, part=part)
        except NoSuchPart:
            raise no_such_cursor() from None
        lines = [*(() if part.after else loads.loaded), *loads.loadable, *loads.categories]
        body = {
            "agent": agent.slug,
            "shares_loads": session.shares_loads,
            "results": _shown(lines),
            "next": write_cursor(" ".join(loads.next_after)) if loads.next_after else None,
        }
        return Response(SessionToolkitsOut(body).data)

    @extend_schema(
        operation_id="session_toolkits_load",
        summary="Load into a session",
        request=LoadIn,
        responses={
            200: LoadResultOut,
            201: LoadResultOut,
            400: ErrorOut,
            403: ErrorOut,
            404: ErrorOut,
            409: ErrorOut,
        },
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        """Load a toolkit or a category; 200 where it is loaded already. Into another member's session only with the
        right `sessions`. Refused: `unknown`, `not_allowed`, `conflict`, `scope_incompatible`; the message names what
        stands in the way."""
        member, session = _to_change(request, session_id)
        wanted = checked(LoadIn, request)
        place = LoadTarget(session, agent_of(member, session, wanted.pop("agent", None)))
        result = load_for(place, actor=member, **wanted)
        if result.status == "unknown":
            raise unknown(next(iter(wanted)), sentence_of(result))
        _check(result)
        code = status.HTTP_201_CREATED if result.status == "loaded" else status.HTTP_200_OK
        return Response(LoadResultOut(result.as_dict()).data, code)


class SessionToolkit(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="session_toolkits_unload",
        summary="Unload from a session",
        parameters=[AGENT_PARAMETER, KIND_PARAMETER],
        responses={200: LoadResultOut, 400: ErrorOut, 403: ErrorOut, 404: ErrorOut, 409: ErrorOut},
    )
    def delete(self, request: Request, session_id: UUID, name: str) -> Response:
        """Unload a toolkit, a category or a tool; `not_loaded` where it is not there. What the agent begins with stays
        (409 `sticky`), and so does everything where two of this name are loaded and no `kind` is given (409
        `ambiguous`)."""
        member, session = _to_change(request, session_id)
        only_parameters(request, "agent", "kind")
        kind = request.query_params.get("kind", "")
        if kind not in ("", *KINDS):
            raise ValidationError({"kind": f"It is one of {', '.join(KINDS)}."})
        place = LoadTarget(session, agent_of(member, session, request.query_params.get("agent")))
        if not name.isprintable():
            raise Http404
        result = loading.unload(place, name, by=By(member), kind=kind)
        if result.status == "unknown":
            raise Http404
        _check(result)
        return Response(LoadResultOut(result.as_dict()).data)


class SessionLoads(APIView):
    @extend_schema(
        operation_id="session_loads_list",
        summary="History of a session's loads",
        parameters=PAGE_PARAMETERS,
        responses={200: paged(LoadOut), 404: ErrorOut},
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """Every load of every agent, newest first: what or who brought it about, when, by which call, and why it
        ended."""
        session = session_or_404(api_member(request), session_id)
        return Response(page(request, history_of(session), "pk", lambda row: LoadOut(row).data, newest_first=True))


def _to_change(request: Request, session_id: UUID) -> tuple[Membership, ChatSession]:
    member = api_member(request)
    session = session_or_404(member, session_id)
    check_may_change_loads(member, session)
    check_may_touch(request, member, session.membership_id)
    return member, session


def agent_of(member: Membership, session: ChatSession, slug: str | None) -> Agent:
    """One that the member sees, with its model and provider at hand; the session's first where none is named."""
    if slug is None or slug == session.agent.slug:
        return session.agent
    agents = Agent.objects.seen_by(member).select_related("model__provider").defer("model__provider__api_key")
    agent = agents.filter(slug=slug).first() if slug.isprintable() else None
    if agent is None:
        raise unknown("agent", "There is no such agent; GET /api/v1/agents lists them.")
    return agent


def _part(request: Request) -> LoadablePart:
    """Return the part of the list that is asked for. Raises ValidationError."""
    limit = integer_parameter(request, "limit", LOADABLE_AT_ONCE, 1, 2 * LOADABLE_AT_ONCE)
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return LoadablePart(limit=limit)
    kind, _, name = read_cursor(cursor, str).partition(" ")
    return LoadablePart(after=(kind, name), limit=limit)


def _categories_for(member: Membership, session: ChatSession, agent: Agent) -> list[Bundle]:
    reach = member.reach(Right.LOAD_CATEGORIES)
    if not reach or not may_change_loads(member, session):
        return []
    rows = loadable_categories(agent, reach).values_list("name", "pk")
    return [Bundle(name, category_ids=frozenset({key})) for name, key in rows]


def _shown(lines: list[BundleRow]) -> list[dict[str, Any]]:
    """Return the lines as LoadableOut wants them; who loaded them and when is one query, where anything is loaded."""
    keys = [line.load_id for line in lines if line.load_id is not None]
    rows = (
        LoadedToolkit.objects.filter(pk__in=keys).values_list("pk", "loaded_by__public_id", "loaded_at") if keys else ()
    )
    by_whom = {key: (member, moment) for key, member, moment in rows}
    shown = []
    for line in lines:
        member, moment = by_whom.get(line.load_id or 0, (None, None))
        fields = {name: getattr(line, name) for name in ("name", "kind", "description", "tools", "tokens")}
        fields |= {name: getattr(line, name) for name in ("needs_set_up", "is_loaded", "is_sticky")}
        shown.append(fields | {"source": line.source or None, "loaded_by": member, "loaded_at": moment})
    return shown


def _check(result: LoadResult) -> None:
    """Raise Refused unless what was asked for is so now."""
    if not result.is_there:
        raise Refused(result.status, sentence_of(result), status_code=STATUS_CODES[result.status])


urlpatterns: list[URLPattern] = [
    path("sessions/<uuid:session_id>/toolkits", SessionToolkits.as_view(), name="api-session-toolkits"),
    path("sessions/<uuid:session_id>/loads", SessionLoads.as_view(), name="api-session-loads"),
    path("sessions/<uuid:session_id>/toolkits/<str:name>", SessionToolkit.as_view(), name="api-session-toolkit"),
]
