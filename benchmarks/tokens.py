"""Prints what the definitions of tools take of six messages, before and after each step that sends fewer of them.

    .venv/bin/python benchmarks/tokens.py

The organisation is made on a data folder that is thrown away. Its 63 tools of the plan (docs/requirements.md, CX-23 and
CX-40) are all set up, so that none is left out for want of a credential; nothing is called. For each message the
pipeline of real turns selects the tools, and their bytes are counted with the tokenizer of the model's family:

before        every one of the 63, on each round
role filter   the Orchestrator's own of them
+ keywords    of these, the categories whose keywords stand in the message
+ all         as the Orchestrator comes: keywords and ranking, what was left out to be found with search_tools

Below stands what the six messages would cost as one session, one after the other, by the public price of the model,
without a provider's cache and with one. That is a simulation of a cache that reads what begins as the prompt before did
and writes the rest, and no measured saving: what turns really saved stands under Usage.

The last line of standard output is a JSON object: tools, model, messages (of each: tools and tokens by step) and
session (by step: input tokens, and billionths of a dollar without and with a cache).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.catalogue import set_up

MODEL = "gpt-6-astra"
#: A message, and the model calls that it is taken to need: one to answer, three to call tools in between.
MESSAGES = {
    "What's the weather?": 3,
    "Good morning": 1,
    "Turn off kitchen lights": 3,
    "Search journals for X": 3,
    "Create a task": 3,
    "Run a SQL query": 3,
}
STEPS = ("before", "role filter", "+ keywords", "+ all", "+ all, tools stay")
#: The last one is of the session alone: what routing sent in a session stays, for providers whose cache is worth it.
SHOWN = STEPS[:4]
#: Tokens beside the definitions, the same in each step: the prompt and the first message, and what each further model
#: call adds (a call with its result, or an answer with the next message).
FIRST, MORE = 400, 250
#: Shorter prompts are in no provider's cache.
SHORTEST_CACHED = 1_024
#: The plan's tools, by category.
TOOLS = {
    "web": "web_search web_read http_fetch",
    "web_post": "http_post",
    "file": "file_read file_list file_write file_diff file_grep file_syntax_check file_stat",
    "git": "git_status git_log git_diff",
    "system": "cortex_status cortex_logs cortex_restart cortex_update shell_exec",
    "tasks": "task_list task_create task_update task_complete",
    "cron": "cron_list cron_add cron_remove cron_toggle",
    "reminders": "reminders_add reminders_list reminders_remove reminders_clear",
    "scratchpad": "scratch_read scratch_write scratch_append scratch_clear",
    "ha": "ha_get_state ha_get_states ha_call_service",
    "aether": "ae_journal_list ae_journal_search ae_journal_entry_read ae_journal_entries_list ae_journal_entry_create "
    "ae_journal_entry_update ae_journal_entry_disable ae_journal_entry_append ae_journal_entry_prepend",
    "aether_db": "ae_db_query ae_db_describe ae_db_show_view",
    "notifications": "web_push email_send nc_talk_send nc_talk_history",
    "agents": "spawn_agent",
    "notes": "agent_notes_read agent_notes_write agent_notes_append agent_notes_clear",
    "session": "session_read session_search",
    "ae_tasks": "ae_task_list",
    "claude": "claude_allow_dir",
}
NAMES = frozenset(name for names in TOOLS.values() for name in names.split())


@dataclass(frozen=True)
class Sent:
    """The definitions that a message's model calls carry, each with its tokens."""

    tools: Sequence[tuple[str, int]]

    @property
    def count(self) -> int:
        return len(self.tools)

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.tools)


@dataclass(frozen=True)
class SessionCost:
    """What the messages cost one after the other: tokens of all inputs, and billionths of a dollar."""

    input_tokens: int
    without_cache: int
    with_cache: int


#: What each message carries, by the step.
Table = dict[str, dict[str, Sent]]


def table() -> Table:
    """Makes an organisation with the 63 tools, and selects for each message as a turn does. Needs a database."""
    from capabilities.models import (  # noqa: PLC0415 -- app ready
        Agent,
        AgentTool,
        LanguageModel,
        Provider,
        RoutingMode,
        ServiceSetting,
        Tool,
    )
    from capabilities.running.registry import registry  # noqa: PLC0415 -- app ready
    from capabilities.starter import FirstAdmin, create_organisation  # noqa: PLC0415 -- app ready
    from sessions.selection.queries import starting_selection  # noqa: PLC0415 -- app ready
    from toolhub.tenants.rows.scope import organisation_scope  # noqa: PLC0415 -- app ready

    member = create_organisation("Tokens", "tokens", FirstAdmin("tokens@example.com", "not-used-by-anybody"))
    own: dict[str, Any] = {"organisation": member.organisation}
    with organisation_scope(member.organisation):
        for service in registry.services:
            ServiceSetting.objects.update_or_create(**own, service=service, defaults={"is_complete": True})
        provider = Provider.objects.create(
            **own, slug="openai", name="OpenAI", base_url="https://api.openai.com/v1", tool_limit=128
        )
        model = LanguageModel.objects.create(**own, provider=provider, name=MODEL)
        orchestrator = set(AgentTool.objects.filter(agent__slug="orchestrator").values_list("tool__name", flat=True))

        def agent_with(slug: str, names: frozenset[str], mode: str) -> Agent:
            agent = Agent.objects.create(
                **own, slug=slug, name=slug, model=model, starts_with_core=False, routing_mode=mode
            )
            tools = Tool.objects.filter(name__in=names).order_by("category__name", "name")
            AgentTool.objects.bulk_create(AgentTool(**own, agent=agent, tool=tool) for tool in tools)
            return agent

        few = NAMES & orchestrator
        agents = {
            "before": agent_with("all-of-them", NAMES, RoutingMode.OFF),
            "role filter": agent_with("narrowed", few, RoutingMode.OFF),
            "+ keywords": agent_with("by-keywords", few, RoutingMode.KEYWORDS),
            "+ all": agent_with("by-all", few, RoutingMode.HYBRID),
        }
        member.organisation.refresh_from_db()
        return {
            message: {
                step: Sent([(tool.name, tool.tokens) for tool in starting_selection(member, agent, message).tools])
                for step, agent in agents.items()
            }
            for message in MESSAGES
        }


