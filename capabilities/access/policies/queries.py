"""Policies and profiles as pages, Home and REST show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Count, QuerySet
from django.http import Http404

from capabilities.access.policies.catalogue import catalogue_tools
from capabilities.access.policies.writes import PolicyContent
from capabilities.choosing.pipeline.policies import rules_of
from capabilities.common.memory import Memory
from capabilities.contract.policy import PolicyTool, Rule, lists_without_tools, unknown_patterns
from capabilities.models import Policy, PolicyProfile, Provider
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.keyset import Keyset, Page


def shown_policies() -> QuerySet[Policy]:
    """Return the policies with their profiles and providers at hand, whose keys are not read."""
    return Policy.objects.select_related("profile", "provider").defer("provider__api_key")


def profiles() -> QuerySet[PolicyProfile]:
    """Return the profiles by name, each with the number of policies that begin with it (`uses`)."""
    return PolicyProfile.objects.annotate(uses=Count("policies")).order_by("name")


def profile_or_404(name: str) -> PolicyProfile:
    """Return the profile of this name. Raises Http404 where there is none."""
    found = profiles().filter(name=name).first()
    if found is None:
        raise Http404("No such profile.")
    return found


def profiles_page(*, after: str = "", before: str = "") -> Page[PolicyProfile]:
    """One query."""
    return Keyset(profiles(), ("name",)).page(after, before)


def providers_page(*, after: str = "", before: str = "") -> Page[Provider]:
    """Return a page of providers by name, without their keys. One query."""
    return Keyset(Provider.objects.defer("api_key"), ("name", "slug")).page(after, before)


@dataclass(frozen=True)
class PolicyLine:
    """One layer in the list of policies. `provider` is None for the organisation's; `policy` where nothing is said."""

    provider: Provider | None
    policy: Policy | None
    warnings: Sequence[str]


def policies_of(providers: Sequence[Provider], organisation: Organisation) -> list[PolicyLine]:
    """One line for each of these providers. Two queries at most."""
    found = {each.provider_id: each for each in shown_policies().filter(provider__in=providers)}
    warnings = policy_warnings(organisation)
    return [PolicyLine(each, found.get(each.pk), warnings.get(each.pk, ())) for each in providers]


def policy_of_organisation(organisation: Organisation) -> PolicyLine:
    """Two queries at most."""
    policy = shown_policies().filter(provider=None).first()
    return PolicyLine(None, policy, policy_warnings(organisation).get(None, ()))


# -- Warnings ---------------------------------------------------------------------------------------------------------

#: Policies that Home names, and those that are looked at.
MAX_SHOWN, MAX_LOOKED_AT = 5, 1_000
#: By key of the provider; None is the organisation's.
Warnings = Mapping[int | None, tuple[str, ...]]
_warnings: Memory[Warnings] = Memory(64)


def policy_warnings(organisation: Organisation) -> Warnings:
    """Return warnings by key of the policy's provider. Since a policy was saved, a tool may have been removed or
    renamed, and a list may name none any more. One query where there is no policy, else two; none where it was read at
    this registry version."""
    if connection.in_atomic_block:
        return _read_warnings()
    return _warnings.get((organisation.pk, organisation.registry_version), _read_warnings)


def _read_warnings() -> Warnings:
    policies = list(shown_policies().order_by("pk")[:MAX_LOOKED_AT])
    tools = catalogue_tools() if policies else []
    return {each.provider_id: found for each in policies if (found := tuple(warnings_of(each, tools)))}


def policies_with_warnings(organisation: Organisation) -> list[Policy]:
    """The first few with `warnings`. No query but those of `policy_warnings`, one more where there are any."""
    warnings = policy_warnings(organisation)
    if not warnings:
        return []
    found = [each for each in shown_policies().order_by("pk") if each.provider_id in warnings][:MAX_SHOWN]
    for each in found:
        each.warnings = warnings[each.provider_id]  # type: ignore[attr-defined]
    return found


def warnings_of(policy: Policy, tools: Sequence[PolicyTool]) -> list[str]:
    """Sentences. No query where the profile is at hand."""
    rules = rules_of(policy)
    if rules.is_malformed:
        return ["This policy cannot be read as it is stored, so it lets nothing through. Save it again."]
    names_none = "names no tool of the catalogue any more, so only what is also allowed is let through."
    words = {Rule.ALLOW: f"Its allow-list {names_none}", Rule.PROFILE: f"Its profile {policy.profile} {names_none}"}
    return [words[each] for each in lists_without_tools(rules, tools)]


def patterns_without_tools(content: PolicyContent, tools: Sequence[PolicyTool]) -> dict[str, tuple[str, ...]]:
    """Return, by field, the patterns that name no tool of the catalogue; fields without one are left out."""
    lists = {"allow": content.allow, "also_allow": content.also_allow, "deny": content.deny}
    found = {field: unknown_patterns(patterns, tools) for field, patterns in lists.items()}
    return {field: patterns for field, patterns in found.items() if patterns}
