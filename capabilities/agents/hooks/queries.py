"""Hooks, as turns run them, and as pages and the API show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from django.http import Http404

from capabilities.common.memory import Memory
from capabilities.contract.hook_entries import MalformedHook, hook_from, normalised
from capabilities.contract.hooks import ACTIONS, HookSpec, in_order
from capabilities.models import Agent, Hook, Provider
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.keyset import Keyset, Page

_active: Memory[tuple[HookSpec, ...]] = Memory(64)


def active_hooks(organisation_id: int, at: int | None) -> tuple[HookSpec, ...]:
    """The hooks that are on, in the order in which they run; members in their conditions are named by primary key.

    No query where they were read before `at` this registry version; else one, and one more where members are named.
    """
    return _read() if at is None else _active.get((organisation_id, at), _read)


def _read() -> tuple[HookSpec, ...]:
    hooks = [spec_of(each) for each in Hook.objects.filter(is_enabled=True)]
    named = {member for hook in hooks for member in hook.when.members}
    keys = _keys_of(named)
    return in_order([_with_keys(hook, keys) for hook in hooks])


def spec_with_keys(hook: Hook) -> HookSpec:
    """One hook, whether it is on or not, as it would run. At most one query."""
    spec = spec_of(hook)
    return _with_keys(spec, _keys_of(spec.when.members))


def _keys_of(members: Iterable[str]) -> dict[str, str]:
    named = list(members)
    rows = Membership.objects.filter(public_id__in=named).values_list("public_id", "pk") if named else ()
    return {str(public_id): str(key) for public_id, key in rows}


def _with_keys(hook: HookSpec, keys: Mapping[str, str]) -> HookSpec:
    """A member who is gone stays named: no turn is theirs."""
    members = tuple(keys.get(each, each) for each in hook.when.members)
    return replace(hook, when=replace(hook.when, members=members))


def spec_of(hook: Hook) -> HookSpec:
    return replace(hook_from(str(hook.public_id), hook.entry), reach=Access(hook.acts_for).rank)


# -- Pages ------------------------------------------------------------------------------------------------------------

GONE = "one that is gone"


@dataclass(frozen=True)
class Names:
    """Names of the agents, providers and members that some hooks name, by public id."""

    agents: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    providers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)

    def agent(self, public_id: str) -> str:
        return self.agents.get(public_id, ("", GONE))[1]

    def provider(self, public_id: str) -> str:
        return self.providers.get(public_id, ("", GONE))[1]

    def member(self, public_id: str) -> str:
        return self.members.get(public_id, GONE)


def names_for(hooks: Iterable[Hook]) -> Names:
    """At most three queries, each only where something of its kind is named."""
    conditions = [(hook.when if isinstance(hook.when, dict) else {}, hook.settings) for hook in hooks]
    agents = {each for when, _ in conditions for each in _texts(when.get("agents"))}
    providers = {each for when, _ in conditions for each in _texts(when.get("providers"))}
    providers |= {
        each for _, settings in conditions if isinstance(settings, dict) for each in _texts([settings.get("provider")])
    }
    members = {each for when, _ in conditions for each in _texts(when.get("members"))}
    columns = ("public_id", "slug", "name")
    return Names(
        {str(key): (slug, name) for key, slug, name in _rows(Agent.objects.values_list(*columns), agents)},
        {str(key): (slug, name) for key, slug, name in _rows(Provider.objects.values_list(*columns), providers)},
        {str(row.public_id): str(row) for row in _rows(Membership.objects.select_related("user"), members)},
    )


def _rows(rows: Any, ids: Iterable[str]) -> Any:
    wanted = [UUID(each) for each in ids if _is_uuid(each)]
    return rows.filter(public_id__in=wanted) if wanted else ()


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class ShownHook:
    """A hook with what it does, and when, each in a sentence."""

    hook: Hook
    does: str
    when: str
    #: Fault of its row; "" where there is none.
    broken: str = ""

    @property
    def state(self) -> str:
        """on, off, or switched_off by its failures."""
        if self.hook.is_enabled:
            return "on"
        return "switched_off" if self.hook.switched_off_at else "off"


def shown_hook(hook: Hook, names: Names) -> ShownHook:
    try:
        entry = normalised(hook.entry)
    except MalformedHook as error:
        return ShownHook(hook, hook.action_title, "It cannot be read, and fails each time.", str(error))
    return ShownHook(hook, _does(entry, names), sentence_of(entry["when"], names))


def _does(entry: Mapping[str, Any], names: Names) -> str:
    """The action with its settings, short."""
    settings = entry["settings"]
    match entry["action"]:
        case "set_provider":
            return f"Sets the provider to {names.provider(settings['provider'])}."
        case "set_model":
            return f"Sets the model to {settings['model']}."
        case "set_provider_and_model":
            return f"Sets the model to {settings['model']} of {names.provider(settings['provider'])}."
        case "merge_input":
            return f"Sets {', '.join(settings['values'])[:200]} of the arguments."
        case "set_field":
            return f"Sets {settings['field']} of the result."
        case "truncate":
            return f"Cuts the result to {settings['chars']:,} characters."
        case "python":
            return f"Calls the Python hook {settings['entry_point']}."
        case action:
            return f"{ACTIONS[action].title}: {_short(settings.get('message') or settings.get('text') or '')}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:119]}…"


def sentence_of(when: Mapping[str, Any], names: Names) -> str:
    """The conditions in one sentence."""
    parts = []
    if "agents" in when:
        parts.append(f"the agent is {_one_of(map(names.agent, when['agents']))}")
    if "providers" in when:
        parts.append(f"the provider is {_one_of(map(names.provider, when['providers']))}")
    if "members" in when:
        parts.append(f"the member is {_one_of(map(names.member, when['members']))}")
    if "tools" in when:
        parts.append(f"the tool is {_one_of(when['tools'])}")
    parts += [f"the argument {each['name']} looks like {each['pattern']}" for each in when.get("arguments", ())]
    share = f"in {when['share']} of 100 turns" if "share" in when else ""
    if not parts:
        return f"{share.capitalize()}." if share else "Always."
    return f"When {', and '.join(parts)}{f', {share}' if share else ''}."


def _one_of(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(names))


def hooks_page(*, phase: str = "", after: str = "", before: str = "") -> Page[Hook]:
    """Return a page of hooks, in the order in which they run; of one phase where `phase` is given. One query."""
    hooks = Hook.objects.all()
    if phase:
        hooks = hooks.filter(phase=phase)
    return Keyset(hooks, ("priority", "name", "pk")).page(after, before)


@dataclass(frozen=True)
class HookNumbers:
    every: int
    on: int
    #: Switched off by their failures.
    switched_off: int
    #: On, and the last thing that they did was to fail.
    failing: int


def hook_numbers() -> HookNumbers:
    """One query."""
    row = Hook.objects.aggregate(
        every=Count("pk"),
        on=Count("pk", filter=Q(is_enabled=True)),
        switched_off=Count("pk", filter=Q(is_enabled=False, switched_off_at__isnull=False)),
        failing=Count("pk", filter=Q(is_enabled=True, failed_in_a_row__gt=0)),
    )
    return HookNumbers(**row)


def hook_or_404(hook_id: UUID) -> Hook:
    """Return the hook of this id. Raises Http404 where the organisation has none."""
    hook = Hook.objects.filter(public_id=hook_id).first()
    if hook is None:
        raise Http404("No such hook.")
    return hook
