from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "toolhub.tenants"
    label = "tenants"
