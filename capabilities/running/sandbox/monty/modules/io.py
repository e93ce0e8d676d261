"""`io`: StringIO, for reading from text and for writing to it."""

from typing import Any


class StringIO:
    def __init__(self, initial_value: str = "", newline: Any = "\n") -> None:
        self._text = initial_value or ""
        self._at = 0

    def read(self, size: Any = -1) -> str:
        end = len(self._text) if size is None or size < 0 else self._at + size
        found = self._text[self._at : end]
        self._at += len(found)
        return found

    def readline(self, size: Any = -1) -> str:
        end = self._text.find("\n", self._at) + 1
        if end == 0:
            end = len(self._text)
        if size is not None and size >= 0:
            end = min(end, self._at + size)
        found = self._text[self._at : end]
        self._at += len(found)
        return found

    def readlines(self) -> list[str]:
        found = []
        line = self.readline()
        while line:
            found.append(line)
            line = self.readline()
        return found

    def write(self, s: str) -> int:
        if not isinstance(s, str):
            raise TypeError("string argument expected")
        if self._at == len(self._text):
            self._text += s
        else:
            self._text = self._text[: self._at] + s + self._text[self._at + len(s) :]
        self._at += len(s)
        return len(s)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def getvalue(self) -> str:
        return self._text

    def seek(self, pos: int, whence: int = 0) -> int:
        self._at = len(self._text) if whence == 2 else pos
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: Any = None) -> int:
        end = self._at if size is None else size
        self._text = self._text[:end]
        return int(end)

    def close(self) -> None:
        return None

    def __iter__(self) -> Any:
        return iter(self.readlines())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        return None
