"""REST: one turn, what it did, and how it is watched and stopped."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from django.http import Http404, HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sessions.access import check_may_touch, visible_sessions, visible_to
from sessions.doors.chats.client_requests import WHOLE, sent_with
from sessions.doors.chats.files import file_or_404, files_seen_by, sent
from sessions.doors.chats.queries import client_request_or_404
from sessions.doors.chats.readers import Reader, open_readers
from sessions.doors.chats.stream_limits import STILL_HERE, TRY_AGAIN, Pulse, TooManyStreams, event_stream
from sessions.models import Approval, ApprovalKind, ApprovalStatus, Door, Step, StepFile, Turn
from sessions.turns import ledger
from sessions.turns.asked import ADDRESS
from sessions.turns.events import Delta, Event, watch
from toolhub.tenants.middleware import token_of
from toolhub.tenants.models import ApiToken, Membership, Scope
from toolhub.tenants.rest.api import AnyAccept, ErrorOut, api_member, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, integer_parameter, only_parameters, page
from toolhub.tenants.rest.wire import Refused
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.money import dollars
from toolhub.tenants.rows.scope import organisation_scope

#: The id of an event, or of a piece of text: the event that it is written behind, and where it ends.
SEEN = re.compile(r"(?P<event>\d{1,9})(?:\.(?P<read>\d{1,9}))?", re.ASCII)


class UsageOut(serializers.Serializer[Any]):
    rounds = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField(help_text="Of the input: read from the provider's cache.")
    cache_write_tokens = serializers.IntegerField(help_text="Of the input: written to the provider's cache.")
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField(help_text="Of the output: what the model thought and did not say.")
    estimated = serializers.BooleanField(help_text="Whether some of these are toolhub's count, not the provider's.")
    cost = serializers.CharField(help_text="US dollars of the rounds that have a price, exact: `0.00027`.")
    unpriced = serializers.BooleanField(help_text="Whether some rounds have no price, and are not in the cost.")


class WaitingForOut(serializers.Serializer[Approval]):
    """Something that a turn asks a person."""

    approval = serializers.UUIDField(source="public_id")
    address = serializers.SerializerMethodField(help_text="Where it is read, and answered.")
    kind = serializers.ChoiceField(ApprovalKind.choices)
    step = serializers.IntegerField(source="step.index")
    tool = serializers.CharField(source="tool.name")
    expires_at = serializers.DateTimeField()

    def get_address(self, approval: Approval) -> str:
        return ADDRESS.format(approval.public_id)


class TurnOut(serializers.Serializer[Turn]):
    id = serializers.UUIDField(source="pk")
    session = serializers.UUIDField(source="session_id")
    seq = serializers.IntegerField()
    replaces = serializers.IntegerField(
        allow_null=True, help_text="The `seq` of the turn whose place it took in the conversation, if it took one's."
    )
    passed_over: Any = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2),
        help_text="Turns before it that are not in its conversation: the first and the last `seq` of each range.",
    )
    agent = serializers.CharField(source="agent.slug")
    parent_turn = serializers.UUIDField(
        source="session.parent_turn_id", allow_null=True, help_text="The turn that waits for this one, if one does."
    )
    door = serializers.ChoiceField(
        choices=["", *Door.values],
        help_text="How it came: from a client of `/v1` (`chat`, `responses`) or of MCP (`mcp`); empty for all else.",
    )
    status = serializers.CharField()
    message = serializers.CharField()
    attached = serializers.IntegerField(help_text="Files that came with the message; the turn's files list them.")
    without_tools = serializers.BooleanField(help_text="No tools are sent with it: a quick question, or `tools_off`.")
    tools_off = serializers.BooleanField(help_text="Whether the tools of its session were off when it was accepted.")
    answer = serializers.CharField(help_text="Of a turn that was stopped: what had been written of it.")
    draft = serializers.CharField(help_text="What the model has written so far of the reply that it is at.")
    error_code = serializers.CharField()
    error_message = serializers.CharField()
    cut_by = serializers.CharField(
        help_text="Why the answer is not whole: `length` (the model met its limit of tokens) or `content_filter`."
    )
    retry_after = serializers.IntegerField(
        allow_null=True, help_text="Seconds after which the provider that failed the turn says to try again."
    )
    untrusted_since = serializers.IntegerField(
        allow_null=True,
        help_text="The step whose result brought the first text from outside; 0: it was there from the start.",
    )
    untrusted_tool = serializers.SerializerMethodField(help_text="The tool that was called in that step.")
    waiting_for = serializers.SerializerMethodField()
    usage = UsageOut()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(WaitingForOut(many=True))
    def get_waiting_for(self, turn: Turn) -> Any:
        """Return what the turn asks people and nobody answered yet."""
        return WaitingForOut(vars(turn).get("asks", ()), many=True).data

    def get_untrusted_tool(self, turn: Turn) -> str:
        return vars(turn).get("untrusted_tool") or ""


class StepOut(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    kind = serializers.CharField(help_text="`model`, `tool`, `note`, or `tools`: added to the conversation.")
    status = serializers.CharField(help_text="`pending`: a call that has not begun.")
    round = serializers.IntegerField()
    text = serializers.CharField()
    model = serializers.CharField(source="model_name", help_text="Of a model call: the model that answered.")
    tool = serializers.CharField(source="tool_name")
    tool_call_id = serializers.CharField()
    display = serializers.CharField()
    arguments = serializers.CharField()
    result = serializers.CharField(source="result_sent")
    structured = serializers.JSONField(
        allow_null=True,
        help_text="The result as data, where its tool sent some. The model does not read it. Of tools that were added "
        "to the conversation: `{added, unavailable}`, names; of a model call whose provider searched tools: `{found}`.",
    )
    hooks = serializers.JSONField(help_text="What hooks did at the call: `[{hook, action, did}]`, or how they failed.")
    input_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField(help_text="Of the input: read from the provider's cache.")
    cache_write_tokens = serializers.IntegerField(help_text="Of the input: written to the provider's cache.")
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField(help_text="Of the output: what the model thought and did not say.")
    usage_estimated = serializers.BooleanField()
    cost = serializers.SerializerMethodField(
        help_text="Of a model call: US dollars, exact; null where the model had no price."
    )
    price_source = serializers.CharField(help_text="The public price list with its version, or the own price.")
    tool_tokens = serializers.IntegerField(help_text="Of a model call, as we count: definitions that were sent.")
    all_tool_tokens = serializers.IntegerField(help_text="The same of all permitted tools, had none been left out.")
    result_tokens = serializers.IntegerField(help_text="As we count: results of this turn's calls.")
    history_tokens = serializers.IntegerField(help_text="As we count: all other messages.")
    answer_tokens = serializers.IntegerField(help_text="As we count: what the model answered.")
    finish_reason = serializers.CharField(help_text="`stopped`: the turn was stopped while the model wrote.")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    def get_cost(self, step: Step) -> str | None:
        return None if step.cost is None else dollars(step.cost)


class SentTokenOut(serializers.Serializer[ApiToken]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField()
    prefix = serializers.CharField()


class SentMessageOut(serializers.Serializer[Any]):
    role = serializers.CharField()
    text = serializers.CharField(help_text="Its words, and behind them each call that it makes in a line.")


class SentToolOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()


class ClientRequestOut(serializers.Serializer[Any]):
    """Request that a client sent beside the message of a turn."""

    turn = serializers.UUIDField(source="asked.turn_id")
    door = serializers.ChoiceField(Door.choices, source="asked.turn.door")
    token = SentTokenOut(source="asked.token", allow_null=True, help_text="With which it asked; null: removed since.")
    instructions = serializers.CharField(source="sent.instructions", help_text="They stand behind the agent's prompt.")
    earlier = SentMessageOut(
        source="sent.messages",
        many=True,
        allow_null=True,
        help_text="In front of the turn's own message; null where the session's stored turns stand there.",
    )
    tools = SentToolOut(source="sent.tools", many=True, help_text="Of the client's own.")
    parameters = serializers.DictField(source="asked.parameters", help_text="They go with each model call.")
    is_stored = serializers.BooleanField(
        source="asked.is_stored", help_text="Whether later requests may name its response: OpenAI's `store`."
    )


def shown() -> QuerySet[Turn]:
    """Turns with what TurnOut shows of their agent and session."""
    bringing = Step.objects.filter(turn=OuterRef("pk"), index=OuterRef("untrusted_since")).values("tool_name")
    turns = Turn.objects.select_related("agent", "session").defer("agent__prompt")
    asks = Approval.objects.filter(status=ApprovalStatus.PENDING).select_related("step", "tool").order_by("pk")
    asks = asks.only("public_id", "organisation", "turn", "kind", "expires_at", "step__index", "tool__name")
    return turns.annotate(untrusted_tool=Subquery(bringing[:1])).prefetch_related(
        Prefetch("approvals", asks, to_attr="asks")
    )


def turn_or_404(member: Membership, turn_id: UUID) -> Turn:
    """A turn of a session that the member may see; somebody else's looks like a missing one."""
    turn = shown().filter(visible_to(member, "session__"), pk=turn_id).first()
    if turn is None:
        raise Http404
    return turn


