"""What Explain can change by itself: the single changes that are one write, by the functions that other pages call."""

from __future__ import annotations

from capabilities.access.grants.writes import revoke_grant
from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.common.refused import ChangeRefused
from capabilities.models import Grant, Tool
from sessions.access import check_may_change_loads, may_change_loads
from sessions.explain.answers import Asked
from sessions.explain.single_changes import Change
from sessions.explain.why import Subject, explain
from sessions.loading import writes as loading
from sessions.loading.loadable import Place
from sessions.loading.queries import load_for, told
from sessions.loading.writes import By
from toolhub.tenants.models import Membership


def may_fix(change: Change, subject: Subject, category: str, reader: Membership) -> bool:
    """Whether to show the reader a button. The write itself asks again."""
    if not change.label:
        return False
    if change.right is not None:
        return reader.reach(change.right).covers(category)
    return subject.session is not None and may_change_loads(reader, subject.session)


def fix(subject: Subject, tool: str, code: str, target: str, *, actor: Membership) -> str:
    """Make a change that would let the tool through now, and return what was done, in a sentence.

    Raises ChangeRefused for one that would not (any more), and what its write raises: PermissionDenied among that.
    """
    found = explain(subject, Asked(tool=tool, limit=1)).tools if tool else ()
    changes = [each for row in found for each in row.changes if each.label]
    change = next((each for each in changes if (each.code, each.target) == (code, target)), None)
    if change is None:
        raise ChangeRefused("tool", "This would change nothing any more: look at what stands here now.")
    if code == "switch_on":
        set_tool_enabled(Tool.objects.select_related("category").get(name=tool), True, actor=actor)
        return f"{tool} is switched on."
    if code == "revoke_grant":
        rows = Grant.objects.select_related("tool__category", "category", "membership__user")
        revoke_grant(rows.get(pk=change.row), actor=actor)
        return f"The grant that denied {tool} is revoked."
    return _load_or_unload(subject, code, target, actor)


def _load_or_unload(subject: Subject, code: str, target: str, actor: Membership) -> str:
    assert subject.session is not None, "these changes are told of a session only"
    check_may_change_loads(actor, subject.session)
    place, (kind, _, name) = Place(subject.session, subject.agent), target.partition(":")
    if code == "unload":
        result = loading.unload(place, name, by=By(actor), kind=kind)
    else:
        result = load_for(place, actor=actor, toolkit=name)
    if not result.is_there:
        raise ChangeRefused("tool", told(result))
    return told(result)
