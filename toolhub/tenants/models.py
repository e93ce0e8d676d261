"""Organisations, who belongs to them, the tokens they hold, and the record of what they changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone
from django.utils.functional import cached_property

from toolhub.tenants.rows.guarded import AppendOnlyManager, PublicModel, TenantModel
from toolhub.tenants.times import BRITISH, LANGUAGES

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
    #: Rises with every change of the catalogue or of who may use it.
    registry_version = models.PositiveBigIntegerField(default=1)
    #: As an IANA name: pages show times in it, budgets reset and reports break where its days and months begin.
    time_zone = models.CharField(max_length=64, default="UTC")
    #: How pages write dates (`times.DATES`).
    date_language = models.CharField(max_length=10, choices=LANGUAGES, default=BRITISH)
    #: Whether a model without a price costs nothing under a budget in money. If not, such a budget refuses it.
    counts_unpriced_as_free = models.BooleanField(default=False)
    #: Whether its agents may make tools of their own. What they make waits for a person's approval.
    agents_make_tools = models.BooleanField(default=False)
    #: Whether it has the personal assistant (`capabilities/assistant`): its tools, pages and routes.
    has_assistant = models.BooleanField(default=True)
    #: The end of the audit chain: how many entries it has, and the hash of the last.
    audit_count = models.PositiveBigIntegerField(default=0)
    audit_head = models.CharField(max_length=64, blank=True, default="")

    def __str__(self) -> str:
        return self.name


class Access(models.TextChoices):
    """Level of access: how much of the organisation a member administers. Each level holds what the ones before it
    hold."""

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
#: Rights that can be given for one category alone.
CATEGORY_RIGHTS = frozenset({Right.CATALOGUE, Right.ROLES, Right.APPROVALS, Right.APPROVE_CODE, Right.LOAD_CATEGORIES})
#: As the category of a right: every one.
EVERY_CATEGORY = ""


@dataclass(frozen=True)
class Reach:
    """Categories in which a member holds a right. False where in none."""

    categories: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.categories)

    def covers(self, category: str) -> bool:
        return EVERY_CATEGORY in self.categories or category in self.categories


EVERYWHERE = Reach(frozenset({EVERY_CATEGORY}))
NOWHERE = Reach(frozenset())


class Membership(PublicModel):
    """A user in one organisation: the identity that every permission is asked for.

    A member who is removed leaves the row behind, ended: chats and the record of turns hang on it. Who is invited again
    gets a new one, so nothing that was taken away comes back.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    access = models.CharField(max_length=16, choices=Access, default=Access.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=["organisation", "user"], condition=models.Q(ended_at=None), name="one_membership_per_user"
            ),
        )

    def __str__(self) -> str:
        return str(self.user)

    def has_access(self, at_least: Access) -> bool:
        return Access(self.access).rank >= at_least.rank

    def has_right(self, right: Right, category: str = EVERY_CATEGORY) -> bool:
        """Return whether this member holds one admin right, by level or by delegation. One query for a delegated one.

        A right that was given for one category counts for that category alone.
        """
        return self.reach(right).covers(category)

    def reach(self, right: Right) -> Reach:
        """Return where this member holds one admin right. One query for the first delegated one that is asked for."""
        if self.ended_at is not None:
            return NOWHERE
        if self.holds_by_access(right):
            return EVERYWHERE
        return Reach(frozenset(category for name, category in self._delegated if name == right))

    def holds_by_access(self, right: Right) -> bool:
        """Return whether the level of access alone holds the right, without any that was delegated. No query."""
        return self.access == Access.ADMIN or (self.access == Access.OPERATOR and right not in ADMIN_ONLY_RIGHTS)

    @property
    def approves_code(self) -> bool:
        """True where this member decides on versions that wait, if only in one category."""
        return bool(self.reach(Right.APPROVE_CODE))

    @cached_property
    def _delegated(self) -> tuple[tuple[str, str], ...]:
        """The delegated rights with their categories, as they were when they were first asked for."""
        return tuple((each.right, each.category) for each in self.admin_rights.all())