class TurnDetail(APIView):
    @extend_schema(operation_id="turns_read", summary="One turn", responses={200: TurnOut, 404: ErrorOut})
    def get(self, request: Request, turn_id: UUID) -> Response:
        """State of a turn, and its answer."""
        return Response(TurnOut(turn_or_404(api_member(request), turn_id)).data)


class TurnRequest(APIView):
    @extend_schema(
        operation_id="turn_request_read",
        summary="What a client sent with a turn",
        responses={200: ClientRequestOut, 404: ErrorOut},
    )
    def get(self, request: Request, turn_id: UUID) -> Response:
        """Request of a client of `/v1` or of MCP: everything it sent beside the message, whole. A turn that came
        otherwise has none."""
        asked = client_request_or_404(api_member(request), turn_id)
        return Response(ClientRequestOut({"asked": asked, "sent": sent_with(asked, WHOLE)}).data)


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
        found = list(
            Step.objects.defer("extras", "raw_usage").filter(turn=turn, index__gt=after).order_by("index")[: limit + 1]
        )
        following = str(found[limit - 1].index) if len(found) > limit else None
        return Response({"results": StepOut(found[:limit], many=True).data, "next": following})


class FileOut(serializers.Serializer[StepFile]):
    id = serializers.UUIDField(source="public_id")
    step = serializers.IntegerField(
        source="step.index", allow_null=True, help_text="The call that it came with; null: it came with the message."
    )
    name = serializers.CharField()
    media_type = serializers.CharField(
        help_text="As the far side of the tool says; of a file of the message, as its bytes show."
    )
    size = serializers.IntegerField(help_text="Bytes.")
    address = serializers.SerializerMethodField(help_text="Where it is downloaded.")

    def get_address(self, file: StepFile) -> str:
        return f"/api/v1/files/{file.public_id}"


