"""The routes of people, tokens and audit, under /api/v1/."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.extensions import OpenApiAuthenticationExtension

from toolhub.tenants.audit.api import AuditList
from toolhub.tenants.organisation.api import OrganisationDetail
from toolhub.tenants.people.api import InvitationDetail, InvitationList, MemberDetail, MemberList
from toolhub.tenants.tokens.api import TokenDetail, TokenList


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the tokens in the OpenAPI document; found by being imported."""

    target_class = "toolhub.tenants.rest.wire.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


urlpatterns: list[URLPattern] = [
    path("organisation", OrganisationDetail.as_view(), name="api-organisation"),
    path("members", MemberList.as_view(), name="api-members"),
    path("members/<uuid:member_id>", MemberDetail.as_view(), name="api-member"),
    path("invitations", InvitationList.as_view(), name="api-invitations"),
    path("invitations/<uuid:invitation_id>", InvitationDetail.as_view(), name="api-invitation"),
    path("tokens", TokenList.as_view(), name="api-tokens"),
    path("tokens/<uuid:own_token>", TokenDetail.as_view(), name="api-token"),
    path("audit", AuditList.as_view(), name="api-audit"),
]
