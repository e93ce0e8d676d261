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

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

    def placed(self, *locations: str) -> dict[str, HttpArgument]:
        return {name: each for name, each in self.arguments.items() if each.place in locations}

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
    """Read one stored argument. Raises ImplementationRefused."""
    where = f"arguments.{name}"
    written = _object(where, value)
    _only(where, written, ("in", "name", "style", "explode"))
    explode = written.get("explode")
    if explode is not None and not isinstance(explode, bool):
        raise ImplementationRefused(where, "explode is true or false.")
    location = _text(where, written.get("in"))
    if location not in PLACES:
        raise ImplementationRefused(where, f"An argument goes into one of {', '.join(PLACES)}.")
    return HttpArgument(
        location, _text(where, written.get("name") or name), _text(where, written.get("style") or ""), explode
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


def has_dots(path: str) -> bool:
    return any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\]", path))


def _check_url(implementation: HttpImplementation) -> None:
    """Raise ImplementationRefused for an address that is none, or whose places are not all filled by arguments."""
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
    if has_dots(PLACEHOLDER.sub("x", path)):
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
    """Raise ImplementationRefused unless each argument of the schema has one target, and no two the same."""
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
        target = (argument.place, argument.name.lower() if argument.place == "header" else argument.name)
        if target in taken:
            raise ImplementationRefused(where, f"Two values go into the {argument.place} as {argument.name}.")
        taken.add(target)


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
    """Raise ImplementationRefused for arguments of a body that do not go together, or that the method does not send."""
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


SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}


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
