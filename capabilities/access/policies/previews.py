"""Previews of policies and profiles. Provided by the room `sessions`."""

from __future__ import annotations

from capabilities.access.policies.writes import PolicyContent, ProfileContent
from capabilities.common.previews import Impact
from capabilities.models import PolicyProfile, Provider
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided


@Provided
def impact_of_policy(provider: Provider | None, content: PolicyContent, *, actor: Membership) -> Impact:
    """Preview saving a policy, over the agents that it is about; without a provider, the organisation's."""
    raise NotImplementedError


@Provided
def impact_of_profile(profile: PolicyProfile, content: ProfileContent, *, actor: Membership) -> Impact:
    """Preview saving a profile, over the agents under a policy with it."""
    raise NotImplementedError
