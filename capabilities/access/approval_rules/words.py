"""An approval rule as sentences: what it asks, of which calls, and who answers."""

from __future__ import annotations

from capabilities.access.approval_rules.writes import RuleContent
from capabilities.models import AskWhen

_WHEN = {
    AskWhen.NEVER: "Nobody is asked",
    AskWhen.FIRST_IN_SESSION: "Somebody is asked the first time in a session",
    AskWhen.ALWAYS: "Somebody is asked each time",
}


def in_words(rule: RuleContent) -> str:
    """One or two sentences. A toolkit, role and agent are named as they are written in the rule."""
    called = "any tool" if rule.tool_pattern.strip() in ("", "*") else f"a tool matching {rule.tool_pattern}"
    parts = [f"{_WHEN[AskWhen(rule.when)]} before {called}"]
    if rule.toolkit:
        parts.append(f"of the toolkit {rule.toolkit}")
    parts.append("runs")
    if rule.agent:
        parts.append(f"for the agent {rule.agent}")
    if rule.role:
        parts.append(f"for members with the role {rule.role}")
    if rule.argument:
        parts.append(f"with {rule.argument} like {rule.argument_pattern}")
    sentence = f"{' '.join(parts)}."
    if rule.when == AskWhen.NEVER:
        return f"{sentence} Rules behind this one say nothing of such a call."
    answerer = "Another person than the requester answers" if rule.needs_other_person else "The requester may answer"
    return f"{sentence} {answerer}, within {_time(rule.expires_after)}."


def _time(hours: int) -> str:
    if hours % 24 == 0 and hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} hour{'' if hours == 1 else 's'}"
