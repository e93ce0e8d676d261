"""Reply of a model, in whatever dialect it came. Knows no HTTP.

Nothing here raises on odd input: unusable parts are left out, and the rest is made valid, so that the stored history
can always be sent again.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from capabilities.common.text import storable, storable_json
from capabilities.models import Dialect
from sessions.loop.clients.finishing import finish_of
from sessions.loop.clients.usage import Usage, usage_of
from sessions.loop.clients.written import WrittenText
from toolhub.bounded_json import load_json

#: Characters of an answer, of one call's arguments, and of all a reply's extras (as JSON) that are kept.
MAX_TEXT = 400_000
MAX_ARGUMENTS = 200_000
MAX_EXTRAS = 400_000
#: Calls of one reply that are kept at all; all of them are answered.
MAX_CALLS = 2_000
#: Parts of one text, and characters of arguments that are looked at for repetitions.
MAX_PARTS, MAX_REPEATED = 10_000, 50_000
CALL_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True)
class Call:
    """One tool call as the model asked for it: the name and the arguments are text from outside."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    text: str
    calls: tuple[Call, ...]
    finish_reason: str
    #: None where the provider did not count, or not possibly.
    usage: Usage | None
    #: Data that must go back to the same model unread: thought signatures, reasoning. Its shape is the dialect's own.
    extras: Mapping[str, Any] = field(default_factory=dict)
    #: Other text in the clear: thoughts, and calls that were cut off. We count it, where the provider did not.
    other_text: str = ""
    #: Whether it came in pieces.
    is_streamed: bool = field(default=True, compare=False)
    #: Provider's name for the model that answered; empty where it does not say.
    model: str = field(default="", compare=False)


@dataclass
class Piece:
    """A call that comes in pieces."""

    order: int
    id: str = ""
    name: str = ""
    #: The dialect's own, see `Reply.extras`.
    extras: dict[str, Any] = field(default_factory=dict)
    _arguments: list[str] = field(default_factory=list)
    _room: int = MAX_ARGUMENTS

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    @property
    def whole_arguments(self) -> str:
        """The arguments; where their pieces are none together, those that are: some servers begin with an empty object,
        repeat all of it at the end, or send all of it so far each time."""
        pieces = self._arguments
        if len(pieces) < 2 or len(self.arguments) > MAX_REPEATED or _is_object(self.arguments):
            return self.arguments
        return next(filter(_is_object, (pieces[-1], "".join(pieces[1:]))), self.arguments)

    @property
    def is_complete(self) -> bool:
        """True where the arguments are a whole object by now. Long ones are not looked at."""
        if not self._arguments or self._room < MAX_ARGUMENTS - 20_000 or not self._arguments[-1].rstrip().endswith("}"):
            return False
        return _is_object(self.arguments)

    def add_arguments(self, arguments: object) -> None:
        if arguments is not None and not isinstance(arguments, str):  # as some local servers send them
            arguments = json.dumps(arguments)
        if isinstance(arguments, str) and arguments and self._room:
            self._arguments.append(arguments[: self._room])
            self._room -= len(self._arguments[-1])

    def clear_arguments(self) -> None:
        self._arguments, self._room = [], MAX_ARGUMENTS


