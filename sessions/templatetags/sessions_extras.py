"""Template filters that write a turn's parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django import template
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from capabilities.common.visible import Part, marked, marked_parts
from sessions.budgets.amounts import amount_shown
from sessions.budgets.queries import each_of, zone_shown
from sessions.doors.chats.markdown import render_row
from sessions.doors.chats.queries import SHOWN_CHARS
from sessions.models import (
    OF_MEMBER,
    Approval,
    ApprovalStatus,
    Budget,
    BudgetScope,
    Consent,
    LoadedToolkit,
    LoadSource,
    Measure,
    Step,
    StepKind,
    StepStatus,
    Turn,
    TurnStatus,
    UnloadReason,
)
from sessions.selection.loading.queries import BundleRow
from sessions.turns.budget_states import BudgetState
from toolhub.bounded_json import load_json
from toolhub.tenants.models import Organisation

#: Characters of the reason that a line shows.
MAX_WHY = 400
#: Values of a JSON text that is shown with an indent.
MOST_INDENTED = 20_000

register = template.Library()

#: Names of a list that a sentence repeats.
SHOWN_NAMES = 5

TURN_STATES = {
    TurnStatus.QUEUED: "wait",
    TurnStatus.RUNNING: "run",
    TurnStatus.WAITING_CHILD: "wait",
    TurnStatus.WAITING_APPROVAL: "wait",
    TurnStatus.WAITING_INPUT: "wait",
    TurnStatus.WAITING_TASK: "wait",
    TurnStatus.DONE: "ok",
    TurnStatus.FAILED: "bad",
    TurnStatus.CANCELLED: "off",
    TurnStatus.EXPIRED: "bad",
}
STEP_STATES = {
    StepStatus.PENDING: "wait",
    StepStatus.STARTED: "run",
    StepStatus.WAITING: "wait",
    StepStatus.DONE: "ok",
    StepStatus.FAILED: "bad",
    StepStatus.REFUSED: "bad",
    StepStatus.UNKNOWN: "warn",
    StepStatus.RETURNED: "off",
}


@register.filter
def answer_html(turn: Turn) -> SafeString:
    return render_row(turn, turn.answer)


@register.filter
def text_html(step: Step) -> SafeString:
    return render_row(step, step.text)


@register.filter
def turn_state(status: str) -> str:
    """The badge of a turn's status."""
    return TURN_STATES.get(TurnStatus(status), "off") if status else "off"


@register.filter
def turn_state_label(status: str) -> str:
    return str(TurnStatus(status).label)


@register.filter
def step_state(status: str) -> str:
    """The badge of a step's status."""
    return STEP_STATES.get(StepStatus(status), "off")


@register.filter
def budget_amount(amount: int, measure: str) -> str:
    """An amount of a budget: $12.50; 100,000 tok; 3 turns."""
    return amount_shown(amount, measure)


@register.filter
def budget_for(budget: Budget) -> str:
    """Return the group of turns that count on a budget, in words."""
    whom = {
        BudgetScope.ORGANISATION: "the whole organisation",
        BudgetScope.ROLE: f"role {budget.role}" if budget.role else "",
        BudgetScope.MEMBER: str(budget.membership or ""),
        BudgetScope.AGENT: f"agent {budget.agent}" if budget.agent else "",
        BudgetScope.SESSION: "one session" if budget.session else "",
    }[BudgetScope(budget.scope)]
    each = each_of(budget)
    if not each:
        return whom
    return f"each member with the {whom}" if whom else f"each {each}"


@register.filter
def budget_rule(budget: Budget) -> str:
    """Return what the budget allows, in words: "100,000 tok each day", "3 turns at once"."""
    amount = amount_shown(budget.limit, budget.measure)
    if budget.measure == Measure.TURNS:
        return f"{amount} at once"
    label = str(budget.get_window_display())
    return f"{amount} {label[:1].lower()}{label[1:]}"


@register.simple_tag
def zoned(organisation: Organisation, moment: datetime | None) -> SafeString | str:
    """A moment in the organisation's time zone, with the zone's name; how long from now on hover."""
    if moment is None:
        return ""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        timezone.localtime(moment).isoformat(timespec="seconds"),
        naturaltime(moment),
        zone_shown(organisation, moment),
    )


