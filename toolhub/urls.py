"""Every address of the service."""

from __future__ import annotations

from allauth.account import views as account
from django.urls import include, path

from capabilities.assistant.records.feeds import calendar_feed
from capabilities.running.credentials.views import oauth_callback, oauth_client
from capabilities.running.push.views import worker_script
from sessions.usage.metrics.views import metrics
from toolhub.tenants.identity.account_views import account as own_account
from toolhub.tenants.identity.doors import join, join_link, reset, reset_link
from toolhub.tenants.pages import home
from toolhub.web.api_document import docs, schema
from toolhub.web.health import healthz, readyz

handler400 = "toolhub.web.problems.bad_request"
handler403 = "toolhub.web.problems.forbidden"
handler404 = "toolhub.web.problems.not_found"
handler500 = "toolhub.web.problems.server_error"

api = [
    path("", include("sessions.doors.chats.api")),
    path("", include("sessions.doors.chats.turns_api")),
    path("", include("sessions.asking.approvals.api")),
    path("", include("sessions.budgets.api")),
    path("", include("sessions.selection.loading.api")),
    path("", include("sessions.doors.schedules.api")),
    path("", include("sessions.insight.explain.api")),
    path("", include("sessions.insight.connections.api")),
    path("", include("sessions.usage.api")),
    path("", include("capabilities.api")),
    path("", include("capabilities.assistant.records.api")),
    path("", include("toolhub.tenants.routes")),
]

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("accounts/login/", account.login, name="account_login"),
    path("accounts/logout/", account.logout, name="account_logout"),
    path("accounts/inactive/", account.account_inactive, name="account_inactive"),
    path("accounts/", include("toolhub.tenants.identity.factors")),
    path("account/", own_account, name="account"),
    path("join/", join, name="join"),
    path("join/<str:secret>/", join_link, name="join_link"),
    path("reset/", reset, name="reset"),
    path("reset/<str:secret>/", reset_link, name="reset_link"),
    path("oauth/callback/", oauth_callback, name="oauth_callback"),
    path("oauth/client.json", oauth_client, name="oauth_client"),
    path("api/v1/", include(api)),
    path("v1/", include("sessions.doors.gateway.api")),
    path("api/schema/", schema, name="api-schema"),
    path("api/docs/", docs, name="api-docs"),
    path("o/<slug:org>/", include("toolhub.tenants.urls")),
    path("push-worker.js", worker_script, name="push_worker"),
    path("calendar/<str:secret>.ics", calendar_feed, name="calendar_feed"),
    path("o/<slug:org>/", include("capabilities.urls")),
    path("o/<slug:org>/", include("capabilities.assistant.records.urls")),
    path("o/<slug:org>/", include("sessions.urls")),
    path("", home, name="home"),
]
