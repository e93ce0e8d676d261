"""The pages of catalogue and providers, under /o/<org>/."""

from __future__ import annotations

from django.urls import path, re_path

from capabilities import views

TOOL = r"^tools/(?P<name>[a-zA-Z0-9_-]{1,64})/"

urlpatterns = [
    path("tools/", views.tool_list, name="tool_list"),
    re_path(TOOL + r"\Z", views.tool_detail, name="tool_detail"),
    re_path(TOOL + r"switch/\Z", views.tool_switch, name="tool_switch"),
    path("providers/", views.provider_list, name="provider_list"),
    path("providers/new/", views.provider_create, name="provider_create"),
    path("providers/<slug:slug>/edit/", views.provider_update, name="provider_update"),
]
