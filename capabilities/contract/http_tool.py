"""An HTTP tool: what its requests are made of, and how arguments become one. Pure: nothing here is sent.

`HttpImplementation` is the `implementation` of a tool version of kind `http`. The importer of OpenAPI documents writes
it, the editor writes it, and the runner reads it. As JSON:

    {"method": "GET", "url": "https://api.example.org/users/{id}",
     "arguments": {"id": {"in": "path", "name": "id"},
                   "tags": {"in": "query", "name": "tag", "style": "form", "explode": true}},
     "headers": {"Accept-Language": "en"}, "query": {"version": "2"},
     "body": {"media_type": "application/json", "argument": ""},
     "response": {"pointer": "/data", "fields": ["id", "owner.name"], "text": false}}

What is left out has the value that OpenAPI gives it. Styles are those of OpenAPI 3: `simple`, `label` and `matrix` of
a path, `form`, `spaceDelimited`, `pipeDelimited` and `deepObject` of a query, `simple` of a header, `form` of a cookie
and of a form; `json` everywhere (what OpenAPI calls `content`). A file is a text, or an object with `text` or `base64`,
`name` and `media_type`; with the style `base64` it is base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import httpx2

from capabilities.contract.context import ToolError

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: Where an argument may go; the styles of each, its usual one first.
PLACES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix", "json"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "json"),
    "header": ("simple", "json"),
    "cookie": ("form", "json"),
    "body": ("",),
    "form": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "json"),
    "file": ("", "base64"),
}
JSON, URLENCODED, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
#: Bounds of what is taken.
MAX_URL, MAX_ARGUMENTS, MAX_FIXED, MAX_NAME = 2_000, 200, 50, 200

#: Headers that would speak for somebody, or change where and how a request goes.
REFUSED_HEADERS = frozenset(
    "authorization cookie host proxy-authorization connection content-length transfer-encoding upgrade te trailer"  # noqa: SIM905 -- one a line would fill a page
    " keep-alive proxy-connection expect forwarded x-forwarded-for x-forwarded-host x-real-ip".split()
)
#: And of an HTTP tool: what its author says elsewhere, and what we say.
OWN_HEADERS = REFUSED_HEADERS | {"content-type", "content-encoding", "accept-encoding", "idempotency-key"}
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,2000}")
COOKIE_NAME = HEADER_NAME
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)


class ImplementationRefused(ValueError):
    """Error: a value cannot be the implementation of an HTTP tool. `field` names the part, such as `arguments.id`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class HttpArgument:
    """Place of one argument in the request, its name there, and the way in which a list or an object is written."""

    place: str
    name: str
    style: str = ""
    explode: bool | None = None

    @property
    def style_used(self) -> str:
        return self.style or PLACES[self.place][0]

    @property
    def is_exploded(self) -> bool:
        return self.style_used == "form" if self.explode is None else self.explode


@dataclass(frozen=True)
class HttpResponse:
    """Part of an answer that the model reads: the part at a JSON pointer, of it these fields, or all of it as text."""

    pointer: str = ""
    fields: tuple[str, ...] = ()
    text: bool = False


@dataclass(frozen=True)
class HttpImplementation:
    """Request that an HTTP tool sends. `body_argument` is the argument that is the whole body, or empty."""

    method: str
    url: str
    arguments: Mapping[str, HttpArgument] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    media_type: str = ""
    body_argument: str = ""
    response: HttpResponse = HttpResponse()

    def placed(self, *places: str) -> dict[str, HttpArgument]:
        return {name: each for name, each in self.arguments.items() if each.place in places}

    @property
    def body_type(self) -> str:
        """The media type of the body: what it says, or what its arguments need."""
        if self.media_type:
            return self.media_type
        if self.placed("file") and not self.body_argument:
            return MULTIPART
        return URLENCODED if self.placed("form") else JSON

    def as_json(self) -> dict[str, Any]:
        """Return the implementation as it is stored."""
        return {
            "method": self.method,
            "url": self.url,
            "arguments": {name: _argument_json(each) for name, each in self.arguments.items()},
            "headers": dict(self.headers),
            "query": dict(self.query),
            "body": {"media_type": self.media_type, "argument": self.body_argument},
            "response": {
                "pointer": self.response.pointer,
                "fields": list(self.response.fields),
                "text": self.response.text,
            },
        }


