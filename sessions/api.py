"""REST: sessions, the turns in them, and what a turn did."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import QuerySet
from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.api.shared import checked_part
from capabilities.models import Agent
from sessions import ledger
from sessions.active_tools import compute_definitions
from sessions.chats import change_session, open_session
from sessions.events import Delta, Event, watch
from sessions.models import ChatSession, Step, Turn
from sessions.queries import session_or_404, session_place, sessions_page, visible_sessions
from toolhub.tenants.api import ErrorOut, api_member, checked, paged, unknown
from toolhub.tenants.middleware import token_of
from toolhub.tenants.models import Access, ApiToken, Membership, Scope
from toolhub.tenants.paging import MAX_PAGE, PAGE, PAGE_PARAMETERS, integer_parameter, only_parameters, page
from toolhub.tenants.scope import organisation_scope
from toolhub.tenants.wire import Refused

MAX_KEY = 255
#: Seconds between two looks at whether a stream's reader may still read.
CHECK_EVERY = 3.0


class SessionIn(serializers.Serializer[Any]):
    agent = serializers.CharField(max_length=63, help_text="The slug of an agent.")
    title = serializers.CharField(max_length=200, required=False, allow_blank=True)


class SessionOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="pk")
    agent = serializers.CharField(source="agent.slug")
    title = serializers.CharField()
    member = serializers.IntegerField(source="membership_id")
    created_at = serializers.DateTimeField()
    active_at = serializers.DateTimeField()
    shares_loads = serializers.BooleanField(
        help_text="Whether what one agent loaded is there for the session's other agents too."
    )
    parent_turn = serializers.UUIDField(
        source="parent_turn_id", allow_null=True, help_text="The turn whose agent opened this session, if one did."
    )


class SessionPart(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=200, allow_blank=True)
    shares_loads = serializers.BooleanField()


class TurnIn(serializers.Serializer[Any]):
    message = serializers.CharField(max_length=ledger.MAX_MESSAGE, trim_whitespace=False)
    agent = serializers.CharField(
        max_length=63, required=False, help_text="The slug of an agent; without one, it is the session's first."
    )

    def validate_message(self, message: str) -> str:
        if not message.strip():
            raise ValidationError("Write something: a message of white space asks for nothing.", code="blank")
        return message


class UsageOut(serializers.Serializer[Any]):
    rounds = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()


class TurnOut(serializers.Serializer[Turn]):
    id = serializers.UUIDField(source="pk")
    session = serializers.UUIDField(source="session_id")
    seq = serializers.IntegerField()
    agent = serializers.CharField(source="agent.slug")
    parent_turn = serializers.UUIDField(
        source="session.parent_turn_id", allow_null=True, help_text="The turn that waits for this one, if one does."
    )
    status = serializers.CharField()
    message = serializers.CharField()
    answer = serializers.CharField()
    error_code = serializers.CharField()
    error_message = serializers.CharField()
    usage = UsageOut()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)


class StepOut(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    kind = serializers.CharField()
    status = serializers.CharField()
    round = serializers.IntegerField()
    text = serializers.CharField()
    tool = serializers.CharField(source="tool_name")
    tool_call_id = serializers.CharField()
    display = serializers.CharField()
    arguments = serializers.CharField()
    result = serializers.CharField(source="result_sent")
    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class VerdictOut(serializers.Serializer[Any]):
    tool = serializers.CharField()
    stage = serializers.CharField()
    kept = serializers.BooleanField()
    reason = serializers.CharField()


class ActiveToolsOut(serializers.Serializer[Any]):
    tools: Any = serializers.ListField(child=serializers.JSONField(), help_text="In OpenAI form, in the order sent.")
    tokens = serializers.IntegerField()
    sha256 = serializers.CharField(help_text="Of the bytes of the tools array.")
    verdicts = VerdictOut(many=True)


def shown() -> QuerySet[Turn]:
    """Turns with what TurnOut tells of their agent and session."""
    return Turn.objects.select_related("agent", "session").defer("agent__prompt")


def turn_or_404(member: Membership, turn_id: UUID) -> Turn:
    """A turn of a session that the member may see; somebody else's looks like a missing one."""
    turn = shown().filter(pk=turn_id, session__in=visible_sessions(member)).first()
    if turn is None:
        raise Http404
    return turn


def session_to_write(member: Membership, session_id: UUID) -> ChatSession:
    """The member's own session, with its first agent. Who may read everybody's is told that another's is not theirs."""
    session = ChatSession.objects.select_related("agent").filter(pk=session_id, membership=member).first()
    if session is None:
        session_or_404(member, session_id)
        raise Refused("not_yours", "Only its own member writes to a session.", status_code=403)
    return session


def check_may_touch(request: Request, member: Membership, session: ChatSession) -> None:
    """A token for chatting changes its own member's sessions; for another's it takes one for administration."""
    token = request.auth
    if session.membership_id != member.pk and isinstance(token, ApiToken) and Scope.MANAGE not in token.scopes:
        raise PermissionDenied(f"This token lacks the scope {Scope.MANAGE.value}.")


