"""Policies, hooks, approval rules, runtime settings and approvals for a large organisation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from capabilities.contract.budget_windows import span_of
from capabilities.models import ApprovalRule, Hook, McpServer, Policy, PolicyProfile, RuntimeConfig, Tool
from sessions.models import Approval, Budget, BudgetPeriod, Consent, Step, StepKind
from toolhub.tenants.models import Membership

#: Rows of each kind that an operator writes, and calls that were asked for.
RULES, ASKED = 50, 200
#: MCP servers.
SERVERS = 200
#: Budgets, and weeks of windows that each member has of the first.
BUDGETS, WEEKS = 100, 2


def add_runtime_rows(member: Membership) -> None:
    """In the scope of the organisation, when it has calls: what is asked of some of them, most of it answered."""
    own: dict[str, Any] = {"organisation": member.organisation}
    profiles = PolicyProfile.objects.bulk_create(
        PolicyProfile(**own, name=f"profile_{n}", description="One line.", patterns=[f"tool_{n}*"])
        for n in range(RULES)
    )
    Policy.objects.create(**own, deny=["tool_0001*"], profile=None, also_allow=[str(profiles[0])])
    RuntimeConfig.objects.create(
        **own, layer="organisation", values={"tools": {f"tool_{n}*": {"timeout_sec": 9} for n in range(RULES)}}
    )
    Hook.objects.bulk_create(
        Hook(**own, name=f"hook {n}", phase="before_tool_call", action="ask", settings={"message": "Sure?"},
             when={"tools": [f"no_tool_{n}"]}, on_error="deny")
        for n in range(RULES)
    )  # fmt: skip
    ApprovalRule.objects.bulk_create(
        ApprovalRule(**own, name=f"rule-{n}", tool_pattern=f"no_tool_{n}", message="Why.") for n in range(RULES)
    )
    McpServer.objects.bulk_create(
        McpServer(**own, name=f"server-{n}", title=f"Server {n}", url=f"https://mcp{n}.example.org/mcp",
                  instructions="One line. " * 100, failing_since=timezone.now() if n % 9 == 0 else None)
        for n in range(SERVERS)
    )  # fmt: skip
    _ask(member, own)
    _budgets(own)


def _budgets(own: dict[str, Any]) -> None:
    """As many as there may be, the first with a running window for each member, and for all of the last weeks."""
    budgets = Budget.objects.bulk_create(
        Budget(**own, name=f"budget {n:03}", scope="member" if n % 2 == 0 else "organisation", limit=10**12)
        for n in range(BUDGETS)
    )
    day = span_of("day", "UTC", timezone.now())
    keys = Membership.objects.filter(**own).values_list("pk", flat=True)
    BudgetPeriod.objects.bulk_create(
        BudgetPeriod(**own, budget=budgets[0], key=f"member:{key}", starts_at=day.starts_at - timedelta(days=back),
                     ends_at=day.starts_at - timedelta(days=back - 1), measure="tokens", is_hard=True, limit=10**12,
                     spent=1_000 * key)
        for back in range(WEEKS * 7) for key in keys
    )  # fmt: skip


def _ask(member: Membership, own: dict[str, Any]) -> None:
    tool = Tool.objects.filter(current_version__isnull=False).order_by("pk")[0]
    named = {"tool": tool, "tool_version_id": tool.current_version_id}
    week = timezone.now() + timedelta(days=7)
    calls = Step.objects.filter(kind=StepKind.TOOL).select_related("turn").order_by("pk")[:ASKED]
    approvals = Approval.objects.bulk_create(
        Approval(**own, **named, step=step, turn=step.turn, session_id=step.turn.session_id, requester=member,
                 arguments="{}", digest=f"{n:064}", source="rule", for_people="The rule asks.", expires_at=week,
                 status="pending" if n < 3 else "approved")
        for n, step in enumerate(calls)
    )  # fmt: skip
    Consent.objects.bulk_create(
        Consent(**own, **named, membership=member, until=week, approval=each, granted_by=member) for each in approvals
    )
