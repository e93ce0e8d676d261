"""Messages that ask what can be done here, in four languages: no small talk, for the tools answer them."""

from __future__ import annotations

import re

from capabilities.choosing.routing.words import words_of

_ASKS = (
    (
        r"(?:and |so |hello |hi |hey )?(?:what (?:all )?(?:(?:can|could|do) you (?:do|offer)|(?:can|could|"
        r"should) i (?:ask|do|say|try)|"
        r"can you help(?: me)? with|(?:are you able|do you know how) to do|are your (?:tools|abilities|"
        r"skills|functions)|"
        r"(?:tools|functions) (?:do you|can you|are) (?:have|use|there))|how (?:can|could) you help|help|"
        r"(?:show|list|tell)(?: me)? (?:your|the|all) (?:tools|abilities|functions))(?: here| for| you| me| with)*"
    ),
    (
        r"(?:und )?was (?:kannst|könntest) du(?: alles| für mich)*(?: tun| machen)?|was kann ich (?:hier "
        r")?(?:fragen|tun|machen)|hilfe|"
        r"(?:wie|wobei|womit) kannst du (?:mir )?helfen"
    ),
    (
        r"(?:qu|que|quoi) ?(?:est ce que )?(?:sais|peux|pouvez|savez) ?(?:tu|vous)(?: faire)?|(?:que|qu est "
        r"ce que) (?:tu|vous) "
        r"(?:peux|sais|pouvez|savez) faire|tu (?:peux|sais) faire quoi|aide|(?:aide|aidez) moi"
    ),
    (
        r"(?:y )?(?:qué|que) (?:puedes|sabes|puede) (?:hacer|ofrecer)(?: por mí)?|en (?:qué|que) (?:me )?puedes "
        r"ayudar(?:me)?|ayuda"
    ),
)
_WHOLE = re.compile("|".join(_ASKS))


def asks_what_can_be_done(message: str) -> bool:
    """Return whether the whole message asks what the tools at hand can do: "What can you do?", "Hilfe"."""
    return len(message) <= 200 and _WHOLE.fullmatch(" ".join(words_of(message))) is not None
