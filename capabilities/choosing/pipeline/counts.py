"""Definitions of tools as a model gets them, and their tokens: the one answer for turns, pages and REST.

A definition is rendered for the model's vendor, which is the stored text for all but a few. A tool's version keeps the
count of the stored text by o200k. For anything else the bytes are counted when they are wanted, once for each content
that this process knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from capabilities.common.memory import Memory
from capabilities.common.tokens import O200K, count_tokens
from capabilities.contract.rendering import Rules, rendered_wire
from capabilities.contract.spec import ToolSpec
from capabilities.contract.wire import sha256_hex
from capabilities.language_models.providers.resolve import ResolvedModel

#: By the hash of a definition and the key of the rules: the text where it is another one, else empty. And by the hash
#: of a text and the encoding: what it counts. Neither ever changes.
_rendered: Memory[str] = Memory(10_000)
_counts: Memory[int] = Memory(10_000)


def tool_tokens(tools: Iterable[ToolSpec], model: ResolvedModel) -> int:
    """Tokens of these definitions as the model's family counts them."""
    return sum(each.tokens for each in counted_for(tools, model))


def counted_for(tools: Iterable[ToolSpec], model: ResolvedModel) -> tuple[ToolSpec, ...]:
    """Return these tools, each as the model gets it, with the tokens that its family counts."""
    return tuple(_counted(each, model.schema_rules, model.tokenizer.encoding) for each in tools)


def sent_sha256(tool: ToolSpec, model: ResolvedModel) -> str:
    """The SHA-256 of the definition as the model gets it."""
    rendered = _rendered_for(tool, model.schema_rules)
    return sha256_hex(rendered) if rendered else tool.sha256


def _counted(tool: ToolSpec, rules: Rules, encoding: str) -> ToolSpec:
    """The tool as `counted_for` says; where its definition was not read, with the tokens that are stored."""
    rendered = _rendered_for(tool, rules)
    if not tool.wire or (not rendered and encoding == O200K):
        return tool
    key = sha256_hex(rendered) if rendered else tool.sha256
    tokens = _counts.get((key, encoding), lambda: count_tokens(rendered or tool.wire, encoding))
    return replace(tool, tokens=tokens, rendered=rendered)


def _rendered_for(tool: ToolSpec, rules: Rules) -> str:
    def render() -> str:
        text = rendered_wire(tool.wire, rules)
        return "" if text == tool.wire else text

    return _rendered.get((tool.sha256, rules.key), render) if tool.wire else ""