def _argument_json(argument: HttpArgument) -> dict[str, Any]:
    written: dict[str, Any] = {"in": argument.place, "name": argument.name}
    if argument.style:
        written["style"] = argument.style
    if argument.explode is not None:
        written["explode"] = argument.explode
    return written


@dataclass(frozen=True)
class HttpRequest:
    """A request as it would go out, but for its credential."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None


# -- Reading what is stored --------------------------------------------------------------------------------------------


def read_implementation(value: Any) -> HttpImplementation:
    """The implementation behind this JSON. Raises ImplementationRefused for what has another shape; whether its parts
    fit each other, `check_http` says."""
    whole = _object("implementation", value)
    _only("implementation", whole, ("method", "url", "arguments", "headers", "query", "body", "response"))
    body = _object("body", whole.get("body") or {})
    _only("body", body, ("media_type", "argument"))
    response = _object("response", whole.get("response") or {})
    _only("response", response, ("pointer", "fields", "text"))
    fields = response.get("fields") or []
    if not isinstance(fields, list) or not all(isinstance(each, str) and each for each in fields):
        raise ImplementationRefused("response.fields", "The fields are a list of names.")
    text = response.get("text", False)
    if not isinstance(text, bool):
        raise ImplementationRefused("response.text", "This is true or false.")
    return HttpImplementation(
        method=_text("method", whole.get("method")).upper(),
        url=_text("url", whole.get("url")),
        arguments={
            str(name): _argument(str(name), each)
            for name, each in _object("arguments", whole.get("arguments") or {}).items()
        },
        headers=_texts("headers", whole.get("headers")),
        query=_texts("query", whole.get("query")),
        media_type=_text("body.media_type", body.get("media_type") or "").strip(),
        body_argument=_text("body.argument", body.get("argument") or ""),
        response=HttpResponse(_text("response.pointer", response.get("pointer") or ""), tuple(fields), text),
    )


def _argument(name: str, value: Any) -> HttpArgument:
    where = f"arguments.{name}"
    written = _object(where, value)
    _only(where, written, ("in", "name", "style", "explode"))
    explode = written.get("explode")
    if explode is not None and not isinstance(explode, bool):
        raise ImplementationRefused(where, "explode is true or false.")
    place = _text(where, written.get("in"))
    if place not in PLACES:
        raise ImplementationRefused(where, f"An argument goes into one of {', '.join(PLACES)}.")
    return HttpArgument(
        place, _text(where, written.get("name") or name), _text(where, written.get("style") or ""), explode
    )


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ImplementationRefused(where, "This must be an object.")
    return value


def _only(where: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in value:
        if name not in known:
            raise ImplementationRefused(where, f"There is no {str(name)[:50]} here, only {', '.join(known)}.")


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ImplementationRefused(where, "This must be a text.")
    return value


def _texts(where: str, value: Any) -> dict[str, str]:
    return {str(name): _text(f"{where}.{name}", each) for name, each in _object(where, value or {}).items()}


# -- What may be saved -------------------------------------------------------------------------------------------------


def check_http(implementation: HttpImplementation, parameters: Mapping[str, Any]) -> None:
    """Raise ImplementationRefused unless the parts fit each other and the schema of the arguments.

    Whether the address may be reached is not asked: see `capabilities.running.egress`.
    """
    if implementation.method not in METHODS:
        raise ImplementationRefused("method", f"The method is one of {', '.join(METHODS)}.")
    _check_url(implementation)
    _check_fixed(implementation)
    _check_arguments(implementation, parameters)
    _check_body(implementation, parameters)
    _check_response(implementation.response)


def placeholders(url: str) -> list[str]:
    """Names in braces of an address's path, in order."""
    return PLACEHOLDER.findall(url)


def split_url(url: str) -> tuple[str, str]:
    """Scheme with host, and the path behind them."""
    found = re.match(r"(https?://[^/?#]*)(.*)\Z", url, re.IGNORECASE | re.DOTALL)
    return (found[1], found[2]) if found else ("", url)


