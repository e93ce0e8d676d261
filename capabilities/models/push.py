"""Browsers that members are notified in, and the key by which push services know an organisation."""

from __future__ import annotations

from django.db import models

from capabilities.common.secrets import EncryptedTextField
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class PushKey(TenantModel):
    """The organisation's key pair for web push (VAPID, RFC 8292). Subscriptions hold for this key only."""

    #: The private key, as PEM.
    private_pem = EncryptedTextField()

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation"], name="push_key_once"),)

    def __str__(self) -> str:
        return "Push key"


class PushSubscription(PublicModel):
    """One browser of one member that shows notifications: where they are sent, and what encrypts them."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="push_subscriptions")
    #: The address at the browser's push service, and the browser's keys, as JSON: {"endpoint", "p256dh", "auth"}.
    values_json = EncryptedTextField()
    #: SHA-256 of the address.
    endpoint_sha256 = models.CharField(max_length=64)
    #: Host of the address, and what the member calls the browser.
    host = models.CharField(max_length=253)
    label = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)
    last_sent_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["membership", "endpoint_sha256"], name="push_subscription_once"),
        )

    def __str__(self) -> str:
        return self.label
