"""The audited writes of hooks. Running turns have a change from their next call on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from capabilities.agents.hooks.installed import installed_hooks
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.text import storable
from capabilities.contract.hook_entries import MalformedHook, normalised
from capabilities.contract.hooks import FIELDS, OnError
from capabilities.models import Agent, Hook, LanguageModel, Provider
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, Membership, Right

MAX_DESCRIPTION = 2_000
#: Hooks that one organisation may have: each is looked at in every turn.
MAX_HOOKS = 200
#: Characters of an error that are kept.
MAX_ERROR = 1_000


@dataclass(frozen=True)
class HookContent:
    """A hook as somebody wrote it: `entry` is read by `contract.hooks.normalised`.

    Agents and providers in it are named by their short name or their public id, members by their public id.
    """

    entry: Mapping[str, Any]
    description: str = ""
    is_enabled: bool = True


def hook_content(hook: Hook) -> HookContent:
    """Return the hook's content as it is stored."""
    return HookContent(hook.entry, hook.description, hook.is_enabled)


@configuration_write()
def create_hook(content: HookContent, *, actor: Membership) -> Hook:
    """Raises ChangeRefused for what is malformed, a name in use, and rows that are not there."""
    require(actor, Right.HOOKS)
    if Hook.objects.count() >= MAX_HOOKS:
        raise ChangeRefused("", f"An organisation has at most {MAX_HOOKS} hooks.")
    hook = Hook(organisation_id=actor.organisation_id, acts_for=actor.access)
    _write(hook, content)
    record("hook.create", hook, actor=actor, after=_shown(hook))
    touch_registry(hook.organisation_id)
    return hook


@configuration_write()
def update_hook(hook: Hook, content: HookContent, *, actor: Membership) -> Hook:
    """Its count of failures in a row begins anew. From then on it changes turns of members up to the actor's access: an
    admin approves it for everybody by saving it. Raises ChangeRefused, as `create_hook`."""
    require(actor, Right.HOOKS)
    before, acts_for = _shown(hook), hook.acts_for
    hook.failed_in_a_row, hook.switched_off_at = 0, None
    hook.acts_for = actor.access
    _write(hook, content)
    if Access(acts_for).rank > Access(actor.access).rank and _shown(hook) | {"acts_for": acts_for} == before:
        hook.acts_for = acts_for  # nothing was changed, by somebody of lower access
        hook.save(update_fields=["acts_for"])
    after = _shown(hook)
    if before != after:
        record("hook.update", hook, actor=actor, before=before, after=after)
        touch_registry(hook.organisation_id)
    return hook


@configuration_write()
def delete_hook(hook: Hook, *, actor: Membership) -> None:
    """Delete the hook: from the next phase on it does not run. Raises PermissionDenied without the right `hooks`."""
    require(actor, Right.HOOKS)
    record("hook.delete", hook, actor=actor, before=_shown(hook))
    hook.delete()
    touch_registry(actor.organisation_id)


def _write(hook: Hook, content: HookContent) -> None:
    """Check the content and write the hook. Raises ChangeRefused."""
    try:
        entry = normalised(content.entry)
    except MalformedHook as error:
        raise ChangeRefused(error.field, str(error)) from error
    if len(content.description) > MAX_DESCRIPTION:
        raise ChangeRefused("description", f"Keep it under {MAX_DESCRIPTION:,} characters.")
    if Hook.objects.filter(name=entry["name"]).exclude(pk=hook.pk).exists():
        raise ChangeRefused("name", f"There is a hook {entry['name']} already.", code="taken")
    _name_rows(entry, hook)
    for name in FIELDS:
        setattr(hook, name, entry[name])
    hook.description, hook.is_enabled = content.description, content.is_enabled
    hook.save()


def _name_rows(entry: dict[str, Any], stored: Hook) -> None:
    """Put public ids in place of names. A row that is gone may stay named where it was named before: nothing else of
    the hook need change for it. Raises ChangeRefused for one that is not this organisation's."""
    when, settings = entry["when"], entry["settings"]
    old_when, old_settings = _stored(stored.when), _stored(stored.settings)
    for name, rows in (("agents", Agent.objects.all()), ("providers", Provider.objects.all())):
        if name in when:
            when[name] = _ids(f"when.{name}", name[:-1], when[name], rows, old_when.get(name, ()))
    if "members" in when:
        known = old_when.get("members", ())
        when["members"] = _ids("when.members", "member", when["members"], Membership.objects.all(), known)
    if "provider" in settings:
        before = old_settings.get("provider")
        (settings["provider"],) = _ids(
            "settings.provider", "provider", [settings["provider"]], Provider.objects.all(), (before,)
        )
    if "model" in settings and settings != old_settings:
        language_models = LanguageModel.objects.filter(name=settings["model"])
        if "provider" in settings:
            language_models = language_models.filter(provider__public_id=settings["provider"])
        if not language_models.exists():
            raise not_there("settings.model", "model", settings["model"])
    point = settings.get("entry_point")
    if point and point != old_settings.get("entry_point") and point not in installed_hooks():
        raise ChangeRefused("settings.entry_point", f"No installed package has a Python hook {point}.", code="unknown")


def _stored(value: Any) -> dict[str, Any]:
    """Return the stored dict; an empty one where a row that was stored by hand is of another form."""
    return value if isinstance(value, dict) else {}


def _ids(field: str, kind: str, names: list[str], rows: QuerySet[Any], before: Any) -> list[str]:
    by_slug = [name for name in names if not _is_uuid(name)] if kind != "member" else []
    slugs = dict(rows.filter(slug__in=by_slug).values_list("slug", "public_id")) if by_slug else {}
    uuids = [UUID(name) for name in names if _is_uuid(name)]
    known = set(rows.filter(public_id__in=uuids).values_list("public_id", flat=True)) if uuids else set()
    found = []
    for name in names:
        key = UUID(name) if _is_uuid(name) else slugs.get(name)
        if key is None or (key not in known and name not in slugs and str(key) not in before):
            raise not_there(field, kind, name)
        found.append(str(key))
    return list(dict.fromkeys(found))


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _shown(hook: Hook) -> dict[str, Any]:
    return {
        **hook.entry,
        "description": hook.description,
        "is_enabled": hook.is_enabled,
        "acts_for": str(hook.acts_for),
    }


# -- What turns count -------------------------------------------------------------------------------------------------


def count_fired(times: Mapping[str, int]) -> None:
    """These hooks, by public id, did something so often in one turn. One query for each number of times."""
    by_count: dict[int, list[str]] = {}
    for public_id, count in times.items():
        by_count.setdefault(count, []).append(public_id)
    for count, ids in by_count.items():
        Hook.objects.filter(public_id__in=ids).update(fired=F("fired") + count, last_fired_at=Now(), failed_in_a_row=0)


def count_failure(public_id: str, error: str) -> None:
    """The hook failed. One that is to be switched off after so many failures in a row is, on record."""
    failing = Hook.objects.filter(public_id=public_id)
    with transaction.atomic():
        failing.update(
            failed=F("failed") + 1,
            failed_in_a_row=F("failed_in_a_row") + 1,
            last_failed_at=Now(),
            last_error=storable(error, MAX_ERROR),
        )
        enough = failing.filter(is_enabled=True, on_error=OnError.DISABLE, failed_in_a_row__gte=F("disable_after"))
        hook = enough.first()
        if hook is not None and enough.update(is_enabled=False, switched_off_at=Now()):
            times = hook.failed_in_a_row
            record("hook.switch_off", hook, actor=None, after={"failed_in_a_row": times, "error": hook.last_error})
            touch_registry(hook.organisation_id)
