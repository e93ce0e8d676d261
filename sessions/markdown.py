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

TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code"),
    *("em", "strong", "s", "a", "span", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title", "target"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
#: Longer answers are shown as they are: nobody reads them for their headings, and parsing them would hold the page.
MAX_MARKDOWN = 100_000


def render_markdown(text: str) -> SafeString:
    if len(text) > MAX_MARKDOWN:
        return format_html('<pre class="plain">{}</pre>', text)
    html = nh3.clean(
        _markdown.render(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        allowed_classes={"span": {"link-host"}},
        url_schemes=SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(html)  # noqa: S308 -- cleaned in the line above


def _open_link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]) -> str:
    token = tokens[index]
    token.attrSet("target", "_blank")
    said = "".join(inner.content for inner in tokens[index + 1 : _closing(tokens, index)])
    env.setdefault("hosts", []).append(_host_unless_said(str(token.attrGet("href") or ""), said))
    return str(renderer.renderToken(tokens, index, options, env))


def _close_link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: dict[str, Any]) -> str:
    host = env["hosts"].pop() if env.get("hosts") else ""
    shown = f' <span class="link-host">({escape(host)})</span>' if host else ""
    return str(renderer.renderToken(tokens, index, options, env)) + shown


def _closing(tokens: Sequence[Token], index: int) -> int:
    """Links hold no links, so the next closing token is the link's own."""
    return next((at for at in range(index, len(tokens)) if tokens[at].type == "link_close"), len(tokens))


def _host_unless_said(href: str, said: str) -> str:
    """The host that a link leads to, unless its text is the address itself."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return ""
    return "" if said.strip() in (href, parts.netloc) else parts.netloc


_markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
_markdown.add_render_rule("link_open", _open_link)
_markdown.add_render_rule("link_close", _close_link)