@dataclass
class ReplyReader(ABC):
    """Collects a reply from a stream's events (`add_event`) or from a whole answer (`add_whole`)."""

    dialect: ClassVar[Dialect]

    #: The provider's address: each counts usage in its own way.
    base_url: str = ""
    finish_reason: str = ""
    #: Whether anything of use has come, and whether nothing more of the reply can come.
    spoke: bool = False
    is_streamed: bool = True
    is_over: bool = False
    #: Events that belong to a reply at all.
    events: int = 0
    model: str = ""
    pieces: list[Piece] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _length: int = 0
    _other_text: list[str] = field(default_factory=list)
    _other_length: int = 0
    #: The provider's usage object that came last.
    _usage: Mapping[str, Any] = field(default_factory=dict)
    #: The tools that were sent: a call that is written as text is run where it names one.
    names: Callable[[], frozenset[str]] = frozenset
    _written: WrittenText | None = None

    @abstractmethod
    def add_event(self, event: Any) -> str:
        """Take in one event of a stream; returns the text that it added."""

    @abstractmethod
    def add_whole(self, answer: Any) -> str:
        """Take in a reply that came whole, from a provider that does not stream; returns its text."""

    @abstractmethod
    def extras(self, kept: list[Piece]) -> dict[str, Any]:
        """Return the part of the reply that goes back unread, with the extras of these calls."""

    def end(self) -> str:
        """End the reply: return the text that was held back, and take over the calls that stand in it, where the
        provider sent none."""
        written = self._written
        if written is None:
            return ""
        text = self._keep(written.end())
        for name, arguments in written.calls if not self.pieces else ():
            piece = self.add_piece(len(self.pieces))
            piece.name = name
            piece.add_arguments(arguments)
        for thought in written.thoughts:
            self.add_thought(thought)
        self._written = None
        return text

    def build(self) -> Reply:
        """The reply as far as it has come."""
        self.end()
        kept = [piece for piece in sorted(self.pieces, key=lambda piece: piece.order) if piece.name or piece.arguments]
        calls = tuple(Call(piece.id, piece.name, piece.whole_arguments) for piece in kept)
        extras = storable_json(self.extras(kept), MAX_EXTRAS) or {}
        other_text = "".join(self._other_text)
        return Reply(
            self._output_text(), calls, self.finish_reason, self.usage, extras, other_text, self.is_streamed, self.model
        )

    def build_half(self) -> Reply:
        """Build the reply that was stopped in the middle: without calls, which are cut off, and without extras, which a
        model refuses in parts. Safe while the reply goes on."""
        begun = [part for piece in list(self.pieces) for part in (piece.name, piece.arguments)]
        return Reply(
            self._output_text(), (), self.finish_reason, self.usage, other_text="".join([*self._other_text, *begun])
        )

    @property
    def usage(self) -> Usage | None:
        return usage_of(self._usage, self.base_url, self.dialect)

    def _output_text(self) -> str:
        return storable("".join(self._text))

    def add_text(self, text: str) -> str:
        """Keep it, as far as there is room; returns what was kept."""
        if not text:
            return ""
        self.spoke = True
        return self._keep(text)

    def add_written(self, text: str) -> str:
        """Keep text that may hold thoughts in tags and calls, as far as there is room; return what was kept."""
        if not text:
            return ""
        self.spoke = True
        if self._written is None:
            self._written = WrittenText(self.names, self._void_text)
        return self._keep(self._written.add(text))

    def _void_text(self) -> None:
        """Turn the text so far into a thought."""
        self.add_thought("".join(self._text))
        self._text = []

    def _keep(self, text: str) -> str:
        text = text[: max(0, MAX_TEXT - self._length)]
        self._length += len(text)
        self._text.append(text)
        return text

    def add_thought(self, text: object) -> None:
        """A piece of what the model thinks, in the clear: it is only counted."""
        if isinstance(text, str) and self._other_length < MAX_TEXT:
            self._other_text.append(text)
            self._other_length += len(text)

    def add_piece(self, order: int) -> Piece:
        """A new call; those over MAX_CALLS lead nowhere."""
        piece = Piece(order)
        if len(self.pieces) < MAX_CALLS:
            self.pieces.append(piece)
        return piece

    def add_finish(self, reason: object, native: object = None) -> None:
        if known := finish_of(reason, native):
            self.finish_reason = storable(known, 40)

    def add_model(self, name: object) -> None:
        if not self.model and isinstance(name, str):
            self.model = storable(name, 200)

    def add_usage(self, reported: object) -> None:
        """Some servers count in each event: only the last one is read, at the end."""
        if isinstance(reported, Mapping) and reported:
            self._usage = reported


def text_of(content: Any) -> str:
    """Text that came as a string, as parts, or as one part."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(text_of, content[:MAX_PARTS]))
    return text_of(content.get("text") or content.get("parts")) if isinstance(content, Mapping) else ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(load_json(text), dict)
    except ValueError:
        return False


def line(value: Any) -> str:
    return value if isinstance(value, str) else ""
