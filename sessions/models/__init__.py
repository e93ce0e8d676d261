"""Chats, the durable record of their turns, and what happens by the clock. One module a noun."""

from sessions.models.approvals import Approval, ApprovalKind, ApprovalStatus, Consent, consent_in_force
from sessions.models.chats import BY_MEMBERS, KEPT, ChatSession, Notice
from sessions.models.loading import LoadedToolkit, LoadSource, UnloadReason
from sessions.models.periodic import Reminder, Routine, Schedule
from sessions.models.trials import OPEN_TRIALS, TrialRun, TrialStatus
from sessions.models.turns import (
    OPEN_STATUSES,
    UNANSWERED,
    UNENDED,
    WAITING_STATUSES,
    Step,
    StepKind,
    StepStatus,
    ToolSet,
    Turn,
    TurnEvent,
    TurnStatus,
    VerdictSet,
)

__all__ = [
    "BY_MEMBERS",
    "KEPT",
    "OPEN_STATUSES",
    "OPEN_TRIALS",
    "UNANSWERED",
    "UNENDED",
    "WAITING_STATUSES",
    "Approval",
    "ApprovalKind",
    "ApprovalStatus",
    "ChatSession",
    "Consent",
    "LoadSource",
    "LoadedToolkit",
    "Notice",
    "Reminder",
    "Routine",
    "Schedule",
    "Step",
    "StepKind",
    "StepStatus",
    "ToolSet",
    "TrialRun",
    "TrialStatus",
    "Turn",
    "TurnEvent",
    "TurnStatus",
    "UnloadReason",
    "VerdictSet",
    "consent_in_force",
]
