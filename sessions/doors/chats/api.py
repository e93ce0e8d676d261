"""REST: sessions, and the turns that are written into them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.agents.queries import agent_or_404
from capabilities.choosing.pipeline.routing import is_routed
from capabilities.common.api import checked_part
from capabilities.contract.attachments import MAX_ATTACHED, MOST_ATTACHED, TAKEN, NotTaken
from capabilities.contract.results import ResultFile
from capabilities.models import Agent, RoutingMode
from sessions.access import check_may_touch, session_or_404
from sessions.doors.chats.queries import MAX_SEARCH, branch_at, sessions_page
from sessions.doors.chats.turns_api import TurnOut, shown
from sessions.doors.chats.writes import change_session, delete_session, open_session
from sessions.models import KEPT, ChatSession, SessionClient
from sessions.selection.active_tools import compute_definitions
from sessions.selection.loading.api import AGENT_PARAMETER, agent_of
from sessions.selection.queries import new_session
from sessions.turns import accepting, ledger
from sessions.turns.files import attachable
from toolhub.tenants.models import Access, Membership, Scope
from toolhub.tenants.rest.api import MAX_KEY, ErrorOut, api_member, checked, idempotency_key, paged, unknown
from toolhub.tenants.rest.paging import MAX_PAGE, PAGE_PARAMETERS, cursor_of, integer_parameter, only_parameters, page
from toolhub.tenants.rest.wire import LongJSONParser, Refused
from toolhub.tenants.rows.keyset import PAGE
from toolhub.tenants.rows.statements import Select, param


class SessionIn(serializers.Serializer[Any]):
    agent = serializers.CharField(max_length=63, help_text="The slug of an agent.")
    title = serializers.CharField(max_length=200, required=False, allow_blank=True)


class SessionOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="pk")
    agent = serializers.CharField(source="agent.slug")
    title = serializers.CharField()
    member = serializers.UUIDField(source="membership.public_id")
    created_at = serializers.DateTimeField()
    active_at = serializers.DateTimeField()
    client = serializers.ChoiceField(
        choices=["", *SessionClient.values],
        help_text="What opened it: a client of `/v1` (`openai`), an MCP client (`mcp`); empty for a member.",
    )
    is_throwaway = serializers.BooleanField(
        help_text="Made by a client that named no conversation: removed after a while, and listed by `client` alone."
    )
    shares_loads = serializers.BooleanField(
        help_text="Whether what one agent loaded is there for the session's other agents too."
    )
    tools_off = serializers.BooleanField(
        help_text="Whether messages of its member are sent without tools. Schedules and clients of `/v1` keep theirs."
    )
    is_untrusted = serializers.BooleanField(help_text="Whether text from outside is in the conversation.")
    parent_turn = serializers.UUIDField(
        source="parent_turn_id", allow_null=True, help_text="The turn whose agent opened this session, if one did."
    )


class SessionPart(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=200, allow_blank=True)
    shares_loads = serializers.BooleanField()
    tools_off = serializers.BooleanField()


class TurnFileIn(serializers.Serializer[Any]):
    """A file to attach: a new one by `name` and `content`, or `file` alone."""

    name = serializers.CharField(max_length=1_000, required=False, trim_whitespace=False)
    content = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="Its bytes as base64."
    )
    file = serializers.UUIDField(
        required=False, help_text="The id of a file that came with an earlier message of the session: it goes again."
    )

    def validate(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted.keys() not in ({"name", "content"}, {"file"}):
            raise ValidationError("Give `name` and `content`, or `file` alone.", code="invalid")
        if "content" in wanted:
            try:
                wanted["content"] = b64decode(wanted["content"], validate=True)
            except ValueError:
                raise ValidationError({"content": ErrorDetail("This is no base64.", "invalid")}) from None
        return wanted


class TurnIn(serializers.Serializer[Any]):
    message = serializers.CharField(max_length=accepting.MAX_MESSAGE, trim_whitespace=False)
    agent = serializers.CharField(
        max_length=63, required=False, help_text="The slug of an agent; without one, it is the session's first."
    )

    without_tools = serializers.BooleanField(
        default=False, help_text="A quick question: no tools are sent, and the model answers in one call."
    )

    files = TurnFileIn(
        many=True,
        required=False,
        max_length=MOST_ATTACHED,  # type: ignore[call-arg] # many=True makes a list of it
        help_text=f"Files that go with the message: {MAX_ATTACHED:,} bytes at most, all together. Taken are {TAKEN}. "
        "What they are is told by their bytes.",
    )

    replaces = serializers.UUIDField(
        required=False,
        help_text="An ended turn of the session whose place this one takes: it stays on record with those behind it, "
        "and none of them is in the conversation any more.",
    )
    follows = serializers.UUIDField(
        required=False,
        help_text="An ended turn of the session that this one goes on from, such as a replaced one: turns behind it "
        "stay on record, and are not in the conversation any more. Not together with `replaces`.",
    )

    def validate(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if {"replaces", "follows"} <= wanted.keys():
            text = "A message has one place: `replaces` or `follows`."
            raise ValidationError({"follows": ErrorDetail(text, "invalid")})
        return wanted

    def validate_message(self, message: str) -> str:
        if not message.strip():
            raise ValidationError("Write something: a message of white space asks for nothing.", code="blank")
        return message


class VerdictOut(serializers.Serializer[Any]):
    tool = serializers.CharField()
    stage = serializers.CharField()
    kept = serializers.BooleanField()
    reason = serializers.CharField()


class ActiveToolsOut(serializers.Serializer[Any]):
    tools: Any = serializers.ListField(child=serializers.JSONField(), help_text="In OpenAI form, in the order sent.")
    tokens = serializers.IntegerField()
    sha256 = serializers.CharField(help_text="Of the bytes of the tools array.")
    version = serializers.IntegerField(
        help_text="Rises when what this session has at hand may have changed: with each load and unload in it, and "
        "with the registry's own version."
    )
    load_count = serializers.IntegerField(help_text="Rises with each load and unload in this session.")
    routing = serializers.CharField(help_text="The agent's `routing_mode`, `off` where messages change nothing.")
    all_tokens = serializers.IntegerField(help_text="What would be sent if the message left nothing out.")
    verdicts = VerdictOut(many=True)


MESSAGE_PARAMETER = OpenApiParameter(
    "message",
    {"type": "string", "maxLength": accepting.MAX_MESSAGE},
    description="What would be said; without it, all that a message may bring.",
)

_OWN = Select(
    lambda: ChatSession.objects.select_related("agent", "membership").filter(
        KEPT, pk=param(ChatSession, "id", "session"), membership=param(ChatSession, "membership", "member")
    )
)


def session_to_write(member: Membership, session_id: UUID) -> ChatSession:
    """Return the member's own session, with its first agent. A member who may read everybody's gets 403 for
    another's."""
    own: list[ChatSession] = _OWN.instances(session=session_id, member=member.pk)
    if not own:
        session_or_404(member, session_id)
        raise Refused("not_yours", "Only its own member writes to a session.", status_code=403)
    return own[0]


