"""REST: why each tool is, or is not, in what an agent sends for a member."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import refusals
from capabilities.models import Category
from sessions.insight.explain.reasons import STAGES, STATES, TOOLS_A_PAGE, Asked
from sessions.insight.explain.remedies.ways import Change
from sessions.insight.explain.why import MAX_MESSAGE, Explained, explain, subject_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rest.api import ErrorOut, api_member, unknown
from toolhub.tenants.rest.paging import (
    MAX_PAGE,
    PAGE_PARAMETERS,
    cursor_of,
    integer_parameter,
    only_parameters,
)


class QueryIn(serializers.Serializer[Any]):
    """Parameters of the query that name something; each may be left out."""

    member = serializers.UUIDField(required=False)
    agent = serializers.CharField(required=False, max_length=63)
    session = serializers.UUIDField(required=False)
    message = serializers.CharField(required=False, max_length=MAX_MESSAGE, allow_blank=True)
    client = serializers.BooleanField(required=False)
    q = serializers.CharField(required=False, max_length=100, allow_blank=True)
    category = serializers.CharField(required=False, max_length=64)
    state = serializers.ChoiceField(required=False, choices=[*STATES, "all"])


class StageVerdictOut(serializers.Serializer[Any]):
    stage = serializers.ChoiceField(choices=STAGES)
    kept = serializers.BooleanField(allow_null=True, help_text="null: it says nothing of this tool.")
    stops = serializers.BooleanField(help_text="Whether this keeps the tool from being sent.")
    reason = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(
        allow_null=True, help_text="Since when a decision is waited for, where that is on record."
    )


class ChangeOut(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="For programs: `switch_on`, `give_grant`, `load_toolkit`, ...")
    text = serializers.CharField(help_text="For people, after “Would be sent if”.")
    page = serializers.CharField(help_text="Address of the page where it is done.")
    right = serializers.CharField(allow_null=True, help_text="The admin right that it takes.")


class ExplainedOut(serializers.Serializer[Any]):
    tool = serializers.CharField()
    category = serializers.CharField()
    tokens = serializers.IntegerField()
    state = serializers.ChoiceField(choices=STATES)
    is_sent = serializers.BooleanField()
    first_stop = serializers.CharField(allow_null=True, help_text="The first stage that stops it.")
    verdicts = StageVerdictOut(many=True)
    sentence = serializers.CharField()
    changes = ChangeOut(many=True, help_text="Each of them alone would let the tool through.")


class ExplanationOut(serializers.Serializer[Any]):
    results = ExplainedOut(many=True)
    next = serializers.CharField(allow_null=True)
    member = serializers.UUIDField()
    agent = serializers.CharField()
    session = serializers.UUIDField(allow_null=True)
    sent = serializers.IntegerField(help_text="Tools that are sent, whatever this page shows.")
    tokens = serializers.IntegerField(help_text="Of all that are sent.")
    tool_limit = serializers.IntegerField()
    routing = serializers.CharField(help_text="An agent's `routing_mode`, `off` where messages change nothing.")
    all_tokens = serializers.IntegerField(help_text="Of all that would be sent if the message left nothing out.")
    is_offered = serializers.BooleanField(
        help_text="Whether the agent is offered to the member. If not, nothing is sent, whatever the tools say."
    )
    tools_off = serializers.BooleanField(
        help_text="Whether the session’s tools are off. If so, nothing is sent with a person’s message."
    )


def parameter(name: str, kind: type, description: str, **more: Any) -> OpenApiParameter:
    return OpenApiParameter(name, kind, description=description, **more)


class Explain(APIView):
    @extend_schema(
        operation_id="explain_list",
        summary="Why a tool is sent, or not",
        parameters=[
            *PAGE_PARAMETERS,
            parameter("member", UUID, "Id of a member; you, if left out. Another one takes the right `roles`."),
            parameter("agent", str, "Slug of an agent; the session's, or the first one, if left out."),
            parameter("session", str, "A session of that member; a new one, if left out."),
            parameter("message", str, "What would be said; without it, all that a message may bring."),
            parameter(
                "client", bool, "As a client of `/v1` asks: what its agent leaves out for such clients is blocked."
            ),
            parameter("q", str, "Looked for in names, descriptions and categories."),
            parameter("category", str, "Name of a category."),
            parameter("state", str, "Only these tools.", enum=[*STATES, "all"]),
        ],
        responses={200: ExplanationOut, 400: ErrorOut, 403: ErrorOut},
    )
    def get(self, request: Request) -> Response:
        """Every tool of the organisation, at most 15 a page: the verdict of every stage on what the next turn of the
        session would send, and the single changes that would let it through."""
        reader = api_member(request)
        only_parameters(request, "cursor", "limit", *QueryIn().fields)
        limit = min(integer_parameter(request, "limit", TOOLS_A_PAGE, 1, MAX_PAGE), TOOLS_A_PAGE)
        after = cursor_of(request)
        form = QueryIn(data={name: value for name, value in request.query_params.items() if name in QueryIn().fields})
        form.is_valid(raise_exception=True)
        query: dict[str, Any] = dict(form.validated_data)
        with refusals():
            subject = subject_of(
                reader, member=query.get("member"), agent=query.get("agent", ""), session=query.get("session")
            )
        category = query.get("category", "")
        if category and not Category.objects.filter(name=category).exists():
            raise unknown("category", "There is no such category; GET /api/v1/categories lists them.")
        state = query.get("state", "all")
        message, state = query.get("message", ""), "" if state == "all" else state
        client = query.get("client", False)
        asked = Asked(query.get("q", ""), category, state, after, limit=limit, message=message, client=client)
        found = explain(subject, asked)
        return Response(
            {
                "results": [explained_body(each, reader) for each in found.tools],
                "next": found.after or None,
                "member": str(subject.member.public_id),
                "agent": subject.agent.slug,
                "session": str(subject.session.pk) if subject.session is not None else None,
                "sent": found.sent,
                "tokens": found.tokens,
                "tool_limit": found.tool_limit,
                "routing": found.routing,
                "all_tokens": found.all_tokens,
                "is_offered": found.is_offered,
                "tools_off": found.tools_off,
            }
        )


def explained_body(each: Explained, reader: Membership) -> dict[str, Any]:
    """Build the body of one tool, as ExplainedOut describes it."""
    tool = each.reasons
    return {
        "tool": tool.spec.name,
        "category": tool.spec.category,
        "tokens": tool.spec.tokens,
        "state": tool.state,
        "is_sent": tool.is_sent,
        "first_stop": tool.first_stop.stage if tool.first_stop is not None else None,
        "verdicts": [
            {
                "stage": cell.stage,
                "kept": cell.kept,
                "stops": cell.stops,
                "reason": cell.reason,
                "since": cell.since.isoformat() if cell.since else None,
            }
            for cell in tool.cells
        ],
        "sentence": each.sentence,
        "changes": [_change(change, reader) for change in each.changes],
    }


def _change(change: Change, reader: Membership) -> dict[str, Any]:
    page = reverse(change.view, args=[reader.organisation.slug, *change.args], query=change.query or None)
    right = change.right.value if change.right is not None else None
    return {"code": change.code, "text": change.text, "page": page, "right": right}


urlpatterns: list[URLPattern] = [path("explain", Explain.as_view(), name="api-explain")]
