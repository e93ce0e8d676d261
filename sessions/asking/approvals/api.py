"""REST: what turns ask people, the answers, and what is remembered of them.

An answer asks for a token with the scope `approve`: one that posts turns does not allow their calls by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.urls import URLPattern, path
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import refusals
from sessions.asking.approvals.answering import answerable_by
from sessions.asking.approvals.queries import approval_or_404, approvals_seen_by, consent_or_404, consents_seen_by
from sessions.asking.approvals.writes import (
    MAX_CONSENT_HOURS,
    MAX_NOTE,
    MAX_PROPOSAL,
    MAX_RESPONSE,
    answer,
    approve,
    approve_with_consent,
    deny,
    respond,
    revoke_consent,
)
from sessions.models import Approval, ApprovalKind, ApprovalStatus, Consent
from sessions.turns.asked import ACCEPT, CANCEL, DECLINE
from sessions.turns.fencing import Conflict
from toolhub.tenants.models import Membership, Scope
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page, uuid_parameter
from toolhub.tenants.rest.wire import Refused

#: Ways to remember an approval.
NOT, SESSION, HOURS = "no", "session", "hours"


class ApprovalOut(serializers.Serializer[Approval]):
    id = serializers.UUIDField(source="public_id")
    kind = serializers.ChoiceField(
        ApprovalKind.choices,
        help_text="`question`: it takes an answer in words. `input`: it takes a form. `link`: a page to open.",
    )
    status = serializers.SerializerMethodField()
    turn = serializers.UUIDField(source="turn_id")
    step = serializers.IntegerField(source="step.index", help_text="The call's step in the turn.")
    round = serializers.IntegerField(source="step.round", help_text="Calls of one reply have the same.")
    session = serializers.UUIDField(source="session_id", help_text="The member's own session.")
    agent = serializers.CharField(source="turn.agent.slug")
    requester = serializers.UUIDField(source="requester.public_id", help_text="The member for whom the call is made.")
    tool = serializers.CharField(source="tool.name")
    tool_version = serializers.IntegerField(source="tool_version.number")
    arguments = serializers.CharField(help_text="The exact arguments, as canonical JSON.")
    digest = serializers.CharField(help_text="SHA-256 of tool, version and arguments. The approval is for this call.")
    asked_by = serializers.CharField(
        source="source", help_text="Who says that somebody is asked: a rule, a hook, `trust`, a setting."
    )
    reason = serializers.CharField(source="for_people")
    form = serializers.JSONField(help_text="Of a form: its flat JSON Schema. The far side of the tool wrote it.")
    url = serializers.CharField(help_text="Of a link: a path of this service, or an address at a far side.")
    action = serializers.CharField(help_text="Of a form or a link that was answered: accept, decline or cancel.")
    needs_other_person = serializers.BooleanField(help_text="Whether the requester may not answer.")
    allows_consent = serializers.BooleanField(help_text="Whether an approval of it can be remembered.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_by = serializers.UUIDField(
        source="decided_by.public_id", allow_null=True, default=None, help_text="A member."
    )
    decided_at = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(help_text="For people.")
    proposal = serializers.CharField(help_text="Of a denial: what to do instead. The model reads it.")
    response = serializers.CharField(help_text="Of an answer in the tool's place: the result that the model reads.")
    used_at = serializers.DateTimeField(allow_null=True, help_text="When the approved call began: once.")

    def get_status(self, approval: Approval) -> str:
        """Return the status: one whose time is over is expired, though no sweep has ended it yet."""
        is_over = approval.status == ApprovalStatus.PENDING and not approval.is_pending
        return ApprovalStatus.EXPIRED.value if is_over else approval.status


class ConsentOut(serializers.Serializer[Consent]):
    id = serializers.UUIDField(source="public_id")
    member = serializers.UUIDField(source="membership.public_id", help_text="Whose calls are not asked for.")
    tool = serializers.CharField(source="tool.name")
    tool_version = serializers.IntegerField(source="tool_version.number")
    session = serializers.UUIDField(source="session_id", allow_null=True, help_text="Null: any session, `until`.")
    until = serializers.DateTimeField(allow_null=True)
    approval = serializers.UUIDField(source="approval.public_id")
    granted_by = serializers.UUIDField(source="granted_by.public_id", allow_null=True, default=None)
    created_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)
    in_force = serializers.BooleanField(source="is_in_force")


class ApproveIn(serializers.Serializer[Any]):
    remember = serializers.ChoiceField(
        [NOT, SESSION, HOURS],
        default=NOT,
        help_text="`no`: this call alone; `session`: the tool's later calls in this session; `hours`: its calls in"
        " every session of the requester, for so many `hours`.",
    )
    hours = serializers.IntegerField(min_value=1, max_value=MAX_CONSENT_HOURS, required=False)
    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs["remember"] == HOURS) != ("hours" in attrs):
            raise ValidationError({"hours": "Give hours with remember=hours, and only then."})
        return attrs


class DenyIn(serializers.Serializer[Any]):
    proposal = serializers.CharField(max_length=MAX_PROPOSAL, allow_blank=True, default="")
    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")


class AnswerIn(serializers.Serializer[Any]):
    action = serializers.ChoiceField(
        [ACCEPT, DECLINE, CANCEL], help_text="`decline`: the member says no; `cancel`: the member says nothing."
    )
    content = serializers.DictField(required=False, help_text="Of a form that is accepted: each field with its value.")


class RespondIn(serializers.Serializer[Any]):
    response = serializers.CharField(max_length=MAX_RESPONSE, trim_whitespace=False)
    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")


@contextmanager
def conflicts() -> Iterator[None]:
    """Raise what stands in the way of an answer as the API's refusal: 409 with its code."""
    try:
        with refusals():
            yield
    except Conflict as error:
        raise Refused(error.code, str(error)) from error


