"""A year of usage for a large organisation: sums by the hour, of members, agents, models and tools in turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from capabilities.models import Agent, Tool
from sessions.models import ToolUsageHour, UsageHour
from toolhub.tenants.models import Membership

#: Rows of each table in one hour.
EACH_HOUR = 6


def add_usage_rows(members: Sequence[Membership], agents: Sequence[Agent], tools: Sequence[Tool], hours: int) -> None:
    """In the scope of the organisation."""
    own: dict[str, Any] = {"organisation": members[0].organisation}
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    usage, of_tools = [], []
    for number in range(hours * EACH_HOUR):
        at = {"hour": now - timedelta(hours=number // EACH_HOUR)}
        agent = agents[number * 7 % len(agents)]
        of_agent = {"agent_key": agent.pk, "agent_name": agent.name}
        member, tool = members[number * 13 % len(members)], tools[number * 17 % len(tools)]
        usage.append(
            UsageHour(
                **own, **at, **of_agent, membership_key=member.pk, member_name=str(member), provider_name="Provider 1",
                model_name=f"model-{number % 5}", turns=3, rounds=7, input_tokens=40_000 + number, cached_tokens=21_000,
                cache_write_tokens=4_000, output_tokens=1_900, reasoning_tokens=700, cost=123_456_789,
                tool_tokens=7_000, all_tool_tokens=31_000, saved_tokens=2_500 - number % 5_000, saved_cost=1_000_000,
                routed_turns=3, missed_turns=number % 9 == 0,
            )
        )  # fmt: skip
        of_tools.append(
            ToolUsageHour(
                **own, **at, **of_agent, tool_key=tool.pk, tool_name=tool.name,
                category_name=f"category_{tool.category_id % 300:03}", sent_rounds=30, sent_tokens=4_500,
                calls=number % 3, result_tokens=900,
            )
        )  # fmt: skip
    UsageHour.objects.bulk_create(usage, batch_size=1_000, ignore_conflicts=True)
    ToolUsageHour.objects.bulk_create(of_tools, batch_size=1_000, ignore_conflicts=True)
