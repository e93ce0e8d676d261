"""A tool of another kind whose runner is the test's: what it is called with, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from capabilities.contract.context import Credential, ToolContext
from capabilities.contract.spec import ToolSpec
from capabilities.models import Tool, ToolKind, ToolVersion
from capabilities.running.kinds import RUNNERS
from tests.cast import make_category, make_tool
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

#: What a test's far side does with a call: it returns a result, or raises.
Answer = Callable[[ToolContext, dict[str, Any]], Any]

PARAMETERS = {"type": "object", "properties": {"seat": {"type": "string"}, "rows": {"type": "integer", "default": 1}}}


class FarSide:
    """Counts its calls. Each takes the next of `answers`; the last one answers all that follow."""

    def __init__(self, *answers: Answer | Any) -> None:
        self.answers = list(answers)
        self.calls: list[ToolContext] = []
        self.arguments: list[dict[str, Any]] = []
        self.credentials: list[Credential] = []

    def run(
        self,
        *,
        spec: ToolSpec,
        version: ToolVersion,
        credential: Credential,
        context: ToolContext,
        arguments: Mapping[str, Any],
    ) -> Any:
        self.calls.append(context)
        self.arguments.append(dict(arguments))
        self.credentials.append(credential)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer(context, dict(arguments)) if callable(answer) else answer

    @property
    def resumed(self) -> list[tuple[str, str, dict[str, Any]] | None]:
        """What each call went on with: the state, what was done, and what the form said."""
        found = (each.resumed for each in self.calls)
        return [None if each is None else (each.state, each.action, dict(each.content)) for each in found]


def book_with(monkeypatch: pytest.MonkeyPatch, far_side: FarSide) -> FarSide:
    """From here on this far side runs the tools of kind Python."""
    monkeypatch.setitem(RUNNERS, ToolKind.PYTHON, far_side.run)
    return far_side


def make_booking(organisation: Organisation, name: str = "book_seat", **fields: Any) -> Tool:
    """A tool of kind Python, in a category of its own; without code, because the test's far side runs it."""
    content = {
        "parameters": PARAMETERS,
        "effect": "external",
        "on_crash": "never",
        "human_format": "Booking {seat}",
        "untrusted_output": True,
    }
    category = make_category(organisation, "travel")
    tool = make_tool(organisation, name, category=category, **content | fields)
    with organisation_scope(organisation):
        Tool.objects.filter(pk=tool.pk).update(kind=ToolKind.PYTHON)
        tool.refresh_from_db()
    return tool
