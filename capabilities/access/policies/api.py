"""REST: policies of the organisation and of providers, and profiles."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.access.policies.queries import policy_warnings, profile_or_404, profiles, shown_policies
from capabilities.access.policies.writes import (
    MAX_DESCRIPTION,
    PolicyContent,
    ProfileContent,
    create_profile,
    delete_profile,
    policy_content,
    profile_content,
    save_policy,
    stored_policy,
    update_profile,
)
from capabilities.common.api import checked_part, refusals
from capabilities.common.dry_run import with_dry_run
from capabilities.contract.patterns import MAX_PATTERN
from capabilities.contract.policy import MAX_PATTERNS
from capabilities.models import Policy, PolicyProfile, Provider
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

#: Each may hold 600 patterns.
AT_ONCE = 20


def patterns_field(help_text: str) -> Any:
    return serializers.ListField(
        child=serializers.CharField(max_length=MAX_PATTERN), max_length=MAX_PATTERNS, default=list, help_text=help_text
    )


class PolicyOut(serializers.Serializer[Any]):
    provider = serializers.CharField(allow_null=True, help_text="Null: the organisation’s own, for all.")
    profile = serializers.CharField(allow_blank=True)
    allow = serializers.ListField(child=serializers.CharField())
    also_allow = serializers.ListField(child=serializers.CharField())
    deny = serializers.ListField(child=serializers.CharField())
    warnings = serializers.ListField(
        child=serializers.CharField(),
        help_text="What became wrong since it was saved, as tools were removed or renamed.",
    )


class PolicyIn(serializers.Serializer[Any]):
    profile = serializers.CharField(
        max_length=64, allow_blank=True, default="", help_text="Name of a profile. Operational, no security boundary."
    )
    allow = patterns_field("Only these tools, in place of the profile. Names with * and ?, or group:category.")
    also_allow = patterns_field("Added to the profile, or to `allow`.")
    deny = patterns_field("Taken away, whatever allowed it.")


class ProfileOut(serializers.Serializer[PolicyProfile]):
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    patterns = serializers.SerializerMethodField()
    reads_only = serializers.BooleanField(help_text="Whether it keeps only tools that read, whatever `patterns` names.")
    is_shipped = serializers.BooleanField(help_text="It came with the service, and cannot be changed.")

    def get_patterns(self, profile: PolicyProfile) -> list[str]:
        return list(profile_content(profile).patterns)


class ProfileIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=64)
    description = serializers.CharField(max_length=MAX_DESCRIPTION, allow_blank=True, default="")
    patterns = patterns_field("The tools that it names: names with * and ?, or group:category.")
    reads_only = serializers.BooleanField(default=False)


# -- Policies ---------------------------------------------------------------------------------------------------------


class PolicyList(APIView):
    @extend_schema(
        operation_id="policies_list", summary="Policies", parameters=PAGE_PARAMETERS, responses=paged(PolicyOut)
    )
    def get(self, request: Request) -> Response:
        """List the policies that say something: the organisation's, and those of providers. A layer without one lets
        everything through. A policy only takes away: roles and grants decide first what a member may use."""
        member = api_member(request, right=Right.POLICIES)
        warnings = policy_warnings(member.organisation)
        return Response(page(request, shown_policies(), "id", lambda row: _shown(row, warnings), at_once=AT_ONCE))


class OrganisationPolicy(APIView):
    @extend_schema(operation_id="policies_read_organisation", summary="The organisation’s policy", responses=PolicyOut)
    def get(self, request: Request) -> Response:
        """Return the organisation's policy. It comes first: what it lets through, a provider's policy gets."""
        return Response(_policy_out(api_member(request, right=Right.POLICIES), None))

    @with_dry_run("policy")
    @extend_schema(
        operation_id="policies_update_organisation",
        summary="Change the organisation’s policy",
        request=PolicyIn,
        responses=PolicyOut,
    )
    def patch(self, request: Request) -> Response:
        """Change the organisation's policy; what is left out stays. Needs the right `policies`. Refused where `allow`,
        or the profile, names no tool."""
        return _save(request, api_member(request, right=Right.POLICIES), None)


class ProviderPolicy(APIView):
    @extend_schema(operation_id="policies_read_provider", summary="A provider’s policy", responses=PolicyOut)
    def get(self, request: Request, slug: str) -> Response:
        """Return a provider's policy: what its models are sent of what the organisation's policy lets through."""
        member = api_member(request, right=Right.POLICIES)
        return Response(_policy_out(member, _provider(slug)))

    @with_dry_run("policy")
    @extend_schema(
        operation_id="policies_update_provider",
        summary="Change a provider’s policy",
        request=PolicyIn,
        responses=PolicyOut,
    )
    def patch(self, request: Request, slug: str) -> Response:
        """Change a provider's policy; what is left out stays, all empty removes it. Needs the right `policies`."""
        member = api_member(request, right=Right.POLICIES)
        return _save(request, member, _provider(slug))


