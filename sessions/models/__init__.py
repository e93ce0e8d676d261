"""Chats, the durable record of their turns, and what happens by the clock. One module a noun."""

from sessions.models.chats import KEPT, ChatSession, Notice
from sessions.models.loading import LoadedToolkit, LoadSource, UnloadReason
from sessions.models.periodic import Reminder, Routine, Schedule
from sessions.models.trials import OPEN_TRIALS, TrialRun, TrialStatus
from sessions.models.turns import (
    OPEN_STATUSES,
    Step,
    StepKind,
    StepStatus,
    ToolSet,
    Turn,
    TurnEvent,
    TurnStatus,
)

__all__ = [
    "KEPT",
    "OPEN_STATUSES",
    "OPEN_TRIALS",
    "ChatSession",
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
]
