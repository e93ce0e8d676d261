"""The pages of chats, under /o/<org>/."""

from __future__ import annotations

from django.urls import path, re_path

from capabilities.urls import TOOL
from sessions.asking.approvals import views as approval_views
from sessions.budgets import views as budget_views
from sessions.doors.chats import views
from sessions.doors.chats.files import file_download
from sessions.doors.connect import views as connect_views
from sessions.doors.schedules import views as schedules_views
from sessions.insight.connections import views as connection_views
from sessions.insight.explain import views as explain_views
from sessions.insight.finding import views as finding_views
from sessions.insight.hook_trials import views as hook_trials
from sessions.insight.keywords import views as keywords_views
from sessions.insight.overview import views as overview_views
from sessions.insight.trial import views as tool_views
from sessions.selection.loading import views as loads_views
from sessions.usage import views as usage_views

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

urlpatterns = [
    path("", overview_views.organisation_home, name="organisation_home"),
    path("first-steps/", overview_views.first_steps_page, name="first_steps"),
    path("sessions/", views.session_list, name="session_list"),
    path("sessions/<uuid:session_id>/", views.session_detail, name="session_detail"),
    path("sessions/<uuid:session_id>/edit/", views.session_update, name="session_update"),
    path("sessions/<uuid:session_id>/export/", views.session_export, name="session_export"),
    path("sessions/<uuid:session_id>/delete/", views.session_delete, name="session_delete"),
    path("sessions/<uuid:session_id>/tools/", views.session_tools_switch, name="session_tools_switch"),
    path("sessions/<uuid:session_id>/notices/", views.session_notices, name="session_notices"),
    path("sessions/<uuid:session_id>/toolkits/", loads_views.session_toolkits, name="session_toolkits"),
    path("sessions/<uuid:session_id>/toolkits/load/", loads_views.session_load, name="session_load"),
    path("sessions/<uuid:session_id>/toolkits/unload/", loads_views.session_unload, name="session_unload"),
    path("sessions/<uuid:session_id>/toolkits/share/", loads_views.session_share, name="session_share"),
    path("sessions/<uuid:session_id>/loads/", loads_views.session_loads, name="session_loads"),
    path("sessions/<uuid:session_id>/turns/", views.turn_create, name="turn_create"),
    path("turns/<uuid:turn_id>/", views.turn_detail, name="turn_detail"),
    path("turns/<uuid:turn_id>/cancel/", views.turn_cancel, name="turn_cancel"),
    path("turns/<uuid:turn_id>/stream", views.turn_stream, name="turn_stream"),
    path("turns/<uuid:turn_id>/timeline/", views.turn_timeline, name="turn_timeline"),
    path("turns/<uuid:turn_id>/request/", views.turn_request, name="turn_request"),
    path("turns/<uuid:turn_id>/steps/<int:index>/", views.step_detail, name="step_detail"),
    path("files/<uuid:file_id>/", file_download, name="file_download"),
    path("approvals/", approval_views.approval_list, name="approval_list"),
    path("approvals/several/", approval_views.approval_bulk, name="approval_bulk"),
    path("approvals/remembered/", approval_views.approval_consents, name="approval_consents"),
    path(
        "approvals/remembered/<uuid:consent_id>/revoke/",
        approval_views.approval_consent_revoke,
        name="approval_consent_revoke",
    ),
    path("approvals/<uuid:approval_id>/", approval_views.approval_detail, name="approval_detail"),
    path("approvals/<uuid:approval_id>/approve/", approval_views.approval_approve, name="approval_approve"),
    path("approvals/<uuid:approval_id>/deny/", approval_views.approval_deny, name="approval_deny"),
    path("approvals/<uuid:approval_id>/answer/", approval_views.approval_answer, name="approval_answer"),
    path("approvals/<uuid:approval_id>/respond/", approval_views.approval_respond, name="approval_respond"),
    path("budgets/", budget_views.budget_list, name="budget_list"),
    path("budgets/mine/", budget_views.budget_mine, name="budget_mine"),
    path("budgets/new/", budget_views.budget_create, name="budget_create"),
    path("budgets/rules/", budget_views.budget_rules, name="budget_rules"),
    path("budgets/<uuid:budget_id>/", budget_views.budget_detail, name="budget_detail"),
    path("budgets/<uuid:budget_id>/edit/", budget_views.budget_update, name="budget_update"),
    path("budgets/<uuid:budget_id>/switch/", budget_views.budget_switch, name="budget_switch"),
    path("budgets/<uuid:budget_id>/delete/", budget_views.budget_delete, name="budget_delete"),
    path("budgets/<uuid:budget_id>/windows/<uuid:period_id>/reset/", budget_views.budget_reset, name="budget_reset"),
    path("budgets/<uuid:budget_id>/windows/<uuid:period_id>/top-up/", budget_views.budget_top_up, name="budget_top_up"),
    path("services/<str:service>/test/", connection_views.service_test, name="service_test"),
    path("providers/<slug:slug>/models/<uuid:model_id>/test/", connection_views.model_test, name="model_test"),
    re_path(r"^servers/(?P<name>[a-z0-9][a-z0-9_-]{0,31})/test/\Z", connection_views.server_test, name="server_test"),
    path("providers/<slug:slug>/test/", connection_views.provider_test, name="provider_test"),
    path("providers/<slug:slug>/models/add/", connection_views.provider_models_add, name="provider_models_add"),
    path("connect/", connect_views.connect, name="connect"),
    path("schedules/", schedules_views.schedule_list, name="schedule_list"),
    path("schedules/<uuid:schedule_id>/", schedules_views.schedule_update, name="schedule_update"),
    path("schedules/<uuid:schedule_id>/switch/", schedules_views.schedule_switch, name="schedule_switch"),
    path("schedules/<uuid:schedule_id>/delete/", schedules_views.schedule_delete, name="schedule_delete"),
    path("usage/", usage_views.usage_page, name="usage"),
    path("usage/unused/", usage_views.usage_unused, name="usage_unused"),
    path("usage/advice/", usage_views.usage_advice, name="usage_advice"),
    path("usage/csv/", usage_views.usage_csv, name="usage_csv"),
    path("hooks/trial/", hook_trials.hook_trials, name="hook_trials"),
    path("hooks/trial/<uuid:turn_id>/", hook_trials.hook_trial, name="hook_trial"),
    path("find/", finding_views.find_page, name="find"),
    path("explain/fix/", explain_views.explain_fix, name="explain_fix"),
    path("explain/", explain_views.explain_page, name="explain"),
    path("keywords/", keywords_views.keyword_list, name="keyword_list"),
    path("keywords/findings/", keywords_views.keyword_findings, name="keyword_findings"),
    path("keywords/of/<str:name>/", keywords_views.keyword_update, name="keyword_update"),
    path("tools/", tool_views.tool_list, name="tool_list"),
    re_path(TOOL + r"calls/\Z", tool_views.tool_calls, name="tool_calls"),
    re_path(TOOL + r"versions/calls/\Z", tool_views.tool_version_calls, name="tool_version_calls"),
    re_path(TOOL + r"try/\Z", tool_views.tool_try, name="tool_try"),
    re_path(TOOL + rf"try/(?P<trial_id>{UUID})/\Z", tool_views.tool_trial, name="tool_trial"),
]
