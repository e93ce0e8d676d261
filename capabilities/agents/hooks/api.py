"""REST: hooks. Needs the right `hooks`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.agents.hooks.queries import Names, hook_or_404, names_for
from capabilities.agents.hooks.writes import (
    MAX_DESCRIPTION,
    HookContent,
    create_hook,
    delete_hook,
    hook_content,
    update_hook,
)
from capabilities.common.api import checked_part, refusals
from capabilities.contract.hooks import ACTIONS, FIELDS, OnError, Phase
from capabilities.models import Hook
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

WHEN = (
    "All that is said must hold, of each list one is enough: `agents` and `providers` (short names), `members` (ids), "
    "`tools` (patterns), `arguments` (`[{name, pattern}]`), `share` (of 100 turns)."
)


class HookOut(serializers.Serializer[Hook]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField()
    description = serializers.CharField()
    phase = serializers.CharField()
    action = serializers.CharField()
    settings = serializers.SerializerMethodField(help_text="Of the action.")
    when = serializers.SerializerMethodField(help_text=WHEN)
    priority = serializers.IntegerField(help_text="Lower ones run first.")
    timeout = serializers.FloatField(help_text="Seconds that a Python hook may take.")
    on_error = serializers.CharField()
    disable_after = serializers.IntegerField(help_text="Failures in a row; only with `disable`.")
    is_enabled = serializers.BooleanField()
    acts_for = serializers.CharField(
        help_text="The access of whoever wrote it last: it changes turns of members up to this. An admin approves it "
        "for all by saving it. What only blocks or asks acts for all."
    )
    fired = serializers.IntegerField(help_text="How often it did something.")
    last_fired_at = serializers.DateTimeField(allow_null=True)
    failed = serializers.IntegerField()
    failed_in_a_row = serializers.IntegerField()
    last_failed_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()
    switched_off_at = serializers.DateTimeField(allow_null=True, help_text="When its failures switched it off.")

    def get_settings(self, hook: Hook) -> dict[str, Any]:
        settings = dict(hook.settings) if isinstance(hook.settings, dict) else {}
        if isinstance(settings.get("provider"), str):
            settings["provider"] = self._names.providers.get(settings["provider"], (settings["provider"],))[0]
        return settings

    def get_when(self, hook: Hook) -> dict[str, Any]:
        when = dict(hook.when) if isinstance(hook.when, dict) else {}
        for name, known in (("agents", self._names.agents), ("providers", self._names.providers)):
            if isinstance(when.get(name), list):
                when[name] = [known.get(each, (each,))[0] for each in when[name]]
        return when

    @property
    def _names(self) -> Names:
        names: Names = self.context["names"]
        return names


class HookIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    description = serializers.CharField(max_length=MAX_DESCRIPTION, allow_blank=True, default="")
    phase = serializers.ChoiceField(
        [str(each) for each in Phase], required=False, help_text="Where the action has but one: left out."
    )
    action = serializers.ChoiceField(list(ACTIONS))
    settings = serializers.JSONField(default=dict, help_text="Of the action, an object.")
    when = serializers.JSONField(default=dict, help_text=WHEN)
    priority = serializers.IntegerField(required=False, allow_null=True)
    timeout = serializers.FloatField(required=False, allow_null=True)
    on_error = serializers.ChoiceField(
        [str(each) for each in OnError],
        required=False,
        help_text="Left out: `deny` for what blocks or asks, and for Python hooks before a call; else `continue`.",
    )
    disable_after = serializers.IntegerField(required=False, allow_null=True)
    is_enabled = serializers.BooleanField(default=True)


def _content(body: dict[str, Any], base: HookContent | None = None) -> HookContent:
    """Build a hook's content from the body; the stored one gives what the body leaves out."""
    entry = {**(base.entry if base else {}), **{name: body[name] for name in FIELDS if name in body}}
    others = {name: body[name] for name in ("description", "is_enabled") if name in body}
    return replace(base or HookContent({}), entry=entry, **others)


def _out(hook: Hook) -> Response:
    return Response(HookOut(hook, context={"names": names_for([hook])}).data)


class HookList(APIView):
    @extend_schema(operation_id="hooks_list", summary="Hooks", parameters=PAGE_PARAMETERS, responses=paged(HookOut))
    def get(self, request: Request) -> Response:
        """Rules that run at one of four phases of each turn. Needs the right `hooks`."""
        api_member(request, right=Right.HOOKS)
        names: dict[str, Names] = {}

        def complete(hooks: list[Hook]) -> None:
            names["of page"] = names_for(hooks)

        return Response(
            page(
                request,
                Hook.objects.all(),
                "name",
                lambda row: HookOut(row, context={"names": names["of page"]}).data,
                complete=complete,
            )
        )

    @extend_schema(operation_id="hooks_create", summary="Add a hook", request=HookIn, responses={201: HookOut})
    def post(self, request: Request) -> Response:
        """Add a hook. The hook counts from the next call on, in running turns too."""
        member = api_member(request, right=Right.HOOKS)
        body = checked(HookIn, request)
        with refusals():
            hook = create_hook(_content(body), actor=member)
        answer = _out(hook)
        answer.status_code = status.HTTP_201_CREATED
        return answer


class HookDetail(APIView):
    @extend_schema(operation_id="hooks_read", summary="One hook", responses=HookOut)
    def get(self, request: Request, hook_id: UUID) -> Response:
        """Needs the right `hooks`."""
        api_member(request, right=Right.HOOKS)
        return _out(hook_or_404(hook_id))

    @extend_schema(operation_id="hooks_update", summary="Change a hook", request=HookIn, responses=HookOut)
    def patch(self, request: Request, hook_id: UUID) -> Response:
        """Change a hook; what is left out stays. `settings` and `when` are replaced as a whole."""
        member = api_member(request, right=Right.HOOKS)
        hook = hook_or_404(hook_id)
        body = checked_part(HookIn, request)
        with refusals():
            return _out(update_hook(hook, _content(body, hook_content(hook)), actor=member))

    @extend_schema(operation_id="hooks_delete", summary="Remove a hook", responses={204: None})
    def delete(self, request: Request, hook_id: UUID) -> Response:
        """Needs the right `hooks`."""
        member = api_member(request, right=Right.HOOKS)
        delete_hook(hook_or_404(hook_id), actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)
