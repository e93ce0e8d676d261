"""Messages that only say to go on, and so mean the tools of the turn before."""

from __future__ import annotations

from capabilities.routing.words import words_of

_ASSENT = """
yes yeah yep yup sure ok okay go ahead do it that this please now then and continue proceed on with next again
one the second first third last other another confirm confirmed correct right exactly agreed fine good great
perfect sounds let s lets run try make so same more again retry no not ja nein mach bitte weiter genau gerne si
sí claro adelante hazlo oui vas y fais le continue d accord
"""
#: A message of only these words names nothing by itself.
ASSENT = frozenset(_ASSENT.split())
MAX_WORDS = 8


def is_follow_up(message: str) -> bool:
    """Whether the message says to go on and nothing else: "yes, go ahead", "do it", "and the second one?"."""
    words = words_of(message)
    return 0 < len(words) <= MAX_WORDS and ASSENT.issuperset(words)