def answered(member: Membership, approval_id: UUID) -> Response:
    return Response(ApprovalOut(approval_or_404(member, approval_id)).data)


class ApprovalList(APIView):
    @extend_schema(
        operation_id="approvals_list",
        summary="Approvals",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("status", str, enum=ApprovalStatus.values, description="Only those that stand there."),
            OpenApiParameter("turn", UUID, description="Only those of this turn."),
            OpenApiParameter("session", UUID, description="Only those of this session, and of what its agents opened."),
            OpenApiParameter(
                "answerable", str, enum=["true"], description="Only those that wait and that you may answer."
            ),
        ],
        responses=paged(ApprovalOut),
    )
    def get(self, request: Request) -> Response:
        """Approvals and questions of turns, the newest first: your own, and with the right `approvals` everybody's, as
        far as it reaches."""
        member = api_member(request)
        rows = approvals_seen_by(member)
        if (status := request.query_params.get("status")) is not None:
            if status not in ApprovalStatus.values:
                raise ValidationError({"status": f"The status is one of {', '.join(ApprovalStatus.values)}."})
            rows = rows.filter(status=status)
        for name in ("turn", "session"):
            if (key := uuid_parameter(request, name)) is not None:
                rows = rows.filter(**{name: key})
        if (answerable := request.query_params.get("answerable")) is not None:
            if answerable != "true":
                raise ValidationError({"answerable": "Give true, or leave it out."})
            rows = rows.filter(answerable_by(member))
        filters = ("status", "turn", "session", "answerable")
        return Response(
            page(request, rows, "pk", lambda row: ApprovalOut(row).data, newest_first=True, filters=filters)
        )


class ApprovalDetail(APIView):
    @extend_schema(operation_id="approvals_read", summary="One approval", responses={200: ApprovalOut, 404: ErrorOut})
    def get(self, request: Request, approval_id: UUID) -> Response:
        """The exact call, why somebody is asked, and the answer."""
        return answered(api_member(request), approval_id)


ANSWERED = {200: ApprovalOut, 400: ErrorOut, 403: ErrorOut, 404: ErrorOut, 409: ErrorOut}


