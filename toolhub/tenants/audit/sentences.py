"""Sentence of an audit entry, "Alice switched task_list off": one for pages, the file and REST."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolhub.tenants.models import AuditEntry

#: Fields that a sentence names, and names of one list; the others are counted.
MOST_FIELDS, MOST_NAMES = 4, 3
#: Characters of a value that a sentence repeats; of a longer one it gives the field alone.
MOST_CHARACTERS = 40
#: Characters of a value that a pattern asks for.
MOST_OF_PATTERN = 160
#: Fields that follow from others.
LEFT_OUT = {"sha256", "digest", "period"}

#: By the word behind the point of an action: what was done to its target.
VERBS: Mapping[str, str] = {
    "accept": "accepted",
    "add": "added",
    "change": "changed",
    "close": "closed",
    "create": "created",
    "delete": "deleted",
    "dismiss": "dismissed",
    "export": "exported",
    "install": "installed",
    "issue": "issued",
    "publish": "published",
    "remove": "removed",
    "restore": "restored",
    "retire": "took out of use",
    "revoke": "revoked",
    "start": "started",
    "switch": "switched",
    "update": "changed",
}
#: By the word before the point, where it is not that word with spaces.
NOUNS: Mapping[str, str] = {
    "import": "the import",
    "invitation": "the invitation of",
    "mcp_server": "MCP server",
    "policy_profile": "policy profile",
    "price": "the price of",
    "push": "notifications in",
    "python_module": "Python module",
    "token": "API token",
}
#: By action, where verb and noun do not say it: {target} is what it names, any other word a field of the entry.
PATTERNS: Mapping[str, str] = {
    "account.connect": "connected an account with {target}: {account}",
    "account.disconnect": "disconnected an account of {of} from {target}",
    "account.revoke": "ended the sign-in of {of} at {target}",
    "approval.answer": "answered what was asked for {target}: {action}",
    "approval.approve": "approved a call of {target}",
    "approval.deny": "denied a call of {target}",
    "approval.expire": "ended a request that nobody had answered in time: {target}",
    "approval.respond": "answered in words: {target}",
    "budget.reset": "reset budget {target}, of which {spent} had been spent",
    "budget.rules": "changed the rules of {target}",
    "budget.top_up": "topped budget {target} up",
    "connection.test": "tested the connection of {target}",
    "consent.grant": "approved {tool} for {member} for longer than one call",
    "consent.revoke": "revoked the remembered approval of {tool} for {member}",
    "credential.forget_client": "forgot the OAuth client of credential {target}",
    "credential.register": "registered an OAuth client for credential {target}",
    "credential.secret": "set the secret of credential {target}",
    "denied": "was denied {what}: {reason}",
    "grant.give": "added the grant {target}",
    "grant.lapse": "ended the grant {target}, whose time was over",
    "grant.revoke": "revoked the grant {target}",
    "grant.update": "changed the grant {target}",
    "grant_request.ask": "asked for access, {target}: {reason}",
    "grant_request.grant": "granted the request {target}",
    "grant_request.refuse": "refused the request {target}: {answer}",
    "grant_request.withdraw": "withdrew the request {target}",
    "hook.switch_off": "switched hook {target} off, which failed {failed_in_a_row} times in a row",
    "import.base_url": "changed the address of the import {target}",
    "import.publication": "imported the publication {target}",
    "invitation.accept": "accepted the invitation of {target}",
    "invitation.create": "invited {target}",
    "invitation.leave_out_roles": "left roles out of the invitation of {target}: {roles}",
    "mcp_server.accept": "accepted changed tools of MCP server {target}",
    "mcp_server.read": "read the tools of MCP server {target}",
    "member.access": "changed the access of {target}",
    "member.add": "joined as {target}",
    "member.hand_back": "handed the account of {target} back",
    "member.rename": "changed the name of {target}",
    "member.reset_link": "made a link for {target} to set a new password",
    "member.reset_password": "set a new password for {target} by a link",
    "member.rights": "changed the admin rights of {target}",
    "member.widen_own": "widened what {target} may use, which is the member who did it",
    "model.forget": "forgot what was learned of model {target}: {learned}",
    "model.learn": "learned of model {target}: {learned}",
    "model.listed": "found model {target} in its provider’s list again",
    "model.missing": "missed model {target} in its provider’s list",
    "organisation.agents_make_tools": "changed whether agents may make tools",
    "organisation.create": "set the organisation {name} up",
    "policy.create": "set {target}",
    "policy.delete": "removed {target}",
    "policy.update": "changed {target}",
    "price.create": "set the price of {target}",
    "python_module.describe": "described Python module {target}",
    "python_module.roll_back": "rolled Python module {target} back",
    "python_module.version_approve": "approved a version of Python module {target}",
    "python_module.version_reject": "rejected a version of Python module {target}",
    "role.assign": "gave {target} the role {role}",
    "role.unassign": "took the role {role} from {target}",
    "runtime_config.delete": "cleared {target}",
    "runtime_config.create": "saved {target}",
    "runtime_config.update": "changed {target}",
    "schedule.switch_off": "switched schedule {target} off: {message}",
    "service.agree_restart": "agreed to a restart of the service: {reason}",
    "service.agree_update": "agreed to an update of the service: {reason}",
    "service.clear": "cleared the settings of service {target}",
    "service.save": "saved the settings of service {target}",
    "session.load": "loaded {name} into a session",
    "session.share_loads": "changed whose loads count in session {target}",
    "session.unload": "unloaded {name} from a session",
    "tool.credential": "changed what signs the calls of {target}",
    "tool.disable": "switched {target} off",
    "tool.enable": "switched {target} on",
    "tool.instruct": "changed the instructions of {target}",
    "tool.keep_back": "kept {target} back: {quarantine}",
    "tool.move": "moved {target} to category {category}",
    "tool.refused": "noted that {model} refused {target}: {because}",
    "tool.release": "released {target}, which was kept back",
    "tool.roll_back": "rolled {target} back",
    "tool.test_delete": "deleted test {test} of {target}",
    "tool.test_save": "saved test {test} of {target}",
    "tool.try": "tried {target}",
    "tool.try_again": "let {target} be sent to {model} again",
    "tool.version_approve": "approved a version of {target}",
    "tool.version_reject": "rejected a version of {target}",
    "tool.version_submit": "submitted version {version} of {target} for approval",
    "tool.version_withdraw": "withdrew version {version} of {target}",
    "toolkit.withdraw": "withdrew the publication of toolkit {target}",
    "turn.stop": "stopped a turn of {target}: {message}",
}
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Sentence:
    """The sentence in three parts: a page links the target, which is empty where the sentence does not name it."""

    start: str
    target: str
    end: str

    def __str__(self) -> str:
        return f"{self.start}{self.target}{self.end}"


def sentence_of(entry: AuditEntry) -> Sentence:
    """Return who did what to which thing, and how it differs. Reads the entry's actor with its user."""
    pattern = _pattern(entry)
    used = set(_FIELD.findall(pattern)) | ({"is_enabled"} if pattern.startswith("switched ") else set())
    values = {**_fields(entry.before), **_fields(entry.after)}
    start, has_target, end = pattern.partition("{target}")
    start, end = _filled(start, values), _filled(end, values).rstrip(" :")
    differing = [] if _is_whole(entry) else difference(_fields(entry.before), _fields(entry.after), used | LEFT_OUT)
    if differing:
        end += f": {_some(differing, MOST_FIELDS)}"
    return Sentence(
        f"{actor_name(entry)} {start if has_target else start.rstrip(' :')}", _target(entry) if has_target else "", end
    )


