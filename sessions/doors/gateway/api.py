"""/v1/models, /v1/chat/completions and /v1/responses, for any client of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.http import HttpResponseBase
from django.urls import path
from django.urls.resolvers import URLPattern
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.models import Agent
from sessions.doors.chats.queries import agents_to_talk_to
from sessions.doors.chats.stream_limits import StreamSlot
from sessions.doors.gateway.answering import Telling, answer
from sessions.doors.gateway.chat_messages import asks_for_usage, read_chat
from sessions.doors.gateway.completions import ChatTelling
from sessions.doors.gateway.conversations import GatewayRequest
from sessions.doors.gateway.errors import Invalid, openai_errors
from sessions.doors.gateway.following import Followed
from sessions.doors.gateway.item_references import with_items
from sessions.doors.gateway.limits import slot_for
from sessions.doors.gateway.requests import Caller, agent_called, take
from sessions.doors.gateway.response_items import conversation_of, read_responses
from sessions.doors.gateway.responses import ResponseTelling
from sessions.doors.gateway.session_keys import named, session_key
from sessions.models import Door, Turn
from sessions.turns.fencing import Conflict, NoRoom
from toolhub.tenants.access import note_token_use
from toolhub.tenants.models import Access, ApiToken, Membership, Scope
from toolhub.tenants.rest.api import AnyAccept, api_member, idempotency_key
from toolhub.tenants.rest.wire import LongJSONParser, Refused

#: Header by which a client says that its turn goes on when it leaves.
ON_DISCONNECT = "X-Toolhub-On-Disconnect"


class OpenAIView(APIView):
    """Common base of the routes under /v1/: a token that may chat, and errors as OpenAI's API has them."""

    read_scope = Scope.CHAT
    write_scope = Scope.CHAT
    schema = None
    parser_classes = (LongJSONParser,)
    content_negotiation_class = AnyAccept

    def get_exception_handler(self) -> Any:
        return openai_errors


class Models(OpenAIView):
    def get(self, request: Request) -> Response:
        """The agents of the organisation, as models. Who may only look may not talk to one."""
        member = api_member(request, at_least=Access.MEMBER)
        return Response({"object": "list", "data": [model_of(agent, member) for agent in agents_to_talk_to(member)]})


class Model(OpenAIView):
    def get(self, request: Request, name: str) -> Response:
        member = api_member(request, at_least=Access.MEMBER)
        return Response(model_of(agent_called(member, name), member))


def model_of(agent: Agent, member: Membership) -> dict[str, Any]:
    """An agent as a model of OpenAI's API. It keeps no day of its own: what counts as that is its organisation's."""
    created = int(member.organisation.created_at.timestamp())
    return {"id": agent.slug, "object": "model", "created": created, "owned_by": "toolhub"}


class AnsweringView(OpenAIView):
    """A route that takes a conversation and answers it by a turn."""

    door: Door

    def post(self, request: Request) -> HttpResponseBase:
        """Put the request on record as a turn, and follow it. Nothing waits in a thread meanwhile.

        It has its place among the requests under way before its body is parsed."""
        member = api_member(request, at_least=Access.MEMBER)
        token = cast(ApiToken, request.auth)
        slot = slot_for(token)
        try:
            return self.answered(request, member, token, slot)
        except BaseException:
            slot.leave()
            raise

    def answered(self, request: Request, member: Membership, token: ApiToken, slot: StreamSlot) -> HttpResponseBase:
        if not isinstance(request.data, Mapping):
            raise ParseError("The body must be a JSON object.")
        caller = Caller(member, token, self.door, request.data, self.key_of(request), idempotency_key(request))
        wanted = self.read(caller)
        turn = self.taken(caller, wanted)
        note_token_use(token, request._request, agent=wanted.agent)
        goes_on = request.headers.get(ON_DISCONNECT, "").lower() == "continue"
        origin = request.build_absolute_uri("/").rstrip("/")
        followed = Followed(turn.pk, turn.session_id, turn.organisation_id, token, origin, goes_on)
        return answer(followed, self.telling(turn, wanted, request.data), slot, streams=wanted.streams)

    def key_of(self, request: Request) -> str:
        return session_key(request._request, cast("Mapping[str, Any]", request.data))

    def read(self, caller: Caller) -> GatewayRequest:
        raise NotImplementedError

    def telling(self, turn: Turn, wanted: GatewayRequest, body: Mapping[str, Any]) -> Telling:
        raise NotImplementedError

    def taken(self, caller: Caller, wanted: GatewayRequest) -> Turn:
        try:
            return take(caller, wanted).turn
        except NoRoom as full:
            raise Refused(full.code, str(full), status_code=429, wait=full.retry_after) from full
        except Conflict as conflict:
            code = 422 if conflict.code == "idempotency_key_reused" else 409
            raise Invalid(str(conflict), code=conflict.code, status=code) from conflict


class ChatCompletions(AnsweringView):
    door = Door.CHAT

    def read(self, caller: Caller) -> GatewayRequest:
        return read_chat(caller.body)

    def telling(self, turn: Turn, wanted: GatewayRequest, body: Mapping[str, Any]) -> Telling:
        return ChatTelling(turn, wanted.agent, tells_usage_apart=asks_for_usage(body))


class Responses(AnsweringView):
    door = Door.RESPONSES

    def key_of(self, request: Request) -> str:
        body = cast("Mapping[str, Any]", request.data)
        if body.get("previous_response_id") is not None:
            return ""
        return named(conversation_of(body)) or super().key_of(request)

    def read(self, caller: Caller) -> GatewayRequest:
        return read_responses(with_items(caller))

    def telling(self, turn: Turn, wanted: GatewayRequest, body: Mapping[str, Any]) -> Telling:
        return ResponseTelling(turn, wanted.agent, body)


urlpatterns: list[URLPattern] = [
    path("models", Models.as_view(), name="v1-models"),
    path("models/<str:name>", Model.as_view(), name="v1-model"),
    path("chat/completions", ChatCompletions.as_view(), name="v1-chat"),
    path("responses", Responses.as_view(), name="v1-responses"),
]
