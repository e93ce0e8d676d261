"""The filter of the audit."""

from __future__ import annotations

from datetime import date

from django import forms

from toolhub.tenants.audit.queries import AuditFilter
from toolhub.tenants.list_address import ListAddress


class AuditFilterForm(ListAddress):
    """The audit's address. A day that cannot be is left out."""

    actor = forms.CharField(required=False, max_length=200)
    action = forms.CharField(required=False, max_length=64)
    target = forms.CharField(required=False, max_length=200)
    since = forms.DateField(required=False)
    until = forms.DateField(required=False)
    q = forms.CharField(required=False, max_length=200)
    target_id = forms.UUIDField(required=False)

    def wanted(self) -> AuditFilter:
        self.full_clean()
        data = self.cleaned_data
        since, until = (_within(data.get(name)) for name in ("since", "until"))
        texts = {name: data.get(name, "") for name in ("actor", "action", "target", "q")}
        return AuditFilter(since=since, until=until, target_id=data.get("target_id"), **texts)


def _within(day: date | None) -> date | None:
    return day if day is not None and 1970 <= day.year < 9999 else None
