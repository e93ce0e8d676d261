"""The policies of an organisation as every selection and every call asks them: its own, and those of its providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from capabilities.choosing.pipeline.permissions import MemberPermissions
from capabilities.common.memory import Memory
from capabilities.contract.policy import (
    PolicyLayer,
    PolicyRules,
    PolicyTool,
    Profile,
    ToolRuling,
    profile_from,
    rules_from,
)
from capabilities.models import Policy, PolicyProfile
from toolhub.tenants.rows.scope import current_scope

ORGANISATION_TITLE = "the organisation’s policy"


@dataclass(frozen=True)
class Policies:
    """All layers of an organisation, ready to be asked. `providers` is by their public id."""

    organisation: PolicyLayer | None = None
    providers: Mapping[UUID, PolicyLayer] = field(default_factory=dict)

    def layers_for(self, provider: UUID | None) -> list[PolicyLayer]:
        """Return the layers in the order in which they are asked: what the first keeps, the second gets."""
        of_provider = self.providers.get(provider) if provider is not None else None
        return [each for each in (self.organisation, of_provider) if each is not None]

    def why_not(self, tool: PolicyTool, provider: UUID | None) -> str:
        """Why the tool is not let through to this provider's models, "" where it is. Without a provider, only the
        organisation's policy is asked."""
        for layer in self.layers_for(provider):
            ruling = layer.rules.ruling(tool)
            if not ruling.kept:
                return ToolRuling(tool.name, layer.title, ruling).reason
        return ""


NO_POLICIES = Policies()

_policies: Memory[Policies] = Memory(256)


def policies_for(permissions: MemberPermissions, at: int | None) -> Policies:
    """Return the policies of the organisation in scope, for a member whose permissions were read `at` this version of
    the registry.

    No query where it has none, or where they were read before at this version; else one.
    """
    if not permissions.has_policies:
        return NO_POLICIES
    return read_policies() if at is None else policies_at(at)


def policies_at(version: int) -> Policies:
    """Return the policies of the organisation in scope at this registry version. One query; none where they were read
    before."""
    return _policies.get((current_scope(), version), read_policies)


def read_policies() -> Policies:
    """Read the policies as they are stored now. One query."""
    rows = Policy.objects.select_related("profile", "provider").defer("provider__api_key")
    organisation, providers = None, dict[UUID, PolicyLayer]()
    for row in rows:
        if row.provider is None:
            organisation = PolicyLayer(ORGANISATION_TITLE, rules_of(row))
        else:
            providers[row.provider.public_id] = PolicyLayer(provider_title(row.provider.name), rules_of(row))
    return Policies(organisation, providers)


def provider_title(name: str) -> str:
    return f"the policy of provider {name}"


def rules_of(policy: Policy) -> PolicyRules:
    """No query where the profile is at hand."""
    profile = profile_of(policy.profile) if policy.profile is not None else None
    return rules_from(policy.allow, policy.also_allow, policy.deny, profile)


def profile_of(profile: PolicyProfile) -> Profile:
    return profile_from(profile.name, profile.patterns, profile.reads_only)
