"""What an organisation set up of the world outside: addresses and credentials, a row a service."""

from __future__ import annotations

from django.db import models

from capabilities.secrets import EncryptedTextField
from toolhub.tenants.guarded import PublicModel


class ServiceSetting(PublicModel):
    """The values of one service's fields, as JSON, encrypted whole."""

    service = models.CharField(max_length=64)
    values_json = EncryptedTextField(blank=True, default="")
    #: Whether every required field has a value.
    is_complete = models.BooleanField(default=False)
    #: Whether any secret field has a value: then its tools act with the organisation's credential.
    holds_secret = models.BooleanField(default=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "service"], name="service_setting_once"),)

    def __str__(self) -> str:
        return self.service