def _provider(slug: str) -> Provider:
    return get_object_or_404(Provider.objects.defer("api_key"), slug=slug)


def _save(request: Request, member: Membership, provider: Provider | None) -> Response:
    body = checked_part(PolicyIn, request)
    known = policy_content(stored_policy(provider))
    content = PolicyContent(
        body.get("profile", known.profile),
        *(tuple(body.get(field, getattr(known, field))) for field in ("allow", "also_allow", "deny")),
    )
    with refusals():
        save_policy(provider, content, actor=member)
    return Response(_policy_out(member, provider))


def _policy_out(member: Membership, provider: Provider | None) -> Any:
    row = stored_policy(provider)
    if row is not None:
        return _shown(row, policy_warnings(member.organisation))
    return _out(provider, PolicyContent(), ())


def _shown(policy: Policy, warnings: Any) -> Any:
    return _out(policy.provider, policy_content(policy), warnings.get(policy.provider_id, ()))


def _out(provider: Provider | None, content: PolicyContent, warnings: Any) -> Any:
    lists = {field: list(getattr(content, field)) for field in ("allow", "also_allow", "deny")}
    slug = provider.slug if provider is not None else None
    return {"provider": slug, "profile": content.profile, **lists, "warnings": list(warnings)}


# -- Profiles ---------------------------------------------------------------------------------------------------------


class ProfileList(APIView):
    @extend_schema(
        operation_id="policy_profiles_list", summary="Profiles", parameters=PAGE_PARAMETERS, responses=paged(ProfileOut)
    )
    def get(self, request: Request) -> Response:
        """Named sets of tools that policies begin with. They are operational, and no security boundary."""
        api_member(request, right=Right.POLICIES)
        return Response(page(request, profiles(), "name", lambda row: ProfileOut(row).data))

    @extend_schema(
        operation_id="policy_profiles_create", summary="Add a profile", request=ProfileIn, responses={201: ProfileOut}
    )
    def post(self, request: Request) -> Response:
        """Needs the right `policies`. Refused where its patterns name no tool at all."""
        member = api_member(request, right=Right.POLICIES)
        content = _profile_content(checked(ProfileIn, request))
        with refusals():
            profile = create_profile(content, actor=member)
        return Response(ProfileOut(profile).data, status.HTTP_201_CREATED)


class ProfileDetail(APIView):
    @extend_schema(operation_id="policy_profiles_read", summary="One profile", responses=ProfileOut)
    def get(self, request: Request, name: str) -> Response:
        """Return one profile, with the patterns of the tools that it names."""
        api_member(request, right=Right.POLICIES)
        return Response(ProfileOut(profile_or_404(name)).data)

    @with_dry_run("policy_profile")
    @extend_schema(
        operation_id="policy_profiles_update", summary="Change a profile", request=ProfileIn, responses=ProfileOut
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change a profile; what is left out stays. One that came with the service cannot be changed."""
        member = api_member(request, right=Right.POLICIES)
        profile = profile_or_404(name)
        body = checked_part(ProfileIn, request)
        with refusals():
            update_profile(profile, _profile_content(body, profile_content(profile)), actor=member)
        return Response(ProfileOut(profile).data)

    @extend_schema(operation_id="policy_profiles_delete", summary="Remove a profile", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Refused (409 `in_use`) while a policy begins with it."""
        member = api_member(request, right=Right.POLICIES)
        profile = profile_or_404(name)
        with refusals():
            delete_profile(profile, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _profile_content(body: dict[str, Any], stored: ProfileContent | None = None) -> ProfileContent:
    """Build a profile's content from the body; the stored one gives what the body leaves out."""
    known = stored or ProfileContent("")
    return ProfileContent(
        body.get("name", known.name),
        tuple(body.get("patterns", known.patterns)),
        body.get("reads_only", known.reads_only),
        body.get("description", known.description),
    )
