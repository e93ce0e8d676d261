"""A reply while the model writes it: kept in its turn's row every half second or so, and sent to those who watch.

The row is for those who begin to watch, on any web server; the broker's hints, which may be lost, are for those who
watch already. Each piece says behind which event it is written and at which character it begins, so that a reader puts
both together without a gap and without a repetition.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError

from capabilities.common.text import storable
from sessions.turns import bell, ledger
from sessions.turns.held import Held

logger = logging.getLogger(__name__)

#: Seconds from a reply's first text until it is kept; a reply that is whole by then costs nothing more.
FIRST_AFTER = 0.1
#: Seconds between two times that a short text is kept, and characters that add one second to that.
KEEP_EVERY = 0.5
CHARS_PER_SECOND = 50_000
#: Seconds between two hints.
HINT_EVERY = 0.05


@dataclass
class Draft:
    """Text written so far of the reply that a held turn waits for."""

    held: Held
    text: str = ""
    #: Half of a surrogate pair, whose other half comes with the next piece.
    _rest: str = ""
    #: The event behind which the text is written; None until it is kept for the first time.
    _event: int | None = None
    _kept: int = 0
    _hinted: int = 0
    _keep_at: float = 0.0
    _hint_at: float = 0.0

    def add(self, piece: str) -> None:
        """Take in the next piece. Raises ledger.LeaseLost."""
        piece = self._rest + piece
        self._rest = piece[-1] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        if not self.text:
            self._keep_at = time.monotonic() + FIRST_AFTER
        self.text += storable(piece.removesuffix(self._rest) if self._rest else piece)
        self.pass_on()

    def restart(self) -> None:
        """Forget all of it: the model is asked again. Raises ledger.LeaseLost."""
        ledger.restart_draft(self.held.claim)
        self.text, self._rest, self._event, self._kept, self._hinted = "", "", None, 0, 0

    def pass_on(self) -> None:
        """Keep and announce the text that is due. Raises ledger.LeaseLost."""
        now = time.monotonic()
        if self._kept < len(self.text) and now >= self._keep_at:
            self._keep()
        if self._event is not None and self._hinted < len(self.text) and now >= self._hint_at:
            bell.announce_text(self.held.claim.turn_id, self._event, self._hinted, self.text[self._hinted :])
            self._hinted, self._hint_at = len(self.text), now + HINT_EVERY

    def _keep(self) -> None:
        try:
            turn = ledger.keep_draft(self.held.claim, self.text)
        except (DatabaseError, InterfaceError) as error:  # the reply itself is not lost: it is in memory
            logger.warning("What a model writes could not be kept: %s", error)
        else:
            self._event, self._kept = turn["last_event"], len(self.text)
            if turn["cancel_requested_at"] is not None:
                self.held.stop("cancelled")
        self._keep_at = time.monotonic() + KEEP_EVERY + len(self.text) / CHARS_PER_SECOND
