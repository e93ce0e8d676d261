"""Parts of one model call, whatever its dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capabilities.language_models.providers.vendors import OTHER, Vendor

#: The role of a message that adds tools to the conversation: its `items` are lines of JSON, in Responses alone.
TOOLS = "tools"


@dataclass(frozen=True)
class CallSettings:
    """Settings of a request beside its conversation and tools. A setting that is None or "" is left out, so that the
    model's own default counts."""

    model: str
    max_output_tokens: int
    vendor: Vendor = OTHER
    reasoning_effort: str = ""
    temperature: float | None = None
    parallel_tool_calls: bool | None = None
    #: Names the conversation for the provider's prompt cache.
    cache_key: str = ""


def image_url(image: Mapping[str, Any]) -> str:
    """Address of an image of a neutral message, which holds its bytes: both dialects take it so."""
    return f"data:{image['media_type']};base64,{image['data']}"


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value: neither None nor ""."""
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def request_body(conversation: str, parts: Sequence[str], tools: str, parameters: Mapping[str, Any]) -> bytes:
    """The request's bytes. `conversation` is the name of the field that holds the parts, `tools` the JSON array of
    definitions, "[]" for none."""
    head = written(parameters)[1:-1]
    sent = f'{{{head},"{conversation}":[{",".join(parts)}]'
    return (sent + (f',"tools":{tools}}}' if tools != "[]" else "}")).encode()


def written(value: Any) -> str:
    """JSON as it goes out."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
