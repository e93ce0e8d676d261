"""The form of a role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.http import QueryDict

from capabilities.access.roles.writes import RoleContent, Rule
from capabilities.common.names_field import ShortNameField
from capabilities.models import Effect, Role, RoleMode
from toolhub.tenants.rows.public_ids import public_id_of


class RoleForm(forms.Form):
    """Form of a role. Its rules come beside it: a select for each category and tool that is shown."""

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
    """Return, by public id of each member that the form shows, whether the box is ticked."""
    shown, ticked = (
        {key for text in data.getlist(name) if (key := public_id_of(text)) is not None} for name in ("shown", "members")
    )
    return {key: key in ticked for key in shown | ticked}
