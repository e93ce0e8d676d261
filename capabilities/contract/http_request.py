"""The request that an HTTP tool's definition and a call's arguments make."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import httpx2

from capabilities.contract.context import ToolError
from capabilities.contract.http_tool import (
    HEADER_VALUE,
    JSON,
    MEDIA_TYPE,
    PLACEHOLDER,
    SEPARATORS,
    URLENCODED,
    HttpArgument,
    HttpImplementation,
    HttpRequest,
    has_dots,
    is_json,
    is_own_header,
    split_url,
)


def build_request(implementation: HttpImplementation, arguments: Mapping[str, Any]) -> HttpRequest:
    """The request of one call. Raises ToolError with a sentence for the model where a value cannot be sent."""
    for name in arguments:
        if name not in implementation.arguments:
            raise _wrong(name, "there is no such argument")
    given = {name: value for name, value in arguments.items() if name in implementation.arguments}
    headers = {"accept": "application/json, text/plain;q=0.9, */*;q=0.8"}
    headers |= {name.lower(): value for name, value in implementation.headers.items()}
    headers |= _headers(implementation, given)
    query = [*implementation.query.items(), *_query(implementation, given)]
    url = _path(implementation, given)
    if query:
        url += "?" + "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query)
    content, media_type = _body(implementation, given)
    if content is not None:
        headers["content-type"] = media_type
    return HttpRequest(implementation.method, url, headers, content)


def _wrong(name: str, message: str) -> ToolError:
    return ToolError(f"Not sent: {name[:100]}: {message}.", nothing_came=True)


def _path(implementation: HttpImplementation, given: Mapping[str, Any]) -> str:
    """Return the address with the arguments in its path. Raises ToolError for a value that leads elsewhere."""
    origin, path = split_url(implementation.url)
    values = {argument.name: name for name, argument in implementation.placed("path").items()}

    def fill(found: re.Match[str]) -> str:
        name = values[found[1]]
        value = given.get(name)
        if value is None:
            raise _wrong(name, "the address needs a value for it")
        written = _path_value(implementation.arguments[name], value)
        others = {_root(each) for each in values if each != found[1]}
        if isinstance(value, Mapping) and any(_root(str(key)) in others for key in value):
            raise _wrong(name, "one of its keys is the name of another part of the address")
        if not written:
            raise _wrong(name, "it is a part of the address and cannot be empty")
        if any(has_dots(each) or re.search(r"[\x00-\x1f\x7f]", each) for each in _decoded(written)):
            raise _wrong(name, "it has . or .. as a part of a path, or a control character, which no server gets")
        return written

    filled = PLACEHOLDER.sub(fill, path)
    if any(map(has_dots, _decoded(filled))):  # a value beside another, or beside what the address has itself
        raise ToolError("Not sent: the values make a path with . or .. in it.", nothing_came=True)
    return origin + (filled or "/")


def _decoded(path: str) -> Iterator[str]:
    """Yield the path as it is written, and decoded up to four times: servers and proxies decode more than once."""
    for _ in range(5):
        yield path
        path = unquote(path)


def _path_value(argument: HttpArgument, value: Any) -> str:
    style, exploded = argument.style_used, argument.is_exploded
    if style == "json":
        return quote(_json(value), safe="")
    before, between = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}[style]
    name = quote(argument.name, safe="")
    if isinstance(value, Mapping):
        pairs = [(quote(str(key), safe=""), quote(_plain(each), safe="")) for key, each in value.items()]
        if exploded:
            return before + between.join(f"{key}={each}" for key, each in pairs)
        flat = ",".join(f"{key},{each}" for key, each in pairs)
    elif isinstance(value, list):
        parts = [quote(_plain(each), safe="") for each in value]
        if exploded:
            return before + between.join(f"{name}={each}" if style == "matrix" else each for each in parts)
        flat = ",".join(parts)
    else:
        flat = quote(_plain(value), safe="")
    return f"{before}{name}={flat}" if style == "matrix" else before + flat if flat else flat


def _query(implementation: HttpImplementation, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for _, pair in _pairs_of(implementation.placed("query"), given, fixed=implementation.query):
        yield pair


def _pairs_of(
    placed: Mapping[str, HttpArgument], given: Mapping[str, Any], *, fixed: Iterable[str] = ()
) -> Iterator[tuple[HttpArgument, tuple[str, str]]]:
    """Names and values of all arguments of a query or a form. No key of an object stands for another parameter: raises
    ToolError for one whose name is taken, whether that has a value or not."""
    names = {name: each.name for name, each in placed.items()}
    taken = {"": set(map(_folded, fixed))} | {name: {_folded(each)} for name, each in names.items()}
    for name, argument in placed.items():
        if (value := given.get(name)) is None:
            continue
        of_others = set().union(*(each for owner, each in taken.items() if owner != name))
        roots = set(map(_root, of_others))
        for key, text in _pairs(argument, value):
            is_own = key == argument.name or key.startswith(f"{argument.name}[")
            if (key != argument.name and _folded(key) in of_others) or (not is_own and _root(key) in roots):
                raise _wrong(name, f"{key[:100]!r} is set elsewhere, and cannot be one of its keys")
            taken[name].add(_folded(key))
            yield argument, (key, text)


def _folded(key: str) -> str:
    return key.strip().casefold()


def _root(key: str) -> str:
    """The parameter that a server may take a key for: `a[b]`, `a.b`, `a[]` and `A` are all about `a`."""
    return re.split(r"[\[.\x00]", _folded(key), maxsplit=1)[0].strip()


def _pairs(argument: HttpArgument, value: Any) -> Iterator[tuple[str, str]]:
    """Names and values of a query or a form, before they are encoded."""
    style = argument.style_used
    if style == "json":
        yield argument.name, _json(value)
    elif isinstance(value, Mapping):
        if style == "deepObject":
            yield from _deep(argument.name, value)
        elif argument.is_exploded:
            yield from ((str(key), _plain(each)) for key, each in value.items())
        else:
            between = SEPARATORS.get(style, ",")
            yield argument.name, between.join(f"{key}{between}{_plain(each)}" for key, each in value.items())
    elif isinstance(value, list):
        if style == "deepObject":
            yield from _deep(argument.name, {str(number): each for number, each in enumerate(value)})
        elif argument.is_exploded:
            yield from ((argument.name, _plain(each)) for each in value)
        else:
            yield argument.name, SEPARATORS.get(style, ",").join(_plain(each) for each in value)
    else:
        yield argument.name, _plain(value)


def _deep(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _deep(f"{name}[{key}]", each)
        elif isinstance(each, list):
            yield from _deep(f"{name}[{key}]", {str(number): inner for number, inner in enumerate(each)})
        else:
            yield f"{name}[{key}]", _plain(each)


def _headers(implementation: HttpImplementation, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers and cookies that the arguments fill. Raises ToolError for a value that no header takes."""
    found: dict[str, str] = {}
    for name, argument in implementation.placed("header").items():
        if (value := given.get(name)) is None or is_own_header(argument.name):
            continue
        text = _json(value) if argument.style_used == "json" else _comma(value, exploded=argument.is_exploded)
        if not HEADER_VALUE.fullmatch(text):
            raise _wrong(name, "it goes into a header, which is one line of plain characters (ASCII)")
        found[argument.name.lower()] = text.strip()
    cookies = []
    for name, argument in implementation.placed("cookie").items():
        if (value := given.get(name)) is not None:
            text = _json(value) if argument.style_used == "json" else _comma(value, exploded=False)
            cookies.append(f"{argument.name}={quote(text, safe='')}")
    if cookies:
        found["cookie"] = "; ".join(cookies)
    return found


