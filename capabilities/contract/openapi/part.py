"""A part of a document: the operations with some tags, below a path, or that speak of something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from capabilities.contract.openapi.references import entries, text

#: Limits of one part: tags, and characters of each text.
MAX_TAGS, MAX_TEXT = 50, 200


@dataclass(frozen=True)
class Part:
    """Part of a document: operations with any of the tags, whose path begins so (or fits the pattern, with `*`), and
    that have all the words. Empty for any."""

    tags: tuple[str, ...] = ()
    path: str = ""
    text: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Part:
        """Read a part as it is stored, or sent to a child; a malformed value means any."""
        tags = values.get("tags")
        named = tuple(each for each in tags if isinstance(each, str)) if isinstance(tags, list | tuple) else ()
        return cls(named, text(values.get("path")), text(values.get("text")))

    @property
    def is_whole(self) -> bool:
        return not (self.tags or self.path or self.text)

    def as_json(self) -> dict[str, Any]:
        """Empty for the whole document."""
        return {name: list(value) if name == "tags" else value for name, value in asdict(self).items() if value}

    def has(self, path: str, method: str, operation: Mapping[str, Any]) -> bool:
        return self._has_tag(operation) and self._has_path(path) and self._has_words(path, method, operation)

    def _has_tag(self, operation: Mapping[str, Any]) -> bool:
        return not self.tags or not set(self.tags).isdisjoint(tags_of(operation))

    def _has_path(self, path: str) -> bool:
        return fnmatchcase(path, self.path) if "*" in self.path else path.startswith(self.path)

    def _has_words(self, path: str, method: str, operation: Mapping[str, Any]) -> bool:
        if not self.text:
            return True
        words_of_operation = " ".join(text(operation.get(name)) for name in ("operationId", "summary", "description"))
        whole = f"{method} {path} {words_of_operation}".casefold()
        return all(word in whole for word in self.text.casefold().split())


def tags_of(operation: Mapping[str, Any]) -> list[str]:
    return [each for each in entries(operation.get("tags")) if isinstance(each, str)]
