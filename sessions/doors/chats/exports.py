"""A session's conversation as a file: Markdown to read, JSON to work with, and a request of curl that asks again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.utils.text import slugify

from sessions.models import ChatSession, Step, StepKind, Turn
from toolhub.tenants.rows.money import dollars

#: Turns of a file, the last ones.
MOST_TURNS = 200
#: Formats, by the end of a file's name.
FORMATS = {"md": "text/markdown", "json": "application/json", "sh": "text/x-shellscript"}
CURL = """\
# Asks the last message of this conversation again. Put an API token with the scope `chat` into TOOLHUB_TOKEN.
curl {url} \\
  -H "Authorization: Bearer $TOOLHUB_TOKEN" \\
  -H "Content-Type: application/json" \\
  --data-binary @- <<'JSON'
{body}
JSON
"""


@dataclass(frozen=True)
class Exported:
    """A file to download."""

    name: str
    media_type: str
    content: str


def export(session: ChatSession, turns: Sequence[Turn], kind: str, *, origin: str) -> Exported:
    """Return a conversation as a file of one of FORMATS. `turns` as `exported_turns` reads them; `origin` is where the
    service is reached. No query."""
    if kind == "json":
        content = json.dumps(_as_data(session, turns), ensure_ascii=False, indent=2) + "\n"
    else:
        kept = [turn for turn in turns if not _is_replaced(turn)]
        content = _as_markdown(session, kept) if kind == "md" else _as_curl(session, kept, origin)
    return Exported(f"{slugify(str(session))[:60] or 'chat'}.{kind}", FORMATS[kind], content)


def _as_data(session: ChatSession, turns: Sequence[Turn]) -> dict[str, Any]:
    """Replaced turns are there too, and say so."""
    return {
        "session": str(session.pk),
        "title": str(session),
        "created_at": session.created_at.isoformat(),
        "turns": [
            {
                "seq": turn.seq,
                "is_replaced": _is_replaced(turn),
                "agent": turn.agent.slug,
                "created_at": turn.created_at.isoformat(),
                "status": turn.status,
                "error_code": turn.error_code,
                "message": turn.message,
                "calls": [_call(step) for step in _calls(turn)],
                "answer": turn.answer,
                "input_tokens": turn.input_tokens,
                "output_tokens": turn.output_tokens,
                "cost": dollars(turn.cost),
            }
            for turn in turns
        ],
    }


def _is_replaced(turn: Turn) -> bool:
    return bool(vars(turn)["is_replaced"])


def _calls(turn: Turn) -> list[Step]:
    return [step for step in turn.steps.all() if step.kind == StepKind.TOOL]


def _call(step: Any) -> dict[str, Any]:
    """Arguments and results are cut as on the page."""
    return {
        "tool": step.tool_name,
        "status": step.status,
        "arguments": step.arguments_shown,
        "result": step.result_shown,
    }


def _as_markdown(session: ChatSession, turns: Sequence[Turn]) -> str:
    parts = [f"# {session}"]
    for turn in turns:
        parts.append(f"## {turn.membership} · {turn.created_at:%Y-%m-%d %H:%M} UTC")
        parts.append(turn.message)
        parts.append(f"## {turn.agent}")
        parts.append("\n".join(map(_call_line, _calls(turn))))
        parts.append(turn.answer or f"({turn.get_status_display()})")
    return "\n\n".join(part for part in parts if part) + "\n"


def _call_line(step: Step) -> str:
    return f"- `{step.tool_name}`: {step.get_status_display()}"


def _as_curl(session: ChatSession, turns: Sequence[Turn], origin: str) -> str:
    """One request of `/v1` with the conversation up to its last message."""
    pairs = ((("user", turn.message), ("assistant", turn.answer)) for turn in turns)
    messages = [{"role": role, "content": text} for role, text in chain.from_iterable(pairs) if text]
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    agent = turns[-1].agent if turns else session.agent
    body = json.dumps({"model": agent.slug, "messages": messages}, ensure_ascii=False)
    return CURL.format(url=json.dumps(f"{origin}/v1/chat/completions"), body=body)