def _comma(value: Any, *, exploded: bool) -> str:
    if isinstance(value, Mapping):
        mark = "=" if exploded else ","
        return ",".join(f"{key}{mark}{_plain(each)}" for key, each in value.items())
    return ",".join(_plain(each) for each in value) if isinstance(value, list) else _plain(value)


def _body(implementation: HttpImplementation, given: Mapping[str, Any]) -> tuple[bytes | None, str]:
    """Return the bytes of the body, None for none, and its media type."""
    whole, kind = implementation.body_argument, implementation.body_type
    if whole:
        return (_whole_body(implementation, whole, given[whole]), kind) if whole in given else (None, kind)
    if bodies := implementation.placed("body"):
        value = {argument.name: given[name] for name, argument in bodies.items() if name in given}
        return _json(value).encode(), kind
    forms, files = implementation.placed("form"), implementation.placed("file")
    if not (forms or files):
        return None, kind
    pairs = list(_pairs_of({**forms, **files}, {name: given.get(name) for name in forms}))
    if kind.lower() == URLENCODED:
        return "&".join(f"{quote(key, safe='')}={quote(text, safe='')}" for _, (key, text) in pairs).encode(), kind
    parts: list[tuple[str, Any]] = [(key, _form_part(argument, text)) for argument, (key, text) in pairs]
    parts += [
        (argument.name, _file(name, argument, given[name]))
        for name, argument in files.items()
        if given.get(name) is not None
    ]
    if not parts:
        return None, kind
    request = httpx2.Request("POST", "https://multipart.invalid/", files=parts)
    return request.read(), request.headers["content-type"]


def _form_part(argument: HttpArgument, text: str) -> tuple[Any, ...]:
    return (None, text.encode(), JSON) if argument.style_used == "json" else (None, text.encode())


def _whole_body(implementation: HttpImplementation, name: str, value: Any) -> bytes:
    if is_json(implementation.body_type):
        return _json(value).encode()
    argument = implementation.arguments[name]
    if argument.place == "file":
        content: bytes = _file(name, argument, value)[1]
        return content
    return (value if isinstance(value, str) else _json(value)).encode()


def _file(name: str, argument: HttpArgument, value: Any) -> tuple[str, bytes, str]:
    """Name, content and media type."""
    written = value if isinstance(value, Mapping) else {"base64" if argument.style == "base64" else "text": value}
    file_name = str(written.get("name") or argument.name)
    media_type = str(written.get("media_type") or "application/octet-stream")
    if not MEDIA_TYPE.fullmatch(media_type):
        raise _wrong(name, "its media_type is none, such as text/csv")
    if isinstance(text := written.get("text"), str):
        return file_name, text.encode(), media_type
    try:
        return file_name, base64.b64decode(written["base64"], validate=True), media_type
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise _wrong(name, "a file is a text, or an object with its name and its text or base64") from None


def _plain(value: Any) -> str:
    """A single value as text: what is none is JSON."""
    if isinstance(value, str):
        return value
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
