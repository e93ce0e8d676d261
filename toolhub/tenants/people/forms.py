"""The forms of members and invitations: they shape and check, the domain functions write."""

from __future__ import annotations

from typing import Any

from django import forms

from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import CATEGORY_RIGHTS, EVERY_CATEGORY, Access, Membership, Right
from toolhub.tenants.people.invitations import offered_roles
from toolhub.tenants.people.writes import GivenRight, accesses_to_give, category_names
from toolhub.tenants.rows.public_ids import public_id_of

CHECKS = forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"})


def password_field(label: str) -> forms.CharField:
    return forms.CharField(
        max_length=200,
        label=label,
        strip=False,
        help_text="At least 10 characters, and not a common one.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


class PublicIdField(forms.ModelChoiceField):  # type: ignore[type-arg]
    """A choice among rows, named by their public ids."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, to_field_name="public_id", **kwargs)

    def to_python(self, value: Any) -> Any:
        """Return the row of this id. Raises ValidationError for an id of no row, and for what is no id at all."""
        if isinstance(value, str) and value and public_id_of(value) is None:
            raise forms.ValidationError(self.error_messages["invalid_choice"], code="invalid_choice")
        return super().to_python(value)


class MemberFilter(ListAddress):
    """The list's address. A value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    access = forms.ChoiceField(required=False, choices=[("", "Any access"), *Access.choices])


class AccessForm(forms.Form):
    """Offers what the actor may give."""

    access = forms.ChoiceField(label="Access", error_messages={"invalid_choice": "You cannot give this access."})

    def __init__(self, *args: Any, actor: Membership, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = [(access.value, access.label) for access in accesses_to_give(actor)]
        self.fields["access"].choices = offered  # type: ignore[attr-defined]

    def chosen(self) -> Access:
        return Access(self.cleaned_data["access"])


class InviteForm(AccessForm):
    email = forms.EmailField(
        max_length=254, label="E-mail address", help_text="Only the owner of this address can join."
    )
    roles = forms.MultipleChoiceField(
        required=False,
        widget=CHECKS,
        help_text="The new member gets these roles when they accept the invitation.",
        error_messages={"invalid_choice": "There is no role %(value)s."},
    )
    field_order = ("email", "access", "roles")

    def __init__(self, *args: Any, actor: Membership, **kwargs: Any) -> None:
        super().__init__(*args, actor=actor, initial={"access": Access.MEMBER}, **kwargs)
        self.fields["roles"].choices = offered_roles(actor)  # type: ignore[attr-defined]


class RightForm(forms.Form):
    """One right to give: those that the actor holds somewhere; whether for this category is asked when it is given."""

    right = forms.ChoiceField(label="Right", error_messages={"invalid_choice": "You cannot give this right."})
    category = forms.ChoiceField(
        required=False, label="Only for", error_messages={"invalid_choice": "There is no such category."}
    )

    def __init__(self, *args: Any, actor: Membership, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = [(right.value, right.label) for right in Right if actor.reach(right)]
        self.fields["right"].choices = offered  # type: ignore[attr-defined]
        self.fields["category"].choices = [(EVERY_CATEGORY, "Every category"), *category_names()]  # type: ignore[attr-defined]
        limited = ", ".join(right.label.lower() for right in Right if right in CATEGORY_RIGHTS)
        self.fields["category"].help_text = f"For these rights: {limited}."

    def given(self) -> GivenRight:
        return GivenRight(Right(self.cleaned_data["right"]), self.cleaned_data["category"])


class HeldRightForm(forms.Form):
    """One right to take, as the page names it."""

    right = forms.ChoiceField(choices=Right.choices)
    category = forms.CharField(required=False, max_length=64)

    def given(self) -> GivenRight:
        return GivenRight(Right(self.cleaned_data["right"]), self.cleaned_data["category"])


class NewcomerForm(forms.Form):
    first_name = forms.CharField(
        max_length=150, label="First name", widget=forms.TextInput({"autocomplete": "given-name"})
    )
    last_name = forms.CharField(
        max_length=150, required=False, label="Last name", widget=forms.TextInput({"autocomplete": "family-name"})
    )
    password = password_field("Password")


class NameForm(forms.Form):
    first_name = forms.CharField(
        max_length=150, label="First name", widget=forms.TextInput({"autocomplete": "given-name"})
    )
    last_name = forms.CharField(
        max_length=150, required=False, label="Last name", widget=forms.TextInput({"autocomplete": "family-name"})
    )


class ResetForm(forms.Form):
    password = password_field("New password")
