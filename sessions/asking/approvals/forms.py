"""The forms that answer what a turn asks, and the address of the list."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.utils import timezone
from django.utils.datastructures import MultiValueDict

from sessions.asking.approvals.writes import MAX_NOTE, MAX_PROPOSAL, MAX_RESPONSE
from sessions.models import ApprovalStatus
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.rows.keyset import PAGE
from toolhub.tenants.rows.public_ids import public_id_of

#: What is done with several calls.
APPROVE, DENY = "approve", "deny"
#: Hours that an approval can be remembered for, as a choice says them.
HOURS = [(1, "1 hour"), (8, "8 hours"), (24, "1 day"), (24 * 7, "7 days"), (24 * 30, "30 days")]


class ApprovalsAddress(ListAddress):
    """The address of the list: the state of what is shown."""

    status = forms.ChoiceField(required=False, choices=[("", "All"), *ApprovalStatus.choices])


class BulkForm(forms.Form):
    """Calls that were ticked, and what to do with each of them."""

    do = forms.ChoiceField(choices=[(APPROVE, "Approve"), (DENY, "Deny")])
    approval = forms.TypedMultipleChoiceField(error_messages={"required": "Tick at least one call."}, coerce=UUID)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        sent = self.data.getlist("approval") if isinstance(self.data, MultiValueDict) else []
        ids = dict.fromkeys(str(found) for text in sent[:PAGE] if (found := public_id_of(text)))
        self.fields["approval"].choices = [(each, each) for each in ids]  # type: ignore[attr-defined]


class AnswerForm(forms.Form):
    """Answer of a person, with a note or proposal. A button with a choice of the question's fills in `choice`."""

    note = forms.CharField(required=False, max_length=MAX_NOTE)
    proposal = forms.CharField(required=False, max_length=MAX_PROPOSAL, strip=False)
    response = forms.CharField(required=False, max_length=MAX_RESPONSE, strip=False)
    choice = forms.CharField(required=False, max_length=MAX_RESPONSE, strip=False)
    hours = forms.TypedChoiceField(required=False, choices=HOURS, coerce=int, empty_value=None)

    def until(self) -> datetime | None:
        hours = self.cleaned_data["hours"]
        return timezone.now() + timedelta(hours=hours) if hours else None

    def response_text(self) -> str:
        return str(self.cleaned_data["choice"] or self.cleaned_data["response"])


def first_error(form: forms.Form) -> str:
    """Return the first error of a form that is not valid, for a page that shows one sentence."""
    errors: Any = next(iter(form.errors.values()), [""])
    return str(errors[0])
