"""Prints every tool of a new organisation: its category, what it costs in a model call, and whether it works.

    .venv/bin/python benchmarks/catalogue.py

The organisation is made on a data folder that is thrown away, just as `manage.py create_organisation` makes one. Tokens
are those of the definition as it is sent, counted with the tokenizer that budgets are counted with.

works        ready for a call as it is
needs set-up listed and never sent until an administrator enters an address or a credential
off here     listed and never sent until the operator switches on what it needs (TOOLHUB_SHELL)

The last line of standard output is a JSON object: tools, categories, tokens (of all tools, if all were sent), works,
needs_setup, off_here, and per_category with the tools and tokens of each.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKS, NEEDS_SETUP, OFF_HERE = "works", "needs set-up", "off here"
#: A provider takes that many tools in one call.
LIMIT = 128


@dataclass(frozen=True)
class Row:
    tool: str
    category: str
    is_core: bool
    tokens: int
    state: str


def set_up(folder: Path) -> None:
    """Django, on a data folder of this run alone."""
    for name in [name for name in os.environ if name.startswith(("TOOLHUB_", "OPENAI_")) or name == "DATABASE_URL"]:
        del os.environ[name]
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "toolhub.settings",
        "TOOLHUB_DATA_DIR": str(folder),
        "TOOLHUB_LOG_LEVEL": "WARNING",
    }
    sys.path.insert(0, str(ROOT))
    import django  # noqa: PLC0415 -- app ready: the settings are this run's

    django.setup()


def rows_of_a_new_organisation() -> list[Row]:
    from django.core.management import call_command  # noqa: PLC0415 -- app ready

    from capabilities.models import Tool  # noqa: PLC0415 -- app ready
    from capabilities.running.registry import registry  # noqa: PLC0415 -- app ready
    from capabilities.running.services.writes import is_ready  # noqa: PLC0415 -- app ready
    from capabilities.starter import FirstAdmin, create_organisation  # noqa: PLC0415 -- app ready
    from toolhub.tenants.rows.scope import organisation_scope  # noqa: PLC0415 -- app ready

    call_command("migrate", verbosity=0)
    member = create_organisation("Benchmark", "benchmark", FirstAdmin("admin@example.com", "not-used-by-anybody"))
    with organisation_scope(member.organisation):
        tools = Tool.objects.select_related("category", "current_version").annotate(is_ready=is_ready())
        rows = []
        for tool in tools.order_by("category__name", "name"):
            assert tool.current_version is not None
            service = registry.services.get(tool.service)
            waiting = NEEDS_SETUP if service is None or service.is_available else OFF_HERE
            state = WORKS if tool.is_ready else waiting
            rows.append(Row(tool.name, tool.category.name, tool.category.is_core, tool.current_version.tokens, state))
    return rows


def summary(rows: list[Row]) -> dict[str, Any]:
    states = Counter(row.state for row in rows)
    per_category: dict[str, dict[str, int]] = {}
    for row in rows:
        totals = per_category.setdefault(row.category, {"tools": 0, "tokens": 0})
        totals["tools"] += 1
        totals["tokens"] += row.tokens
    return {
        "tools": len(rows),
        "categories": len(per_category),
        "tokens": sum(row.tokens for row in rows),
        "core_tokens": sum(row.tokens for row in rows if row.is_core and row.state == WORKS),
        "works": states[WORKS],
        "needs_setup": states[NEEDS_SETUP],
        "off_here": states[OFF_HERE],
        "per_category": per_category,
    }


def table(rows: list[Row], totals: dict[str, Any]) -> str:
    width = max(len(row.tool) for row in rows)
    lines = [f"{'tool':{width}}  {'category':16}  tokens  state", f"{'-' * width}  {'-' * 16}  ------  -----"]
    lines += [f"{row.tool:{width}}  {row.category:16}  {row.tokens:6}  {row.state}" for row in rows]
    core = {row.category for row in rows if row.is_core}
    lines += ["", f"{'category':16}  tools  tokens"]
    for name, each in totals["per_category"].items():
        lines.append(f"{name:16}  {each['tools']:5}  {each['tokens']:6}{'  core' if name in core else ''}")
    lines += [
        "",
        "{tools} tools in {categories} categories: {works} work as they are, {needs_setup} need set-up, "
        "{off_here} are off in this installation.\nAll of them sent would cost {tokens:,} tokens a round; the core "
        "that works costs {core_tokens:,}.".format(**totals),
    ]
    if len(rows) > LIMIT:
        lines.append(f"That is {len(rows) - LIMIT} more than the {LIMIT} tools that a provider takes in one call.")
    return "\n".join(lines)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolhub-catalogue-") as folder:
        set_up(Path(folder))
        rows = rows_of_a_new_organisation()
        totals = summary(rows)
    print(table(rows, totals))
    print(json.dumps(totals), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
