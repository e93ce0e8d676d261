"""Models that are known to take images, by the beginnings of their names. Pure.

As their vendors' lists of models have them in November 2026. A model that is not named counts as one that takes none:
then the turn says so, where a request with an image to such a model would fail. Both are set on the model's page.
"""

from __future__ import annotations

import re

#: Vendors and gateways put "vendor/" in front, and "models/", "us.anthropic." and the like.
_IN_FRONT = re.compile(r"^(?:.*/|(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|mistral)\.|ft:)", re.IGNORECASE)
_SEES = re.compile(
    r"(?:"
    r"gpt-4o(?!.*(?:audio|transcribe|tts|search))|chatgpt-4o|gpt-4\.[15]|gpt-4-turbo|gpt-4-vision|gpt-(?:[5-9]|\d\d)"
    r"|o1(?!-(?:mini|preview))|o3(?!-mini)|o4|codex-mini"
    r"|claude-(?:3(?!-5-haiku-?(?:$|@|:))|[4-9]|opus|sonnet|haiku)"
    r"|gemini-(?!.*(?:embedding|tts))|gemma-?3(?!.*(?:270m|[:-]1b))|gemma-?[4-9]"
    r"|grok-(?:2-vision|[4-9](?!-code))|pixtral|mistral-(?:small-3\.[1-9]|small-2[56]|medium|large-3|small-latest)"
    r"|llama-?(?:3\.2-?(?:11b|90b|vision)|3\.2-vision|[4-9])|nova-(?:lite|pro|premier)"
    r"|kimi-k2\.5|kimi-vl|phi-(?:3\.5-vision|4-multimodal)|internvl|minicpm-v|llava|bakllava|moondream|molmo"
    r"|qwen\d?(?:\.\d)?-?vl|qwen-vl|qwen3\.5|qvq|glm-4\.[1-9]v|deepseek-vl|.*-vision(?:-|$)"
    r")",
    re.IGNORECASE,
)


def is_known_to_see(model_name: str) -> bool:
    """Return whether a model of this name is known to take images."""
    return _SEES.match(_IN_FRONT.sub("", model_name)) is not None
