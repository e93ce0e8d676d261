"""`io`: StringIO, which `csv` reads from and writes to."""

from typing import Any


class StringIO:
    def __init__(self, initial_value: str = "", newline: Any = "\n") -> None:
        self._text = initial_value or ""
        self._at = 0

    def read(self, size: Any = -1) -> str:
        return self._to(len(self._text) if size is None or size < 0 else self._at + size)

    def readline(self) -> str:
        return self._to(self._text.find("\n", self._at) + 1 or len(self._text))

    def _to(self, end: int) -> str:
        found = self._text[self._at : end]
        self._at += len(found)
        return found

    def write(self, s: str) -> int:
        if not isinstance(s, str):
            raise TypeError("string argument expected")
        end = self._at + len(s)
        self._text = self._text[: self._at] + s + self._text[end:]
        self._at = end
        return len(s)

    def getvalue(self) -> str:
        return self._text

    def seek(self, pos: int, whence: int = 0) -> int:
        self._at = len(self._text) if whence == 2 else pos
        return self._at

    def tell(self) -> int:
        return self._at

    def readlines(self) -> list[str]:
        found = []
        while self._at < len(self._text):
            found.append(self.readline())
        return found

    def close(self) -> None:
        return None

    def __iter__(self) -> Any:
        return iter(self.readlines())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        return None