def _check_url(implementation: HttpImplementation) -> None:
    url = implementation.url
    origin, path = split_url(url)
    if not origin:
        raise ImplementationRefused("url", "The address begins with https:// or http:// and a host.")
    if len(url) > MAX_URL:
        raise ImplementationRefused("url", f"Keep the address under {MAX_URL:,} characters.")
    if "{" in origin or "}" in origin:
        raise ImplementationRefused("url", "The host is always the same: {names} may stand behind it, in the path.")
    if "?" in path:
        raise ImplementationRefused("url", "Leave out what follows the ?: add it as a fixed value of the query.")
    if "#" in path:
        raise ImplementationRefused("url", "Leave out the # and what follows it: servers never see that.")
    rest = PLACEHOLDER.sub("", path)
    if "{" in rest or "}" in rest:
        raise ImplementationRefused("url", "A { in the address has no } of its own, or the other way round.")
    if _has_dots(PLACEHOLDER.sub("x", path)):
        raise ImplementationRefused("url", "Write the path without . and .. as parts of it.")
    names = placeholders(path)
    filled = [each.name for each in implementation.placed("path").values()]
    for name in names:
        if name not in filled:
            raise ImplementationRefused("url", f"No argument goes into the path as {name or '{}'}.")
    for name, argument in implementation.placed("path").items():
        if argument.name not in names:
            raise ImplementationRefused(f"arguments.{name}", f"The address has no {{{argument.name}}} for it.")


def _check_fixed(implementation: HttpImplementation) -> None:
    if len(implementation.headers) > MAX_FIXED or len(implementation.query) > MAX_FIXED:
        raise ImplementationRefused("headers", f"At most {MAX_FIXED} fixed headers and as many values of the query.")
    for name, value in implementation.headers.items():
        _check_header(f"headers.{name}", name)
        if not HEADER_VALUE.fullmatch(value):
            raise ImplementationRefused(f"headers.{name}", "A header is one line of plain characters (ASCII).")
    for name in implementation.query:
        if not name or len(name) > MAX_NAME:
            raise ImplementationRefused(f"query.{name}", f"A name has 1 to {MAX_NAME} characters.")


def _check_header(where: str, name: str) -> None:
    if not HEADER_NAME.fullmatch(name):
        raise ImplementationRefused(where, f"{name[:50]!r} is no valid name of a header.")
    if is_own_header(name):
        raise ImplementationRefused(
            where, f"The header {name} is not set here: it follows from the address, the body or the credential."
        )


def is_own_header(name: str) -> bool:
    """Return whether no argument and no author sets this header of an HTTP tool."""
    return name.lower() in OWN_HEADERS or name.lower().startswith(("proxy-", "sec-"))


def _check_arguments(implementation: HttpImplementation, parameters: Mapping[str, Any]) -> None:
    properties = parameters.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    listed = parameters.get("required")
    required = listed if isinstance(listed, list) else []
    if len(implementation.arguments) > MAX_ARGUMENTS:
        raise ImplementationRefused("arguments", f"A tool has at most {MAX_ARGUMENTS} arguments.")
    for name in known:
        if name not in implementation.arguments:
            raise ImplementationRefused(f"arguments.{name}", "Say where this argument goes.")
    taken: set[tuple[str, str]] = {("query", name) for name in implementation.query}
    taken |= {("header", name.lower()) for name in implementation.headers}
    for name, argument in implementation.arguments.items():
        where = f"arguments.{name}"
        if name not in known:
            raise ImplementationRefused(where, "The schema of the arguments has no such argument.")
        _check_argument(where, argument)
        if argument.place == "path" and name not in required:
            raise ImplementationRefused(where, "It fills a place in the path: make it required.")
        if name == implementation.body_argument:
            continue
        spot = (argument.place, argument.name.lower() if argument.place == "header" else argument.name)
        if spot in taken:
            raise ImplementationRefused(where, f"Two values go into the {argument.place} as {argument.name}.")
        taken.add(spot)


def _check_argument(where: str, argument: HttpArgument) -> None:
    if not argument.name or len(argument.name) > MAX_NAME or not argument.name.isprintable():
        raise ImplementationRefused(where, f"The name that it is sent as has 1 to {MAX_NAME} characters.")
    if argument.style and argument.style not in PLACES[argument.place]:
        styles = ", ".join(each for each in PLACES[argument.place] if each) or "none"
        raise ImplementationRefused(where, f"In a {argument.place} the style is one of: {styles}.")
    if argument.place == "header":
        _check_header(where, argument.name)
    if argument.place == "cookie" and not COOKIE_NAME.fullmatch(argument.name):
        raise ImplementationRefused(where, "The name of a cookie is letters, digits, - and _.")


