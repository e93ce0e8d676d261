"""A response that a view has not made yet when it returns: what it waits for takes no thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from django.http import HttpResponse, HttpResponseBase


class LaterResponse(HttpResponse):
    """Stand-in for a response that is still to come: `coming` makes it, without a thread, and is cancelled where the
    client leaves before. What middlewares say in the headers of this one counts for that one too."""

    def __init__(self, coming: Callable[[], Awaitable[HttpResponseBase]]) -> None:
        super().__init__()
        self.coming = coming

    async def made(self) -> HttpResponseBase:
        """The response, with the headers of this one that it has not itself."""
        response = await self.coming()
        for name, value in self.items():
            if name not in ("Content-Type", "Content-Length"):
                response.headers.setdefault(name, value)
        return response
