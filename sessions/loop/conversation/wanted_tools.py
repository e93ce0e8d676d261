"""Tools that a turn asked for and that its message did not call for: found by `search_tools`, or called by their name.

They come with the turn's next model call, so that a wrong guess of routing costs a round and not the task.
"""

from __future__ import annotations

from collections.abc import Iterable

from sessions.models import Step

#: Time at which such a tool comes, in the words of our answers.
NEXT_STEP = "your next step"


def wanted_in(calls: Iterable[Step]) -> frozenset[str]:
    """Names that the answers to these calls promise for the next model call."""
    return frozenset(name for call in calls for name in call.promised)
