"""The pages of people and audit, under /o/<org>/; the doors and the account are in toolhub.urls."""

from __future__ import annotations

from django.urls import path

from toolhub.tenants.audit import views as audit
from toolhub.tenants.organisation import views as organisation
from toolhub.tenants.people import views as members
from toolhub.tenants.saved_filters import views as saved_filters
from toolhub.tenants.tokens import views as tokens

urlpatterns = [
    path("settings/", organisation.organisation_settings, name="organisation_settings"),
    path("members/", members.member_list, name="member_list"),
    path("members/invite/", members.member_invite, name="member_invite"),
    path("members/<uuid:member_id>/", members.member_detail, name="member_detail"),
    path("members/<uuid:member_id>/access/", members.member_access, name="member_access"),
    path("members/<uuid:member_id>/rights/give/", members.member_right_give, name="member_right_give"),
    path("members/<uuid:member_id>/rights/take/", members.member_right_take, name="member_right_take"),
    path("members/<uuid:member_id>/reset/", members.member_reset, name="member_reset"),
    path("members/<uuid:member_id>/remove/", members.member_remove, name="member_remove"),
    path(
        "members/<uuid:member_id>/tokens/<uuid:token_id>/revoke/",
        members.member_token_revoke,
        name="member_token_revoke",
    ),
    path(
        "members/invitations/<uuid:invitation_id>/revoke/",
        members.member_invitation_revoke,
        name="member_invitation_revoke",
    ),
    path("tokens/", tokens.token_list, name="token_list"),
    path("tokens/<uuid:own_token>/revoke/", tokens.token_revoke, name="token_revoke"),
    path("filters/", saved_filters.saved_filter_create, name="saved_filter_create"),
    path("filters/<uuid:own_filter>/delete/", saved_filters.saved_filter_delete, name="saved_filter_delete"),
    path("audit/", audit.audit_list, name="audit_list"),
    path("audit/csv/", audit.audit_csv, name="audit_csv"),
    path("audit/check/", audit.audit_check, name="audit_check"),
]
