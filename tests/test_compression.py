"""Answers of text come compressed to who takes gzip; streams, files and short answers as they are."""

from __future__ import annotations

import gzip

import pytest
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.test import Client, RequestFactory

from toolhub.tenants.models import Membership
from toolhub.web.compression import Compression

TAKES = {"Accept-Encoding": "gzip, br"}
LONG = "The same words again. " * 50


def answered(response: HttpResponseBase) -> HttpResponseBase:
    def view(request: HttpRequest) -> HttpResponseBase:
        return response

    found = Compression(view)(RequestFactory().get("/", headers=TAKES))
    assert isinstance(found, HttpResponseBase)
    return found


@pytest.mark.django_db
def test_a_page_is_the_same_page_compressed(alice: Membership) -> None:
    client = Client()
    client.force_login(alice.user)

    plain, packed = client.get("/o/acme/tools/"), client.get("/o/acme/tools/", headers=TAKES)

    assert "Content-Encoding" not in plain
    assert packed["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed["Vary"]
    assert b"All tools" in gzip.decompress(packed.content)
    assert len(packed.content) < len(plain.content) / 2


@pytest.mark.parametrize(
    "response",
    [
        StreamingHttpResponse([LONG], content_type="text/event-stream"),
        StreamingHttpResponse([LONG], content_type="text/csv"),
        FileResponse([LONG.encode()], content_type="text/plain"),
        HttpResponse(LONG, content_type="image/png"),
        HttpResponse(LONG, content_type="application/zip"),
        HttpResponse("short"),
    ],
    ids=["events", "rows", "file", "picture", "archive", "short"],
)
def test_streams_files_and_short_answers_stay_as_they_are(response: HttpResponseBase) -> None:
    assert "Content-Encoding" not in answered(response)


def test_what_is_compressed_already_stays_so() -> None:
    packed = gzip.compress(LONG.encode())

    found = answered(HttpResponse(packed, headers={"Content-Encoding": "gzip"}))

    assert isinstance(found, HttpResponse)
    assert found.content == packed


@pytest.mark.django_db
def test_a_conditional_request_is_answered_as_before(client: Client, alice: Membership) -> None:
    client.force_login(alice.user)
    first = client.get("/api/schema/", headers=TAKES)
    assert first.status_code == 200, first
    again = client.get("/api/schema/", headers={**TAKES, "If-None-Match": first["ETag"]})

    assert (first["Content-Encoding"], again.status_code, again.content) == ("gzip", 304, b"")
