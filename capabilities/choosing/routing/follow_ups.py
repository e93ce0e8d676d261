"""Link of a message to the turn before: whether it only says to go on, and whether a question is open."""

from __future__ import annotations

import re

from capabilities.choosing.routing.words import words_of

_ASSENT = """
yes yeah yep yup sure ok okay go ahead do it that this please now then and continue proceed on with next again one the
second first third last other another confirm confirmed correct right exactly agreed fine good great perfect sounds let
s lets run try make so same more retry all of them both for me how about what too also keep going finish
ja bitte weiter genau gerne mach das los und der die zweite nächste
sí si claro adelante hazlo dale por favor sigue continúa y el la segundo segunda
oui vas y allez fais le continue d accord et deuxième suivant
"""
#: A message of only these words names nothing by itself.
ASSENT = frozenset(_ASSENT.split())
MAX_WORDS = 8
_ASKS = re.compile(
    r"[?？]|\bplease (?:provide|specify|tell|give|enter|confirm|choose|share|let me know|clarify|indicate|send)\b"
    r"|\b(?:i|we)(?:'ll| will)? (?:still )?need\b|\bbitte\b|\bindique\b|\bveuillez\b",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"\banything else\b|\b(?:can|may|could) i (?:help|assist|be of)\b|\bhelp you with\b|\bassist you\b"
    r"|\bfurther (?:help|assistance|questions)\b|\bnoch etwas\b|\balgo más\b|\bautre chose\b",
    re.IGNORECASE,
)


def is_follow_up(message: str) -> bool:
    """Return whether the message says to go on and nothing else: "yes, go ahead", "do it", "and the second one?"."""
    words = words_of(message[:200])
    return 0 < len(words) <= MAX_WORDS and len(message) <= 200 and ASSENT.issuperset(words)


def is_open_question(assistant: str) -> bool:
    """Return whether the assistant's last message waits for something that its task needs; an offer of help does
    not."""
    end = assistant[-600:]
    asks = [part for part in re.split(r"(?<=[.!?])\s+", end) if _ASKS.search(part)]
    return any(not _OFFER.search(part) for part in asks)
