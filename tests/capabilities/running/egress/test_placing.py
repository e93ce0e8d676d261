"""A credential is added only where a request goes to one of its origins."""

from __future__ import annotations

import pytest

from capabilities.contract.context import Credential
from capabilities.running.egress import EgressRefused, fits, origin_of, place

SIGNED = Credential(headers={"Authorization": "Bearer s3cret"}, origins=("https://api.example.org",))
KEYED = Credential(query={"key": "s3cret"}, origins=("https://api.example.org", "http://127.0.0.1:8080"))


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://api.example.org/a?b#c", "https://api.example.org"),
        ("HTTPS://API.Example.ORG:443", "https://api.example.org"),
        ("https://api.example.org./a", "https://api.example.org"),
        ("http://api.example.org:80/", "http://api.example.org"),
        ("http://api.example.org:443/", "http://api.example.org:443"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_compared_in_one_form(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.org/",
        "https://api.example.org:8443/",
        "https://api.example.org.evil.test/",
        "https://evil.test/https://api.example.org/",
        "https://evil.test/?https://api.example.org",
        "https://sub.api.example.org/",
        "https://evil.test#@api.example.org/",
    ],
)
def test_s37_another_origin_gets_nothing(url: str) -> None:
    assert place(SIGNED, url, {"Accept": "text/plain"}) == (url, {"Accept": "text/plain"})


@pytest.mark.parametrize(
    "url", ["https://api.example.org@evil.test/", "https://evil.test\\@api.example.org/", "file:///etc/passwd"]
)
def test_an_address_that_two_parsers_read_differently_is_refused(url: str) -> None:
    with pytest.raises(EgressRefused):
        place(SIGNED, url, {})


def test_s37_what_the_model_wrote_under_the_same_name_is_replaced() -> None:
    written = {"authorization": "Bearer mine", "AUTHORIZATION": "x", "Accept": "text/plain"}

    _, headers = place(SIGNED, "https://api.example.org/a", written)

    assert headers == {"Accept": "text/plain", "Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    ("url", "signed"),
    [
        ("https://api.example.org/a", "https://api.example.org/a?key=s3cret"),
        ("https://api.example.org/a?b=%20c&b=+", "https://api.example.org/a?b=%20c&b=+&key=s3cret"),
        ("https://api.example.org/a?key=mine&k%65y=mine&b=1", "https://api.example.org/a?b=1&key=s3cret"),
        ("http://127.0.0.1:8080?#part", "http://127.0.0.1:8080?key=s3cret#part"),
    ],
)
def test_a_parameter_is_added_and_the_rest_of_the_address_is_left_alone(url: str, signed: str) -> None:
    assert place(KEYED, url, {}) == (signed, {})


def test_a_credential_without_origins_goes_nowhere() -> None:
    assert not fits(Credential(headers={"Authorization": "Bearer s3cret"}), "https://api.example.org/")
