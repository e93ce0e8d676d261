"""Form in which a browser describes itself when it is to show notifications."""

from __future__ import annotations

from django import forms

from capabilities.common.refused import ChangeRefused
from capabilities.running.push.writes import MAX_LABEL, Browser


class BrowserForm(forms.Form):
    """Form of a new browser. A script of the page fills the hidden fields; the member may name the browser."""

    label = forms.CharField(
        label="Name of this browser", max_length=MAX_LABEL, required=False, help_text="Such as: laptop at work."
    )
    endpoint = forms.CharField(required=False, widget=forms.HiddenInput)
    p256dh = forms.CharField(required=False, widget=forms.HiddenInput)
    auth = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, str]:
        """Return the cleaned data; an error of a field that nobody sees stands above the form."""
        data: dict[str, str] = self.cleaned_data
        if not data.get("endpoint"):
            raise forms.ValidationError("The browser said nothing of itself: it has to run the scripts of this page.")
        try:
            self.browser().check()
        except ChangeRefused as error:
            raise forms.ValidationError(str(error)) from error
        return data

    def browser(self) -> Browser:
        data = self.cleaned_data
        return Browser(data["endpoint"], data["p256dh"], data["auth"], data.get("label", ""))
