"""Vendors behind providers' addresses, and the facts that are known of them. Pure: constants, and a lookup by host.

Addresses, and the pages where keys are made, are those of each vendor's own documentation in November 2026. The names
of the output limit are those that each vendor documents for chat completions; where one takes both, the newer one is
used. `prices` is the vendor's name in genai-prices 0.2.3, whose field maps read usage (`sessions/loop/clients/usage`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

OutputLimit = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True)
class Vendor:
    """One vendor of models, or one program that serves them."""

    key: str
    name: str
    #: Address that a new provider begins with.
    base_url: str = ""
    #: Where a key is made; empty where none is needed.
    keys_url: str = ""
    #: Hosts, or their endings where they begin with a dot. None: it is known by what a person chose only.
    hosts: tuple[str, ...] = ()
    output_limit: OutputLimit = "max_tokens"
    #: Its name in genai-prices, which is "openai" for those that count as OpenAI does.
    prices: str = "openai"
    #: Whether requests may name their conversation in `prompt_cache_key`.
    takes_cache_key: bool = False
    #: Whether requests in Responses may add tools in the middle of the conversation (`additional_tools`).
    takes_added_tools: bool = False
    #: The beginning of the names of models that search tools themselves in Responses (`tool_search`); empty: none.
    searching_models: str = ""
    #: The rules of `capabilities/contract/rendering` that definitions of tools are sent under; empty: those for all.
    schema_rules: str = ""
    #: The rules that its models read a conversation by, each with its number; see `sessions/loop/clients/fitting`.
    history_rules: tuple[tuple[str, int], ...] = ()
    #: Note for a person, needed before the address can work.
    note: str = ""
    #: Whether its list of models has the names that calls use.
    lists_models: bool = True

    def searches_tools(self, model: str) -> bool:
        """Return whether this model is known to search tools itself."""
        return bool(self.searching_models) and re.match(self.searching_models, model) is not None

    @property
    def needs_key(self) -> bool:
        return bool(self.keys_url)


_OWN_MACHINE = "It is reached only where the operator of this service allows private addresses."

VENDORS: tuple[Vendor, ...] = (
    Vendor(
        "openai",
        "OpenAI",
        "https://api.openai.com/v1",
        "https://platform.openai.com/api-keys",
        ("api.openai.com",),
        "max_completion_tokens",
        takes_cache_key=True,
        takes_added_tools=True,
        # "Only gpt-5.4 and later models support tool_search" (OpenAI's guide); gpt-5.4-nano answers 400.
        searching_models=r"gpt-(?!5\.4-nano)(?:5\.[4-9]|[6-9])",
    ),
    Vendor(
        "azure",
        "Azure OpenAI",
        "https://RESOURCE.openai.azure.com/openai/v1",
        "https://ai.azure.com",
        (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
        "max_completion_tokens",
        "azure",
        takes_cache_key=True,
        note="Put the name of your resource in place of RESOURCE. A model is named by its deployment.",
        lists_models=False,
    ),
    Vendor(
        "anthropic",
        "Anthropic",
        "https://api.anthropic.com/v1",
        "https://console.anthropic.com/settings/keys",
        ("api.anthropic.com",),
        prices="anthropic",
        history_rules=(("no_empty_text", 0),),
    ),
    Vendor(
        "google",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "https://aistudio.google.com/apikey",
        (".googleapis.com",),
        prices="google",
        schema_rules="google",
        history_rules=(("user_first", 0), ("no_empty_text", 0)),
    ),
    Vendor("xai", "xAI", "https://api.x.ai/v1", "https://console.x.ai", ("api.x.ai",), "max_completion_tokens", "x-ai"),
    Vendor(
        "deepseek",
        "DeepSeek",
        "https://api.deepseek.com/v1",
        "https://platform.deepseek.com/api_keys",
        ("api.deepseek.com",),
        prices="deepseek",
    ),
    Vendor(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "https://openrouter.ai/settings/keys",
        ("openrouter.ai", "api.openrouter.ai"),
        prices="openrouter",
    ),
    Vendor(
        "mistral",
        "Mistral",
        "https://api.mistral.ai/v1",
        "https://console.mistral.ai/api-keys",
        ("api.mistral.ai",),
        prices="mistral",
        # "must be a-z, A-Z, 0-9, with a length of 9"; "Unexpected role 'user' after role 'tool'".
        history_rules=(("call_ids", 9), ("system_first", 0), ("answered_results", 0), ("no_empty_text", 0)),
    ),
    Vendor(
        "groq",
        "Groq",
        "https://api.groq.com/openai/v1",
        "https://console.groq.com/keys",
        ("api.groq.com",),
        "max_completion_tokens",
        "groq",
    ),
    Vendor("vllm", "vLLM", "http://localhost:8000/v1", note=_OWN_MACHINE),
    Vendor("ollama", "Ollama", "http://localhost:11434/v1", note=_OWN_MACHINE),
    Vendor("lmstudio", "LM Studio", "http://localhost:1234/v1", note=_OWN_MACHINE),
    Vendor("llamacpp", "llama.cpp", "http://localhost:8080/v1", note=_OWN_MACHINE),
)
#: Any other OpenAI-compatible address.
OTHER = Vendor("other", "Other")
#: The model of this service itself, which has no address.
OFFLINE = Vendor("offline", "Offline model", note="It comes with this service, needs no key, and is for trying things.")
#: Vendors that a new provider can begin with.
PRESETS: tuple[Vendor, ...] = (*VENDORS, OTHER, OFFLINE)
#: Stands in an address of a preset where the name of one's own resource belongs.
RESOURCE = "RESOURCE"


def preset(key: str) -> Vendor | None:
    """Return the preset that a new provider begins with; None where there is none of this key."""
    return next((vendor for vendor in PRESETS if vendor.key == key), None)


def vendor_of(base_url: str) -> Vendor:
    """Return the vendor behind the address, by its host; OTHER where it is not known."""
    host = (urlsplit(base_url).hostname or "").lower()
    for vendor in VENDORS:
        if any(host.endswith(each) if each.startswith(".") else host == each for each in vendor.hosts):
            return vendor
    return OTHER