class TurnFiles(APIView):
    @extend_schema(
        operation_id="turn_files_list",
        summary="Files of a turn",
        parameters=PAGE_PARAMETERS,
        responses={200: paged(FileOut), 404: ErrorOut},
    )
    def get(self, request: Request, turn_id: UUID) -> Response:
        """Files that came with its message, and with the results of its calls, the oldest first. Of the message's files
        the model sees images, where it takes some; of all others it reads the names."""
        member = api_member(request)
        files = files_seen_by(member).filter(turn=turn_or_404(member, turn_id)).select_related("step")
        return Response(page(request, files, "pk", lambda file: FileOut(file).data))


class FileContent(APIView):
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="files_read",
        summary="Download a file of a turn",
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, 404: ErrorOut},
    )
    def get(self, request: Request, file_id: UUID) -> HttpResponseBase:
        """Content of the file. An image (PNG, JPEG, GIF, WebP) has its own type, all else that of unknown bytes."""
        return sent(file_or_404(api_member(request), file_id))


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
        member = api_member(request)
        turn = turn_or_404(member, turn_id)
        check_may_touch(request, member, turn.session.membership_id)
        ledger.cancel(turn, actor=member)
        return Response(TurnOut(turn).data)


class TurnEvents(APIView):
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="events_stream",
        summary="Watch a turn",
        parameters=[
            OpenApiParameter(
                "Last-Event-ID",
                {"type": "string", "pattern": r"^\d{1,9}(\.\d{1,9})?$"},
                OpenApiParameter.HEADER,
                description="Go on behind the event or piece of text that had this id.",
            )
        ],
        responses={
            (200, "text/event-stream"): OpenApiResponse(OpenApiTypes.STR, description="Server-sent events."),
            404: ErrorOut,
            429: OpenApiResponse(ErrorOut, description="`too_many_streams`: close one first, or ask for the turn."),
        },
    )
    def get(self, request: Request, turn_id: UUID) -> HttpResponseBase:
        """The turn's events as they happen, each with its number as id.

        A `delta` carries a piece of the reply that the model is writing: `{"after": 4, "at": 120, "text": "..."}` is
        text from character 120 on of what is written behind event 4; its id is `4.` and the length of all the text that
        came so far. Whoever connects in the middle gets the text so far first; whoever comes back with the last id gets
        what is missing, and nothing twice. `model` says that a reply is whole and stored; `attempt_restarted` that the
        reply so far is void, because the model is asked again."""
        member = api_member(request)
        turn = turn_or_404(member, turn_id)
        seen = SEEN.fullmatch(request.headers.get("Last-Event-ID", "0"))
        if seen is None:
            raise ValidationError({"Last-Event-ID": "Give the id of an event of this turn."})
        parts = stream(request, turn, int(seen["event"]), int(seen["read"] or 0))
        try:
            return event_stream(member, request.auth if isinstance(request.auth, ApiToken) else None, parts)
        except TooManyStreams as error:
            raise Refused("too_many_streams", str(error), status_code=429, wait=TRY_AGAIN) from error


