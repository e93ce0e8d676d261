"""Rules of addresses: which web addresses are well formed, which IP addresses are public, and what an entry of the
operator's list covers.

Pure: what is answered follows from what is given. Must not know the settings, nor the network.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from enum import StrEnum

import httpx2

from capabilities.running.egress.errors import EgressRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


# -- Which addresses are public --------------------------------------------------------------------------------------

# An explicit list: `ipaddress.is_global` is wrong about several of these in Python 3.11. 168.63.129.16 is a public
# address on which a cloud answers its own machines.
DENIED_V4 = [
    ipaddress.IPv4Network(f"{first}/{bits}")
    for first, bits in {
        "0.0.0.0": 8,  # noqa: S104 -- refused, not bound
        "10.0.0.0": 8,
        "100.64.0.0": 10,
        "127.0.0.0": 8,
        "168.63.129.16": 32,
        "169.254.0.0": 16,
        "172.16.0.0": 12,
        "192.0.0.0": 24,
        "192.0.2.0": 24,
        "192.88.99.0": 24,
        "192.168.0.0": 16,
        "198.18.0.0": 15,
        "198.51.100.0": 24,
        "203.0.113.0": 24,
        "224.0.0.0": 4,
        "240.0.0.0": 4,
    }.items()
]
# Global unicast is all that IPv6 has handed out; of it, these are not public. Teredo (2001::/32) is in 2001::/23.
GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
DENIED_V6 = [ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20")]
# Prefixes that carry an IPv4 address, and how far to shift it out: IPv4-mapped, IPv4-compatible, IPv4-translated,
# NAT64, 6to4. What they carry is what is reached.
CARRIERS = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),
        ("::/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0),
        ("2002::/16", 80),
    )
)


def is_public(address: str) -> bool:
    """Return whether anybody on the internet may reach this IP address (in standard notation)."""
    try:
        return _is_public(ipaddress.ip_address(address))
    except ValueError:
        return False


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in DENIED_V4)
    if address.scope_id is not None:
        return False
    for network, shift in CARRIERS:
        if address in network:
            return _is_public(ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    return address in GLOBAL_V6 and not any(address in network for network in DENIED_V6)


# -- What the operator lets through ----------------------------------------------------------------------------------


HOST_NAME = re.compile(r"[\w-]+(\.[\w-]+)*\.?")


class Purpose(StrEnum):
    """Purpose of a request: an entry of TOOLHUB_PRIVATE_HOSTS opens a private host for one purpose."""

    PROVIDER = "provider"
    TOOL = "tool"
    MCP = "mcp"


@dataclass(frozen=True)
class AllowedHost:
    """One entry of TOOLHUB_PRIVATE_HOSTS: a name or a network, on one port or (None) on any, for one purpose, and for
    one organisation by its short name, or ("") for all. An entry that names no purpose is for providers."""

    name: str
    network: Network | None
    port: int | None
    purpose: Purpose = Purpose.PROVIDER
    organisation: str = ""
    names_purpose: bool = False

    def covers(self, host: str, address: Address, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is None:
            return self.name == host
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return address in self.network or (mapped is not None and mapped in self.network)


#: `tool:` or `tool@acme:` in front of an entry. Digits alone behind it are a port: then a host is called so.
_PURPOSE = re.compile(rf"({'|'.join(Purpose)})(?:@([a-z0-9][a-z0-9-]*))?:(?!\d+\Z)(.*)", re.DOTALL)


def allowed_host(entry: str) -> AllowedHost | None:
    """Read an entry: `name`, `10.0.0.5`, `10.0.0.0/8`, `fd00::/8`, each with `:port` if wanted (IPv6 then in brackets),
    and each with `tool:`, `mcp:` or `provider:`, or `tool@acme:` for one organisation, in front of it if wanted; else
    None."""
    found = _PURPOSE.fullmatch(entry.strip().lower())
    if found is None:
        return _host_entry(entry)
    host = _host_entry(found[3])
    if host is None:
        return None
    return replace(host, purpose=Purpose(found[1]), organisation=found[2] or "", names_purpose=True)


def _host_entry(entry: str) -> AllowedHost | None:
    """Return the host or network of one entry, with its port; None for what is neither."""
    text, port, colon = entry.strip().lower(), "", ""
    if text.startswith("["):
        text, _, rest = text[1:].partition("]")
        prefix, colon, port = rest.partition(":")
        text += prefix
    elif text.count(":") == 1:
        text, colon, port = text.partition(":")
    if not text or (colon and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536)):
        return None
    number = int(port) if port else None
    try:
        return AllowedHost("", ipaddress.ip_network(text, strict=False), number)
    except ValueError:
        return AllowedHost(plain_host(text), None, number) if HOST_NAME.fullmatch(text) else None


def plain_host(host: str) -> str:
    """A host name as it is compared: lower case, without the dot that may end it."""
    return host.lower().removesuffix(".")


# -- Which web addresses are well formed -----------------------------------------------------------------------------


def check_url(url: str) -> httpx2.URL:
    """The address as it will be used. Raises EgressRefused unless it is plain http or https without a user name."""
    check_characters(url)
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise EgressRefused("This is not a valid address; it must look like https://example.org/path.") from error
    if parsed.scheme not in ("http", "https"):
        raise EgressRefused("Only http and https addresses can be reached.")
    if not re.fullmatch(rb"[A-Za-z0-9._:-]+", parsed.raw_host):
        raise EgressRefused("The address names no valid host; it must look like https://example.org/path.")
    if parsed.userinfo:
        raise EgressRefused("The address has a user name or an @ before its host; send credentials as a header.")
    return parsed


def check_characters(url: str) -> None:
    """Raise EgressRefused for characters that parsers read differently, so that guard and client would disagree."""
    if any(character.isspace() or not character.isprintable() or character == "\\" for character in url):
        raise EgressRefused("The address has a space, a control character or a backslash in it; encode it with %.")
