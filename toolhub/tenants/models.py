"""Organisations, who belongs to them, the tokens they hold, and the record of what they changed."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from toolhub.tenants.guarded import TenantModel

slug_validator = RegexValidator(
    r"^[a-z0-9][a-z0-9-]{0,62}\Z", "Use lower-case letters, digits and hyphens, at most 63 of them."
)


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save()
        return user


class User(AbstractUser):
    """A person who can sign in; what they may do is said by their memberships alone."""

    username = None  # type: ignore[assignment]
    email = models.EmailField("email address", unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.get_full_name() or self.email


class Organisation(models.Model):
    """The tenant. Not guarded itself: it is what the guard begins with."""

    name = models.CharField(max_length=100)
    slug = models.CharField(max_length=63, unique=True, validators=[slug_validator])
    created_at = models.DateTimeField(auto_now_add=True)
    #: Rises with every change of the catalogue or of who may use it (ZK-42).
    registry_version = models.PositiveBigIntegerField(default=1)

    def __str__(self) -> str:
        return self.name


class Access(models.TextChoices):
    """How much of the organisation a member administers. Each level holds what the ones before it hold."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"

    @property
    def rank(self) -> int:
        return list(Access).index(self)


class Right(models.TextChoices):
    """One power of administration. What a member may *use* is never said here, but by roles and grants."""

    CATALOGUE = "catalogue", "Catalogue"
    TOOLKITS = "toolkits", "Toolkits"
    AGENTS = "agents", "Agents"
    ROLES = "roles", "Roles"
    MEMBERS = "members", "Members"
    POLICIES = "policies", "Policies"
    HOOKS = "hooks", "Hooks"
    BUDGETS = "budgets", "Budgets"
    PROVIDERS = "providers", "Providers"
    APPROVALS = "approvals", "Approvals"
    APPROVE_CODE = "approve_code", "Approve code"
    LOAD_CATEGORIES = "load_categories", "Load categories"
    SESSIONS = "sessions", "Sessions"
    AUDIT = "audit", "Audit"


#: Operators hold every right but these.
ADMIN_ONLY_RIGHTS = frozenset({Right.MEMBERS, Right.APPROVE_CODE})


class Membership(TenantModel):
    """A user in one organisation: the identity that every permission is asked for."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    access = models.CharField(max_length=16, choices=Access, default=Access.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "user"], name="one_membership_per_user"),)

    def __str__(self) -> str:
        return str(self.user)

    def has_access(self, at_least: Access) -> bool:
        return Access(self.access).rank >= at_least.rank

    def has_right(self, right: Right) -> bool:
        """Whether this member holds one admin right, by level or by delegation. One query for a delegated one."""
        if self.access == Access.ADMIN:
            return True
        if self.access == Access.OPERATOR and right not in ADMIN_ONLY_RIGHTS:
            return True
        return self.admin_rights.filter(right=right).exists()


class AdminRight(TenantModel):
    """One delegated right of one member."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="admin_rights")
    right = models.CharField(max_length=32, choices=Right)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["membership", "right"], name="one_row_per_admin_right"),)

    def __str__(self) -> str:
        return f"{self.membership}: {self.get_right_display()}"


class ApiToken(TenantModel):
    """A key to the REST API that speaks for one membership. Only its SHA-256 is kept."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    #: The first characters, to tell tokens apart on a page.
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"

    @property
    def is_usable(self) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())


class AuditEntry(TenantModel):
    """Who changed what, from what, to what. Written in the transaction of the change, and never changed."""

    actor = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, related_name="+")
    actor_label = models.CharField(max_length=254)
    action = models.CharField(max_length=64)
    target_type = models.CharField(max_length=64)
    target_id = models.CharField(max_length=64)
    target_label = models.CharField(max_length=200)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        indexes = (models.Index(fields=["organisation", "-id"], name="audit_newest_first"),)

    def __str__(self) -> str:
        return f"{self.actor_label} {self.action} {self.target_label}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            raise TypeError("What was recorded is never changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("What was recorded is never removed, but with its organisation.")