async def stream(request: Request, turn: Turn, after: int, read: int = 0) -> AsyncIterator[str]:
    """Text of the event stream. Ends with the turn, or when the token may no longer read it."""
    token = request.auth
    assert isinstance(token, ApiToken)
    readers, pulse = open_readers(), Pulse()
    with readers.reading(Reader(token.membership_id, turn.session_id, token_id=token.pk)) as reader:
        async for item in watch(turn.pk, turn.organisation_id, after=after, read=read, whole=True):
            if await readers.must_ask(reader) and not await _may_still_read(request, turn):
                return
            if isinstance(item, Event):
                yield f"id: {item.number}\nevent: {item.type}\ndata: {json.dumps(item.payload)}\n\n"
            elif isinstance(item, Delta):
                data = json.dumps({"after": item.event, "at": item.at, "text": item.text})
                yield f"id: {item.event}.{item.end}\nevent: delta\ndata: {data}\n\n"
            elif pulse.is_due():
                yield STILL_HERE


@sync_to_async
def _may_still_read(request: Request, turn: Turn) -> bool:
    try:
        token = token_of(request._request)
        if token is None:
            return False
        with organisation_scope(turn.organisation_id):
            return visible_sessions(token.membership).filter(pk=turn.session_id).exists()
    finally:
        give_back_connection()


urlpatterns: list[URLPattern] = [
    path("turns/<uuid:turn_id>", TurnDetail.as_view(), name="api-turn"),
    path("turns/<uuid:turn_id>/request", TurnRequest.as_view(), name="api-turn-request"),
    path("turns/<uuid:turn_id>/steps", TurnSteps.as_view(), name="api-turn-steps"),
    path("turns/<uuid:turn_id>/files", TurnFiles.as_view(), name="api-turn-files"),
    path("files/<uuid:file_id>", FileContent.as_view(), name="api-file"),
    path("turns/<uuid:turn_id>/events", TurnEvents.as_view(), name="api-turn-events"),
    path("turns/<uuid:turn_id>/cancel", TurnCancel.as_view(), name="api-turn-cancel"),
]
