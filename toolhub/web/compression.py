"""Answers compressed with gzip for those who take it: pages and JSON, no streams, and no files compressed already.

Pages hold the CSRF token, which Django masks anew in each, and Django's middleware adds random bytes: lengths tell
nothing.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

#: Beside every type of text.
TYPES = ("application/json", "application/vnd.oai.openapi", "application/manifest+json", "image/svg+xml")


class Compression(GZipMiddleware):
    """Django's, for whole answers of text. It makes an ETag a weak one, which conditional requests take."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        kind = response.get("Content-Type", "")
        if response.streaming or not kind.startswith(("text/", *TYPES)) or kind.startswith("text/event-stream"):
            return response
        return super().process_response(request, response)
