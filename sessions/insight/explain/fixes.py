"""Changes that Explain can make by itself: those that are one write, by the functions that other pages call."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from capabilities.common.refused import ChangeRefused
from sessions.access import check_may_change_loads, may_change_loads
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.remedies.ways import Change
from sessions.insight.explain.why import Explained, Subject, explain
from sessions.selection.loading.loadable import LoadResult
from sessions.selection.loading.queries import sentence_of
from toolhub.tenants.models import Membership


def may_fix(change: Change, subject: Subject, category: str, reader: Membership) -> bool:
    """Return whether to show the reader a button. The write itself asks again."""
    if not change.label:
        return False
    if change.right is not None:
        return reader.reach(change.right).covers(category)
    return subject.session is not None and may_change_loads(reader, subject.session)


def fix(subject: Subject, tool: str, code: str, target: str, *, actor: Membership) -> str:
    """Make a change that would let the tool through now, and return what was done, in a sentence.

    Raises ChangeRefused for one that would not (any more), and what its write raises: PermissionDenied among that. A
    change of the configuration that does not let the tool through after all is taken back; a load counts from the next
    turn on.
    """
    changes = [each for row in _explained(subject, tool) for each in row.changes if each.label]
    change = next((each for each in changes if (each.code, each.target) == (code, target)), None)
    if change is None or change.write is None:
        raise ChangeRefused("tool", "This would change nothing any more: look at what stands here now.")
    if change.right is None:
        assert subject.session is not None, "these changes are told of a session only"
        check_may_change_loads(actor, subject.session)
    with transaction.atomic():
        result = change.write(actor)
        if isinstance(result, LoadResult):
            if not result.is_there:
                raise ChangeRefused("tool", sentence_of(result))
            return sentence_of(result)
        if not any(row.reasons.is_sent for row in _explained(subject, tool)):
            raise ChangeRefused("tool", f"{tool} would not be sent after this either: nothing was changed.")
    return f"{tool} is switched on." if code == "switch_on" else f"The grant that denied {tool} is revoked."


def _explained(subject: Subject, tool: str) -> Sequence[Explained]:
    return explain(subject, Asked(tool=tool, limit=1)).tools if tool else ()