def has_words(action: str) -> bool:
    """Return whether the tables say this action; the rule for others repeats its name."""
    return action in PATTERNS or action.rpartition(".")[2] in VERBS


def actor_name(entry: AuditEntry) -> str:
    """The name that the actor has now; the address that was recorded for one who is gone, or `toolhub`."""
    actor = entry.actor
    return visible(str(actor) if actor is not None and entry.actor_id else entry.actor_label)


def visible(text: str) -> str:
    """Return the text in one line, with escapes for characters that a reader would not see."""
    return "".join(each if each.isprintable() else " " if each.isspace() else f"\\u{ord(each):04x}" for each in text)


def _pattern(entry: AuditEntry) -> str:
    action, (noun, _, verb) = entry.action, entry.action.rpartition(".")
    words = NOUNS.get(noun, noun.replace("_", " "))
    changed = [name for name, _, _ in _differing(_fields(entry.before), _fields(entry.after))]
    if action in ("tool.enable", "tool.disable") and "is_enabled" not in entry.after:
        return "changed what is said of {target}"
    if action == "credential.secret" and entry.before:
        return "removed the secret of credential {target}"
    if changed == ["is_enabled"] and verb in ("update", "change", "switch"):
        return f"switched {words} {{target}} {'on' if entry.after['is_enabled'] else 'off'}"
    if action in PATTERNS:
        return PATTERNS[action]
    if verb in VERBS:
        return f"{VERBS[verb]} {words} {{target}}"
    return f"recorded {verb.replace('_', ' ')} of {words or 'this'} {{target}}"


