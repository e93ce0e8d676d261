"""Worker that listens to a server for changes of its list: one for each server, by a lease that is renewed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db.models import Q
from django.db.models.functions import Now

from capabilities.common.moments import from_now
from capabilities.models import McpServer
from toolhub.tenants.rows.scope import system_scope

#: Seconds that a server is one worker's to listen to, unless it is renewed.
LEASE_SECONDS = 60.0
#: Columns that say where a server is and how it is signed: with other ones, it is listened to anew.
PLACE = ("transport", "url", "stdio_name", "credential_id", "read_by_id")
Place = tuple[object, ...]


def take_to_listen(owner: str, *, without: Collection[int], full: Collection[int]) -> tuple[int, int, Place] | None:
    """The key, organisation and place of a server that says when its list changes and that nobody listens to, from now
    on this owner's; None where there is none. `without`: servers that are left out, `full`: organisations. Two
    statements."""
    free = Q(listening_until=None) | Q(listening_until__lt=Now())
    with system_scope():
        servers = McpServer.objects.filter(free, is_enabled=True, refreshed_at__isnull=False, failing_since=None)
        servers = servers.filter(server_capabilities__tools__listChanged=True)
        found = servers.exclude(pk__in=list(without)).exclude(organisation_id__in=list(full)).order_by("pk")
        for key, organisation_id, *address in found.values_list("pk", "organisation_id", *PLACE)[:3]:
            if servers.filter(pk=key).update(listening_until=from_now(LEASE_SECONDS), listener=owner):
                return key, organisation_id, tuple(address)
    return None


def renew_listening(owner: str, keys: Collection[int]) -> Mapping[int, Place]:
    """Hold on to these servers; return those that still are the owner's and switched on, with where they are now. Two
    statements, none for none."""
    if not keys:
        return {}
    with system_scope():
        own = McpServer.objects.filter(pk__in=list(keys), listener=owner, is_enabled=True)
        own.update(listening_until=from_now(LEASE_SECONDS))
        return {key: tuple(address) for key, *address in own.values_list("pk", *PLACE)}


def stop_listening(owner: str, keys: Collection[int]) -> None:
    """Let go of these servers: any worker may listen to them."""
    if keys:
        with system_scope():
            McpServer.objects.filter(pk__in=list(keys), listener=owner).update(listening_until=None, listener="")
