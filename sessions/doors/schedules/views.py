"""The pages of schedules: one's own, and with the right `sessions` everybody's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent
from sessions.doors.chats.forms import WhoseAddress
from sessions.doors.chats.queries import agents_to_talk_to
from sessions.doors.schedules.writes import (
    MAX_LINE,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_ZONE,
    ScheduleContent,
    add_schedule,
    change_schedule,
    check_may_edit,
    remove_schedule,
    schedule_or_404,
    schedules_page,
    switch_schedule,
)
from sessions.models import Schedule
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in


class ScheduleForm(forms.Form):
    """Content of a schedule. Agents are read when the form is made, in the scope of their organisation."""

    name = forms.CharField(max_length=MAX_NAME, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    message = forms.CharField(
        max_length=MAX_MESSAGE,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Sent to the agent each time, as if you wrote it.",
    )
    agent = forms.ModelChoiceField(
        queryset=Agent.objects.none(),
        to_field_name="slug",
        empty_label=None,
        error_messages={"invalid_choice": "There is no such agent, or it is switched off."},
    )
    cron = forms.CharField(
        label="When",
        max_length=MAX_LINE,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "0 9 * * mon-fri"}),
        help_text="Minute, hour, day of month, month, day of week. 0 9 * * mon-fri: 9:00 on weekdays.",
    )
    timezone = forms.CharField(
        label="Time zone",
        max_length=MAX_ZONE,
        initial="UTC",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Such as UTC or Europe/Berlin.",
    )

    def __init__(self, *args: Any, member: Membership, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].queryset = agents_to_talk_to(member)  # type: ignore[attr-defined]

    def content(self) -> ScheduleContent:
        data = self.cleaned_data
        return ScheduleContent(data["name"], data["cron"], data["message"], data["agent"].slug, data["timezone"])


@require_http_methods(["GET", "POST"])
@signed_in
def schedule_list(request: MemberRequest, org: str) -> HttpResponse:
    """The member's schedules (`?whose=all`: everybody's, with the right `sessions`) and a form for a new one."""
    is_post = request.method == "POST"
    member = member_or_404(request, at_least=Access.MEMBER if is_post else Access.VIEWER)
    form = ScheduleForm(request.POST if is_post else None, member=member)
    if is_post and form.is_valid():
        try:
            schedule = add_schedule(form.content(), member=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{schedule.name} is scheduled.")
            return redirect("schedule_list", org)
    return _schedules_page(request, member, form)


def _schedules_page(request: MemberRequest, member: Membership, form: ScheduleForm) -> HttpResponse:
    sees_all = member.has_right(Right.SESSIONS)
    address = WhoseAddress(request.GET)
    everyone = sees_all and address.everyone
    context = {
        **address.context(schedules_page(member, everyone=everyone, **address.place)),
        "sees_all": sees_all,
        "everyone": everyone,
        "form": form,
        "can_chat": member.has_access(Access.MEMBER),
    }
    return render(request, "sessions/doors/schedules/schedule_list.html", context, status=status_of(form))


@require_http_methods(["GET", "POST"])
@signed_in
def schedule_update(request: MemberRequest, org: str, schedule_id: UUID) -> HttpResponse:
    """Edit one's own schedule."""
    member = member_or_404(request, at_least=Access.MEMBER)
    schedule = schedule_or_404(member, schedule_id)
    check_may_edit(member, schedule)
    form = ScheduleForm(request.POST if request.method == "POST" else None, initial=_initial(schedule), member=member)
    if form.is_valid():
        try:
            change_schedule(schedule, form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{schedule.name} is saved.")
            return redirect("schedule_list", org)
    context = {"schedule": schedule, "form": form}
    return render(request, "sessions/doors/schedules/schedule_update.html", context, status=status_of(form))


def _initial(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "message": schedule.message,
        "agent": schedule.agent.slug,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
    }


@require_POST
@signed_in
def schedule_switch(request: MemberRequest, org: str, schedule_id: UUID) -> HttpResponse:
    """Switch a schedule on or off. `enabled`: 1 or 0."""
    member = member_or_404(request)
    schedule = schedule_or_404(member, schedule_id)
    try:
        switch_schedule(schedule, request.POST.get("enabled") == "1", actor=member)
    except ChangeRefused as error:
        return refused(request, error, "schedule_list", org)
    messages.success(request, f"{schedule.name} is {'on' if schedule.is_enabled else 'off'}.")
    return _back(member, schedule)


@require_POST
@signed_in
def schedule_delete(request: MemberRequest, org: str, schedule_id: UUID) -> HttpResponse:
    member = member_or_404(request)
    schedule = schedule_or_404(member, schedule_id)
    back = _back(member, schedule)
    remove_schedule(schedule, actor=member)
    messages.success(request, f"{schedule.name} is deleted. What it started before stays.")
    return back


def _back(member: Membership, schedule: Schedule) -> HttpResponse:
    """Redirect to the list that the schedule stands in."""
    response = redirect("schedule_list", member.organisation.slug)
    if schedule.membership_id != member.pk:
        response["Location"] += "?whose=all"
    return response
