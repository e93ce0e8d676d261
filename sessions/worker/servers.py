"""MCP servers beside the turns: those that are due are read again, and those that say so are listened to.

A server that hangs holds one of a few threads for as long as its answer may take, and only so many threads are one
organisation's: it never delays turns, nor others' servers for long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, connection

from capabilities.catalogue.servers.listening import Place, renew_listening, stop_listening, take_to_listen
from capabilities.catalogue.servers.refresh import claim_due, note_word, refresh_server
from capabilities.catalogue.servers.tool_lists import ServerNotRead, address_for, reader_of
from capabilities.models import CredentialKind, McpServer
from capabilities.running.mcp_client import client
from capabilities.running.mcp_client.server_addresses import ServerAddress
from toolhub.tenants.rows.scope import organisation_scope

logger = logging.getLogger(__name__)

#: Servers that one process reads at the same time, and of one organisation.
PLACES, PER_ORGANISATION = 4, 2
#: Servers that one process listens to, and of one organisation; those that it begins with at one look.
MOST_HEARD, MOST_OF_ORGANISATION, AT_ONCE = 100, 20, 5
#: Accounts whose tokens are renewed at the same time, so that their servers can be listened to; one of an organisation.
RENEWED_AT_ONCE = 4
#: Seconds between two looks at who is listened to; after which one is listened to anew, with its credential as it is by
#: then; and for which one is left alone that says nothing although it said it would.
LOOK_EVERY, ANEW, LEFT_ALONE = 5.0, 1_800.0, 3_600.0


class ServerReader:
    """Reads servers that are due, a few at a time; organisations take turns, however many servers of one are due."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._pool = ThreadPoolExecutor(PLACES, "mcp-refresh")
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()
        #: Organisations that had their turn in this round.
        self._had: set[int] = set()

    def sweep(self) -> None:
        """Begin to read what is due, as far as there is a place."""
        while not self.stopped.is_set():
            with self._lock:
                if self._running.total() >= PLACES:
                    return
                full = {key for key, count in self._running.items() if count >= PER_ORGANISATION}
            claimed = claim_due(full | self._had)
            if claimed is None and self._had:
                self._had.clear()  # a new round
                claimed = claim_due(full)
            if claimed is None:
                return
            self._had.add(claimed[1])
            with self._lock:
                self._running[claimed[1]] += 1
            self._pool.submit(self._read, *claimed)

    def _read(self, key: int, organisation_id: int) -> None:
        try:
            refresh_server(key, organisation_id, self.stopped)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("The server %s waits for the database: %s", key, error)
        except Exception:
            logger.exception("The server %s could not be read", key)
        finally:
            connection.close()
            with self._lock:
                self._running[organisation_id] -= 1
                self._running += Counter()  # drops those at zero

    def end(self) -> None:
        """Give up what is being read: another worker reads it when the lease has run out."""
        self.stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


@dataclass
class Heard:
    """One server that is listened to."""

    organisation_id: int
    place: Place
    watch: client.Watch
    since: float = field(default_factory=time.monotonic)


@dataclass
class Beginning:
    """One server that will be listened to, once it is known what signs that."""

    organisation_id: int
    place: Place
    address: Future[ServerAddress | None]


class Listeners:
    """The servers that this process listens to.

    A sweep asks nobody: a token is renewed at its authorization server in another thread, for as long as that takes.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.heard: dict[int, Heard] = {}
        self._beginning: dict[int, Beginning] = {}
        self._pool = ThreadPoolExecutor(RENEWED_AT_ONCE, "mcp-listen")
        self._words: set[int] = set()
        self._lock = threading.Lock()
        self._left_alone: dict[int, float] = {}
        self._looked = float("-inf")

    def sweep(self) -> None:
        """Pass on what was heard; now and then renew the leases, and take servers that nobody listens to."""
        with self._lock:
            words, self._words = self._words, set()
        note_word(words)
        if time.monotonic() - self._looked < LOOK_EVERY:
            return
        self._looked = time.monotonic()
        self._renew()
        self._begin()
        for _ in range(AT_ONCE):
            if len(self.heard) + len(self._beginning) >= MOST_HEARD or not self._take():
                return

    def _renew(self) -> None:
        places = renew_listening(self.owner, [*self.heard, *self._beginning])
        now = time.monotonic()
        self._left_alone = {key: until for key, until in self._left_alone.items() if until > now}
        ended = []
        for key, heard in list(self.heard.items()):
            if not heard.watch.is_on:
                self._left_alone[key] = now + LEFT_ALONE
            elif places.get(key) == heard.place and now - heard.since < ANEW:
                continue
            heard.watch.stop()
            del self.heard[key]
            ended.append(key)
        stop_listening(self.owner, ended)

    def _take(self) -> bool:
        counts = Counter(each.organisation_id for each in self.heard.values())
        full = {key for key, count in counts.items() if count >= MOST_OF_ORGANISATION}
        full |= {each.organisation_id for each in self._beginning.values()}
        without = [*self.heard, *self._beginning, *self._left_alone]
        taken = take_to_listen(self.owner, without=without, full=full)
        if taken is None:
            return False
        key, organisation_id, place = taken
        with organisation_scope(organisation_id):
            server = McpServer.objects.select_related("credential", "organisation").get(pk=key)
            if server.credential is not None and server.credential.kind == CredentialKind.OAUTH:
                found = self._pool.submit(_address_in_thread, server)
                self._beginning[key] = Beginning(organisation_id, place, found)
            else:
                self._listen(key, organisation_id, place, _address_of(server))
        return True

    def _begin(self) -> None:
        """Listen to the servers of which it is known by now what signs that."""
        for key, each in list(self._beginning.items()):
            if each.address.done():
                del self._beginning[key]
                self._listen(key, each.organisation_id, each.place, each.address.result())

    def _listen(self, key: int, organisation_id: int, place: Place, address: ServerAddress | None) -> None:
        if address is None:
            self._left_alone[key] = time.monotonic() + LEFT_ALONE
            stop_listening(self.owner, [key])
        else:
            self.heard[key] = Heard(organisation_id, place, client.watch(address, lambda: self._note(key)))

    def _note(self, key: int) -> None:
        """Remember the server, in the thread that speaks to servers, and do no more there."""
        with self._lock:
            self._words.add(key)

    def end(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for heard in self.heard.values():
            heard.watch.stop()
        stop_listening(self.owner, [*self.heard, *self._beginning])
        self.heard.clear()
        self._beginning.clear()


def _address_of(server: McpServer) -> ServerAddress | None:
    """Return the server's address with what signs its requests; None where that is not there: its next reading says
    why."""
    try:
        return address_for(server, reader_of(server))
    except ServerNotRead:
        return None


def _address_in_thread(server: McpServer) -> ServerAddress | None:
    try:
        with organisation_scope(server.organisation_id):
            return _address_of(server)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The server %s waits for the database: %s", server.pk, error)
    except Exception:
        logger.exception("The server %s cannot be listened to", server.pk)
    finally:
        connection.close()
    return None
