"""Check of addresses that a tenant enters, as far as an address itself shows it: names are looked up when a request is
made, and what they lead to then is what counts."""

from __future__ import annotations

import ipaddress

import httpx2

from capabilities.common.refused import ChangeRefused
from capabilities.running.egress import EgressRefused, Guard, Purpose, check_url, is_public
from capabilities.running.egress.guard import WEB_PORTS


def check_web_address(
    url: str, field: str, *, purpose: Purpose, ports: frozenset[int] | None = WEB_PORTS
) -> httpx2.URL:
    """The address, parsed. Raises ChangeRefused beside `field` for one that no request would be let through to.

    `ports` are those open at public addresses (None: any).
    """
    try:
        parsed = check_url(url)
    except EgressRefused as error:
        raise ChangeRefused(field, str(error)) from error
    host = parsed.host.removesuffix(".")
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return parsed  # a name
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    try:
        Guard(ports=ports, purposes=(purpose,)).check(parsed.host, address, port)
    except EgressRefused as error:
        if is_public(address):
            raise ChangeRefused(field, str(error)) from error
        raise ChangeRefused(
            field,
            f"{parsed.host} is a private address. Whoever runs this service lets it through with the setting "
            f"TOOLHUB_PRIVATE_HOSTS={purpose}:{parsed.host}:{port}.",
        ) from error
    return parsed
