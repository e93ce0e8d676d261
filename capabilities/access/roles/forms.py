"""Forms of roles and grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.http import QueryDict
from django.utils.http import urlencode

from capabilities.access.grants.writes import MAX_REASON, GrantContent
from capabilities.access.roles.writes import RoleContent, Rule
from capabilities.access.until import CHOICES, NEVER, UntilForm
from capabilities.common.names_field import ShortNameField
from capabilities.models import Category, Effect, Role, RoleMode
from toolhub.tenants.places import MAX_PLACE
from toolhub.tenants.public_ids import public_id_of


class RoleForm(forms.Form):
    """What a role says of itself. Its rules come beside it: a select for each category and tool that is shown."""

    name = forms.CharField(max_length=100)
    slug = ShortNameField()
    description = forms.CharField(required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 2}))
    mode = forms.ChoiceField(
        choices=[
            (RoleMode.ALL, "All tools, including future ones"),
            (RoleMode.LISTED, "The tools listed below"),
            (RoleMode.NONE, "No tools"),
        ],
        initial=RoleMode.LISTED,
        label="Which tools it allows",
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )

    def __init__(self, *args: Any, role: Role | None = None, is_locked: bool = False, **kwargs: Any) -> None:
        """`is_locked`: it is shown to be read, and posted as it is."""
        if role is not None and "initial" not in kwargs:
            fields = ("name", "slug", "description", "mode")
            kwargs["initial"] = {field: getattr(role, field) for field in fields}
        super().__init__(*args, **kwargs)
        if is_locked and role is not None:
            for name in ("name", "slug", "description"):
                self.fields[name].widget.attrs["readonly"] = True
            modes: Any = self.fields["mode"]
            modes.widget.choices = [each for each in modes.choices if each[0] == role.mode]

    def content(self, rules: tuple[Rule, ...]) -> RoleContent:
        data = self.cleaned_data
        slug = data["slug"] or self.initial.get("slug", "")
        return RoleContent(slug, data["name"], data["description"], data["mode"], rules)


def posted_rules(data: Mapping[str, Any], stored: Iterable[Rule]) -> tuple[Rule, ...]:
    """The role's rules as the form leaves them: what it shows is as it says, what it does not show stays."""
    found = {("tool", rule.tool) if rule.tool else ("category", rule.category): rule for rule in stored}
    for key in data:
        kind, dash, name = key.partition("-")
        if not dash or kind not in ("category", "tool"):
            continue
        effect = data[key]
        found.pop((kind, name), None)
        if effect in Effect.values:
            found[kind, name] = Rule(effect, **{kind: name})
    return tuple(sorted(found.values()))


def posted_members(data: QueryDict) -> dict[UUID, bool]:
    """By public id of each member that the form shows, whether the box is ticked."""
    shown, ticked = (
        {key for text in data.getlist(name) if (key := public_id_of(text)) is not None} for name in ("shown", "members")
    )
    return {key: key in ticked for key in shown | ticked}


class GrantFilter(forms.Form):
    """The address of the grants: a value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    effect = forms.ChoiceField(required=False, choices=[("", "Allow or deny"), *Effect.choices])
    state = forms.ChoiceField(
        required=False, choices=[("", "In force or expired"), ("in_force", "In force"), ("expired", "Expired")]
    )
    before = forms.CharField(required=False, max_length=MAX_PLACE)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: self.cleaned_data.get(name) or "" for name in self.fields}


class UsableFilter(forms.Form):
    """The address of a member's tools: a value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    show = forms.ChoiceField(required=False, choices=[("", "Allowed"), ("all", "Allowed or not")])
    after = forms.CharField(required=False, max_length=64)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: self.cleaned_data.get(name) or "" for name in self.fields}

    def query(self) -> str:
        """The same as the query of an address."""
        return urlencode({name: value for name, value in self.values().items() if value})


class ToolGrantForm(UntilForm):
    """One member's own allow or deny of the tool that it stands beside."""

    tool = forms.CharField(max_length=64, widget=forms.HiddenInput())
    effect = forms.ChoiceField(choices=Effect.choices, widget=forms.HiddenInput())
    until = forms.ChoiceField(label="For how long", choices=[*CHOICES, (NEVER, "No end")], initial="8h")
    reason = forms.CharField(
        required=False, max_length=MAX_REASON, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def content(self, member: UUID) -> GrantContent:
        data = self.cleaned_data
        return GrantContent(member, data["effect"], data["tool"], reason=data["reason"], expires_at=data["expires_at"])


class GrantForm(UntilForm):
    """One member's own allow or deny. Names are typed, with the organisation's own as suggestions."""

    member = forms.EmailField(
        max_length=254,
        help_text="The member's e-mail address.",
        widget=forms.EmailInput(attrs={"list": "members", "autocomplete": "off"}),
    )
    effect = forms.ChoiceField(
        choices=[(Effect.ALLOW, "Allow, in addition to the roles"), (Effect.DENY, "Deny, whatever the roles allow")],
        initial=Effect.ALLOW,
        widget=forms.RadioSelect(attrs={"class": "form-check-input"}),
    )
    tool = forms.CharField(
        required=False,
        max_length=64,
        help_text="The name of one tool. Leave it blank to choose a category.",
        widget=forms.TextInput(attrs={"list": "tools", "autocomplete": "off", "spellcheck": "false"}),
    )
    category = forms.ModelChoiceField(
        queryset=Category.objects.none(),
        required=False,
        to_field_name="name",
        empty_label="",
        error_messages={"invalid_choice": "There is no such category."},
    )
    reason = forms.CharField(
        max_length=MAX_REASON, widget=forms.Textarea(attrs={"rows": 2}), help_text="It is shown in the audit log."
    )
    until = forms.ChoiceField(label="For how long", choices=[*CHOICES, (NEVER, "No end")], initial=NEVER)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["category"].queryset = Category.objects.order_by("title")  # type: ignore[attr-defined]

    def content(self, member: UUID) -> GrantContent:
        data = self.cleaned_data
        return GrantContent(
            member=member,
            effect=data["effect"],
            tool=data["tool"],
            category=data["category"].name if data["category"] else "",
            reason=data["reason"],
            expires_at=data["expires_at"],
        )