class ApprovalApprove(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(operation_id="approvals_approve", summary="Approve a call", request=ApproveIn, responses=ANSWERED)
    def post(self, request: Request, approval_id: UUID) -> Response:
        """Let the call run once, with exactly these arguments. 409 `already_decided`, `expired`, `void` (its turn has
        ended), `not_a_call` (a question), `not_whole` (too long to be shown whole), `no_consent` (it cannot be
        remembered). 403 for who may not answer."""
        member = api_member(request)
        approval = approval_or_404(member, approval_id)
        wanted = checked(ApproveIn, request)
        with conflicts():
            if wanted["remember"] == NOT:
                approve(approval, actor=member, note=wanted["note"], only_once=True)
            else:
                hours = wanted.get("hours")
                until = timezone.now() + timedelta(hours=hours) if hours else None
                approve_with_consent(approval, actor=member, until=until, note=wanted["note"])
        return answered(member, approval_id)


class ApprovalDeny(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(operation_id="approvals_deny", summary="Deny a call", request=DenyIn, responses=ANSWERED)
    def post(self, request: Request, approval_id: UUID) -> Response:
        """Keep the call from running; the model reads the proposal. 409 as for approving."""
        member = api_member(request)
        approval = approval_or_404(member, approval_id)
        with conflicts():
            deny(approval, actor=member, **checked(DenyIn, request))
        return answered(member, approval_id)


class ApprovalRespond(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(
        operation_id="approvals_respond", summary="Answer in the tool's place", request=RespondIn, responses=ANSWERED
    )
    def post(self, request: Request, approval_id: UUID) -> Response:
        """The text is the result that the model reads: the answer to a question, or one in place of the tool. No tool
        runs. 409 as for approving."""
        member = api_member(request)
        approval = approval_or_404(member, approval_id)
        with conflicts():
            respond(approval, actor=member, **checked(RespondIn, request))
        return answered(member, approval_id)


class ApprovalAnswer(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(
        operation_id="approvals_answer", summary="Answer a form or a link", request=AnswerIn, responses=ANSWERED
    )
    def post(self, request: Request, approval_id: UUID) -> Response:
        """Go on with the call: with what the form says, or after the link was opened; or decline, or cancel. By whose
        session it is. 400 names a field that does not fit, as
        `content.` and its name. 409 as for approving, and `not_a_form`."""
        member = api_member(request)
        approval = approval_or_404(member, approval_id)
        wanted = checked(AnswerIn, request)
        with conflicts():
            answer(approval, actor=member, **wanted)
        return answered(member, approval_id)


class ConsentList(APIView):
    @extend_schema(
        operation_id="consents_list",
        summary="Remembered approvals",
        parameters=PAGE_PARAMETERS,
        responses=paged(ConsentOut),
    )
    def get(self, request: Request) -> Response:
        """Consents for longer than one call, the newest first: for your calls, and with the right `approvals` for
        everybody's, as far as it reaches."""
        rows = consents_seen_by(api_member(request))
        return Response(page(request, rows, "pk", lambda row: ConsentOut(row).data, newest_first=True))


class ConsentDetail(APIView):
    write_scope = Scope.APPROVE

    @extend_schema(
        operation_id="consents_read", summary="One remembered approval", responses={200: ConsentOut, 404: ErrorOut}
    )
    def get(self, request: Request, consent_id: UUID) -> Response:
        return Response(ConsentOut(consent_or_404(api_member(request), consent_id)).data)

    @extend_schema(
        operation_id="consents_revoke",
        summary="Revoke a remembered approval",
        responses={200: ConsentOut, 403: ErrorOut, 404: ErrorOut},
    )
    def delete(self, request: Request, consent_id: UUID) -> Response:
        """The tool's calls are asked for again from now on. The row stays, for the record."""
        member = api_member(request)
        return Response(ConsentOut(revoke_consent(consent_or_404(member, consent_id), actor=member)).data)


urlpatterns: list[URLPattern] = [
    path("approvals", ApprovalList.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", ApprovalDetail.as_view(), name="api-approval"),
    path("approvals/<uuid:approval_id>/approve", ApprovalApprove.as_view(), name="api-approval-approve"),
    path("approvals/<uuid:approval_id>/deny", ApprovalDeny.as_view(), name="api-approval-deny"),
    path("approvals/<uuid:approval_id>/respond", ApprovalRespond.as_view(), name="api-approval-respond"),
    path("approvals/<uuid:approval_id>/answer", ApprovalAnswer.as_view(), name="api-approval-answer"),
    path("consents", ConsentList.as_view(), name="api-consents"),
    path("consents/<uuid:consent_id>", ConsentDetail.as_view(), name="api-consent"),
]
