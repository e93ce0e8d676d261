"""REST: schedules. Every member's own; with the right `sessions` everybody's, to see, switch off and delete."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import URLPattern, path, reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import checked_part, refusals
from sessions.access import check_may_touch
from sessions.doors.schedules.writes import (
    MAX_LINE,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_ZONE,
    ScheduleContent,
    add_schedule,
    change_schedule,
    remove_schedule,
    schedule_or_404,
    schedules_page,
    switch_schedule,
)
from sessions.models import Schedule
from toolhub.tenants.models import Access, Membership, Scope
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import MAX_PAGE, PAGE_PARAMETERS, cursor_of, integer_parameter, only_parameters
from toolhub.tenants.rows.keyset import PAGE


class ScheduleOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="public_id")
    name = serializers.CharField()
    cron = serializers.CharField()
    timezone = serializers.CharField()
    message = serializers.CharField()
    agent = serializers.CharField(source="agent.slug")
    member = serializers.UUIDField(source="membership.public_id")
    session = serializers.UUIDField(source="session_id", allow_null=True, help_text="Where its turns go.")
    is_enabled = serializers.BooleanField()
    next_at = serializers.DateTimeField(allow_null=True, help_text="Null while it is switched off.")
    last_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(help_text="Why its last turn was not started, if it was not.")
    created_at = serializers.DateTimeField()

    def to_representation(self, instance: Schedule) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return shown if instance.is_enabled else shown | {"next_at": None}


class ScheduleIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME)
    cron = serializers.CharField(max_length=MAX_LINE, help_text="Five fields: `0 9 * * mon-fri`.")
    timezone = serializers.CharField(max_length=MAX_ZONE, default="UTC")
    message = serializers.CharField(max_length=MAX_MESSAGE, trim_whitespace=False)
    agent = serializers.CharField(
        max_length=63, required=False, help_text="The slug of an agent; left out, the first that is switched on."
    )


class SchedulePart(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME)
    cron = serializers.CharField(max_length=MAX_LINE)
    timezone = serializers.CharField(max_length=MAX_ZONE)
    message = serializers.CharField(max_length=MAX_MESSAGE, trim_whitespace=False)
    agent = serializers.CharField(max_length=63)
    is_enabled = serializers.BooleanField()


def shown(schedule: Schedule) -> Any:
    return ScheduleOut(schedule).data


def to_change(request: Request, schedule_id: UUID) -> tuple[Membership, Schedule]:
    """The member, and a schedule that this token may change."""
    member = api_member(request)
    schedule = schedule_or_404(member, schedule_id)
    check_may_touch(request, member, schedule.membership_id)
    return member, schedule


class ScheduleList(APIView):
    write_scope = Scope.CHAT

    @extend_schema(
        operation_id="schedules_list", summary="Schedules", parameters=PAGE_PARAMETERS, responses=paged(ScheduleOut)
    )
    def get(self, request: Request) -> Response:
        """Your schedules, and with the right `sessions` everybody's, by name."""
        member = api_member(request)
        only_parameters(request, "cursor", "limit")
        limit = integer_parameter(request, "limit", PAGE, 1, MAX_PAGE)
        found = schedules_page(member, everyone=True, after=cursor_of(request), limit=limit)
        return Response({"results": ScheduleOut(found.rows, many=True).data, "next": found.after or None})

    @extend_schema(
        operation_id="schedules_create",
        summary="Add a schedule",
        request=ScheduleIn,
        responses={201: ScheduleOut, 400: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request) -> Response:
        """A message that is sent to an agent again and again, with your rights. 409 `conflict` with 20 of them."""
        member = api_member(request, at_least=Access.MEMBER)
        with refusals():
            schedule = add_schedule(ScheduleContent(**checked(ScheduleIn, request)), member=member)
        location = reverse("api-schedule", args=[schedule.public_id])
        return Response(
            shown(schedule_or_404(member, schedule.public_id)), status.HTTP_201_CREATED, headers={"Location": location}
        )


class ScheduleDetail(APIView):
    write_scope = Scope.CHAT

    @extend_schema(operation_id="schedules_read", summary="One schedule", responses={200: ScheduleOut, 404: ErrorOut})
    def get(self, request: Request, schedule_id: UUID) -> Response:
        return Response(shown(schedule_or_404(api_member(request), schedule_id)))

    @extend_schema(
        operation_id="schedules_update",
        summary="Change a schedule",
        request=SchedulePart,
        responses={200: ScheduleOut, 400: ErrorOut, 403: ErrorOut, 404: ErrorOut},
    )
    def patch(self, request: Request, schedule_id: UUID) -> Response:
        """Edit it, or switch it with `is_enabled`. Another member's can be switched off, with the right `sessions`."""
        member, schedule = to_change(request, schedule_id)
        part = checked_part(SchedulePart, request)
        is_enabled = part.pop("is_enabled", None)
        with refusals():
            if part:
                as_it_is = {
                    "name": schedule.name,
                    "cron": schedule.cron,
                    "timezone": schedule.timezone,
                    "message": schedule.message,
                    "agent": schedule.agent.slug,
                }
                schedule = change_schedule(schedule, ScheduleContent(**(as_it_is | part)), actor=member)
            if is_enabled is not None:
                schedule = switch_schedule(schedule, is_enabled, actor=member)
        return Response(shown(schedule))

    @extend_schema(
        operation_id="schedules_delete",
        summary="Delete a schedule",
        responses={204: None, 403: ErrorOut, 404: ErrorOut},
    )
    def delete(self, request: Request, schedule_id: UUID) -> Response:
        """Turns that it started stay. Another member's can be deleted with the right `sessions`."""
        member, schedule = to_change(request, schedule_id)
        remove_schedule(schedule, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


urlpatterns: list[URLPattern] = [
    path("schedules", ScheduleList.as_view(), name="api-schedules"),
    path("schedules/<uuid:schedule_id>", ScheduleDetail.as_view(), name="api-schedule"),
]
