"""`urllib.parse`: quote and unquote, urlencode, parse_qs and parse_qsl."""

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
