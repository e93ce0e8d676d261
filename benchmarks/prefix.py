"""How much of each request repeats, from its front, the one before: what a provider's prompt cache can serve.

    .venv/bin/python benchmarks/prefix.py

One conversation of 20 model rounds in 8 turns, with three loads and one unload, is run in each loading mode, in chat
completions and in responses (where each reply has reasoning in front of it), against a scripted model: an agent with 15
tools of its own, and toolkits of 3, 5 and 8. Every request is kept as it came in, and measured in the order in which
providers render it: the tools, then the messages. Of each round, from the second on, the bytes from the front that are
those of the round before count as repeated. The data folder is thrown away.

The share of a mode is the sum of those bytes over the sum of all. `on record` is what the service itself has counted.

The last line of standard output is a JSON object: of each dialect, the share of each loading mode, from 0 to 1. The
exit code is 1 where one misses its goal.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.rounds import Sent

ROOT = Path(__file__).resolve().parent.parent
#: The least share of each mode; in chat completions nothing can be added, and `native` is `same_run`.
GOALS = {"next_request": 0.0, "same_run": 0.6, "native": 0.6, "constant": 0.9}
IN_RESPONSES = GOALS | {"native": 0.9}
#: How far below the measured share the one on record may be: it counts messages whole.
TOLERANCE = 0.03


@dataclass(frozen=True)
class Row:
    """One round: tools that it carried and their tokens; bytes of tools and messages, and those of them that repeat
    the round before, as measured and as they are on record."""

    tools: int
    tool_tokens: int
    size: int
    same: int
    stored_same: int


# -- Measure -----------------------------------------------------------------------------------------------------------


def rows_of(rounds: Sequence[Sent]) -> list[Row]:
    rendered = [rendering(sent.body) for sent in rounds]
    same = [0, *(common_bytes(before, now) for before, now in pairwise(rendered))]
    rows = []
    for sent, text, repeated in zip(rounds, rendered, same, strict=True):
        assert sent.prompt_bytes == len(text)
        assert sent.prefix_bytes <= repeated
        tools = tools_in(json.loads(sent.body))
        rows.append(Row(tools, sent.tool_tokens, len(text), repeated, sent.prefix_bytes))
    return rows


def tools_in(request: Mapping[str, Any]) -> int:
    """Tools that a request declares, wherever they stand."""
    added = (item["tools"] for item in request.get("input", ()) if item.get("type") == "additional_tools")
    return len(request["tools"]) + sum(map(len, added))


def rendering(body: bytes) -> bytes:
    """The request's bytes in the order in which providers read them: the tools, then each message."""
    request = json.loads(body)
    assert compact(request) == body
    messages = request["messages"] if "messages" in request else request["input"]
    return compact(request["tools"]) + b"".join(compact(message) for message in messages)


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def common_bytes(one: bytes, other: bytes) -> int:
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def share(rows: Sequence[Row]) -> float:
    """Of the second round on."""
    return sum(row.same for row in rows[1:]) / sum(row.size for row in rows[1:])


def stored_share(rows: Sequence[Row]) -> float:
    return sum(row.stored_same for row in rows[1:]) / sum(row.size for row in rows[1:])


# -- Run and tell ------------------------------------------------------------------------------------------------------


def set_up(folder: Path) -> None:
    """Django, on a data folder of this run alone, and a model on this machine."""
    for name in [name for name in os.environ if name.startswith(("TOOLHUB_", "OPENAI_")) or name == "DATABASE_URL"]:
        del os.environ[name]
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "toolhub.settings",
        "TOOLHUB_DATA_DIR": str(folder),
        "TOOLHUB_PRIVATE_HOSTS": "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1",
        "TOOLHUB_LOG_LEVEL": "WARNING",
    }
    sys.path.insert(0, str(ROOT))
    import django  # noqa: PLC0415 -- app ready: the settings are this run's

    django.setup()


Modes = dict[str, list[Row]]


def rows_per_dialect() -> dict[str, Modes]:
    """A new organisation, and the conversation in each of the modes in either dialect."""
    from benchmarks import rounds  # noqa: PLC0415 -- app ready
    from capabilities.models import Dialect, LoadingMode  # noqa: PLC0415 -- app ready
    from capabilities.starter import FirstAdmin, create_organisation  # noqa: PLC0415 -- app ready
    from toolhub.tenants.rows.scope import organisation_scope  # noqa: PLC0415 -- app ready

    # In `native_search` nobody loads.
    modes = [mode for mode in LoadingMode if mode != LoadingMode.NATIVE_SEARCH]
    member = create_organisation("Benchmark", "benchmark", FirstAdmin("admin@example.com", "not-used-by-anybody"))
    with organisation_scope(member.organisation):
        rounds.add_toolkits(member)
        return {
            str(dialect): {str(mode): rows_of(rounds.play(member, mode, dialect)) for mode in modes}
            for dialect in Dialect
        }


def shares(modes: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    return {mode: round(share(rows), 3) for mode, rows in modes.items()}


def table(mode: str, rows: Sequence[Row]) -> str:
    head = f"{'round':>5}  {'tools':>5}  {'tokens':>6}  {'bytes':>7}  {'repeated':>8}  {'share':>6}"
    lines = [mode, head]
    for number, row in enumerate(rows, start=1):
        part = f"{row.same / row.size:6.1%}" if number > 1 else ""
        lines.append(f"{number:5}  {row.tools:5}  {row.tool_tokens:6,}  {row.size:7,}  {row.same:8,}  {part}")
    tokens = sum(row.tool_tokens for row in rows)
    lines.append(
        f"share {share(rows):.1%}, on record {stored_share(rows):.1%}; {tokens:,} tokens of tools in {len(rows)} rounds"
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolhub-prefix-") as folder:
        set_up(Path(folder))
        from django.core.management import call_command  # noqa: PLC0415 -- app ready

        call_command("migrate", verbosity=0)
        dialects = rows_per_dialect()
    for dialect, modes in dialects.items():
        for mode, rows in modes.items():
            print(table(f"{mode}, {dialect}", rows))
            assert share(rows) - stored_share(rows) <= TOLERANCE, "what is on record is not what was sent"
    found = {dialect: shares(modes) for dialect, modes in dialects.items()}
    print(json.dumps(found), flush=True)
    missed = [share for dialect, each in found.items() for mode, share in each.items() if share < goal(dialect, mode)]
    return int(bool(missed))


def goal(dialect: str, mode: str) -> float:
    return (IN_RESPONSES if dialect == "responses" else GOALS)[mode]


if __name__ == "__main__":
    sys.exit(main())
