"""Last use of a token: which client, for which agent or toolkit, from which address. The client names itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from django.http import HttpRequest

#: Characters that are kept of a client's name and of an agent's.
MAX_CLIENT = 80
MAX_AGENT = 80
MAX_ADDRESS = 45
#: Characters of a User-Agent that are looked at.
MAX_HEADER = 1_000
#: A product of a User-Agent; what stands in brackets behind it is a comment.
_PRODUCT = re.compile(r"[^\s()]+")
#: Browsers, by the product that tells each from those behind it: all begin with Mozilla/5.0, and most name Chrome.
_BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Version": "Safari"}


@dataclass(frozen=True)
class TokenUse:
    """One use of a token. Empty parts are not known."""

    client: str = ""
    #: Slug of an agent, or `toolkit/<name>`.
    agent: str = ""
    address: str = ""


def use_of(request: HttpRequest, *, agent: str = "", client: str = "") -> TokenUse:
    """Return the use that this request names; `client` is the client's name by a protocol, in place of its
    User-Agent."""
    return token_use(
        user_agent=client or request.headers.get("User-Agent", ""),
        agent=agent,
        address=str(request.META.get("REMOTE_ADDR") or ""),
    )


def token_use(*, user_agent: str, agent: str = "", address: str = "") -> TokenUse:
    """Build a use for doors that have no Django request: each part cut, and without characters that do not print."""
    return TokenUse(client_named_in(user_agent), _printable(agent)[:MAX_AGENT], _known_address(address))


def client_named_in(user_agent: str) -> str:
    """The client's name and version, such as `OpenAI/Python 3.54.0`, `claude-code/2.1.30` or `Firefox 130`."""
    text = _printable(user_agent[:MAX_HEADER])
    if text.startswith("Mozilla/"):
        return _browser_named_in(text)
    products = _PRODUCT.findall(text.partition("(")[0]) or _PRODUCT.findall(text)
    named = products[:2] if len(products) > 1 and products[1][0].isdigit() else products[:1]
    return " ".join(named)[:MAX_CLIENT]


def _browser_named_in(text: str) -> str:
    for product, browser in _BROWSERS.items():
        if version := re.search(rf"\b{product}/(\d{{1,4}})", text):
            return f"{browser} {version[1]}"
    return "Browser"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _known_address(text: str) -> str:
    try:
        return str(ip_address(text))[:MAX_ADDRESS]
    except ValueError:
        return ""
