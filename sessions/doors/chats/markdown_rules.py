"""Rules beyond CommonMark: lists of tasks, code that names its language, and formulas left as they were written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

#: How a line of a ticked list begins, behind its bullet.
TICK = re.compile(r"\[([ xX])\][ \t]+")
DONE = '<input type="checkbox" disabled checked aria-label="Done"> '
NOT_DONE = '<input type="checkbox" disabled aria-label="Not done"> '
#: The name of a language behind the fence of a block.
LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
#: A formula between two `$`. Prices are none, and neither is what holds code or a link.
SINGLE = re.compile(r"\$(?![\s$])(?:(?!\]\()[^$`\n])*?(?<![\s\\])\$(?!\w)")
#: Begin and end of a formula on lines of its own, and of one in a line.
BLOCKS = {"$$": "$$", "\\[": "\\]"}
#: Lines of a formula: looking for the end of one that has none takes no longer.
MOST_LINES = 30
IN_LINE = {"$$": "$$", "\\(": "\\)", "\\[": "\\]"}


def add_rules(markdown: MarkdownIt) -> None:
    markdown.core.ruler.push("ticks", _ticks)
    markdown.block.ruler.before("fence", "formula", _formula_lines, {"alt": ["paragraph", "blockquote", "list"]})
    markdown.inline.ruler.before("escape", "formula", _formula)
    markdown.add_render_rule("formula", _render_formula)
    markdown.add_render_rule("formula_lines", _render_formula)
    markdown.add_render_rule("fence", _render_fence)


def _ticks(state: StateCore) -> None:
    """Put a box that nobody can tick in front of each entry of a list that begins with `[ ]` or `[x]`."""
    for before, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if (before.type, paragraph.type) != ("list_item_open", "paragraph_open") or not inline.children:
            continue
        first = inline.children[0]
        found = TICK.match(first.content) if first.type == "text" else None
        if found is None:
            continue
        first.content = first.content[found.end() :]
        box = Token("html_inline", "", 0)
        box.content = DONE if found[1] != " " else NOT_DONE
        inline.children.insert(0, box)


def _formula(state: StateInline, silent: bool) -> bool:
    """A formula in a line: between `$`, `$$`, `\\(` or `\\[` and what ends each."""
    text, begin = state.src, state.pos
    opening = text[begin : begin + 2]
    if opening in IN_LINE:
        end = text.find(IN_LINE[opening], begin + 2, state.posMax) + 2
        found = end > begin + 2
    else:
        single = SINGLE.match(text, begin, state.posMax)
        found, end = single is not None, single.end() if single else begin
        found = found and not text[begin - 1 : begin].isalnum()
    if found and not silent:
        state.push("formula", "", 0).content = text[begin:end]
    if found:
        state.pos = end
    return found


def _formula_lines(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A formula on lines of its own, from a line that begins with `$$` or `\\[` to the one that ends it."""
    if state.is_code_block(first):
        return False
    ending = BLOCKS.get(_line(state, first)[:2])
    if ending is None:
        return False
    for line in range(first, min(last, first + MOST_LINES)):
        shown = _line(state, line)[2 if line == first else 0 :].rstrip()
        if not shown and line > first:  # a formula has no empty line
            return False
        if shown.endswith(ending):
            break
    else:
        return False
    if not silent:
        state.push("formula_lines", "", 0).content = state.getLines(first, line + 1, state.blkIndent, False).strip()
        state.line = line + 1
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _render_formula(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    if token.type == "formula":
        return f'<span class="formula">{escape(token.content)}</span>'
    return f'<p class="formula">{escape(token.content)}</p>\n'


def _render_fence(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    found = LANGUAGE.match(token.info.strip())
    language = f' data-language="{escape(found[0].lower())}"' if found else ""
    return f"<pre{language}><code>{escape(token.content)}</code></pre>\n"
