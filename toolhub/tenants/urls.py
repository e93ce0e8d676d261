"""The pages of people and audit, under /o/<org>/; the doors and the account are in toolhub.urls."""

from __future__ import annotations

from django.urls import path

from toolhub.tenants import views

urlpatterns = [
    path("members/", views.member_list, name="member_list"),
    path("members/invite/", views.member_invite, name="member_invite"),
    path("members/<uuid:member_id>/", views.member_detail, name="member_detail"),
    path("members/<uuid:member_id>/access/", views.member_access, name="member_access"),
    path("members/<uuid:member_id>/rights/give/", views.member_right_give, name="member_right_give"),
    path("members/<uuid:member_id>/rights/take/", views.member_right_take, name="member_right_take"),
    path("members/<uuid:member_id>/reset/", views.member_reset, name="member_reset"),
    path("members/<uuid:member_id>/remove/", views.member_remove, name="member_remove"),
    path(
        "members/<uuid:member_id>/tokens/<uuid:token_id>/revoke/", views.member_token_revoke, name="member_token_revoke"
    ),
    path(
        "members/invitations/<uuid:invitation_id>/revoke/",
        views.member_invitation_revoke,
        name="member_invitation_revoke",
    ),
    path("tokens/", views.token_list, name="token_list"),
    path("tokens/<uuid:own_token>/revoke/", views.token_revoke, name="token_revoke"),
    path("audit/", views.audit_list, name="audit_list"),
    path("audit/check/", views.audit_check, name="audit_check"),
]
