"""Approvals, questions and kept consents: everything for which a turn waits for a person."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.common.secrets import EncryptedTextField
from capabilities.models import StoredCredential, Tool, ToolVersion
from capabilities.models.set_aside import SetAside
from sessions.models.chats import ChatSession
from sessions.models.turns import Step, Turn
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel, TenantModel


class ApprovalKind(models.TextChoices):
    """Kind of answer that a person is asked for."""

    #: A call may run, or may not.
    APPROVAL = "approval", "Approval"
    #: An answer in words, by whose session it is.
    QUESTION = "question", "Question"
    #: Fields that the far side of a call that has begun asks for, in a form.
    INPUT = "input", "Form"
    #: An address to open, before a call goes on: to connect an account, or to do something at the far side.
    LINK = "link", "Link"


#: Asked before a call begins: each call has at most one of them.
BEFORE_CALL = (ApprovalKind.APPROVAL, ApprovalKind.QUESTION)
#: Asked of the session's own member, and of nobody else.
OF_MEMBER = (ApprovalKind.QUESTION, ApprovalKind.INPUT, ApprovalKind.LINK)


class ApprovalStatus(models.TextChoices):
    """State of an approval. Only a pending one can be answered, and once."""

    PENDING = "pending", "Waiting"
    #: The call may run, once, while `used_at` is empty.
    APPROVED = "approved", "Approved"
    DENIED = "denied", "Denied"
    #: A person's text is the result, in the tool's place.
    RESPONDED = "responded", "Answered"
    #: Nobody answered in time.
    EXPIRED = "expired", "Expired"
    #: Its turn ended before.
    VOID = "void", "Void"


class Approval(PublicModel):
    """One call that waits for a person: its exact arguments, why somebody is asked, and the answer."""

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="approvals")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="approvals")
    #: The session of the member, above any that agents opened: where the call is seen, and consents count.
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, related_name="approvals")
    #: The member for whom the call is made.
    requester = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="approvals")
    kind = models.CharField(max_length=12, choices=ApprovalKind, default=ApprovalKind.APPROVAL)
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="approvals")
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="+")
    #: The organisation's registry version when it was asked: the policy that asked. It is asked again at use.
    registry_version = models.PositiveBigIntegerField(default=0)
    #: The arguments that the tool would get, as canonical JSON, and the SHA-256 of tool, version and arguments.
    arguments = models.TextField()
    digest = models.CharField(max_length=64)

    #: Source of the question, such as `rule refunds`; and why it is asked, for each reader.
    source = models.CharField(max_length=200, blank=True)
    for_model = models.TextField(blank=True)
    for_people = models.TextField(blank=True)
    for_log = models.TextField(blank=True)
    #: Whether another person than the requester must answer.
    needs_other_person = models.BooleanField(default=False)
    #: Whether an approval may be remembered, for this session or for a time.
    allows_consent = models.BooleanField(default=False)

    created_at = models.DateTimeField(auto_now_add=True)
    #: Until when it can be answered, and used.
    expires_at = models.DateTimeField()
    status = models.CharField(max_length=12, choices=ApprovalStatus, default=ApprovalStatus.PENDING)
    decided_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    #: Note for people by whoever decided. The model does not read it.
    note = models.TextField(blank=True)
    #: Denied: what to do instead, which the model reads.
    proposal = models.TextField(blank=True)
    #: Answered in the tool's place: the result.
    response = models.TextField(blank=True)
    #: When the call that was approved began. An approval is used once.
    used_at = models.DateTimeField(null=True, blank=True)

    #: For a form: its flat JSON Schema. For a link: the address, and whether it is a path of ours.
    form = models.JSONField(default=dict, blank=True)
    url = models.TextField(blank=True, default="")
    is_own_url = models.BooleanField(default=False)
    #: For a link that connects an account: the credential. As soon as that is connected, the call goes on.
    credential = models.ForeignKey(StoredCredential, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    #: For a form or a link that was answered: accept, decline or cancel, and the filled-in fields, as JSON.
    action = models.CharField(max_length=10, blank=True, default="")
    content = EncryptedTextField(blank=True, default="")

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=["step"], condition=Q(kind__in=("approval", "question")), name="approval_before_a_call_once"
            ),
        )
        indexes = (
            models.Index(fields=["organisation", "-id"], name="approvals_newest_first"),
            models.Index(fields=["organisation", "id"], condition=Q(status="pending"), name="approvals_that_wait"),
            models.Index(fields=["expires_at"], condition=Q(status="pending"), name="approvals_that_expire"),
            models.Index(fields=["kind", "status", "id"], name="approvals_by_kind_and_status"),
        )

    def __str__(self) -> str:
        return f"{self.tool} for {self.requester}"

    @property
    def is_pending(self) -> bool:
        """True where it can still be answered; false once its time is over, even before a sweep has marked it."""
        return self.status == ApprovalStatus.PENDING and self.expires_at > timezone.now()


class CallWait(TenantModel):
    """A call that has begun and cannot end yet: what it waits for, and what its runner goes on with. It is there until
    the call has its answer."""

    step = models.OneToOneField(Step, on_delete=models.CASCADE, related_name="wait")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="call_waits")
    #: Last question to the member; None where the far side works on it and nobody was asked.
    asked = models.ForeignKey(Approval, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    #: Question whose answer the runner goes on with. Not `asked`, where a credential was missing in between.
    answer = models.ForeignKey(Approval, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    #: The runner's own words, that it gets back.
    state = EncryptedTextField(blank=True, default="")
    #: For a task: the far side's message, when it is asked for next, how often it was, and until when it may be.
    is_task = models.BooleanField(default=False)
    message = models.TextField(blank=True, default="")
    poll_at = models.DateTimeField(null=True, blank=True)
    polls = models.PositiveIntegerField(default=0)
    task_until = models.DateTimeField(null=True, blank=True)
    #: Number of times that somebody was asked.
    times = models.PositiveIntegerField(default=0)
    #: Nobody wants the task's result any more: the far side is told, once.
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        indexes = (
            models.Index(fields=["poll_at"], condition=~Q(poll_at=None), name="tasks_to_ask_for"),
            models.Index(
                fields=["cancel_requested_at"], condition=~Q(cancel_requested_at=None), name="tasks_to_cancel"
            ),
        )

    def __str__(self) -> str:
        return f"Call {self.step_id} waits"


def consent_in_force(at: Combinable | datetime | None = None) -> Q:
    """Consents that nobody revoked and whose time is not over."""
    return Q(revoked_at=None) & (Q(until=None) | Q(until__gt=at or Now()))


class Consent(SetAside, PublicModel):
    """An approval that is remembered: one member's calls of one version of a tool are not asked for again, in one
    session or until a time. It counts only where a rule or a setting asks the first time."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="consents")
    tool = models.ForeignKey(Tool, on_delete=models.CASCADE, related_name="consents")
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="+")
    #: One of the two: the member's own session, with what its agents open below; or the end.
    session = models.ForeignKey(ChatSession, on_delete=models.CASCADE, null=True, blank=True, related_name="consents")
    until = models.DateTimeField(null=True, blank=True)
    #: The approval that it was given with, and by whom.
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="consents")
    granted_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_by = models.ForeignKey(Membership, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        base_manager_name = "every"
        constraints = (
            models.CheckConstraint(
                condition=Q(session__isnull=True) ^ Q(until__isnull=True), name="consent_for_a_session_or_a_time"
            ),
        )
        indexes = (
            models.Index(fields=["organisation", "-id"], name="consents_newest_first"),
            models.Index(fields=["membership", "tool_version"], name="consents_of_member_and_tool"),
        )

    def __str__(self) -> str:
        return f"{self.membership}: {self.tool}"

    @property
    def is_in_force(self) -> bool:
        """True where calls go without a question because of it: nobody revoked it, its time is not over, and the tool
        has no new version. Reads the tool."""
        is_now = self.until is None or self.until > timezone.now()
        return self.revoked_at is None and is_now and self.tool_version_id == self.tool.current_version_id
