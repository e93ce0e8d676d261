"""What every page and REST list costs in an organisation of 10,000 tools: CPU time of the answer, and its bytes.

    .venv/bin/python benchmarks/pages.py
    .venv/bin/python benchmarks/pages.py --quick          a few hundred tools, each page once
    .venv/bin/python benchmarks/pages.py --only matrix    routes with this in their name

An organisation is filled on a data folder that is thrown away (10,000 tools in 300 categories, 200 toolkits, 50 roles,
1,000 members, 4,000 turns, a year of usage by the hour), or in the empty database that DATABASE_URL names. Then each
address that answers GET is asked in this process, as the organisation's admin. CPU is that of the process, the best of
three: the machine may be busy, and waiting for PostgreSQL is not in it. Bytes are those of the body, before any
compression.

A table of all of them, the costliest first, goes to standard error. The last line of standard output is a JSON object:
pages (asked), over_ms and over_bytes (those above 200 ms and 200 KB), slowest, slowest_ms, largest, largest_bytes,
errors (those with a status of 400 or more), selection_ms (what a turn of the agent that may load every toolkit spends
on choosing its tools) and selection_first_ms (the same in a process that sees the organisation for the first time since
its catalogue or its roles were changed). The exit code is 1 where one is over, or answers with an error.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.test import Client

    from benchmarks.large_organisation import Filled, Size

ROOT = Path(__file__).resolve().parent.parent
MOST_MS = 200
MOST_BYTES = 200_000
MOST_SELECTION_MS = 15
TRIES = 3

#: What is not asked: streams that do not end, what is the same for every organisation, those that need a secret, and
#: what only takes DELETE of a row that the organisation has none of.
LEFT_OUT = re.compile(
    r"(api-schema|api-docs|audit_csv|api-turn-events|turn_stream|calendar_feed|account_|mfa_|join|reset|healthz|readyz|metrics|push_worker|oauth_callback|file_download|api-file|home$|api-model-lesson$)"
)
#: What an argument of a route is, where its name alone does not say it: by the beginning of the route's name.
ARGUMENTS = {
    "toolkit_": {"name": "toolkit"},
    "category_": {"name": "category"},
    "keyword_": {"name": "category"},
    "api-category": {"name": "category"},
    "api-toolkit": {"name": "toolkit"},
    "api-session-toolkit": {"name": "toolkit"},
    "role_tools": {"name": "category"},
    "role_": {"slug": "role"},
    "api-role": {"slug": "role"},
    "agent_": {"slug": "agent"},
    "api-agent": {"slug": "agent"},
    "v1-model": {"name": "agent"},
    "runtime_agent": {"slug": "agent"},
    "api-runtime-config-agent": {"slug": "agent"},
    "server_": {"name": "server"},
    "http_tool_update": {"name": "http_tool"},
    "tool_python_update": {"name": "python_tool"},
    "api-http-tool": {"name": "http_tool"},
    "api-python-tool": {"name": "python_tool"},
    "api-python-module": {"name": "module"},
    "module_": {"name": "module"},
    "api-mcp-server": {"name": "server"},
    "accounts": {"credential": "own_credential"},
    "api-account": {"credential": "own_credential"},
    "api-credential-accounts": {"credential": "own_credential"},
    "policy_profile": {"name": "profile"},
    "api-policy-profile": {"name": "profile"},
}
#: The same address with a query: fields that a page is asked with besides. {tool} is the argument of that name.
QUERIES = {
    "tool_list": ["q=tool_00", "category={category}"],
    "explain": [
        "category={category}",
        "session={session_id}",
        "state=loadable",
        "state=loadable&session={session_id}",
        "state=stopped&session={session_id}",
        "state=not_offered",
        "q=tool_00",
    ],
    "api-explain": ["member={member_id}", "category={category}", "agent={agent}", "limit=200", "state=stopped"],
    "api-tools": ["limit=200", "category={category}", "q=tool_00"],
    "module_list": ["state=waiting", "state=out", "q=module_01"],
    "api-python-modules": ["limit=200", "state=in_force"],
    "connect": ["client=codex", "client=llm&to={agent}"],
    "keyword_list": ["message=tool_00", "q=0"],
    "api-categories": ["limit=200"],
    "api-toolkits": ["limit=200"],
    "api-roles": ["limit=200"],
    "api-agents": ["limit=200"],
    "api-members": ["limit=200"],
    "api-session-turns": ["limit=200"],
    "member_tools": ["q=tool_00"],
    "tool_members": ["q=member"],
    "member_list": ["q=member"],
    "role_matrix": ["open={category}", "open=all", "open=all&differ=1", "q=tool_00"],
    "session_list": ["client=openai&whose=all", "client=mcp"],
    "api-sessions": ["client=openai&limit=200"],
    "session_toolkits": ["q=toolkit_00"],
    "usage": ["range=12m&by=member", "range=12m&by=tool", "range=24h&by=model&show=kinds"],
    "api-usage": ["group_by=member&limit=200", "group_by=tool&limit=200", "group_by=month"],
}


@dataclass(frozen=True)
class Cost:
    """What one answer took."""

    address: str
    status: int
    ms: float
    bytes: int

    @property
    def share(self) -> float:
        """Of what it may cost, the dearer of the two."""
        return max(self.ms / MOST_MS, self.bytes / MOST_BYTES)


# -- Addresses ---------------------------------------------------------------------------------------------------------


def routes(resolver: Any = None, before: str = "") -> Iterator[tuple[str, str]]:
    """(name, pattern) of every route."""
    from django.urls import URLResolver, get_resolver  # noqa: PLC0415 -- app ready

    for entry in (resolver or get_resolver()).url_patterns:
        pattern = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, pattern)
        else:
            yield entry.name or pattern, pattern


def addresses(filled: Filled, only: str = "") -> Iterator[tuple[str, str]]:
    """(name, path with query) of what is asked. Raises KeyError for an argument that nothing fills."""
    from django.urls import reverse  # noqa: PLC0415 -- app ready

    for name, pattern in routes():
        if LEFT_OUT.match(name) or only not in name:
            continue
        wanted = re.findall(r"<(?:\w+:)?(\w+)>", pattern)
        path = reverse(name, kwargs={each: argument(filled, name, each) for each in wanted})
        yield name, path
        for query in QUERIES.get(name, ()):
            yield f"{name}?{without_values(query)}", f"{path}?{query.format(**filled.arguments)}"


def without_values(query: str) -> str:
    """The names in a query, and values that are the same in every organisation."""
    return re.sub(r"=\{\w+\}", "", query)


def argument(filled: Filled, route: str, name: str) -> Any:
    if name == "own_record":
        kind = route.removeprefix("api-data-").removesuffix("-row")
        return filled.records.get(kind, filled.records["tasks"])
    if name == "kind":
        return "tasks"
    fitting = [each for begins, each in ARGUMENTS.items() if route.startswith(begins) and name in each]
    known = fitting[0][name] if fitting else {"name": "tool"}.get(name, name)
    return filled.arguments[known]


# -- Measure -----------------------------------------------------------------------------------------------------------


def best_ms(work: Callable[[], Any], tries: int) -> float:
    """CPU milliseconds of this process."""
    best = float("inf")
    for _ in range(tries):
        if tries > 1:
            gc.collect()
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1000


def costs(filled: Filled, *, tries: int = TRIES, only: str = "") -> list[Cost]:
    """Of each address that answers GET, the dearest first."""
    from django.test import Client  # noqa: PLC0415 -- app ready

    pages = Client(raise_request_exception=False)
    pages.force_login(filled.member.user)
    rest = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {filled.token}"})
    asked = [
        (name, path, rest if path.startswith(("/api/", "/v1/")) else pages) for name, path in addresses(filled, only)
    ]
    found = [cost for name, path, client in asked if (cost := cost_of(client, name, path, tries)) is not None]
    return sorted(found, key=lambda cost: -cost.share)


def cost_of(client: Client, name: str, path: str, tries: int) -> Cost | None:
    """None where the address takes no GET. The first answer warms caches and is not timed."""
    response = client.get(path)
    content = b"".join(response) if response.streaming else response.content
    if response.status_code == 405:
        return None
    ms = best_ms(lambda: client.get(path), tries)
    return Cost(name, response.status_code, ms, len(content))


def selection_ms(filled: Filled, tries: int = TRIES) -> tuple[float, float]:
    """What a turn of the session with most loadable toolkits spends on choosing its tools; and the first one of a
    process at a registry version."""
    from capabilities.common.memory import forget_everything  # noqa: PLC0415 -- app ready
    from capabilities.language_models.providers.resolve import resolve_model  # noqa: PLC0415 -- app ready
    from sessions.models import Turn  # noqa: PLC0415 -- app ready
    from sessions.selection.queries import select_tools  # noqa: PLC0415 -- app ready
    from toolhub.tenants.models import Organisation  # noqa: PLC0415 -- app ready
    from toolhub.tenants.rows.scope import organisation_scope  # noqa: PLC0415 -- app ready

    session = filled.session
    with organisation_scope(filled.member.organisation_id):
        turn = Turn(organisation_id=session.organisation_id, session=session, agent=session.agent, seq=1)
        turn.membership_id, turn.message = session.membership_id, "What did department 7 write?"
        model = resolve_model(session.agent.model, session.agent)
        version = Organisation.objects.get(pk=session.organisation_id).registry_version
        select = partial(select_tools, turn, model, at=version)
        select()

        def first() -> None:
            forget_everything()
            select()

        return best_ms(select, tries), best_ms(first, tries)


def table(found: Sequence[Cost]) -> str:
    lines = [f"{'CPU ms':>8} {'bytes':>10} {'status':>6}  route"]
    lines += [
        f"{cost.ms:8.1f} {cost.bytes:10,} {cost.status:6}  {cost.address}{'  OVER' if cost.share > 1 else ''}"
        for cost in found
    ]
    return "\n".join(lines)


def summary(found: Sequence[Cost], selection: tuple[float, float]) -> dict[str, Any]:
    slowest, largest = max(found, key=lambda cost: cost.ms), max(found, key=lambda cost: cost.bytes)
    return {
        "pages": len(found),
        "errors": sorted(cost.address for cost in found if cost.status >= 400),
        "over_ms": sorted(cost.address for cost in found if cost.ms > MOST_MS),
        "over_bytes": sorted(cost.address for cost in found if cost.bytes > MOST_BYTES),
        "slowest": slowest.address,
        "slowest_ms": round(slowest.ms, 1),
        "largest": largest.address,
        "largest_bytes": largest.bytes,
        "selection_ms": round(selection[0], 1),
        "selection_first_ms": round(selection[1], 1),
    }


# -- Run ---------------------------------------------------------------------------------------------------------------


def set_up(folder: Path) -> None:
    """Django, on a data folder of this run alone; DATABASE_URL stays."""
    for name in [name for name in os.environ if name.startswith(("TOOLHUB_", "OPENAI_"))]:
        del os.environ[name]
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "toolhub.settings",
        "TOOLHUB_DATA_DIR": str(folder),
        "TOOLHUB_LOG_LEVEL": "ERROR",
    }
    sys.path.insert(0, str(ROOT))
    import django  # noqa: PLC0415 -- app ready

    django.setup()
    from django.test.utils import setup_test_environment  # noqa: PLC0415 -- app ready

    setup_test_environment(debug=False)


def size_of(options: argparse.Namespace) -> Size:
    from benchmarks.large_organisation import Size  # noqa: PLC0415 -- app ready

    if not options.quick:
        return Size()
    return Size(
        tools=300,
        categories=20,
        toolkits=10,
        roles=5,
        members=30,
        agents=5,
        sessions=5,
        turns=30,
        records=10,
        hours=100,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few hundred tools, each page once")
    parser.add_argument("--only", default="", help="routes with this in their name")
    parser.add_argument("--keep", type=Path, help="a folder for the data, which a later run asks again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolhub-pages-") as folder:
        set_up(options.keep or Path(folder))
        from django.core.management import call_command  # noqa: PLC0415 -- app ready

        from benchmarks.large_organisation import fill, filled  # noqa: PLC0415 -- app ready
        from toolhub.tenants.models import Organisation  # noqa: PLC0415 -- app ready

        call_command("migrate", verbosity=0)
        if not Organisation.objects.exists():
            fill(size_of(options))
        tries = 1 if options.quick else TRIES
        large = filled()
        found = costs(large, tries=tries, only=options.only)
        selection = selection_ms(large, tries)
    print(table(found), file=sys.stderr)
    totals = summary(found, selection)
    print(json.dumps(totals), flush=True)
    is_over = totals["errors"] or totals["over_ms"] or totals["over_bytes"] or selection[0] > MOST_SELECTION_MS
    return int(bool(is_over))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from benchmarks.ending import to_its_end

    sys.exit(to_its_end(main))
