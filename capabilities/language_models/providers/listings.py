"""Writes about the models that a provider lists: which of ours are missing there, and those that somebody adds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import transaction
from django.utils import timezone

from capabilities.common.refused import not_there
from capabilities.common.rights import configuration_write, require
from capabilities.language_models.providers.resolve import model_family
from capabilities.language_models.providers.vendors import vendor_of
from capabilities.language_models.providers.writes import ModelContent, save_model
from capabilities.models import ConnectionTest, LanguageModel, Provider
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right


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
        language_models = LanguageModel.objects.select_for_update(of=("self",)).select_related("provider")
        language_models = language_models.defer("provider__api_key").filter(provider=provider)
        for model in language_models if is_of_use else language_models.filter(name=answered):
            is_missing = model.name != answered and not is_listed(model.name, names, families)
            if is_missing == (model.missing_since is not None):
                continue
            model.missing_since = timezone.now() if is_missing else None
            model.save(update_fields=["missing_since"])
            record("model.missing" if is_missing else "model.listed", model, actor=None, after={"name": model.name})


@configuration_write("names")
def add_listed_models(provider: Provider, names: Sequence[str], *, actor: Membership) -> list[LanguageModel]:
    """Add these models of the list that the last test of the provider read, each with its context window in that list.

    Those that are added already are left as they are. Raises ChangeRefused for a name that is not in the list.
    """
    require(actor, Right.PROVIDERS)
    test = ConnectionTest.objects.filter(provider=provider).first()
    listed = {each["name"]: each["context_window"] for each in (test.findings if test else {}).get("models", [])}
    known = set(LanguageModel.objects.filter(provider=provider).values_list("name", flat=True))
    added = []
    for name in dict.fromkeys(names):
        if name not in listed:
            raise not_there("names", "model", name)
        if name not in known:
            content = ModelContent(name, listed[name] or ModelContent.context_window)
            added.append(save_model(provider, None, content, actor=actor))
    return added


def is_listed(name: str, names: Collection[str], families: Collection[str]) -> bool:
    """Return whether a list holds the model, by its name, that of its family, or that in front of a variant
    (OpenRouter's)."""
    return name in names or model_family(name) in families or name.partition(":")[0] in names