@register.filter
def since(moment: datetime | None) -> float:
    """Seconds from then to now."""
    return (timezone.now() - moment).total_seconds() if moment else 0.0


@register.filter
def readable_json(text: str) -> str:
    """JSON with an indent where that is what it is; anything else as it came."""
    try:
        value = load_json(text, most_values=MOST_INDENTED)
    except ValueError:
        return text
    return json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict | list) else text


@register.filter
def why_refused(step: Step) -> str:
    """Return why a call was refused, as its model reads it; empty where it was not. `step` has `result_shown`."""
    if step.status != StepStatus.REFUSED:
        return ""
    try:
        value = load_json(vars(step).get("result_shown") or step.result)
    except ValueError:
        return ""
    return str(value.get("error", ""))[:MAX_WHY] if isinstance(value, dict) else ""


@register.filter
def duration(turn: Turn) -> float | None:
    """Seconds from the message to the answer."""
    return (turn.ended_at - turn.created_at).total_seconds() if turn.ended_at else None


@register.filter
def untrusted_step(turn: Turn) -> Step | None:
    """The step that brought the first text from outside; None where that was there from the start."""
    return next((step for step in turn.steps.all() if step.index == turn.untrusted_since), None)


@register.filter
def visible(parts: Iterable[Part]) -> SafeString:
    """A text in pieces, with each character that cannot be seen as a marked escape, its name on hover."""
    return marked_parts(parts)


@register.filter
def seen(text: str) -> SafeString:
    """Return a whole text with each character that cannot be seen as a marked escape, its name on hover."""
    return marked(text)


APPROVAL_STATES = {
    ApprovalStatus.APPROVED: "ok",
    ApprovalStatus.DENIED: "bad",
    ApprovalStatus.RESPONDED: "ok",
    ApprovalStatus.EXPIRED: "off",
    ApprovalStatus.VOID: "off",
}


@register.filter
def approval_state(approval: Approval) -> tuple[str, str]:
    """Return the badge of an approval and its word; one whose time is over is expired, even before a sweep has marked
    it."""
    if approval.is_pending:
        return "wait", "Waiting for you" if approval.kind in OF_MEMBER else "Needs approval"
    status = ApprovalStatus(approval.status)
    if status == ApprovalStatus.PENDING:
        status = ApprovalStatus.EXPIRED
    return APPROVAL_STATES[status], str(status.label)


@register.filter
def consent_state(consent: Consent) -> tuple[str, str]:
    """The badge of a consent and its word."""
    if consent.is_in_force:
        return "ok", "In force"
    if consent.revoked_at is not None:
        return "off", "Revoked"
    is_over = consent.until is not None and consent.until <= timezone.now()
    return "off", "Over" if is_over else "Void: the tool has a new version"


@register.filter
def is_past(moment: datetime) -> bool:
    return moment <= timezone.now()


@register.filter
def awaited(turn: Turn) -> str:
    """Return the names of the agents that a turn waits for, in a sentence; "Working" for none."""
    children = [getattr(step, "child_turn", None) for step in turn.steps.all()]
    names = dict.fromkeys(str(child.agent) for child in children if child is not None and child.is_open)
    return f"Waiting for {', '.join(names)}" if names else "Working"


@dataclass(frozen=True)
class Notice:
    """Beginning of a sentence about an event; the reason stands behind."""

    event: str
    begins: str


ADDED_ANEW = Notice("tools_declared_anew", "All tools were sent anew, and the provider’s cache begins anew with them")
WHY_ANEW = {
    "model": "another model took over",
    "changed": "one of them was changed",
    "loaded": "some that the provider searched before were loaded",
    "tool_limit": "with those that were sent before, a request takes no more",
    "withdrawn": "some that were sent before may not be used any more",
    "history_cut": "older messages do not fit any more, and tools stood among them",
}
NOT_ADDED = Notice("native_unavailable", "What is loaded is sent with all tools, and not added to the conversation")
WHY_NOT_ADDED = {
    "dialect": "the model is not called with Responses",
    "provider": "the provider is not known to take that",
    "refused": "the provider refused that",
    "client_tools": "a client brought tools of its own",
}


NOT_SEARCHED = Notice("search_unavailable", "The agent loads tools itself, and the provider does not search them")
WHY_NOT_SEARCHED = {
    "dialect": "the model is not called with Responses",
    "provider": "the provider is not known to do that",
    "model": "the model is not known to do that",
    "refused": "the provider refused that",
    "client_tools": "a client brought tools of its own",
}


