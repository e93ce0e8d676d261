"""`urllib.parse`: quote and unquote, urlencode, parse_qs and parse_qsl, urlsplit, urlparse, urlunsplit and urljoin."""

from typing import Any

_safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
_hex = "0123456789ABCDEF"


def quote(string: Any, safe: str = "/", encoding: Any = None, errors: Any = None) -> str:
    kept = _safe + safe
    found = []
    for byte in string.encode("utf-8") if isinstance(string, str) else string:
        character = chr(byte)
        found.append(character if character in kept else "%" + _hex[byte >> 4] + _hex[byte & 15])
    return "".join(found)


def quote_plus(string: Any, safe: str = "", encoding: Any = None, errors: Any = None) -> str:
    return quote(string, safe + " ").replace(" ", "+")


def _text(codes: list[int]) -> str:
    return bytes.fromhex("".join([_hex[code >> 4] + _hex[code & 15] for code in codes])).decode("utf-8", "replace")


def unquote(string: str, encoding: str = "utf-8", errors: str = "replace") -> str:
    parts = string.split("%")
    found = parts[0]
    waiting: list[int] = []
    for part in parts[1:]:
        code = part[:2].upper()
        if len(code) == 2 and code[0] in _hex and code[1] in _hex:
            waiting.append(_hex.find(code[0]) * 16 + _hex.find(code[1]))
            rest = part[2:]
        else:
            rest = "%" + part
        if rest:
            found += _text(waiting) + rest
            waiting = []
    return found + _text(waiting)


def unquote_plus(string: str, encoding: str = "utf-8", errors: str = "replace") -> str:
    return unquote(string.replace("+", " "))


def urlencode(query: Any, doseq: bool = False, safe: str = "", encoding: Any = None, errors: Any = None) -> str:
    pairs = list(query.items()) if isinstance(query, dict) else list(query)
    found = []
    for name, value in pairs:
        many = doseq and isinstance(value, (list, tuple, set))
        for one in value if many else [value]:
            text = one if isinstance(one, (str, bytes)) else str(one)
            found.append(quote_plus(str(name), safe) + "=" + quote_plus(text, safe))
    return "&".join(found)


def parse_qsl(qs: str, keep_blank_values: bool = False) -> list[tuple[str, str]]:
    found = []
    for part in qs.split("&"):
        name, _, value = part.partition("=")
        if part and (value or keep_blank_values):
            found.append((unquote_plus(name), unquote_plus(value)))
    return found


def parse_qs(qs: str, keep_blank_values: bool = False) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(qs, keep_blank_values):
        found.setdefault(name, []).append(value)
    return found


class _Parts:
    """Result of `urlsplit` and `urlparse`: read by name, by number, and in a loop."""

    def __init__(self, values: list[str], names: list[str]) -> None:
        self._values = values
        for name, value in zip(names, values):  # noqa: B905
            setattr(self, name, value)
        netloc = values[1]
        user, sign, place = netloc.rpartition("@")
        self.username = (user.partition(":")[0] or None) if sign else None
        self.password = (user.partition(":")[2] or None) if sign else None
        if place.startswith("["):
            host, _, port = place[1:].partition("]")
            port = port.lstrip(":")
        else:
            host, _, port = place.partition(":")
        self.hostname = host.lower() or None
        self.port = int(port) if port else None

    def geturl(self) -> str:
        return urlunsplit(self._values) if len(self._values) == 5 else urlunparse(self._values)

    def __getitem__(self, at: Any) -> Any:
        return self._values[at]

    def __iter__(self) -> Any:
        return iter(self._values)


def _split(url: str) -> list[str]:
    url = url.strip()
    scheme = netloc = query = fragment = ""
    name, sign, rest = url.partition(":")
    if sign and name and name[0].isalpha() and all(one.isalnum() or one in "+-." for one in name):
        scheme, url = name.lower(), rest
    if url.startswith("//"):
        end = len(url)
        for mark in "/?#":
            at = url.find(mark, 2)
            if at >= 0:
                end = min(end, at)
        netloc, url = url[2:end], url[end:]
    url, _, fragment = url.partition("#")
    url, _, query = url.partition("?")
    return [scheme, netloc, url, query, fragment]


def urlsplit(url: str) -> Any:
    return _Parts(_split(url), ["scheme", "netloc", "path", "query", "fragment"])


def urlparse(url: str) -> Any:
    scheme, netloc, path, query, fragment = _split(url)
    params = ""
    at = path.find(";", path.rfind("/") + 1)
    if at >= 0:
        path, params = path[:at], path[at + 1 :]
    names = ["scheme", "netloc", "path", "params", "query", "fragment"]
    return _Parts([scheme, netloc, path, params, query, fragment], names)


def urlunsplit(parts: Any) -> str:
    scheme, netloc, path, query, fragment = parts
    if netloc or path.startswith("//"):
        path = "//" + netloc + (("/" + path) if path and not path.startswith("/") else path)
    found: str = (scheme + ":" if scheme else "") + path
    return found + ("?" + query if query else "") + ("#" + fragment if fragment else "")


def urlunparse(parts: Any) -> str:
    scheme, netloc, path, params, query, fragment = parts
    return urlunsplit([scheme, netloc, path + (";" + params if params else ""), query, fragment])


def urljoin(base: str, url: str) -> str:
    if not base:
        return url
    if not url:
        return base
    b, u = _split(base), _split(url)
    if u[0] and u[0] != b[0]:
        return url
    if u[1]:
        return urlunsplit([b[0], u[1], u[2], u[3], u[4]])
    if not u[2]:
        return urlunsplit([b[0], b[1], b[2], u[3] or b[3], u[4]])
    path = u[2] if u[2].startswith("/") else b[2][: b[2].rfind("/") + 1] + u[2]
    if b[1] and not path.startswith("/"):
        path = "/" + path
    kept: list[str] = []
    for part in path.split("/")[1:] if path.startswith("/") else path.split("/"):
        if part == "..":
            if kept:
                kept.pop()
        elif part != ".":
            kept.append(part)
    if path.split("/")[-1] in (".", ".."):
        kept.append("")
    return urlunsplit([b[0], b[1], ("/" if path.startswith("/") else "") + "/".join(kept), u[3], u[4]])
