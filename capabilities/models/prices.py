"""Model of an organisation's own prices of language models, in place of the public price list."""

from __future__ import annotations

from typing import Any

from django.db import models

from capabilities.models.agents import LanguageModel
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


def _per_million(*, optional: bool = False) -> models.DecimalField[Any, Any]:
    return models.DecimalField(max_digits=14, decimal_places=6, null=optional, blank=optional)


class ModelPrice(PublicModel):
    """US dollars for a million tokens of a model, from a moment on. Rows are added and never changed, so that what a
    step cost stays what it cost; the newest one that has begun counts."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="prices")
    valid_from = models.DateTimeField()
    #: From that moment on the public price list counts again; the prices are 0 then, and mean nothing.
    is_public = models.BooleanField(default=False)
    input = _per_million()
    output = _per_million()
    #: Input that was read from the provider's cache, and written to it. Empty: as other input.
    cached = _per_million(optional=True)
    cache_write = _per_million(optional=True)
    #: Output that the model thought. Empty: as other output.
    reasoning = _per_million(optional=True)
    #: Tokens of one input above which all of a call's tokens cost these prices; empty where there is one tier.
    tier_above = models.PositiveIntegerField(null=True, blank=True)
    tier_input = _per_million(optional=True)
    tier_output = _per_million(optional=True)
    tier_cached = _per_million(optional=True)
    tier_cache_write = _per_million(optional=True)
    note = models.CharField(max_length=200, blank=True, default="")
    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["model", "valid_from"], name="model_price_once"),)

    def __str__(self) -> str:
        return f"{self.model} from {self.valid_from:%Y-%m-%d %H:%M}"