def agent_to_ask(member: Membership, slug: str, **more: Any) -> Agent:
    """Raises the refusal `unknown` for one that is not there or not offered to the member."""
    agent = Agent.objects.offered_to(member).filter(slug=slug, **more).first()
    if agent is None:
        raise unknown("agent", "There is no such agent; GET /api/v1/agents lists them.")
    return agent


class SessionList(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="sessions_list",
        summary="Sessions",
        parameters=[
            OpenApiParameter(
                "q",
                {"type": "string", "maxLength": MAX_SEARCH},
                description="Words: each occurs in the title, in a message or in an answer.",
            ),
            OpenApiParameter(
                "client",
                str,
                enum=SessionClient.values,
                description="All that such clients opened; without it, conversations without those of single requests.",
            ),
            *PAGE_PARAMETERS,
        ],
        responses=paged(SessionOut),
    )
    def get(self, request: Request) -> Response:
        """Your sessions, and with the right `sessions` everybody's; the last used first."""
        member = api_member(request)
        only_parameters(request, "q", "client", "cursor", "limit")
        client = request.query_params.get("client", "")
        if client not in ("", *SessionClient.values):
            raise ValidationError({"client": f"Choose one of {', '.join(SessionClient.values)}."})
        found = sessions_page(
            member,
            everyone=True,
            client=client,
            q=request.query_params.get("q", "")[:MAX_SEARCH],
            after=cursor_of(request),
            limit=integer_parameter(request, "limit", PAGE, 1, MAX_PAGE),
        )
        return Response({"results": SessionOut(found.rows, many=True).data, "next": found.after or None})

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
        session = open_session(
            member, agent_to_ask(member, wanted["agent"], is_enabled=True), title=wanted.get("title", "")
        )
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
        """Name it, let its agents share what they load, or switch its tools off, from the next message on.
        Only its own member changes a session."""
        member = api_member(request, at_least=Access.MEMBER)
        session = session_to_write(member, session_id)
        return Response(SessionOut(change_session(session, actor=member, **checked_part(SessionPart, request))).data)

    @extend_schema(
        operation_id="sessions_delete",
        summary="Delete a session",
        responses={204: None, 403: ErrorOut, 404: ErrorOut},
    )
    def delete(self, request: Request, session_id: UUID) -> Response:
        """Delete the session with its turns and the sessions that its agents opened. Open turns are stopped first;
        schedules and reminders stay. Its own member deletes it, or somebody with the right `sessions`."""
        member = api_member(request)
        session = session_or_404(member, session_id)
        check_may_touch(request, member, session.membership_id)
        delete_session(session, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _attached(session: ChatSession, wanted: Sequence[Mapping[str, Any]]) -> Sequence[ResultFile]:
    """Return the files of a message, checked. Raises ValidationError."""
    new = [(each["name"], each["content"]) for each in wanted if "content" in each]
    try:
        return attachable(session, new, [each["file"] for each in wanted if "file" in each])
    except NotTaken as refused:
        raise ValidationError({"files": ErrorDetail(str(refused), refused.code)}) from refused


class SessionTurns(APIView):
    write_scope = Scope.CHAT
    parser_classes = (LongJSONParser,)

    @extend_schema(
        operation_id="turns_list",
        summary="Turns of a session",
        parameters=PAGE_PARAMETERS,
        responses=paged(TurnOut),
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """Turns in the order in which they were accepted. A session of several agents names each turn's."""
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
        responses={
            200: TurnOut,
            202: TurnOut,
            400: ErrorOut,
            404: ErrorOut,
            409: ErrorOut,
            422: ErrorOut,
            429: ErrorOut,
        },
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        """Accept a message: with the 202 it is on record and will be answered. Only the session's own member writes.
        429 with `Retry-After`: `too_many_turns` while too many of your messages or your organisation's wait,
        `too_many_turns_at_once` while as many run as may, and `budget_exceeded` while a budget is used up; without the
        header where that budget does not reset by itself."""
        member = api_member(request, at_least=Access.MEMBER)
        session = session_to_write(member, session_id)
        wanted = checked(TurnIn, request)
        try:
            accepted = accepting.accept(
                session,
                wanted["message"],
                member=member,
                agent=agent_to_ask(member, wanted["agent"]) if "agent" in wanted else None,
                idempotency_key=idempotency_key(request),
                without_tools=wanted["without_tools"],
                branch=branch_at(session, replaces=wanted.get("replaces"), follows=wanted.get("follows")),
                files=_attached(session, wanted.get("files", ())),
            )
        except ledger.NoRoom as full:
            raise Refused(full.code, str(full), status_code=429, wait=full.retry_after) from full
        except ledger.Conflict as conflict:
            code = 422 if conflict.code == "idempotency_key_reused" else 409
            raise Refused(conflict.code, str(conflict), status_code=code) from conflict
        location = reverse("api-turn", args=[accepted.turn.pk])
        status_code = status.HTTP_202_ACCEPTED if accepted.created else status.HTTP_200_OK
        return Response(TurnOut(accepted.turn).data, status_code, headers={"Location": location})


class SessionTools(APIView):
    @extend_schema(
        operation_id="session_tools_list",
        summary="Active tools",
        parameters=[AGENT_PARAMETER, MESSAGE_PARAMETER],
        responses={200: ActiveToolsOut, 400: ErrorOut, 404: ErrorOut},
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """The definitions that the session's next turn would carry for a message, and why each tool is or is not among
        them."""
        member = api_member(request)
        session = session_or_404(member, session_id)
        only_parameters(request, "agent", "message")
        agent = agent_of(member, session, request.query_params.get("agent"))
        return _active_tools(member, session, agent, _message_of(request))


class AgentTools(APIView):
    @extend_schema(
        operation_id="agent_tools_list",
        summary="Tools that an agent begins with",
        parameters=[MESSAGE_PARAMETER],
        responses={200: ActiveToolsOut, 400: ErrorOut, 404: ErrorOut},
    )
    def get(self, request: Request, slug: str) -> Response:
        """The definitions that the first turn of a new session of yours with the agent would carry for a message, and
        why each tool is or is not among them."""
        member = api_member(request)
        only_parameters(request, "message")
        agent = agent_or_404(slug, member)
        return _active_tools(member, new_session(member, agent), agent, _message_of(request))


def _message_of(request: Request) -> str:
    message = request.query_params.get("message", "")
    if len(message) > accepting.MAX_MESSAGE:
        raise ValidationError({"message": f"At most {accepting.MAX_MESSAGE:,} characters."})
    return message


def _active_tools(member: Membership, session: ChatSession, agent: Agent, message: str) -> Response:
    active = compute_definitions(session, agent=agent, message=message)
    body = {
        "tools": active.defs,
        "tokens": active.selection.tokens,
        "sha256": active.selection.sha256,
        "version": member.organisation.registry_version + session.load_count,
        "load_count": session.load_count,
        "routing": agent.routing_mode if is_routed(agent) else RoutingMode.OFF,
        "all_tokens": active.selection.all_tokens,
        "verdicts": active.selection.verdicts,
    }
    return Response(ActiveToolsOut(body).data)


urlpatterns: list[URLPattern] = [
    path("sessions", SessionList.as_view(), name="api-sessions"),
    path("sessions/<uuid:session_id>", SessionDetail.as_view(), name="api-session"),
    path("sessions/<uuid:session_id>/turns", SessionTurns.as_view(), name="api-session-turns"),
    path("sessions/<uuid:session_id>/tools", SessionTools.as_view(), name="api-session-tools"),
    path("agents/<slug:slug>/tools", AgentTools.as_view(), name="api-agent-tools"),
]
