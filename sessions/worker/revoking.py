"""Sign-ins that are to be ended elsewhere, one after the other, beside the turns."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from django.db import DatabaseError, InterfaceError, connection

from capabilities.running.credentials.oauth.revoking import claim_due, revoke_claimed

logger = logging.getLogger(__name__)


class Revoker:
    """One thread of its own: a server that hangs delays nothing but other sign-ins that are to be ended."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._pool = ThreadPoolExecutor(1, "revocation")
        self._is_busy = False

    def sweep(self) -> None:
        """Begin with what is due, unless that goes on already."""
        if self._is_busy or self.stopped.is_set():
            return
        key = claim_due()
        if key is not None:
            self._is_busy = True
            self._pool.submit(self._work, key)

    def _work(self, key: int | None) -> None:
        try:
            while key is not None and not self.stopped.is_set():
                revoke_claimed(key)
                key = claim_due()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Sign-ins that are to be ended wait for the database: %s", error)
        except Exception:
            logger.exception("The sign-in %s could not be ended; it is tried again", key)
        finally:
            self._is_busy = False
            connection.close()

    def end(self) -> None:
        """Stop; another worker tries again what is under way."""
        self.stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
