"""REST: approval rules."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.access.approval_rules.queries import rule_or_404, rules_in_order
from capabilities.access.approval_rules.words import in_words
from capabilities.access.approval_rules.writes import (
    MAX_ARGUMENT,
    MAX_ARGUMENT_PATTERN,
    MAX_MESSAGE,
    MAX_PRIORITY,
    RuleContent,
    create_rule,
    delete_rule,
    rule_content,
    update_rule,
)
from capabilities.common.api import MADE_FROM_NAME, SlugField, checked_part, refusals
from capabilities.contract.approvals import MAX_HOURS, USUAL_HOURS
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.models import ApprovalRule, AskWhen
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

EVERY = "Empty: every one."


class ApprovalRuleIn(serializers.Serializer[Any]):
    name = SlugField(required=False, help_text=MADE_FROM_NAME)
    priority = serializers.IntegerField(
        min_value=0, max_value=MAX_PRIORITY, default=100, help_text="The lowest is asked first; then by name."
    )
    tool_pattern = serializers.CharField(
        max_length=MAX_PATTERN, default="*", help_text="A tool's name, with `*` and `?`, or `group:` and a category."
    )
    toolkit = serializers.CharField(max_length=64, allow_blank=True, default="", help_text=EVERY)
    role = serializers.CharField(max_length=63, allow_blank=True, default="", help_text=EVERY)
    agent = serializers.CharField(max_length=63, allow_blank=True, default="", help_text=EVERY)
    argument = serializers.CharField(max_length=MAX_ARGUMENT, allow_blank=True, default="")
    argument_pattern = serializers.CharField(
        max_length=MAX_ARGUMENT_PATTERN, allow_blank=True, default="", help_text="With `*` and `?`."
    )
    when = serializers.ChoiceField(AskWhen.choices, default=AskWhen.ALWAYS)
    expires_after = serializers.IntegerField(min_value=1, max_value=MAX_HOURS, default=USUAL_HOURS, help_text="Hours.")
    needs_other_person = serializers.BooleanField(default=False, help_text="Whether the requester may not answer.")
    message = serializers.CharField(
        max_length=MAX_MESSAGE, allow_blank=True, default="", help_text="Whoever is asked reads it."
    )


class ApprovalRuleOut(ApprovalRuleIn):
    id = serializers.UUIDField()
    words = serializers.CharField(help_text="The rule in sentences.")


def shown(rule: ApprovalRule) -> dict[str, Any]:
    content = rule_content(rule)
    body = {"id": rule.public_id, **asdict(content), "words": in_words(content)}
    return dict(ApprovalRuleOut(body).data)


class RuleList(APIView):
    @extend_schema(
        operation_id="approval_rules_list",
        summary="Approval rules",
        parameters=PAGE_PARAMETERS,
        responses=paged(ApprovalRuleOut),
    )
    def get(self, request: Request) -> Response:
        """List the rules by the time they were made; a call is asked about in the order of `priority` and `name`. Needs
        the right `policies`."""
        api_member(request, right=Right.POLICIES)
        return Response(page(request, rules_in_order(), "pk", shown))

    @extend_schema(
        operation_id="approval_rules_create",
        summary="Make an approval rule",
        request=ApprovalRuleIn,
        responses={201: ApprovalRuleOut},
    )
    def post(self, request: Request) -> Response:
        """Add an approval rule. The rule counts from the next call on, in running turns too. Needs the right
        `policies`."""
        actor = api_member(request, right=Right.POLICIES)
        body = checked(ApprovalRuleIn, request)
        with refusals():
            rule = create_rule(RuleContent(**body), actor=actor)
        return Response(shown(rule), status.HTTP_201_CREATED)


class RuleDetail(APIView):
    @extend_schema(
        operation_id="approval_rules_read", summary="One approval rule", responses={200: ApprovalRuleOut, 404: ErrorOut}
    )
    def get(self, request: Request, rule_id: UUID) -> Response:
        actor = api_member(request, right=Right.POLICIES)
        return Response(shown(rule_or_404(actor, rule_id)))

    @extend_schema(
        operation_id="approval_rules_update",
        summary="Change an approval rule",
        request=ApprovalRuleIn,
        responses={200: ApprovalRuleOut, 404: ErrorOut},
    )
    def patch(self, request: Request, rule_id: UUID) -> Response:
        """Change an approval rule; what is left out stays."""
        actor = api_member(request, right=Right.POLICIES)
        rule = rule_or_404(actor, rule_id)
        part = checked_part(ApprovalRuleIn, request)
        with refusals():
            return Response(shown(update_rule(rule, replace(rule_content(rule), **part), actor=actor)))

    @extend_schema(
        operation_id="approval_rules_delete",
        summary="Remove an approval rule",
        responses={204: None, 404: ErrorOut},
    )
    def delete(self, request: Request, rule_id: UUID) -> Response:
        actor = api_member(request, right=Right.POLICIES)
        rule = rule_or_404(actor, rule_id)
        with refusals():
            delete_rule(rule, actor=actor)
        return Response(status=status.HTTP_204_NO_CONTENT)
