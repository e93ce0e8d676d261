"""The forms of policies and profiles, and of what the preview of a policy looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from capabilities.access.policies.writes import MAX_DESCRIPTION, PolicyContent, ProfileContent
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.contract.policy import MAX_PATTERNS
from capabilities.models import Agent, PolicyProfile, Provider

#: Characters of one list as it is typed, line ends included.
MAX_LIST = MAX_PATTERNS * (MAX_PATTERN + 2)


class PatternsField(forms.CharField):
    """Patterns, one a line; commas and blanks part them too."""

    def __init__(self, rows: int = 3, required: bool = False, **kwargs: Any) -> None:
        area = forms.Textarea(attrs={"rows": rows, "spellcheck": "false"})
        super().__init__(required=required, max_length=MAX_LIST, widget=area, **kwargs)

    def clean(self, value: Any) -> tuple[str, ...]:
        return tuple(super().clean(value).replace(",", " ").split())


class PolicyForm(forms.Form):
    """Form of one policy: the organisation's, or a provider's."""

    profile = forms.ChoiceField(
        required=False,
        help_text="The set of tools to begin with. A profile is for operation and is not a security boundary.",
    )
    allow = PatternsField(
        label="Allow only",
        help_text="These tools and no others, in place of the profile. Empty: what the profile names, or everything.",
    )
    also_allow = PatternsField(label="Also allow", help_text="Added to the profile, or to the list above.")
    deny = PatternsField(label="Deny", help_text="Taken away, whatever allowed it.")

    def __init__(self, data: Any = None, *, stored: PolicyContent) -> None:
        lists = {field: "\n".join(getattr(stored, field)) for field in ("allow", "also_allow", "deny")}
        super().__init__(data, initial={"profile": stored.profile, **lists})
        self.stored = stored
        names = PolicyProfile.objects.order_by("name").values_list("name", flat=True)
        _choose(self, "profile", [("", "Every tool"), *((name, name) for name in names)])

    def content(self) -> PolicyContent:
        return PolicyContent(**self.cleaned_data)

    def shown_content(self) -> PolicyContent | None:
        """Return the content that the form was sent with; the stored one before anything was sent; None where it is
        invalid."""
        if not self.is_bound:
            return self.stored
        return self.content() if self.is_valid() else None


class ProfileForm(forms.Form):
    """Form of a profile: its name, its description and the tools that it names."""

    name = forms.CharField(max_length=64, help_text="For policies and the API: letters, digits, _ and -.")
    description = forms.CharField(
        required=False,
        max_length=MAX_DESCRIPTION,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="What it is for.",
    )
    patterns = PatternsField(
        rows=6,
        required=True,
        label="Tools",
        help_text="One a line: the name of a tool, with * and ? as wildcards, or group:web for a whole category.",
    )
    reads_only = forms.BooleanField(
        required=False,
        label="Only tools that read",
        help_text="Tools with the effect write or external are left out, also where the list names them.",
    )

    def __init__(self, data: Any = None, *, stored: ProfileContent) -> None:
        super().__init__(
            data,
            initial={
                "name": stored.name,
                "description": stored.description,
                "patterns": "\n".join(stored.patterns),
                "reads_only": stored.reads_only,
            },
        )

    def content(self) -> ProfileContent:
        data = self.cleaned_data
        words = data["description"].replace("\r\n", "\n")
        return ProfileContent(data["name"], data["patterns"], data["reads_only"], words)


class LookForm(forms.Form):
    """Form that chooses the tools of the preview, and the provider that it is made for."""

    agent = forms.ChoiceField(required=False, label="Tools")
    of_provider = forms.ChoiceField(required=False, label="Model’s provider")

    def __init__(self, data: Any = None, *, with_provider: bool) -> None:
        super().__init__(data, auto_id="look-%s")
        agents = Agent.objects.order_by("name", "slug").values_list("slug", "name")
        agent_choices = ((slug, f"What {name} has or can load") for slug, name in agents)
        _choose(self, "agent", [("", "Every tool of the catalogue"), *agent_choices])
        providers = Provider.objects.order_by("name", "slug").values_list("slug", "name")
        if with_provider:
            _choose(self, "of_provider", [("", "Any without its own policy"), *providers])
        else:
            del self.fields["of_provider"]

    def chosen(self, name: str) -> str:
        """The chosen short name; empty for what is not there."""
        self.is_valid()
        return str(self.cleaned_data.get(name, ""))


def _choose(form: forms.Form, name: str, choices: Sequence[tuple[str, str]]) -> None:
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)
    field.choices = choices
