"""A model's answer as HTML: Markdown without raw HTML, cleaned again, no images, links that say where they lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import nh3
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessions.doors.chats.markdown_rules import add_rules
from sessions.models import Step, StepKind, Turn

TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code"),
    *("em", "strong", "s", "a", "span", "table", "thead", "tbody", "tr", "th", "td", "input"),
}
ATTRIBUTES = {
    "a": {"href", "title", "target"},
    "ol": {"start"},
    "pre": {"data-language"},
    "input": {"checked", "aria-label"},
}
#: What a box of a ticked list always has.
TICKED = {"input": {"type": "checkbox", "disabled": ""}}
CLASSES = {"span": {"link-host", "formula"}, "p": {"formula"}}
SCHEMES = {"http", "https", "mailto"}
#: The attribute of a turn or a step that says how many characters of its text are taken.
ROOM = "markdown_room"
#: Characters of one text, and of all texts of one page, that are taken as Markdown: what is made to be slow takes 15
#: microseconds a character. What is beyond is shown as it was written.
MAX_MARKDOWN = 20_000
MAX_MARKDOWN_OF_PAGE = 60_000


def share_markdown(turns: Sequence[Turn]) -> None:
    """Note on turns in order, and on their steps, how much of their texts one page takes as Markdown.

    The last texts come first: they are what is read.
    """
    left = MAX_MARKDOWN_OF_PAGE
    for turn in reversed(turns):
        texts: list[tuple[Turn | Step, str]] = [(turn, turn.answer)]
        texts += [(step, step.text) for step in reversed(turn.steps.all()) if _is_shown(step, turn)]
        for row, text in texts:
            room = min(MAX_MARKDOWN, left)
            setattr(row, ROOM, room)
            left -= min(len(text), room)


def _is_shown(step: Step, turn: Turn) -> bool:
    """Return whether the step is a model call that wrote something else than the turn's answer."""
    return step.kind == StepKind.MODEL and bool(step.text) and step.text != turn.answer


def render_row(row: Turn | Step, text: str) -> SafeString:
    """The text of a row, within what share_markdown noted on it."""
    return render_markdown(text, getattr(row, ROOM, MAX_MARKDOWN))


def render_markdown(text: str, most: int = MAX_MARKDOWN) -> SafeString:
    """HTML of the first `most` characters, to the end of a paragraph or a line, and the rest as it was written."""
    if len(text) <= most:
        return _html(text)
    end = max(text.rfind("\n\n", most // 2, most), text.rfind("\n", most * 3 // 4, most))
    end = most if end < 0 else end
    return _html(text[:end]) + format_html('<div class="plain">{}</div>', text[end:].strip("\n"))


def _html(text: str) -> SafeString:
    if not text:
        return SafeString("")
    html = nh3.clean(
        _markdown.render(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        set_tag_attribute_values=TICKED,
        allowed_classes=CLASSES,
        url_schemes=SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(html)  # noqa: S308 -- cleaned in the line above


def _open_link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]) -> str:
    token = tokens[index]
    token.attrSet("target", "_blank")
    text = "".join(inner.content for inner in tokens[index + 1 : _closing(tokens, index)])
    env.setdefault("hosts", []).append(_host_unless_shown(str(token.attrGet("href") or ""), text))
    return str(renderer.renderToken(tokens, index, options, env))


def _close_link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]) -> str:
    host = env["hosts"].pop() if env.get("hosts") else ""
    shown = f' <span class="link-host">({escape(host)})</span>' if host else ""
    return str(renderer.renderToken(tokens, index, options, env)) + shown


def _closing(tokens: Sequence[Token], index: int) -> int:
    """Links hold no links, so the next closing token is the link's own."""
    return next((at for at in range(index, len(tokens)) if tokens[at].type == "link_close"), len(tokens))


def _host_unless_shown(href: str, text: str) -> str:
    """The host that a link leads to, unless its text is the address itself."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return ""
    return "" if text.strip() in (href, parts.netloc) else parts.netloc


_markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
_markdown.add_render_rule("link_open", _open_link)
_markdown.add_render_rule("link_close", _close_link)
add_rules(_markdown)
