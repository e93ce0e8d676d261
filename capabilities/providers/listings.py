"""Which of a provider's models it lists: written by a worker when the list was read."""

from __future__ import annotations

from collections.abc import Collection

from django.db import transaction
from django.utils import timezone

from capabilities.models import LanguageModel, Provider
from capabilities.providers.resolve import model_family
from capabilities.providers.vendors import vendor_of
from toolhub.tenants.audit.writes import record


def note_listed(provider: Provider, names: Collection[str], *, answered: str = "") -> None:
    """Mark the models that the provider does not list any more, and unmark those that it lists again, on record.

    `answered` is the name of a model that answered just now, listed or not. An empty list marks nothing, and neither
    does that of a provider which lists other names than those of its calls (Azure, the offline model).
    """
    is_of_use = bool(names and provider.base_url) and vendor_of(provider.base_url).lists_models
    families = {model_family(each) for each in names}
    with transaction.atomic():
        if not Provider.objects.filter(pk=provider.pk, base_url=provider.base_url).exists():
            return  # it leads elsewhere by now
        models = LanguageModel.objects.select_for_update(of=("self",)).select_related("provider")
        models = models.defer("provider__api_key").filter(provider=provider)
        for model in models if is_of_use else models.filter(name=answered):
            is_missing = model.name != answered and not is_listed(model.name, names, families)
            if is_missing == (model.missing_since is not None):
                continue
            model.missing_since = timezone.now() if is_missing else None
            model.save(update_fields=["missing_since"])
            record("model.missing" if is_missing else "model.listed", model, actor=None, after={"name": model.name})


def is_listed(name: str, names: Collection[str], families: Collection[str]) -> bool:
    """Whether a list holds the model, by its name, that of its family, or that in front of a variant (OpenRouter's)."""
    return name in names or model_family(name) in families or name.partition(":")[0] in names
