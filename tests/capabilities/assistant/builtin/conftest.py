from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import capabilities.assistant.builtin.document
import capabilities.assistant.builtin.file
import capabilities.assistant.builtin.memory
import capabilities.assistant.builtin.scratchpad
import capabilities.assistant.builtin.tasks
import capabilities.assistant.builtin.utility
import capabilities.assistant.builtin.web  # noqa: F401 -- each registers its tools
from capabilities.contract.context import ToolContext
from capabilities.running.registry import registry
from toolhub.tenants.models import Membership

#: A Wednesday.
NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)

#: Calls a tool by its name, as the loop does: through the model of its arguments.
Call = Callable[..., Any]


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    """Of nobody: for tools that touch no row."""
    return ToolContext(
        organisation_id=0,
        membership_id=0,
        agent="assistant",
        workspace=tmp_path / "workspace",
        now=lambda: NOW,
        timeout=20.0,
    )


@pytest.fixture
def call(context: ToolContext) -> Call:
    return lambda name, /, **arguments: registry.tools[name].call(context, arguments)


@pytest.fixture
def call_as(context: ToolContext) -> Callable[[Membership], Call]:
    """The tools as one member has them. The test itself stands in the scope of the organisation."""

    def bind(member: Membership) -> Call:
        own = replace(context, organisation_id=member.organisation_id, membership_id=member.pk)
        return lambda name, /, **arguments: registry.tools[name].call(own, arguments)

    return bind


@pytest.fixture
def as_alice(call_as: Callable[[Membership], Call], alice: Membership) -> Call:
    return call_as(alice)


@pytest.fixture
def as_bob(call_as: Callable[[Membership], Call], bob: Membership) -> Call:
    return call_as(bob)


@pytest.fixture
def as_charlie(call_as: Callable[[Membership], Call], charlie: Membership) -> Call:
    return call_as(charlie)