@register.filter
def found_text(step: Step) -> str:
    """Return what the provider found when it searched tools in a model call, in a sentence; empty where it did not
    search."""
    found = step.structured.get("found") if isinstance(step.structured, dict) else None
    if found is None:
        return ""
    return f"The provider searched tools, and found {_first_names(found) or 'none'}"


@register.filter
def tools_text(step: Step) -> list[str]:
    """Return the tools that a step added to the conversation, and those that it says are gone, a sentence each."""
    data = step.structured if isinstance(step.structured, dict) else {}
    added, gone = data.get("added") or [], data.get("unavailable") or []
    lines = []
    if added:
        number = f"{len(added):,} tool{'' if len(added) == 1 else 's'} added"
        lines.append(f"{number}: {_first_names(added)}, {step.tool_tokens:,} tokens")
    if gone:
        lines.append(f"Not available any more: {_first_names(gone)}")
    return lines or ["Tools are available again"]


def _has_new_tools(turn: Turn) -> bool:
    """Return whether the turn's model calls carried other tools on the way."""
    return len({step.tool_set_id for step in turn.steps.all() if step.kind == StepKind.MODEL}) > 1


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES:,} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


@register.filter
def turn_notices(turn: Turn) -> list[str]:
    """Return what was left out of the turn's requests, and which hooks failed, by its events: one sentence each."""
    dropped = getattr(turn, "loads_dropped", None)
    loads = dropped.get("loads") if isinstance(dropped, dict) else None
    lines = [dropped_text(each) for each in loads or ()]
    over = getattr(turn, "tools_over_limit", None)
    if isinstance(over, dict):
        lines.append(over_limit_text(over.get("tools") or [], over.get("count")))
    for payload in (getattr(turn, "tools_too_large", None), getattr(turn, "tools_over_budget", None)):
        reasons_of = payload.get("tools") if isinstance(payload, dict) else None
        lines += [f"{name} is not sent: {reason}." for name, reason in (reasons_of or {}).items()]
    for notice, reasons in ((ADDED_ANEW, WHY_ANEW), (NOT_ADDED, WHY_NOT_ADDED), (NOT_SEARCHED, WHY_NOT_SEARCHED)):
        payload = getattr(turn, notice.event, None)
        if notice is not ADDED_ANEW and not _has_new_tools(turn):
            continue
        if isinstance(payload, dict) and payload.get("because") in reasons:
            lines.append(f"{notice.begins}: {reasons[payload['because']]}.")
    unseen = getattr(turn, "images_not_sent", None)
    if isinstance(unseen, dict):
        lines.append(f"The model {unseen.get('model')} takes no images: it reads their names alone.")
    return lines + _hook_lines(turn, "hook_warning")


@register.filter
def hooks_text(turn: Turn) -> str:
    """Return what hooks did to the turn's model and its prompt, in sentences."""
    return " ".join(_hook_lines(turn, "model_forced") + _hook_lines(turn, "prompt_patched"))


def _hook_lines(turn: Turn, event: str) -> list[str]:
    payload = getattr(turn, event, None)
    hooks = payload.get("hooks") if isinstance(payload, dict) else None
    return [hook_line(each) for each in hooks or () if isinstance(each, dict)]


@register.filter
def hook_line(line: dict[str, str]) -> str:
    """Return what one hook did, or how it failed, from an event or a step, in a sentence."""
    name = f"Hook {line.get('hook', '')}"
    if "failure" not in line:
        return f"{name} {line.get('did', '')}."
    kept_back = "nothing went on" if line.get("stopped") else "what it is for was left out"
    return f"{name} failed ({line['failure']}): {kept_back}."


def dropped_text(load: dict[str, str]) -> str:
    reason = load.get("reason", "")
    label = str(UnloadReason(reason).label) if reason in UnloadReason.values else ""
    why = f": {label[:1].lower()}{label[1:]}" if label else ""
    return f"{load.get('name', 'A toolkit')} was dropped{why}."