def _target(entry: AuditEntry) -> str:
    """The label; for several tools the first of them, and how many more there are."""
    names = _fields(entry.after).get("tools") if not entry.target_id else None
    return _some(names, MOST_NAMES) if isinstance(names, list) and names else visible(entry.target_label)


def _filled(pattern: str, values: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        return _cut(_text(values.get(match[1], "")), MOST_OF_PATTERN)

    return _FIELD.sub(value, pattern)


# -- What differs -----------------------------------------------------------------------------------------------------


def difference(before: Mapping[str, Any], after: Mapping[str, Any], left_out: Collection[str] = ()) -> list[str]:
    """Return in words which fields differ, each with its values where they are short."""
    return [_changed(name, old, new) for name, old, new in _differing(before, after) if name not in left_out]


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """Fields with two values, in order of their names."""
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)


def _is_whole(entry: AuditEntry) -> bool:
    """Return whether the entry keeps a whole thing, that is new or gone, or facts of an act: nothing differs in it."""
    return not entry.before or not entry.after


def _changed(name: str, old: Any, new: Any) -> str:
    label = name.removeprefix("is_").removesuffix("_at").replace("_", " ")
    if name == "is_enabled":
        return "switched on" if new else "switched off"
    if isinstance(old, list) and isinstance(new, list):
        return _changed_list(label, old, new)
    texts = [_text(value) for value in (old, new)]
    if (
        isinstance(old, dict | list)
        or isinstance(new, dict | list)
        or any(len(text) > MOST_CHARACTERS for text in texts)
    ):
        return label
    return f"{label} {texts[0] or 'none'} → {texts[1] or 'none'}"


def _changed_list(label: str, old: Sequence[Any], new: Sequence[Any]) -> str:
    added, removed = ([each for each in one if each not in other] for one, other in ((new, old), (old, new)))
    parts = [f"{sign}{_some(names, MOST_NAMES)}" for sign, names in (("added ", added), ("removed ", removed)) if names]
    return f"{label} {', '.join(parts)}" if parts else f"order of {label}"


def _some(values: Sequence[Any], most: int) -> str:
    """The first values, and how many more there are."""
    texts = [_cut(_text(value), MOST_OF_PATTERN) for value in values[:most]]
    more = len(values) - most
    if more > 0:
        return f"{', '.join(texts)} and {more:,} more"
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return _some(value, MOST_NAMES)
    return visible(str(value))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _fields(values: Any) -> Mapping[str, Any]:
    return values if isinstance(values, Mapping) else {}