def agent_to_ask(slug: str, **more: Any) -> Agent:
    agent = Agent.objects.filter(slug=slug, **more).first()
    if agent is None:
        raise unknown("agent", "There is no such agent; GET /api/v1/agents lists them.")
    return agent


class SessionList(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="sessions_list", summary="Sessions", parameters=PAGE_PARAMETERS, responses=paged(SessionOut)
    )
    def get(self, request: Request) -> Response:
        """Your sessions, and with the right `sessions` everybody's; the last used first."""
        member = api_member(request)
        only_parameters(request, "cursor", "limit")
        found = sessions_page(
            member,
            everyone=True,
            cursor=session_cursor(request),
            limit=integer_parameter(request, "limit", PAGE, 1, MAX_PAGE),
        )
        return Response({"results": SessionOut(found.sessions, many=True).data, "next": found.next})

    @extend_schema(
        operation_id="sessions_create",
        summary="Open a session",
        request=SessionIn,
        responses={201: SessionOut, 400: ErrorOut},
    )
    def post(self, request: Request) -> Response:
        """Begin a conversation with an agent."""
        member = api_member(request, at_least=Access.MEMBER)
        wanted = checked(SessionIn, request)
        session = open_session(member, agent_to_ask(wanted["agent"], is_enabled=True), title=wanted.get("title", ""))
        location = reverse("api-session", args=[session.pk])
        return Response(SessionOut(session).data, status.HTTP_201_CREATED, headers={"Location": location})


class SessionDetail(APIView):
    write_scope = Scope.CHAT

    @extend_schema(operation_id="sessions_read", summary="One session", responses={200: SessionOut, 404: ErrorOut})
    def get(self, request: Request, session_id: UUID) -> Response:
        return Response(SessionOut(session_or_404(api_member(request), session_id)).data)

    @extend_schema(
        operation_id="sessions_update",
        summary="Change a session",
        request=SessionPart,
        responses={200: SessionOut, 400: ErrorOut, 403: ErrorOut, 404: ErrorOut},
    )
    def patch(self, request: Request, session_id: UUID) -> Response:
        """Name it, or let its agents share what they load. Only its own member changes a session."""
        member = api_member(request, at_least=Access.MEMBER)
        session = session_to_write(member, session_id)
        return Response(SessionOut(change_session(session, actor=member, **checked_part(SessionPart, request))).data)


