"""Models of members' permissions: roles, and grants of their own."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from capabilities.models.catalogue import Category, Tool
from capabilities.models.set_aside import PresentManager, SetAside
from toolhub.tenants.models import Invitation, Membership, slug_validator
from toolhub.tenants.rows.guarded import PublicModel, TenantModel, TenantQuerySet


class RoleMode(models.TextChoices):
    """Tools that a role opens before its rules are read. Absent never means all."""

    ALL = "all", "All tools"
    LISTED = "listed", "Listed tools"
    NONE = "none", "No tools"


class Effect(models.TextChoices):
    ALLOW = "allow", "Allow"
    DENY = "deny", "Deny"


class Role(PublicModel):
    """Role: the tools that its members may use. A member's roles add up; a new one opens nothing."""

    slug = models.CharField(max_length=63, validators=[slug_validator])
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    mode = models.CharField(max_length=16, choices=RoleMode, default=RoleMode.NONE)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "slug"], name="role_slug_once"),)

    def __str__(self) -> str:
        return self.name


class RoleRule(SetAside):
    """One line of a `listed` role: a category or a tool, allowed or not. A rule on a tool beats one on its category."""

    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="rules")
    category = models.ForeignKey(Category, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    effect = models.CharField(max_length=8, choices=Effect, default=Effect.ALLOW)

    class Meta(TenantModel.Meta):
        base_manager_name = "every"
        constraints = (
            models.CheckConstraint(
                condition=Q(category__isnull=True) ^ Q(tool__isnull=True), name="role_rule_names_one_thing"
            ),
            models.UniqueConstraint(fields=["role", "category"], name="role_rule_category_once"),
            models.UniqueConstraint(fields=["role", "tool"], name="role_rule_tool_once"),
        )

    def __str__(self) -> str:
        return f"{self.effect} {self.tool or self.category}"


class RoleMembership(TenantModel):
    """A member has a role."""

    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="role_memberships")
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="role_memberships")

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["role", "membership"], name="role_of_member_once"),)

    def __str__(self) -> str:
        return f"{self.membership}: {self.role}"


class InvitationRole(TenantModel):
    """A role that whoever accepts the invitation is to have."""

    invitation = models.ForeignKey(Invitation, on_delete=models.CASCADE, related_name="invitation_roles")
    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="invitation_roles")

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["invitation", "role"], name="role_of_invitation_once"),)

    def __str__(self) -> str:
        return f"{self.invitation}: {self.role}"


def in_force(since: Combinable | datetime | None = None) -> Q:
    """Grants without an end, or whose end is after `since`: the database's now where nothing is said."""
    return Q(expires_at=None) | Q(expires_at__gt=since or Now())


class GrantQuerySet(TenantQuerySet["Grant"]):
    def in_force(self, since: Combinable | datetime | None = None) -> GrantQuerySet:
        """Grants that have not ended."""
        return self.filter(in_force(since))


class GrantManager(PresentManager["Grant"]):
    queryset_class = GrantQuerySet

    def in_force(self, since: Combinable | datetime | None = None) -> GrantQuerySet:
        queryset: GrantQuerySet = self.get_queryset()  # type: ignore[assignment]
        return queryset.in_force(since)


class Grant(SetAside, PublicModel):
    """One member's own allow or deny of a tool or a category. A deny beats everything; an allow adds to the roles."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="grants")
    category = models.ForeignKey(Category, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    effect = models.CharField(max_length=8, choices=Effect)
    reason = models.TextField(blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    #: When its end was put on record, after `expires_at` had passed.
    lapsed_at = models.DateTimeField(null=True, blank=True)

    objects = GrantManager()  # type: ignore[misc]

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        indexes = (
            models.Index(
                fields=["expires_at"],
                condition=Q(lapsed_at__isnull=True, expires_at__isnull=False),
                name="grants_that_lapse",
            ),
            models.Index(fields=["organisation", "id"], name="grants_of_organisation"),
            models.Index(fields=["organisation", "membership"], name="grants_of_member"),
        )
        constraints = (
            models.CheckConstraint(
                condition=Q(category__isnull=True) ^ Q(tool__isnull=True), name="grant_names_one_thing"
            ),
        )

    def __str__(self) -> str:
        return f"{self.membership}: {self.effect} {self.tool or self.category}"


class RequestStatus(models.TextChoices):
    """Status of a request for a grant."""

    #: Somebody with the right has to look at it.
    WAITING = "waiting", "Waiting"
    #: It became a grant.
    GRANTED = "granted", "Granted"
    REFUSED = "refused", "Refused"
    #: Whoever asked took it back.
    WITHDRAWN = "withdrawn", "Withdrawn"


class GrantRequest(SetAside, PublicModel):
    """A member asks to use a tool or a category for a time, and says why."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="grant_requests")
    category = models.ForeignKey(Category, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    reason = models.TextField()
    #: Hours that were asked for.
    hours = models.PositiveIntegerField()
    status = models.CharField(max_length=16, choices=RequestStatus, default=RequestStatus.WAITING)
    created_at = models.DateTimeField(auto_now_add=True)
    decided_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    #: Answer of whoever decided.
    answer = models.TextField(blank=True)
    grant = models.OneToOneField(Grant, on_delete=models.SET_NULL, null=True, blank=True, related_name="request")

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (
            models.CheckConstraint(
                condition=Q(category__isnull=True) ^ Q(tool__isnull=True), name="grant_request_names_one_thing"
            ),
            models.UniqueConstraint(
                fields=["membership", "tool"], condition=Q(status="waiting"), name="open_request_for_a_tool_once"
            ),
            models.UniqueConstraint(
                fields=["membership", "category"],
                condition=Q(status="waiting"),
                name="open_request_for_a_category_once",
            ),
        )
        indexes = (
            models.Index(fields=["organisation", "id"], name="requests_of_organisation"),
            models.Index(fields=["organisation", "id"], condition=Q(status="waiting"), name="requests_that_wait"),
        )

    def __str__(self) -> str:
        return f"{self.membership}: {self.tool or self.category}"
