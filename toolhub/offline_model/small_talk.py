"""What the offline model answers to small talk: one sentence. A message that asks for a deed is none."""

from __future__ import annotations

import re

_HELLO = (
    r"(?:hi|hello|hey|hiya|howdy|greetings|moin|good (?:morning|afternoon|evening|day))"
    r"(?: (?:there|all|again|everyone))?"
)
#: The whole message has to be one of these, a name or a courtesy around it aside. The first that fits counts.
ANSWERS: dict[str, str] = {
    _HELLO: "Hello! What can I do for you?",
    rf"(?:{_HELLO} )?(?:how are you|how are things|how is it going|how's it going|what's up|how do you do)"
    r"(?: (?:today|doing|doing today|now))?": "I am ready to work, thank you. What can I do for you?",
    r"(?:ok(?:ay)? )?(?:thanks|thank you|thx|cheers|many thanks)(?: (?:a lot|so much|very much|you|again))?"
    r"(?: that(?: is|'s| was) (?:all|it|great))?": "You are welcome.",
    r"good ?night|good ?bye|bye|bye bye|see you(?: later| soon| tomorrow)?|take care": "Goodbye!",
    r"(?:who|what) are you|are you (?:an? )?(?:ai|llm|bot|robot|human|person|real)|what is your name|"
    r"what's your name|introduce yourself": (
        "I am the offline model: I match the words of a message with the tools at hand."
    ),
    r"(?:tell me|do you know|know)(?: a| another)? (?:joke|story)": "I know none: I only match words with tools.",
    r"(?:that is |that's |this is |you are |you're )?(?:great|nice|cool|good|perfect|awesome|wonderful|well done|"
    r"good job|good work|helpful|very good|very nice)": "Good. What is next?",
    r"ok(?:ay)?|yes|yeah|yep|no|nope|sure|fine|alright|i see|got it|never mind|nothing": "All right.",
    r"sorry|i am sorry|i'm sorry|excuse me": "No harm done.",
}
_WHOLE = tuple((re.compile(pattern), answer) for pattern, answer in ANSWERS.items())
_HELP = re.compile(
    r"(?:what (?:can|could|do) you (?:do|offer)|what can i (?:ask|do|say)|how can you help|help)(?: me)?(?: here)?"
)


def small_talk(text: str) -> str:
    """The sentence that answers this message, or nothing where it is about something."""
    said = _plain(text)
    return next((answer for pattern, answer in _WHOLE if pattern.fullmatch(said)), "")


def asks_for_help(text: str) -> bool:
    """Whether the message asks what can be asked."""
    return _HELP.fullmatch(_plain(text)) is not None


def _plain(text: str) -> str:
    plain = re.sub(r"[^\w\s']+", " ", text[:200].replace("’", "'").lower())
    return " ".join(re.sub(r"\b(?:please|toolhub|my friend|dear)\b", " ", plain).split())
