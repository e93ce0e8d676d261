"""The form of an own price. It shapes and checks; `add_price` writes."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from capabilities.contract.budget_windows import zone_named
from capabilities.language_models.prices.writes import (
    DECIMALS,
    MAX_NOTE,
    MAX_PRICE,
    MAX_TIER,
    PRICES,
    TIER_PRICES,
    PriceContent,
)


def _price(label: str, help_text: str = "", *, required: bool = False) -> forms.DecimalField:
    return forms.DecimalField(
        required=required,
        min_value=0,
        max_value=MAX_PRICE,
        decimal_places=DECIMALS,
        label=label,
        help_text=help_text,
        widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}),
    )


class PriceForm(forms.Form):
    """US dollars for a million tokens, from a moment on."""

    input = _price("Input", required=True)
    output = _price("Output", required=True)
    cached = _price("Input read from the provider’s cache", "Blank: as other input.")
    cache_write = _price("Input written to the provider’s cache", "Blank: as other input.")
    reasoning = _price("What the model thinks", "Blank: as other output.")
    tier_above = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_TIER,
        label="Other prices above",
        help_text="Tokens of one input. A call with more pays the prices below for all of its tokens. Blank: one price "
        "for every call.",
    )
    tier_input = _price("Input above", "Blank here and below: as beneath that many tokens.")
    tier_output = _price("Output above")
    tier_cached = _price("Input read from the cache above")
    tier_cache_write = _price("Input written to the cache above")
    begins = forms.DateTimeField(
        required=False,
        label="From",
        help_text="Blank: from now on. What was called before keeps its cost.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"],
    )
    note = forms.CharField(
        required=False,
        max_length=MAX_NOTE,
        help_text="Where the price is from, for example a contract.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    tier_fields = ("tier_above", *TIER_PRICES)

    def __init__(self, *args: Any, zone: str = "UTC", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zone = zone_named(zone)
        self.fields["begins"].label = f"From ({self.zone})"

    @property
    def shows_tier(self) -> bool:
        """True where the fields of a tier are shown: one is filled in, or wrong."""
        return any(name in self.errors or self[name].value() not in (None, "") for name in self.tier_fields)

    def clean_begins(self) -> Any:
        """The moment, in the organisation's zone. The field was read in the zone of the service, and says none."""
        moment = self.cleaned_data["begins"]
        if moment is None:
            return None
        if not MINYEAR < moment.year < MAXYEAR:  # no moment of another zone
            raise ValidationError("No price begins at this date: choose a later one, or leave it blank.")
        return timezone.make_naive(moment).replace(tzinfo=self.zone)

    def content(self) -> PriceContent:
        data = self.cleaned_data
        prices = {name: data[name] for name in (*PRICES, "tier_above", *TIER_PRICES)}
        return PriceContent(valid_from=data["begins"], note=data["note"], **prices)