class SessionTurns(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="turns_list",
        summary="Turns of a session",
        parameters=PAGE_PARAMETERS,
        responses=paged(TurnOut),
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """In the order in which they were accepted. A session of several agents names each turn's."""
        session = session_or_404(api_member(request), session_id)
        return Response(page(request, shown().filter(session=session), "seq", lambda row: TurnOut(row).data))

    @extend_schema(
        operation_id="turns_create",
        summary="Write to a session",
        parameters=[
            OpenApiParameter(
                "Idempotency-Key",
                {"type": "string", "maxLength": MAX_KEY, "pattern": "^[!-~]+$"},
                OpenApiParameter.HEADER,
                description="The same key with the same message gives the same turn again, never a second one.",
            )
        ],
        request=TurnIn,
        responses={200: TurnOut, 202: TurnOut, 400: ErrorOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        """Accept a message: with the 202 it is on record and will be answered. Only the session's own member writes."""
        member = api_member(request, at_least=Access.MEMBER)
        session = session_to_write(member, session_id)
        wanted = checked(TurnIn, request)
        try:
            accepted = ledger.accept(
                session,
                wanted["message"],
                member=member,
                agent=agent_to_ask(wanted["agent"]) if "agent" in wanted else None,
                idempotency_key=idempotency_key(request),
            )
        except ledger.Conflict as conflict:
            code = 422 if conflict.code == "idempotency_key_reused" else 409
            raise Refused(conflict.code, str(conflict), status_code=code) from conflict
        location = reverse("api-turn", args=[accepted.turn.pk])
        status_code = status.HTTP_202_ACCEPTED if accepted.created else status.HTTP_200_OK
        return Response(TurnOut(accepted.turn).data, status_code, headers={"Location": location})


class SessionTools(APIView):
    @extend_schema(
        operation_id="session_tools_list", summary="Active tools", responses={200: ActiveToolsOut, 404: ErrorOut}
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """The definitions that the session's next turn would carry, and why each tool is or is not among them."""
        active = compute_definitions(session_or_404(api_member(request), session_id))
        body = {
            "tools": active.defs,
            "tokens": active.selection.tokens,
            "sha256": active.selection.sha256,
            "verdicts": active.selection.verdicts,
        }
        return Response(ActiveToolsOut(body).data)


class TurnDetail(APIView):
    @extend_schema(operation_id="turns_read", summary="One turn", responses={200: TurnOut, 404: ErrorOut})
    def get(self, request: Request, turn_id: UUID) -> Response:
        """Where a turn stands, and its answer."""
        return Response(TurnOut(turn_or_404(api_member(request), turn_id)).data)


class TurnSteps(APIView):
    @extend_schema(
        operation_id="steps_list",
        summary="Steps of a turn",
        parameters=[
            OpenApiParameter("after", {"type": "integer", "minimum": 0}, description="Only steps after this index."),
            PAGE_PARAMETERS[1],
        ],
        responses={200: paged(StepOut), 404: ErrorOut},
    )
    def get(self, request: Request, turn_id: UUID) -> Response:
        """The model calls and tool calls of a turn, in order. `next` is the `after` of the following page."""
        turn = turn_or_404(api_member(request), turn_id)
        only_parameters(request, "after", "limit")
        after = integer_parameter(request, "after", 0, 0, 2**31 - 1)
        limit = integer_parameter(request, "limit", 50, 1, 200)
        found = list(Step.objects.filter(turn=turn, index__gt=after).order_by("index")[: limit + 1])
        following = str(found[limit - 1].index) if len(found) > limit else None
        return Response({"results": StepOut(found[:limit], many=True).data, "next": following})


class TurnCancel(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="turns_cancel",
        summary="Stop a turn",
        request=None,
        responses={200: TurnOut, 403: ErrorOut, 404: ErrorOut},
    )
    def post(self, request: Request, turn_id: UUID) -> Response:
        """A queued turn ends at once, a running one before its next step. A turn that has ended stays as it is."""
        member = api_member(request, at_least=Access.MEMBER)
        turn = turn_or_404(member, turn_id)
        check_may_touch(request, member, turn.session)
        ledger.cancel(turn, actor=member)
        return Response(TurnOut(turn).data)


class AnyAccept(BaseContentNegotiation):
    """A stream is an event stream, and an error JSON, whatever was asked for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class TurnEvents(APIView):
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="events_stream",
        summary="Watch a turn",
        parameters=[
            OpenApiParameter(
                "Last-Event-ID",
                {"type": "integer", "minimum": 0},
                OpenApiParameter.HEADER,
                description="Go on after this event.",
            )
        ],
        responses={
            (200, "text/event-stream"): OpenApiResponse(OpenApiTypes.STR, description="Server-sent events."),
            404: ErrorOut,
        },
    )
    def get(self, request: Request, turn_id: UUID) -> HttpResponseBase:
        """The turn's events as they happen, each with its number as id; `delta` events carry text as it is written,
        have no number, and may be lost: the answer of the turn is what counts."""
        turn = turn_or_404(api_member(request), turn_id)
        seen = request.headers.get("Last-Event-ID", "0")
        if not (seen.isascii() and seen.isdigit() and len(seen) < 10):
            raise ValidationError({"Last-Event-ID": "Give the id of an event of this turn."})
        response = StreamingHttpResponse(stream(request, turn, int(seen)), content_type="text/event-stream")
        response["Cache-Control"] = "no-store"
        response["X-Accel-Buffering"] = "no"
        return response


async def stream(request: Request, turn: Turn, after: int) -> AsyncIterator[str]:
    """Text of the event stream. Ends with the turn, or when the token may no longer read it."""
    checked_at = time.monotonic()
    async for item in watch(turn.pk, turn.organisation_id, after=after):
        if time.monotonic() - checked_at > CHECK_EVERY:
            checked_at = time.monotonic()
            if not await _may_still_read(request, turn):
                return
        if isinstance(item, Event):
            yield f"id: {item.number}\nevent: {item.type}\ndata: {json.dumps(item.payload)}\n\n"
        elif isinstance(item, Delta):
            yield f"event: delta\ndata: {json.dumps({'text': item.text})}\n\n"
        else:
            yield ": still here\n\n"


@sync_to_async
def _may_still_read(request: Request, turn: Turn) -> bool:
    try:
        token = token_of(request._request)
        if token is None:
            return False
        with organisation_scope(turn.organisation_id):
            return visible_sessions(token.membership).filter(pk=turn.session_id).exists()
    finally:
        if not connection.in_atomic_block:
            connection.close()


def session_cursor(request: Request) -> str:
    cursor = request.query_params.get("cursor", "")
    if cursor and session_place(cursor) is None:
        raise ValidationError({"cursor": "This is no cursor of ours; begin without one."})
    return str(cursor)


def idempotency_key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > MAX_KEY or not (key.isascii() and (key.isprintable() or not key)):
        raise ValidationError({"Idempotency-Key": f"Use 1 to {MAX_KEY} printable ASCII characters."})
    return key


urlpatterns: list[URLPattern] = [
    path("sessions", SessionList.as_view(), name="api-sessions"),
    path("sessions/<uuid:session_id>", SessionDetail.as_view(), name="api-session"),
    path("sessions/<uuid:session_id>/turns", SessionTurns.as_view(), name="api-session-turns"),
    path("sessions/<uuid:session_id>/tools", SessionTools.as_view(), name="api-session-tools"),
    path("turns/<uuid:turn_id>", TurnDetail.as_view(), name="api-turn"),
    path("turns/<uuid:turn_id>/steps", TurnSteps.as_view(), name="api-turn-steps"),
    path("turns/<uuid:turn_id>/events", TurnEvents.as_view(), name="api-turn-events"),
    path("turns/<uuid:turn_id>/cancel", TurnCancel.as_view(), name="api-turn-cancel"),
]
