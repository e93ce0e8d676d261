"""The pages of what members keep, under /o/<org>/."""

from __future__ import annotations

from django.urls import path

from capabilities.assistant.records import views
from capabilities.running.assistant import assistants_routes

urlpatterns = assistants_routes(
    [
        path("data/", views.data_overview, name="data_overview"),
        path("data/<slug:kind>/", views.data_list, name="data_list"),
        path("data/<slug:kind>/new/", views.data_create, name="data_create"),
        path("data/<slug:kind>/<uuid:own_record>/", views.data_record, name="data_record"),
        path("data/<slug:kind>/<uuid:own_record>/delete/", views.data_delete, name="data_delete"),
        path("data/<slug:kind>/<uuid:own_record>/switch/", views.data_switch, name="data_switch"),
    ]
)