@register.filter
def over_limit_text(names: list[str], count: int | None = None) -> str:
    """Return the sentence that these tools, or `count` of which these are the first, were more than one request may
    carry."""
    number = count or len(names)
    shown = ", ".join(names[:SHOWN_NAMES])
    more = f" and {number - SHOWN_NAMES:,} more" if number > SHOWN_NAMES else ""
    fits = "tool does" if number == 1 else "tools do"
    return f"{number:,} {fits} not fit into what one request may carry: {shown}{more}."


@dataclass(frozen=True)
class RoundBar:
    """Amounts that one model call sent, as a bar: widths in percent of the turn's widest round."""

    cached: int
    fresh: int
    saved: int
    #: Tokens of tools that were allowed and not sent.
    saved_tokens: int
    tool_tokens: int

    @property
    def saved_from(self) -> int:
        return self.cached + self.fresh


@register.filter
def round_bar(step: Step, turn: Turn) -> RoundBar | None:
    """Return the bar of what a model call sent; None where none of its tokens are known."""
    widest = max((_sent_and_saved(each) for each in turn.steps.all() if each.kind == StepKind.MODEL), default=0)
    if not widest or not _sent_and_saved(step):
        return None
    cached = 100 * min(step.cached_tokens, step.input_tokens) // widest
    sent, saved = 100 * step.input_tokens // widest, _saved_tokens(step)
    return RoundBar(cached, sent - cached, 100 * saved // widest, saved, _tool_tokens(step))


def _tool_tokens(step: Step) -> int:
    return step.tool_tokens or (step.tool_set.tokens if step.tool_set is not None else 0)


def _saved_tokens(step: Step) -> int:
    return max(0, step.all_tool_tokens - _tool_tokens(step))


def _sent_and_saved(step: Step) -> int:
    return step.input_tokens + _saved_tokens(step)


@register.filter
def same_prefix(step: Step) -> int | None:
    """Return the percentage of a model call that began as the call before; None where that is not known."""
    return 100 * step.prefix_bytes // step.prompt_bytes if step.prefix_bytes and step.prompt_bytes else None


@register.filter
def matched_words(step: Step) -> str:
    """The keywords by which routing chose the tools of a model call, with their categories; empty for none."""
    found = step.routing.get("categories") if isinstance(step.routing, dict) else None
    if not isinstance(found, dict):
        return ""
    return ", ".join(f"{', '.join(str(word) for word in words)} ({name})" for name, words in found.items() if words)


@register.filter
def percent_left(state: BudgetState) -> int:
    """Return the rest of a budget in whole percent."""
    return int(100 * state.amounts.share_left)


@register.filter
def budget_warnings(turn: Turn) -> str:
    """Return the warning that a budget is nearly spent, by the turn's last event of that kind; empty for none."""
    payload = getattr(turn, "budget_warning", None)
    if not isinstance(payload, dict):
        return ""
    return f"{payload.get('percent', payload.get('share'))} % of the budget “{payload.get('budget')}” is spent."


@register.filter
def loader(line: BundleRow, loaders: dict[int, str]) -> str:
    """Return the name of the person who loaded something by hand."""
    return loaders.get(line.load_id or 0) or "a person"


@register.filter
def loaded_text(row: LoadedToolkit) -> str:
    """Return the source of a load in words: the agent, or a person's name."""
    if row.source == LoadSource.INITIAL:
        return "The agent begins with it"
    if row.source == LoadSource.MODEL:
        return "The agent"
    return str(row.loaded_by) if row.loaded_by else "A person"


@register.filter
def ended_text(row: LoadedToolkit) -> str:
    """Return why a load ended, in words."""
    if row.unload_reason != UnloadReason.UNLOADED:
        label = str(row.get_unload_reason_display())
        return f"Dropped: {label[:1].lower()}{label[1:]}"
    if row.unloaded_in_id is not None:
        return "Unloaded by the agent"
    return f"Unloaded by {row.unloaded_by}" if row.unloaded_by else "Unloaded"


@register.filter
def is_cut(step: Step) -> bool:
    """Return whether a page shows less of the step's arguments or result than there is."""
    lengths: tuple[int, int] = (step.arguments_length, step.result_length)  # type: ignore[attr-defined]
    return max(lengths) > SHOWN_CHARS


@register.filter
def coded(sentence: str) -> SafeString:
    """A sentence of ours, with what stands between backticks as code."""
    parts = enumerate(sentence.split("`"))
    return format_html_join("", "{}", ((format_html("<code>{}</code>", part) if n % 2 else part,) for n, part in parts))