# -- One session ------------------------------------------------------------------------------------------------------


def prompts(found: Table, step: str) -> Iterator[tuple[Sequence[tuple[str, int]], int]]:
    """The definitions of each model call of the session, and the tokens of what stands behind them."""
    behind, kept = FIRST, list[tuple[str, int]]()
    for message, rounds in MESSAGES.items():
        tools = list(found[message][step.removesuffix(", tools stay")].tools)
        if step.endswith(", tools stay"):
            kept += [each for each in tools if each not in kept]
            tools = kept[:]
        for _ in range(rounds):
            yield tools, behind
            behind += MORE


def session_costs(found: Table) -> dict[str, SessionCost]:
    """By the step, at the public price of the model."""
    from capabilities.contract.pricing import PricedUse  # noqa: PLC0415 -- app ready

    prices = public_prices()
    costs = {}
    for step in STEPS:
        tokens = without = with_cache = 0
        before: tuple[Sequence[tuple[str, int]], int] = ((), 0)
        for tools, behind in prompts(found, step):
            sent = sum(each for _, each in tools) + behind
            read = common(before, (tools, behind))
            cached = read if read >= SHORTEST_CACHED else 0
            written = sent - cached if sent >= SHORTEST_CACHED else 0
            tokens += sent
            without += prices.cost(PricedUse(sent))
            with_cache += prices.cost(PricedUse(sent, cached, written))
            before = tools, behind
        costs[step] = SessionCost(tokens, without, with_cache)
    return costs


def common(before: tuple[Sequence[tuple[str, int]], int], now: tuple[Sequence[tuple[str, int]], int]) -> int:
    """Tokens from the front that both prompts have: definitions stand first, so one that differs ends it."""
    same = 0
    for one, other in zip(before[0], now[0], strict=False):
        if one != other:
            return same
        same += one[1]
    return same + min(before[1], now[1]) if len(before[0]) == len(now[0]) else same


def public_prices() -> Any:
    from django.utils import timezone  # noqa: PLC0415 -- app ready

    from capabilities.language_models.providers.prices import public_price  # noqa: PLC0415 -- app ready
    from capabilities.language_models.providers.resolve import resolve_model  # noqa: PLC0415 -- app ready
    from capabilities.models import LanguageModel, Provider  # noqa: PLC0415 -- app ready

    provider = Provider(slug="openai", name="OpenAI", base_url="https://api.openai.com/v1")
    found = public_price(resolve_model(LanguageModel(provider=provider, name=MODEL)), timezone.now())
    assert found is not None
    return found.prices


# -- What is printed --------------------------------------------------------------------------------------------------


def as_text(found: Table, costs: dict[str, SessionCost]) -> str:
    width = max(map(len, MESSAGES))
    lines = [
        f"Tokens of definitions on each round, counted for {MODEL}; in brackets the tools, search_tools and the",
        "reader of results among them where they are sent.",
        "",
        f"{'message':{width}}  " + "  ".join(f"{step:>14}" for step in SHOWN),
    ]
    for message, by_step in found.items():
        cells = (f"{by_step[step].tokens:,} ({by_step[step].count})" for step in SHOWN)
        lines.append(f"{message:{width}}  " + "  ".join(f"{cell:>14}" for cell in cells))
    rounds = sum(MESSAGES.values())
    lines += [
        "",
        f"Simulated, not measured: the six messages as one session of {rounds} model calls, in US dollars of input.",
        "",
        f"{'':{width}}  {'input tokens':>14}  {'no cache':>14}  {'with a cache':>14}",
    ]
    for step, cost in costs.items():
        dollars = [f"{Decimal(nano) / 10**9:.4f}" for nano in (cost.without_cache, cost.with_cache)]
        lines.append(f"{step:{width}}  {cost.input_tokens:>14,}  " + "  ".join(f"{each:>14}" for each in dollars))
    return "\n".join(lines)


def summary(found: Table, costs: dict[str, SessionCost]) -> dict[str, Any]:
    return {
        "tools": len(NAMES),
        "model": MODEL,
        "messages": {
            message: {step: {"tools": sent.count, "tokens": sent.tokens} for step, sent in by_step.items()}
            for message, by_step in found.items()
        },
        "session": {step: asdict(cost) for step, cost in costs.items()},
    }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolhub-tokens-") as folder:
        set_up(Path(folder))
        from django.core.management import call_command  # noqa: PLC0415 -- app ready

        call_command("migrate", verbosity=0)
        found = table()
        costs = session_costs(found)
    print(as_text(found, costs))
    print(json.dumps(summary(found, costs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
