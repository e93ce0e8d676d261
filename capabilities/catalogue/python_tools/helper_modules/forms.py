"""The form of a helper module, and the addresses of its lists."""

from __future__ import annotations

from typing import Any

from django import forms

from capabilities.catalogue.python_tools.helper_modules.queries import STATE_FILTERS
from capabilities.catalogue.python_tools.helper_modules.writes import MAX_DESCRIPTION
from capabilities.models import HelperModule, HelperVersion
from capabilities.running.sandbox import MAX_CODE
from toolhub.tenants.list_address import ListAddress

_MONO = {"class": "mono", "spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
BEGIN = (
    'def net(price, vat=0.19):\n    """The price without value added tax."""\n    return round(price / (1 + vat), 2)\n'
)


class ModulesAddress(ListAddress):
    """Query of the list of modules: search words, state, and where the page begins."""

    q = forms.CharField(required=False, max_length=100)
    state = forms.ChoiceField(required=False, choices=[("", "Any state"), *STATE_FILTERS.items()])


class ModuleForm(forms.Form):
    """Form of a module. `module` is the one that gets a version; None for a new one, which is named here."""

    name = forms.CharField(
        max_length=64,
        help_text="Code imports it by this: lower-case letters, digits and _. It stays.",
        widget=forms.TextInput(attrs=_MONO),
    )
    description = forms.CharField(
        required=False, max_length=MAX_DESCRIPTION, help_text="For people. A change of it counts at once."
    )
    code = forms.CharField(
        max_length=MAX_CODE,
        strip=False,
        help_text="Functions and values that tools import. It may import other modules that are in force.",
        widget=forms.Textarea(attrs=_MONO | {"rows": 20, "wrap": "off"}),
    )

    def __init__(self, *args: Any, module: HelperModule | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if module is not None:
            del self.fields["name"]


def initial_of(module: HelperModule | None, newest: HelperVersion | None) -> dict[str, Any]:
    """Return the values that the form begins with."""
    if module is None:
        return {"code": BEGIN}
    return {"description": module.description, "code": newest.code if newest else BEGIN}
