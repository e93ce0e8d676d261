"""The audited writes of policies and profiles.

A policy only takes away: nobody uses more than their roles and grants open, whatever it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from capabilities.access.policies.catalogue import catalogue_tools
from capabilities.common.refused import RESERVED, ChangedMeanwhile, ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.short_names import CATEGORY_NAME
from capabilities.contract.patterns import MAX_PATTERN, WRITTEN
from capabilities.contract.policy import MAX_PATTERNS, names_nothing, normalised
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import Policy, PolicyProfile, Provider
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation, Right

MAX_DESCRIPTION = 2_000
#: Policies that a refusal names.
NAMED = 3


@dataclass(frozen=True)
class PolicyContent:
    """Fields of a policy, as its form sends them. `profile` is a name, or empty. All empty: the policy lets everything
    through."""

    profile: str = ""
    allow: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfileContent:
    """Fields of a profile, as its form sends them."""

    name: str
    patterns: tuple[str, ...] = ()
    reads_only: bool = False
    description: str = ""


#: Profiles that come with the service. The seven names of `minimal` are other systems': an alias table says which tools
#: they are here (`capabilities/contract/patterns.py`).
SHIPPED_PROFILES = (
    ProfileContent(
        "minimal",
        ("read", "file_search", "web_fetch", "web_search", "memory", "knowledge", "ask_user"),
        True,
        "Looks things up and asks the user: for constrained runs, debugging and evals. Nothing in it changes anything.",
    ),
    ProfileContent("read-only", ("*",), True, "Every tool that only reads."),
)


# -- Policies ---------------------------------------------------------------------------------------------------------


@configuration_write()
def save_policy(
    provider: Provider | None, content: PolicyContent, *, actor: Membership, stamp: str | None = None
) -> Policy | None:
    """Write the organisation's policy, or this provider's. It counts from the next call on, in running turns too.

    Returns None where nothing is said any more, and no policy is left. Raises ChangeRefused for what cannot be, and for
    a profile or an allow-list that names no tool of the catalogue; ChangedMeanwhile where it is not as `stamp` says.
    """
    require(actor, Right.POLICIES)
    if stamp is not None and policy_stamp(provider) != stamp:
        raise ChangedMeanwhile("The policy has been changed in the meantime.")
    row = stored_policy(provider)
    content = _checked(content)
    profile = _profile(content.profile)
    tools = catalogue_tools()
    _check_names_something("allow", content.allow, tools)
    if profile is not None and not content.allow:
        _check_names_something("profile", profile.patterns, tools)
    before = audited_policy(row)
    if content == PolicyContent():
        if row is not None:
            record("policy.delete", row, actor=actor, before=before)
            row.delete()
            touch_registry(actor.organisation_id)
        return None
    is_new = row is None
    if row is None:
        row = Policy(organisation_id=actor.organisation_id, provider=provider)
    row.profile, row.allow, row.also_allow, row.deny = (
        profile,
        list(content.allow),
        list(content.also_allow),
        list(content.deny),
    )
    row.save()
    after = audited_policy(row)
    if before != after:
        record("policy.create" if is_new else "policy.update", row, actor=actor, before=before, after=after)
        touch_registry(actor.organisation_id)
    return row


def stored_policy(provider: Provider | None) -> Policy | None:
    """The organisation's, or the provider's. One query."""
    return Policy.objects.select_related("profile", "provider").filter(provider=provider).first()


def policy_content(policy: Policy | None) -> PolicyContent:
    """Return the policy's content as it is stored. What cannot be read is left out: a form shows what is left, and says
    so."""
    if policy is None:
        return PolicyContent()
    lists = (_texts(each) for each in (policy.allow, policy.also_allow, policy.deny))
    return PolicyContent(policy.profile.name if policy.profile else "", *lists)


def policy_stamp(provider: Provider | None) -> str:
    """Return a hash of the policy as it is stored, its profile's content included; it differs after any change. One
    query."""
    row = stored_policy(provider)
    of_profile = [row.profile.patterns, row.profile.reads_only] if row is not None and row.profile is not None else []
    return sha256_hex(canonical_json([audited_policy(row), of_profile]))


def audited_policy(policy: Policy | None) -> dict[str, Any]:
    """The policy as the audit keeps it."""
    if policy is None:
        return {}
    return {
        "provider": policy.provider.slug if policy.provider else None,
        "profile": policy.profile.name if policy.profile else "",
        "allow": policy.allow,
        "also_allow": policy.also_allow,
        "deny": policy.deny,
    }


def _checked(content: PolicyContent) -> PolicyContent:
    lists = (("allow", content.allow), ("also_allow", content.also_allow), ("deny", content.deny))
    return PolicyContent(content.profile.strip(), *(checked_patterns(field, patterns) for field, patterns in lists))


def _profile(name: str) -> PolicyProfile | None:
    if not name:
        return None
    found = PolicyProfile.objects.filter(name=name).first()
    if found is None:
        raise not_there("profile", "profile", name)
    return found


# -- Profiles ---------------------------------------------------------------------------------------------------------


@configuration_write()
def create_profile(content: ProfileContent, *, actor: Membership) -> PolicyProfile:
    """Raises ChangeRefused for a name in use or that cannot be, and for patterns that name no tool at all."""
    require(actor, Right.POLICIES)
    profile = PolicyProfile(organisation_id=actor.organisation_id)
    _write_profile(profile, content)
    record("policy_profile.create", profile, actor=actor, after=audited_profile(profile))
    touch_registry(actor.organisation_id)
    return profile


@configuration_write()
def update_profile(
    profile: PolicyProfile, content: ProfileContent, *, actor: Membership, stamp: str | None = None
) -> PolicyProfile:
    """The policies that begin with it follow at the next call.

    Raises ChangeRefused for one that came with the service, and ChangedMeanwhile where it is not as `stamp` says.
    """
    require(actor, Right.POLICIES)
    _check_own(profile)
    if stamp is not None and profile_stamp(profile) != stamp:
        raise ChangedMeanwhile("The profile has been changed in the meantime.")
    before = audited_profile(profile)
    _write_profile(profile, content)
    after = audited_profile(profile)
    if before != after:
        record("policy_profile.update", profile, actor=actor, before=before, after=after)
        touch_registry(profile.organisation_id)
    return profile


@configuration_write("profile")
def delete_profile(profile: PolicyProfile, *, actor: Membership) -> None:
    """Raises ChangeRefused for one that came with the service, and while a policy begins with it."""
    require(actor, Right.POLICIES)
    _check_own(profile)
    users = list(Policy.objects.filter(profile=profile).select_related("provider").order_by("pk")[: NAMED + 1])
    if users:
        names = ", ".join(_policy_name(each) for each in users[:NAMED]) + (" and others" if len(users) > NAMED else "")
        raise ChangeRefused("profile", f"{profile} is used by {names}: choose another profile first.", code="in_use")
    record("policy_profile.delete", profile, actor=actor, before=audited_profile(profile))
    profile.delete()
    touch_registry(actor.organisation_id)


@transaction.atomic
def install_profiles(organisation: Organisation) -> None:
    """Add the profiles that come with the service and are not there yet. For a new organisation, and where a newer
    version brings one."""
    existing = set(PolicyProfile.objects.filter(organisation=organisation).values_list("name", flat=True))
    for content in SHIPPED_PROFILES:
        if content.name not in existing:
            profile = PolicyProfile(organisation=organisation, is_shipped=True)
            _take(profile, content)
            record("policy_profile.create", profile, actor=None, after=audited_profile(profile))


def profile_content(profile: PolicyProfile) -> ProfileContent:
    return ProfileContent(profile.name, _texts(profile.patterns), profile.reads_only, profile.description)


def profile_stamp(profile: PolicyProfile) -> str:
    """Return a hash of the profile as it is stored; it differs after any change. One query."""
    stored = PolicyProfile.objects.filter(pk=profile.pk).first()
    return sha256_hex(canonical_json(audited_profile(stored) if stored is not None else None))


def audited_profile(profile: PolicyProfile) -> dict[str, Any]:
    """The profile as the audit keeps it."""
    return {
        "name": profile.name,
        "description": profile.description,
        "patterns": profile.patterns,
        "reads_only": profile.reads_only,
    }


def _check_own(profile: PolicyProfile) -> None:
    if profile.is_shipped:
        raise ChangeRefused("", f"{profile} comes with the service and stays as it is: make a copy and change that.")


def _write_profile(profile: PolicyProfile, content: ProfileContent) -> None:
    """Check the content and write the profile. Raises ChangeRefused."""
    name = content.name.strip()
    if not CATEGORY_NAME.match(name) or name in RESERVED:
        raise ChangeRefused("name", "Use 1 to 64 characters of a-z, A-Z, 0-9, _ and -; not “new”.")
    if PolicyProfile.objects.filter(Q(name__iexact=name)).exclude(pk=profile.pk).exists():
        raise ChangeRefused("name", f"There is a profile {name} already.", code="taken")
    if len(content.description) > MAX_DESCRIPTION:
        raise ChangeRefused("description", f"Keep the description under {MAX_DESCRIPTION:,} characters.")
    patterns = checked_patterns("patterns", content.patterns)
    if not patterns:
        raise ChangeRefused("patterns", "Name at least one tool, such as web_search, web_* or group:web.")
    _check_names_something("patterns", patterns, catalogue_tools())
    _take(profile, ProfileContent(name, patterns, content.reads_only, content.description))


def _take(profile: PolicyProfile, content: ProfileContent) -> None:
    profile.name, profile.description = content.name, content.description
    profile.patterns, profile.reads_only = list(content.patterns), content.reads_only
    profile.save()


# -- Patterns ---------------------------------------------------------------------------------------------------------


def checked_patterns(field: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Normalised. Raises ChangeRefused for too many, and for the first that is no pattern."""
    found = normalised(patterns)
    if len(found) > MAX_PATTERNS:
        raise ChangeRefused(field, f"Give at most {MAX_PATTERNS} patterns; group:web names a whole category.")
    for pattern in found:
        if len(pattern) > MAX_PATTERN or not WRITTEN.fullmatch(pattern):
            raise ChangeRefused(
                field,
                f"{pattern[:MAX_PATTERN]}: write the name of a tool, with * and ? as wildcards, or group:category.",
            )
    return found


def _check_names_something(field: str, patterns: Any, tools: Sequence[Any]) -> None:
    if names_nothing(_texts(patterns), tools):
        subject = "This profile" if field == "profile" else "This list"
        raise ChangeRefused(field, f"{subject} names no tool of the catalogue: nothing at all would be let through.")


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list | tuple) else ()


def _policy_name(policy: Policy) -> str:
    return f"the policy of {policy.provider}" if policy.provider else "the organisation’s policy"
