"""The form of a new API token."""

from __future__ import annotations

from django import forms

from toolhub.tenants.models import Scope
from toolhub.tenants.people.forms import CHECKS


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="Where it is used: laptop, nightly report, ...")
    scopes = forms.MultipleChoiceField(choices=Scope.choices, widget=CHECKS, initial=[Scope.READ, Scope.CHAT])
    days = forms.TypedChoiceField(
        label="Expires",
        coerce=int,
        initial=90,
        choices=[(7, "in 7 days"), (30, "in 30 days"), (90, "in 90 days"), (365, "in a year"), (0, "never")],
    )

    def scope_list(self) -> list[Scope]:
        return [Scope(scope) for scope in self.cleaned_data["scopes"]]
