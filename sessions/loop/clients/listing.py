"""The models that a provider lists, and how much each takes. Everything in a list is text from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.common.text import storable
from capabilities.language_models.providers.vendors import Vendor
from capabilities.models import MAX_CONTEXT_WINDOW

#: Models of one list that are read, and characters of a name.
MAX_LISTED = 2_000
MAX_NAME = 200
#: Where servers say how many tokens a model takes: OpenRouter and LM Studio, vLLM, Groq, Mistral.
_WINDOWS = ("context_length", "max_model_len", "context_window", "max_context_length", "loaded_context_length")
#: Names of models that no agent can talk to.
_OTHER_KINDS = re.compile(
    r"embed|whisper|(?:^|[-_/])tts|dall-e|moderation|transcri|realtime|(?:^|[-_/])(?:image|audio|sora|veo|imagen|lyria)"
    r"|-(?:image|audio)(?:-|$)|babbage|davinci|rerank|(?:^|[-_])ocr",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ListedModel:
    """One model of a list."""

    name: str
    #: Tokens; None where nobody says.
    context_window: int | None = None

    @property
    def is_for_chat(self) -> bool:
        """True where an agent could talk to the model, as far as its name says."""
        return not _OTHER_KINDS.search(self.name)


def listed_models(answer: object, vendor: Vendor) -> tuple[ListedModel, ...]:
    """The models of an answer to `GET /models`, each name once, in its order; none where it is no list."""
    rows = answer.get("data") if isinstance(answer, Mapping) else answer
    found: dict[str, ListedModel] = {}
    for row in (rows if isinstance(rows, list) else [])[:MAX_LISTED]:
        name = row.get("id") if isinstance(row, Mapping) else None
        if not isinstance(name, str) or len(name) > MAX_NAME:
            continue
        name = storable(name.removeprefix("models/").strip(), MAX_NAME)  # Gemini's
        if name:
            found.setdefault(name, ListedModel(name, _window_of(row) or known_window(name, vendor)))
    return tuple(found.values())


def known_window(name: str, vendor: Vendor) -> int | None:
    """The context window that genai-prices knows of a vendor's model."""
    if not vendor.hosts:
        return None
    # It takes 30 MB, which only a process spends that asks a model.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 -- leaf

    try:
        _, model = get_snapshot().find_provider_model(name, None, vendor.prices, None)
    except LookupError:
        return None
    return model.context_window if _is_window(model.context_window) else None


def _window_of(row: Mapping[str, Any]) -> int | None:
    """Return the context window that the server itself states; None where it states none that is possible."""
    return next((each for each in _known_sizes(row) if _is_window(each)), None)


def _known_sizes(row: Mapping[str, Any]) -> Iterator[Any]:
    yield from (row.get(name) for name in _WINDOWS)
    meta = row.get("meta")
    if isinstance(meta, Mapping):  # llama.cpp
        yield from (meta.get("n_ctx"), meta.get("n_ctx_train"))


def _is_window(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1_000 <= value <= MAX_CONTEXT_WINDOW
