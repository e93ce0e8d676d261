"""Dialect of a model: chat completions or responses, and why. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from capabilities.language_models.providers.vendors import vendor_of
from capabilities.models import Dialect

#: OpenAI's models that reason: o1, o3, o4-mini ..., and gpt-5 and later but for the chat variants. From gpt-5.4 on they
#: refuse function tools in chat completions while they reason, which is the default (openai/openai-openapi#541).
REASONS = re.compile(r"^(?:ft:)?(?:o\d|codex|gpt-(?:[5-9]|\d\d))(?!.*chat)", re.IGNORECASE)


@dataclass(frozen=True)
class ChosenDialect:
    """The dialect, and the reason in one sentence for people."""

    dialect: Dialect
    reason: str


def chosen_dialect(model_name: str, base_url: str, *, on_model: str, on_provider: str, learned: str) -> ChosenDialect:
    """Return the dialect that is set on the model, else on the provider, else the one that a refusal taught, else the
    vendor's known one."""
    for setting, source in ((on_model, "this model"), (on_provider, "the provider")):
        if setting in Dialect.values:
            return ChosenDialect(Dialect(setting), f"It is set on {source}.")
    if learned in Dialect.values:
        return ChosenDialect(Dialect(learned), "The provider refused the other one, see below.")
    if vendor_of(base_url).key == "openai" and REASONS.match(model_name):
        return ChosenDialect(
            Dialect.RESPONSES, "OpenAI takes tools for its reasoning models in Responses, not in Chat completions."
        )
    return ChosenDialect(Dialect.CHAT, "Chat completions are what every OpenAI-compatible provider takes.")
