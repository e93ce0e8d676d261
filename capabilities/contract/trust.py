"""Trust: text from outside, and the calls that may follow it in a conversation. Pure: the turn remembers it.

A tool whose results somebody outside the organisation writes (a web page, a mail, an issue) says `untrusted`. From such
a result on, the model may ask for things because that text says so. A tool that sends data out, or changes things
outside, says whether its call then runs, asks or is refused.
"""

from __future__ import annotations

from typing import Final, Literal

from capabilities.contract.decisions import Decision, Verb

#: Verdict on a tool's call where text from outside is in the conversation: it runs, it runs when somebody approves
#: it, or it is refused.
InUntrusted = Literal["allow", "ask", "refuse"]
ALLOW: Final = "allow"
ASK: Final = "ask"
REFUSE: Final = "refuse"
IN_UNTRUSTED: tuple[InUntrusted, ...] = (ALLOW, ASK, REFUSE)

#: The source of a decision by trust.
TRUST: Final = "trust"
_VERBS = {ALLOW: Verb.ALLOW, ASK: Verb.ASK, REFUSE: Verb.DENY}


def decision_on(tool: str, in_untrusted: str, where: str) -> Decision | None:
    """Return the decision on a call of the tool behind text from outside; None where that keeps nothing back.

    `where` says where that text came in, as the end of a sentence. A word that is none of ours refuses.
    """
    verb = _VERBS.get(in_untrusted, Verb.DENY)
    if verb == Verb.ALLOW:
        return None
    known = f"This conversation holds text from outside {where}."
    kept = "needs a conversation without any" if verb == Verb.DENY else "runs then only when a person approves it"
    return Decision(
        verb,
        TRUST,
        for_model=f"Not run. {known} {tool} {kept}. Tell the user what you wanted to do, and why.",
        for_people=f"{known} {tool} {kept}.",
        for_log=f"trust: {tool} is {in_untrusted} behind text from outside {where}",
    )


def where_since(step: int, tool: str) -> str:
    """Name the point at which text from outside came in: `step` of this turn, a call of `tool`; 0 is from the start."""
    if step == 0:
        return "from before this message"
    return f"since step {step} (a result of {tool})" if tool else f"since step {step}"
