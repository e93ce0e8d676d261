"""The forms of budgets, of a top-up, and of what all budgets go by."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from zoneinfo import available_timezones

from django import forms

from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent, Role
from sessions.budgets.amounts import amount_of, amount_shown, amount_text
from sessions.budgets.writes import MAX_NAME, BudgetContent
from sessions.models import Budget, BudgetScope, Measure, Window
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership

PLAIN = {"autocomplete": "off", "spellcheck": "false"}
RADIO = forms.RadioSelect(attrs={"class": "form-check-input"})
#: An id, alone or in the address of a session's page.
ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HARD = [("hard", "Stop turns when it is spent"), ("warn", "Only warn")]


class BudgetsAddress(ListAddress):
    """The address of the list. `live` counts how often an open page has asked for it anew."""

    live = forms.IntegerField(required=False, min_value=0, max_value=1_000_000)


class LimitForm(forms.Form):
    """Fields of a budget that can be changed later on. `measure` is given by whoever makes the form, or by a field."""

    name = forms.CharField(max_length=MAX_NAME, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    limit = forms.CharField(
        max_length=40,
        help_text="Dollars such as 12.50, or a whole number of tokens or turns. A model call begins only "
        "where the longest answer that it may give fits too, often thousands of tokens.",
        widget=forms.TextInput(attrs=PLAIN | {"inputmode": "decimal"}),
    )
    stops = forms.ChoiceField(label="At the limit", choices=HARD, initial="hard", widget=RADIO)
    warn_at = forms.CharField(
        required=False,
        max_length=40,
        initial="80, 95",
        label="Warn at",
        help_text="Shares of the limit in percent, such as 80, 95. Whoever watches the turn reads the warning.",
        widget=forms.TextInput(attrs=PLAIN),
    )

    def __init__(self, *args: Any, measure: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.of_measure = measure

    def clean_warn_at(self) -> tuple[int, ...]:
        text = str(self.cleaned_data["warn_at"])
        shares = [each.strip().removesuffix("%").strip() for each in text.split(",") if each.strip()]
        if not all(each.isascii() and each.isdecimal() and len(each) < 4 for each in shares):
            raise forms.ValidationError("Give percentages with commas between them, such as 80, 95.")
        return tuple(int(each) for each in shares)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        measure = self.of_measure or cleaned.get("measure")
        if measure and "limit" in cleaned:
            try:
                cleaned["limit"] = amount_of(cleaned["limit"], measure, "limit")
            except ChangeRefused as error:
                self.add_error("limit", str(error))
        return cleaned

    def changed(self, content: BudgetContent) -> BudgetContent:
        """Return the content of a budget with the values of the form."""
        data = self.cleaned_data
        is_hard = data["stops"] == "hard"
        return replace(content, name=data["name"], limit=data["limit"], is_hard=is_hard, warn_at=data["warn_at"])


def of_budget(budget: Budget) -> dict[str, Any]:
    """Return the initial values of `LimitForm`."""
    return {
        "name": budget.name,
        "limit": amount_text(budget.limit, budget.measure),
        "stops": "hard" if budget.is_hard else "warn",
        "warn_at": ", ".join(str(each) for each in budget.warn_at),
    }


class BudgetForm(LimitForm):
    """A new budget. A target that is left blank, but for a role's, means that each one has its own."""

    measure = forms.ChoiceField(label="Counts", choices=Measure.choices, initial=Measure.TOKENS, widget=RADIO)
    window = forms.ChoiceField(
        choices=Window.choices,
        initial=Window.DAY,
        label="Begins anew",
        required=False,
        help_text="In the organisation's time zone. Turns at once have none.",
    )
    scope = forms.ChoiceField(label="For", choices=BudgetScope.choices, initial=BudgetScope.ORGANISATION)
    role = forms.ModelChoiceField(
        Role.objects.none(),
        required=False,
        to_field_name="slug",
        empty_label="Choose a role",
        error_messages={"invalid_choice": "There is no such role."},
    )
    is_per_member = forms.BooleanField(required=False, label="Each member with this role has a budget of their own")
    member = forms.EmailField(
        required=False,
        max_length=254,
        help_text="E-mail address. Blank: each member has a budget of their own.",
        widget=forms.EmailInput(attrs={"list": "members", "autocomplete": "off"}),
    )
    agent = forms.ModelChoiceField(
        Agent.objects.none(),
        required=False,
        to_field_name="slug",
        empty_label="Each agent has its own",
        error_messages={"invalid_choice": "There is no such agent."},
    )
    session = forms.CharField(
        required=False,
        max_length=300,
        help_text="The address of its page, or its id. Blank: each session has a budget of its own.",
        widget=forms.TextInput(attrs=PLAIN),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name = self.fields["name"]
        name.required, name.help_text = False, "Blank: named after whom it is for and its limit."
        self.fields["role"].queryset = Role.objects.order_by("name")  # type: ignore[attr-defined]
        self.fields["agent"].queryset = Agent.objects.defer("prompt").order_by("name")  # type: ignore[attr-defined]
        self.aimed_at: Membership | None = None

    def clean_member(self) -> str:
        email = str(self.cleaned_data["member"]).lower()
        if email and self.data.get("scope") == BudgetScope.MEMBER:
            self.aimed_at = Membership.objects.filter(user__email=email, ended_at=None).first()
            if self.aimed_at is None:
                raise forms.ValidationError("There is no such member.")
        return email

    def clean_session(self) -> str:
        text = str(self.cleaned_data["session"])
        found = ID.search(text)
        if text and found is None:
            raise forms.ValidationError("Give the address of a session's page, or its id.")
        return found[0] if found else ""

    def content(self) -> BudgetContent:
        data = self.cleaned_data
        data["name"] = data["name"] or self._name()
        target = {
            BudgetScope.ROLE: data["role"].slug if data["role"] else "",
            BudgetScope.MEMBER: str(self.aimed_at.public_id) if self.aimed_at else "",
            BudgetScope.AGENT: data["agent"].slug if data["agent"] else "",
            BudgetScope.SESSION: data["session"],
        }
        scope = BudgetScope(data["scope"])
        content = BudgetContent(
            data["name"],
            data["limit"],
            scope=scope,
            target=target.get(scope, ""),
            is_per_member=scope == BudgetScope.ROLE and data["is_per_member"],
            measure=data["measure"],
            window=data["window"] or Window.TOTAL,
        )
        return self.changed(content)

    def _name(self) -> str:
        """Return the name of a budget that was given none, such as "Everything: 50,000 tok each day"."""
        data = self.cleaned_data
        scope, window = BudgetScope(data["scope"]), Window(data["window"] or Window.TOTAL)
        row = {BudgetScope.ROLE: data["role"], BudgetScope.MEMBER: self.aimed_at, BudgetScope.AGENT: data["agent"]}
        limit = amount_shown(data["limit"], data["measure"])
        period = " at once" if data["measure"] == Measure.TURNS else f" {window.label.lower()}"
        return f"{str(row.get(scope) or scope.label)[: MAX_NAME // 2]}: {limit}{period}"[:MAX_NAME]


class TopUpForm(forms.Form):
    """Amount that one window gets in addition."""

    amount = forms.CharField(
        max_length=40, label="Add", widget=forms.TextInput(attrs=PLAIN | {"inputmode": "decimal", "size": "10"})
    )


class RulesForm(forms.Form):
    """Rules that all budgets go by."""

    time_zone = forms.CharField(
        max_length=64,
        label="Time zone",
        help_text="Hours, days and months of budgets begin by it. Running ones keep what was spent.",
        widget=forms.TextInput(attrs=PLAIN | {"list": "zones"}),
    )
    counts_unpriced_as_free = forms.BooleanField(required=False, label="Models without a price count as free")

    @staticmethod
    def zones() -> list[str]:
        """Names to choose from, as suggestions."""
        return sorted(each for each in available_timezones() if "/" in each or each == "UTC")
