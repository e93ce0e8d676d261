"""Request to a server for its tools, with the credential that is meant for that. No rows are written."""

from __future__ import annotations

import threading
from dataclasses import replace

from capabilities.contract.context import Credential, LinkNeeded, ToolError
from capabilities.contract.masking import masked_value
from capabilities.models import CredentialScope, McpServer
from capabilities.running.credentials.signing import after_refusal, stored_credential
from capabilities.running.kinds.mcp import address_of
from capabilities.running.mcp_client import client
from capabilities.running.mcp_client.answers import ListedTool, Listing
from capabilities.running.mcp_client.errors import McpError, NotAuthorised
from capabilities.running.mcp_client.limits import CONNECT_SECONDS
from capabilities.running.mcp_client.server_addresses import ServerAddress
from toolhub.tenants.models import Membership, Right

#: Seconds that the list may take; more where the server may take longer to start.
LIST_SECONDS = 30.0
NO_ACCOUNT = "Each member has an own account there: somebody must read its tools, whose account is used from then on."


class ServerNotRead(Exception):
    """Reason why the server cannot be asked, or did not answer: one or more sentences for people, without secrets.

    `url` is the page of ours on which the reader connects an account, where that is what is missing.
    """

    def __init__(self, message: str, *, url: str = "") -> None:
        super().__init__(message)
        self.url = url


def reader_of(server: McpServer) -> Membership | None:
    """Return the member whose account a server is read with by the clock, where each member has an own one: who had it
    read last, while that member administers the catalogue. None where the organisation has one credential, or there is
    none.

    Raises ServerNotRead where it needs somebody's account and there is nobody. One query.
    """
    if server.credential is None or server.credential.scope != CredentialScope.MEMBER:
        return None
    member = Membership.objects.filter(pk=server.read_by_id or 0, ended_at=None).first()
    if member is None or not member.reach(Right.CATALOGUE):
        raise ServerNotRead(NO_ACCOUNT)
    return member


def address_for(server: McpServer, reader: Membership | None) -> ServerAddress:
    """Return the server's address, with the organisation's credential or the reader's own. Raises ServerNotRead."""
    try:
        return address_of(server, _credential(server, reader))
    except LinkNeeded as needed:
        raise ServerNotRead(str(needed), url=needed.url) from needed
    except ToolError as error:
        raise ServerNotRead(str(error)) from error


def ask_for_tools(
    server: McpServer,
    reader: Membership | None,
    *,
    seconds: float = LIST_SECONDS,
    stopped: threading.Event | None = None,
) -> Listing:
    """The server's list, with its secrets masked wherever it sends them back. `reader`: who asks, or with whose account
    it is asked. Raises ServerNotRead. The caller holds no transaction."""
    address = address_for(server, reader)
    seconds += max(0.0, address.start_seconds - CONNECT_SECONDS)
    try:
        try:
            return _masked(client.list_tools(address, timeout=seconds, stopped=stopped), address.credential)
        except NotAuthorised as error:
            renewed = after_refusal(
                address.credential,
                error.status,
                error.challenge,
                membership_id=reader.pk if reader is not None else 0,
                at_most=seconds,
            )
            if renewed is None:
                raise
            address = address_of(server, renewed)
            return _masked(client.list_tools(address, timeout=seconds, stopped=stopped), renewed)
    except LinkNeeded as needed:
        raise ServerNotRead(str(needed), url=needed.url) from needed
    except (ToolError, McpError) as error:
        raise ServerNotRead(masked_value(str(error), address.credential.secrets)) from error


def _credential(server: McpServer, reader: Membership | None) -> Credential:
    if server.credential_id is None:
        return Credential()
    return stored_credential(server.credential_id, reader.pk if reader is not None else None, at_most=LIST_SECONDS)


def _masked(listing: Listing, credential: Credential) -> Listing:
    if not credential.secrets:
        return listing
    tools = tuple(
        ListedTool(each.name, masked_value(each.definition, credential.secrets), each.unusable, each.headers)
        for each in listing.tools
    )
    plain = {name: masked_value(getattr(listing, name), credential.secrets) for name in ("server_info", "instructions")}
    return replace(listing, tools=tools, **plain)
