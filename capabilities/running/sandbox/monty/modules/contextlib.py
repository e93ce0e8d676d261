"""`contextlib`: suppress, nullcontext, closing."""

from typing import Any


class suppress:
    def __init__(self, *exceptions: Any) -> None:
        self.exceptions = exceptions

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return error is not None and isinstance(error, self.exceptions)


class nullcontext:
    def __init__(self, enter_result: Any = None) -> None:
        self.enter_result = enter_result

    def __enter__(self) -> Any:
        return self.enter_result

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        return None


class closing:
    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __enter__(self) -> Any:
        return self.thing

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.thing.close()
