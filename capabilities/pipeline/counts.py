"""How many tokens the definitions of tools take of a model's input: the one answer for turns, pages and REST.

A tool's version keeps its count by o200k. For a model of another family its wire bytes are counted when they are
wanted, once for each content that this process knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from capabilities.common.memory import Memory
from capabilities.common.tokens import O200K, count_each
from capabilities.contract.spec import ToolSpec
from capabilities.providers.resolve import ResolvedModel

#: By the hash of a definition and the encoding: what it counts never changes.
_counts: Memory[int] = Memory(10_000)


def tool_tokens(tools: Iterable[ToolSpec], model: ResolvedModel) -> int:
    """Tokens of these definitions as the model's family counts them."""
    return sum(each.tokens for each in counted_for(tools, model))


def counted_for(tools: Iterable[ToolSpec], model: ResolvedModel) -> tuple[ToolSpec, ...]:
    """The same tools, each with the tokens that the model's family counts."""
    encoding = model.tokenizer.encoding
    if encoding == O200K:
        return tuple(tools)
    return tuple(replace(each, tokens=_count(each, encoding)) for each in tools)


def _count(tool: ToolSpec, encoding: str) -> int:
    return _counts.get((tool.sha256, encoding), lambda: count_each([tool.wire], encoding)[0])