def _check_body(implementation: HttpImplementation, parameters: Mapping[str, Any]) -> None:
    whole, kind = implementation.body_argument, implementation.body_type
    bodies, forms, files = (implementation.placed(each) for each in ("body", "form", "file"))
    if implementation.media_type and not MEDIA_TYPE.fullmatch(implementation.media_type):
        raise ImplementationRefused("body.media_type", "A media type looks like application/json.")
    if not (bodies or forms or files):
        return
    if implementation.method in ("GET", "HEAD", "OPTIONS"):
        raise ImplementationRefused("method", f"A {implementation.method} request has no body: take another method.")
    if whole:
        if whole not in bodies and whole not in files:
            raise ImplementationRefused("body.argument", f"The argument {whole} does not go into the body.")
        if len(bodies) + len(forms) + len(files) > 1:
            raise ImplementationRefused("body.argument", f"{whole} is the whole body: nothing else can go into it.")
        if kind.lower() in (MULTIPART, URLENCODED):
            raise ImplementationRefused("body.media_type", f"A body that is one argument is not sent as {kind}.")
        return
    if bodies and (forms or files):
        raise ImplementationRefused("arguments", "Arguments go into a JSON body or into a form, not into both.")
    if bodies and not is_json(kind):
        raise ImplementationRefused("body.media_type", "Arguments are put together as JSON only: say application/json.")
    if files and kind.lower() != MULTIPART:
        raise ImplementationRefused("body.media_type", f"A file is sent as {MULTIPART}.")
    if forms and kind.lower() not in (MULTIPART, URLENCODED):
        raise ImplementationRefused("body.media_type", f"A form is sent as {URLENCODED} or {MULTIPART}.")


def _check_response(response: HttpResponse) -> None:
    if response.pointer and not response.pointer.startswith("/"):
        raise ImplementationRefused("response.pointer", "A JSON pointer begins with /, such as /data/items.")
    if re.search(r"~(?![01])", response.pointer):
        raise ImplementationRefused("response.pointer", "In a JSON pointer ~ is written ~0, and / inside a name ~1.")
    if len(response.pointer) > MAX_NAME or len(response.fields) > 100:
        raise ImplementationRefused("response.pointer", "The pointer or the list of fields is too long.")
    if response.text and (response.pointer or response.fields):
        raise ImplementationRefused("response.text", "An answer that is read as text has no pointer and no fields.")


def is_json(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")


# -- The request -------------------------------------------------------------------------------------------------------


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
        if any(_has_dots(each) or re.search(r"[\x00-\x1f\x7f]", each) for each in _decoded(written)):
            raise _wrong(name, "it has . or .. as a part of a path, or a control character, which no server gets")
        return written

    filled = PLACEHOLDER.sub(fill, path)
    if any(map(_has_dots, _decoded(filled))):  # a value beside another, or beside what the address has itself
        raise ToolError("Not sent: the values make a path with . or .. in it.", nothing_came=True)
    return origin + (filled or "/")


def _decoded(path: str) -> Iterator[str]:
    """Yield the path as it is written, and decoded up to four times: servers and proxies decode more than once."""
    for _ in range(5):
        yield path
        path = unquote(path)


def _has_dots(path: str) -> bool:
    return any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\]", path))


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


SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}


def _deep(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _deep(f"{name}[{key}]", each)
        elif isinstance(each, list):
            yield from _deep(f"{name}[{key}]", {str(number): inner for number, inner in enumerate(each)})
        else:
            yield f"{name}[{key}]", _plain(each)


def _headers(implementation: HttpImplementation, given: Mapping[str, Any]) -> dict[str, str]:
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


# -- The answer --------------------------------------------------------------------------------------------------------


class NotInAnswer(LookupError):
    """The answer has nothing at the pointer."""


def mapped(value: Any, response: HttpResponse) -> Any:
    """The part of a JSON answer that the model reads. Raises NotInAnswer."""
    for part in response.pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) and re.fullmatch(r"0|[1-9]\d{0,8}", key) else value[key]
        except (LookupError, TypeError):
            raise NotInAnswer(response.pointer) from None
    if not response.fields:
        return value
    if isinstance(value, list):
        return [_fields(each, response.fields) for each in value]
    return _fields(value, response.fields)


def _fields(value: Any, fields: Sequence[str]) -> Any:
    """The named fields of an object; `owner.name` is a field of an object inside. What is no object stays."""
    if not isinstance(value, Mapping):
        return value
    found: dict[str, Any] = {}
    for name in fields:
        inner: Any = value
        for part in [name] if name in value else name.split("."):
            inner = inner.get(part, NOTHING) if isinstance(inner, Mapping) else NOTHING
        if inner is not NOTHING:
            found[name] = inner
    return found


NOTHING = object()
