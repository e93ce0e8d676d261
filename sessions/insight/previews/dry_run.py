"""Previews for `?dry_run=true`: the write of a route, by noun, as the same numbers and names that pages show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.response import Response

from capabilities.models import Agent, Grant, Policy, Provider, Role, Toolkit
from sessions.insight.previews.offers import OfferImpact, agents_under, agents_with, impact_of_offers
from sessions.insight.previews.roles import Impact, impact_of_roles, impact_on
from toolhub.tenants.models import Membership
from toolhub.tenants.rest.wire import DRY_RUN


def preview_of(
    noun: str, named: Mapping[str, Any], body: Mapping[str, Any], write: Callable[[], Response], actor: Membership
) -> dict[str, Any]:
    """Preview the write, as `PreviewOut` describes it. Raises what the write raises."""
    if noun == "role":
        roles = Role.objects.filter(slug=named["slug"]) if named else Role.objects.none()
        return shown(impact_of_roles(lambda: _made(write(), Role, named), roles))
    if noun == "agent":
        agents = Agent.objects.filter(slug=named["slug"]).values_list("pk", flat=True) if named else []
        return shown(impact_of_offers(lambda: _made(write(), Agent, named), list(agents), actor=actor))
    if noun == "toolkit":
        toolkit = Toolkit.objects.filter(name=named["name"]).first() if named else None
        return shown(impact_of_offers(write, agents_with(toolkit) if toolkit else [], actor=actor))
    if noun == "policy":
        slug = named.get("slug")
        provider = Provider.objects.filter(slug=slug).first() if slug else None
        return shown(impact_of_offers(write, agents_under([provider.pk if provider else None]), actor=actor))
    if noun == "policy_profile":
        used_by = Policy.objects.filter(profile__name=named.get("name", "")).values_list("provider_id", flat=True)
        return shown(impact_of_offers(write, agents_under(list(used_by)), actor=actor))
    if noun == "tool":
        if named and set(body) - {"is_enabled"}:
            raise ValidationError({DRY_RUN: ErrorDetail("Only a switch has a dry run.", "invalid")})
        return shown(impact_on(Membership.objects.all(), write))
    return shown(impact_on(_member(named, body), write))


def _made(response: Response, model: type[Role | Agent], named: Mapping[str, Any]) -> Role | Agent | None:
    """The row that was added, as long as it is there."""
    return None if named else model.objects.filter(slug=response.data["slug"]).first()


def _member(named: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    """Return a query for the member whose roles or whose grant are written."""
    if "member_id" in named:
        return Membership.objects.filter(public_id=named["member_id"])
    if "grant_id" in named:
        found = Grant.objects.filter(public_id=named["grant_id"]).values_list("membership", flat=True)
        return Membership.objects.filter(pk__in=list(found))  # read now: the write may remove the grant
    try:
        return Membership.objects.filter(public_id=UUID(str(body.get("member"))))
    except ValueError:
        return Membership.objects.none()


def shown(impact: Impact | OfferImpact) -> dict[str, Any]:
    """Build the body of an impact, as `PreviewOut` describes it."""
    roles = impact.roles if isinstance(impact, Impact) else ()
    agents, overrides = (impact.agents, impact.overrides) if isinstance(impact, OfferImpact) else ((), ())
    return {
        "sentence": impact.sentence,
        "members": impact.members,
        "groups": [
            {"members": list(each.members), "gain": list(each.won), "lose": list(each.lost)}
            for each in impact.concerned.groups
        ],
        "unchanged": impact.unchanged,
        "sessions": impact.sessions,
        "sessions_not_looked_at": impact.not_looked_at,
        "loads_dropped": impact.dropped if isinstance(impact, OfferImpact) else 0,
        "roles": [
            {
                "name": each.name,
                "opens": list(each.opened),
                "closes": list(each.closed),
                "tokens": each.tokens,
                "members": each.members,
                "given": each.given,
                "taken": each.taken,
            }
            for each in roles
        ],
        "agents": [
            {
                "name": each.name,
                "sends": list(each.sent),
                "no_longer_sends": list(each.no_longer_sent),
                "can_load": list(each.loadable),
                "can_no_longer_load": list(each.no_longer_loadable),
                "tokens_before": each.tokens_before,
                "tokens_after": each.tokens_after,
                "over_limit": each.over_limit,
            }
            for each in agents
        ],
        "overrides": [{"tool": each.tool, "before": each.before, "after": each.after} for each in overrides],
    }
