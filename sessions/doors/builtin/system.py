"""This service itself: how it stands, and what happened in the organisation. Nothing of other organisations."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any

import redis
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q
from django.db.models.functions import Now
from django.utils import timezone
from pydantic import Field

from capabilities.contract.approvals import ASKS_ADMINISTRATORS
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, ServiceSpec, tool
from capabilities.running.sandbox import ShellUnavailable, run_shell, why_no_shell
from sessions.access import visible_sessions
from sessions.doors.builtin._shell_commands import shell_refusal
from sessions.models import OPEN_STATUSES, UNENDED, Approval, ApprovalStatus, Turn, TurnEvent, TurnStatus
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

CATEGORY = CategorySpec(
    name="system",
    title="System",
    description="The state of this service, and what happened in the organisation.",
    keywords=(
        "restart",
        "update",
        "status",
        "logs",
        "deploy",
        "shell",
        "health",
        "is it running",
        "command",
        "run",
        "run command",
    ),
)
#: When this process began.
RUNNING_SINCE = timezone.now()
#: Requests for a restart or an update that are listed.
REQUESTS = 5
#: Sessions whose events are read, those active last.
SESSIONS_READ = 100

SERVICES = (
    ServiceSpec(
        name="sandbox",
        title="Sandbox for commands",
        description="Shell commands run in namespaces of the server, with the organisation's workspace and no network."
        " The operator of the installation allows it with TOOLHUB_SHELL=1; which commands run, the runtime settings of"
        " shell_exec say.",
        fields=(),
        is_available=settings.TOOLHUB_SHELL,
        test=lambda context: _check_sandbox(),
    ),
)


@tool(category="system", effect="read", human_format="Asking how the service stands")
def cortex_status(context: ToolContext) -> dict[str, Any]:
    """Tell how this service stands: its version, since when it runs, its parts, the turns of this organisation under
    way, and what became of requests for a restart or an update."""
    held = Q(status=TurnStatus.RUNNING, lease_until__gte=Now())
    turns = Turn.objects.filter(UNENDED, status__in=OPEN_STATUSES).aggregate(
        waiting=Count("pk", filter=~held), running=Count("pk", filter=held)
    )
    return {
        "version": _version(),
        "running_since": RUNNING_SINCE.isoformat(timespec="seconds"),
        "database": "up",
        "redis": _redis(),
        "turns": turns,
        "requests": _requests(context),
    }


@tool(category="system", effect="read", human_format="Reading the last {lines} events")
def cortex_logs(
    context: ToolContext,
    lines: Annotated[int, Field(ge=1, le=200)] = 50,
    only_problems: Annotated[bool, Field(description="Only turns that failed, expired or began anew")] = False,
) -> dict[str, Any]:
    """Read what happened to the turns that this user may see, newest first, in the sessions active last."""
    member = Membership.objects.select_related("user").get(pk=context.membership_id)
    lately = visible_sessions(member).order_by("-active_at", "-pk").values_list("pk", flat=True)[:SESSIONS_READ]
    events = TurnEvent.objects.filter(turn__session__in=list(lately)).select_related("turn")
    if only_problems:
        events = events.filter(type__in=(TurnStatus.FAILED, TurnStatus.EXPIRED, "attempt_restarted"))
    return {
        "events": [
            {
                "at": event.created_at.isoformat(timespec="seconds"),
                "turn": str(event.turn_id),
                "event": event.type,
                **({"error": event.turn.error_message} if event.type == TurnStatus.FAILED else {}),
            }
            for event in events.order_by("-pk")[:lines]
        ]
    }


@tool(category="system", effect="write", on_crash="retry", human_format="Asking for a restart")
def cortex_restart(context: ToolContext, reason: Annotated[str, Field(min_length=1, max_length=500)]) -> dict[str, Any]:
    """Ask the administrators to restart this service. It waits until one of them answers. It only asks: whoever runs
    the service restarts it."""
    return _agreed(context, "service.agree_restart", reason)


@tool(category="system", effect="write", on_crash="retry", human_format="Asking for an update")
def cortex_update(context: ToolContext, reason: Annotated[str, Field(min_length=1, max_length=500)]) -> dict[str, Any]:
    """Ask the administrators to update this service. It waits until one of them answers. It only asks: whoever runs
    the service updates it."""
    return _agreed(context, "service.agree_update", reason)


@tool(category="system", effect="external", service="sandbox", in_untrusted="ask", human_format="Running {command}")
def shell_exec(
    context: ToolContext,
    command: Annotated[str, Field(description="A shell command", min_length=1, max_length=10_000)],
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 20,
) -> dict[str, Any]:
    """Run a shell command in the organisation's workspace, inside a sandbox."""
    envelope = context.envelope
    security, programs = (envelope.security, envelope.safe_bins) if envelope else ("deny", ())
    refusal = shell_refusal(command, security, programs)
    if refusal:
        raise ToolError(refusal, nothing_came=True)
    seconds = min(float(timeout_seconds), context.timeout * 0.95)
    try:
        ran = run_shell(
            command,
            context.workspace,
            organisation_id=context.organisation_id,
            seconds=seconds,
            stopped=context.stopped,
        )
    except ShellUnavailable as error:
        raise ToolError(str(error), nothing_came=True) from error
    found: dict[str, Any] = {"status": ran.status, "output": ran.output}
    if ran.ended:
        found = {"ended": ran.ended, "output": ran.output}
    return found | ({"note": "The output is longer; this is its beginning."} if ran.is_cut else {})


def _check_sandbox() -> None:
    why = why_no_shell()
    if why:
        raise ToolError(why, nothing_came=True)


def _agreed(context: ToolContext, action: str, reason: str) -> dict[str, Any]:
    """A call comes here when its approval was given, and never without one. One transaction."""
    member = Membership.objects.select_related("user").get(pk=context.membership_id)
    if not Approval.objects.filter(step=context.step_id, status=ApprovalStatus.APPROVED).exists():
        raise ToolError("Nobody has approved it: ask for it in a conversation.", nothing_came=True)
    with transaction.atomic():
        record(action, member, actor=member, after={"reason": reason, "call": context.idempotency_key})
    detail = "An administrator agreed, and it is on record. Nothing has changed yet: cortex_status says when it has."
    return {"status": "agreed", "detail": detail}


def _requests(context: ToolContext) -> list[dict[str, Any]]:
    """The latest requests for a restart or an update: the member's own, or everybody's for who answers them. At most
    two queries."""
    member = Membership.objects.get(pk=context.membership_id)
    asked = Approval.objects.filter(tool__name__in=ASKS_ADMINISTRATORS).select_related("tool").order_by("-pk")
    if not member.reach(Right.APPROVALS).covers(CATEGORY.name):
        asked = asked.filter(requester=member)
    return [_request(each) for each in asked[:REQUESTS]]


def _request(asked: Approval) -> dict[str, Any]:
    found: dict[str, Any] = {
        "what": asked.tool.name.removeprefix("cortex_"),
        "asked_at": asked.created_at.isoformat(timespec="seconds"),
        "status": asked.status,
    }
    if asked.status == ApprovalStatus.APPROVED and asked.decided_at is not None:
        found["restarted_since"] = asked.decided_at < RUNNING_SINCE
    return found


def _version() -> str:
    try:
        return metadata.version("toolhub")
    except metadata.PackageNotFoundError:
        return "source"


def _redis() -> str:
    if not settings.REDIS_URL:
        return "not configured"
    try:
        client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
        return "up" if client.ping() else "down"
    except (redis.RedisError, OSError):
        return "down"
