"""Credentials for far sides that tools talk to: how a request is signed, the secrets behind it, and sign-ins under way.

A tool names a `StoredCredential`. Who calls decides which `StoredSecret` is used: the organisation's one, or the
member's own.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from capabilities.common.secrets import EncryptedTextField
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


class CredentialKind(models.TextChoices):
    """Kind of a credential: the way in which a request carries it."""

    BEARER = "bearer", "Bearer token"
    HEADER = "header", "Header"
    QUERY = "query", "Query parameter"
    BASIC = "basic", "User name and password"
    OAUTH = "oauth", "OAuth sign-in"


class CredentialScope(models.TextChoices):
    """Owner of the secret that signs a call."""

    ORGANISATION = "organisation", "One for the organisation"
    #: Each member connects an own account; nobody's call uses another member's.
    MEMBER = "member", "Each member’s own"


class StoredCredential(PublicModel):
    """Signature of requests to one far side. It holds no secret but the one of our own OAuth client."""

    name = models.CharField(max_length=64)
    title = models.CharField(max_length=100)
    kind = models.CharField(max_length=12, choices=CredentialKind)
    scope = models.CharField(max_length=16, choices=CredentialScope, default=CredentialScope.ORGANISATION)
    #: Name of the header or of the query parameter; what stands before the secret there, such as "Token ".
    parameter = models.CharField(max_length=100, blank=True, default="")
    prefix = models.CharField(max_length=40, blank=True, default="")
    #: Where it may be sent: origins such as https://api.example.org. It is sent nowhere else, redirects included.
    origins = models.JSONField(default=list)

    #: OAuth: the protected resource that the authorization server is found from, or the server itself.
    resource = models.URLField(max_length=500, blank=True, default="")
    issuer = models.URLField(max_length=500, blank=True, default="")
    scopes = models.JSONField(default=list, blank=True)
    #: OAuth: how we became a client: metadata_document, dynamic or manual; empty before.
    registration = models.CharField(max_length=20, blank=True, default="")
    client_id = models.CharField(max_length=500, blank=True, default="")
    client_secret = EncryptedTextField(blank=True, default="")
    #: OAuth: how the client says who it is when it asks for tokens (none, client_secret_post, client_secret_basic), and
    #: the address of ours that members come back to, as the authorization server knows it.
    client_auth = models.CharField(max_length=30, blank=True, default="")
    redirect_uri = models.CharField(max_length=500, blank=True, default="")
    #: OAuth: what tokens are asked for (RFC 8707), as the protected resource names itself.
    resource_indicator = models.CharField(max_length=500, blank=True, default="")
    #: OAuth: the authorization server's metadata as it was last read and checked.
    server_metadata = models.JSONField(default=dict, blank=True)
    discovered_at = models.DateTimeField(null=True, blank=True)

    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "name"], name="credential_name_once"),)

    def __str__(self) -> str:
        return self.title


class SecretStatus(models.TextChoices):
    """Status of a stored secret: whether it can be used."""

    CONNECTED = "connected", "Connected"
    #: The far side refused it, or a refresh failed for good: it must be entered, or connected, again.
    REFUSED = "refused", "Refused"
    #: It works, but not for what was last asked: `wanted_scopes` are missing.
    NEEDS_MORE = "needs_more", "Needs more permissions"


class StoredSecret(PublicModel):
    """One secret: the organisation's, or one member's own."""

    credential = models.ForeignKey(StoredCredential, on_delete=models.CASCADE, related_name="secrets")
    #: Its owner; None for the organisation's.
    membership = models.ForeignKey(
        Membership, on_delete=models.CASCADE, null=True, blank=True, related_name="stored_secrets"
    )
    #: JSON: {"token"}, {"user", "password"} or {"access_token", "refresh_token", "id_token"}.
    values_json = EncryptedTextField(blank=True, default="")
    status = models.CharField(max_length=12, choices=SecretStatus, default=SecretStatus.CONNECTED)
    #: One sentence, where it is refused or needs more.
    reason = models.CharField(max_length=500, blank=True, default="")
    #: Which account it is, as the far side calls it, where it says so.
    account = models.CharField(max_length=200, blank=True, default="")
    granted_scopes = models.JSONField(default=list, blank=True)
    wanted_scopes = models.JSONField(default=list, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    #: While one worker refreshes it: until when the others wait.
    refreshing_until = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=["credential"], condition=Q(membership=None), name="secret_of_organisation_once"
            ),
            models.UniqueConstraint(
                fields=["credential", "membership"], condition=~Q(membership=None), name="secret_of_member_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.credential} of {self.membership or 'the organisation'}"


class OAuthSignIn(PublicModel):
    """One sign-in that was begun at an authorization server. It is used once, by the login session that began it."""

    credential = models.ForeignKey(StoredCredential, on_delete=models.CASCADE, related_name="+")
    #: Member who signs in, and whether for the organisation.
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")
    is_for_organisation = models.BooleanField(default=False)
    #: SHA-256 of the `state` that was sent, and of the login session's key.
    state_sha256 = models.CharField(max_length=64, unique=True)
    login_sha256 = models.CharField(max_length=64)
    #: PKCE.
    verifier = EncryptedTextField()
    #: The authorization server and the client that it was begun with: it does not end with others.
    issuer = models.CharField(max_length=500, default="")
    client_id = models.CharField(max_length=500, default="")
    redirect_uri = models.CharField(max_length=500, default="")
    scopes = models.JSONField(default=list, blank=True)
    #: Path of ours that the member goes back to.
    return_to = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        indexes = (models.Index(fields=["expires_at"], name="sign_ins_by_end"),)

    def __str__(self) -> str:
        return f"{self.membership}: {self.credential}"


class TokenRevocation(PublicModel):
    """A token that is to be ended at its authorization server (RFC 7009): what it was kept for is gone here. The row
    goes when that is done, or given up."""

    #: Credential that it was a token of, where that is still there; and its title in any case.
    credential = models.ForeignKey(
        StoredCredential, on_delete=models.SET_NULL, null=True, blank=True, related_name="revocations"
    )
    title = models.CharField(max_length=100)
    #: Owner of the account, for the audit; empty for the organisation's.
    owner = models.CharField(max_length=300, blank=True, default="")
    #: Host of the authorization server.
    host = models.CharField(max_length=300)
    #: JSON: {"endpoint", "token", "hint", "client_id", "client_secret", "client_auth"}.
    values_json = EncryptedTextField()
    #: How often a worker began to ask, and when the next one may.
    attempts = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(PublicModel.Meta):
        indexes = (models.Index(fields=["next_at"], name="revocations_by_moment"),)

    def __str__(self) -> str:
        return self.title
