"""Services that an organisation set up: addresses and credentials, and what a test of them showed."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.common.secrets import EncryptedTextField
from capabilities.models.agents import LanguageModel, Provider
from capabilities.models.servers import McpServer
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


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


class ConnectionStatus(models.TextChoices):
    """Status of the test of a connection."""

    #: It waits for a worker.
    QUEUED = "queued", "Waiting for a worker"
    #: A worker has it; nobody else ever takes it.
    RUNNING = "running", "Testing"
    WORKS = "works", "Works"
    #: The other side refused, did not answer, or could not be asked; `reason` says which.
    FAILED = "failed", "Failed"


#: A test in one of these may still move on.
OPEN_CONNECTION_TESTS = (ConnectionStatus.QUEUED, ConnectionStatus.RUNNING)


class ConnectionTest(PublicModel):
    """The last test of a service, of a model, of an MCP server, or of a provider: whether its list of models can be
    read.

    It goes when what was tested is changed, and with the next test.
    """

    #: Either the name of a service, or a model, or a provider, or a server.
    service = models.CharField(max_length=64, blank=True, default="")
    language_model = models.ForeignKey(
        LanguageModel, on_delete=models.CASCADE, null=True, blank=True, related_name="connection_tests"
    )
    provider = models.ForeignKey(
        Provider, on_delete=models.CASCADE, null=True, blank=True, related_name="connection_tests"
    )
    server = models.ForeignKey(
        McpServer, on_delete=models.CASCADE, null=True, blank=True, related_name="connection_tests"
    )
    #: Member who asked for it.
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")
    status = models.CharField(max_length=12, choices=ConnectionStatus, default=ConnectionStatus.QUEUED)
    #: One sentence, where it failed.
    reason = models.CharField(max_length=500, blank=True, default="")
    #: Findings, see `sessions/insight/connections/findings.py`.
    findings = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    #: It has its result by then, or has failed.
    deadline_at = models.DateTimeField()
    #: When a worker was last called for it.
    rang_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=["organisation", "service"], condition=~Q(service=""), name="connection_test_service_once"
            ),
            models.UniqueConstraint(
                fields=["language_model"], condition=Q(language_model__isnull=False), name="connection_test_model_once"
            ),
            models.UniqueConstraint(
                fields=["provider"], condition=Q(provider__isnull=False), name="connection_test_provider_once"
            ),
            models.UniqueConstraint(
                fields=["server"], condition=Q(server__isnull=False), name="connection_test_server_once"
            ),
            models.CheckConstraint(
                condition=Q(service="", language_model__isnull=False, provider=None, server=None)
                | Q(service="", language_model=None, provider__isnull=False, server=None)
                | Q(service="", language_model=None, provider=None, server__isnull=False)
                | (~Q(service="") & Q(language_model=None, provider=None, server=None)),
                name="connection_test_of_one",
            ),
        )
        indexes = (models.Index(fields=["deadline_at"], condition=Q(ended_at=None), name="connection_tests_unended"),)

    def __str__(self) -> str:
        return self.service or str(self.language_model or self.provider or self.server)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_CONNECTION_TESTS