class AdminRight(TenantModel):
    """One delegated right of one member."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="admin_rights")
    right = models.CharField(max_length=32, choices=Right)
    #: Name of the only category it counts for; "" for every one.
    category = models.CharField(max_length=64, blank=True, default=EVERY_CATEGORY)

    class Meta(TenantModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["membership", "right", "category"], name="one_row_per_admin_right"),
        )

    def __str__(self) -> str:
        return f"{self.membership}: {self.shown}"

    @property
    def shown(self) -> str:
        """The right as people read it: "Catalogue", "Catalogue in web"."""
        return f"{self.get_right_display()} in {self.category}" if self.category else str(self.get_right_display())


class Scope(models.TextChoices):
    """Use that a token is good for; none holds another."""

    READ = "read", "Read everything that its member can read"
    CHAT = "chat", "Open sessions, send messages, stop turns, change its member’s own data"
    MANAGE = "manage", "Change the configuration, as far as its member may"
    APPROVE = "approve", "Approve, deny and answer what agents ask, in its member’s name"


def every_scope() -> list[str]:
    return [scope.value for scope in Scope]


class ApiToken(PublicModel):
    """A key to the REST API that speaks for one membership. Only its SHA-256 is kept."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    #: The first characters, to tell tokens apart on a page.
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=every_scope)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    #: Last use of the token, as far as that is known: see `tokens/last_use.py`.
    last_client = models.CharField(max_length=80, blank=True, default="")
    last_agent = models.CharField(max_length=80, blank=True, default="")
    last_address = models.CharField(max_length=45, blank=True, default="")
    #: How often that changed since `last_used_at`.
    last_use_changes = models.PositiveSmallIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"

    @property
    def is_usable(self) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())


class Invitation(PublicModel):
    """A link by which the holder of one e-mail address can join, once. Only its SHA-256 is kept."""

    email = models.EmailField()
    access = models.CharField(max_length=16, choices=Access, default=Access.MEMBER)
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="invitations")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        indexes = (models.Index(fields=["organisation", "-id"], name="invitations_newest_first"),)

    def __str__(self) -> str:
        return self.email

    @property
    def state(self) -> str:
        """`accepted`, `revoked`, `expired` or `open`."""
        if self.accepted_at is not None:
            return "accepted"
        if self.revoked_at is not None:
            return "revoked"
        return "open" if self.expires_at > timezone.now() else "expired"


class ResetLink(TenantModel):
    """A link by which one member can set a new password, once. Only its SHA-256 is kept."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="reset_links")
    digest = models.CharField(max_length=64, unique=True)
    #: Fingerprint of the password that it replaces: another password since then ends the link.
    password_mark = models.CharField(max_length=128)
    created_by = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    #: Used, or replaced by a newer one.
    ended_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.membership)


class SavedFilter(PublicModel):
    """Address of a list that one member keeps under a name: the name of its route, and its query."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="saved_filters")
    page = models.CharField(max_length=64)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1_000)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["membership", "page", "name"], name="one_filter_of_a_name"),)

    def __str__(self) -> str:
        return self.name


class AuditEntry(TenantModel):
    """Entry of the audit: who changed what, from what, to what. Written in the transaction of the change, and never
    changed.

    The entries of an organisation are a chain: each is numbered, and its hash covers its content and the hash before.
    """

    number = models.PositiveBigIntegerField()
    #: Stays as it was written when the member is gone; what people read is the label.
    actor = models.ForeignKey(Membership, on_delete=models.DO_NOTHING, db_constraint=False, null=True, related_name="+")
    actor_label = models.CharField(max_length=254)
    action = models.CharField(max_length=64)
    target_type = models.CharField(max_length=64)
    target_id = models.CharField(max_length=64)
    target_label = models.CharField(max_length=200)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    previous_hash = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64)

    objects = AppendOnlyManager()  # type: ignore[misc]

    class Meta(TenantModel.Meta):
        indexes = (
            models.Index(fields=["organisation", "-id"], name="audit_newest_first"),
            models.Index(fields=["organisation", "target_id", "-number"], name="audit_by_target"),
        )
        constraints = (models.UniqueConstraint(fields=["organisation", "number"], name="audit_entries_have_numbers"),)

    def __str__(self) -> str:
        return f"{self.actor_label} {self.action} {self.target_label}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Record it. Raises TypeError for an entry that is recorded already."""
        if self.pk is not None:
            raise TypeError("What was recorded is never changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raises TypeError: entries go with their organisation alone."""
        raise TypeError("What was recorded is never removed, but with its organisation.")
