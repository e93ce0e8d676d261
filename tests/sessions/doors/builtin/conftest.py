from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.context import ToolError
from capabilities.models import Tool
from capabilities.running.registry import registry
from sessions.loop.clients.replies import Call
from sessions.loop.tools import execution
from sessions.models import ChatSession, StepStatus, Turn
from tests.cast import make_category, make_role, make_session, make_tool, make_turn
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

Use = Callable[..., Any]


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    """A session of Bob's, who may use every tool."""
    make_role(bob.organisation, bob)
    return make_session(bob)


@pytest.fixture
def use(session: ChatSession) -> Use:
    """Calls a built-in tool as a turn of the session does: permission, schema, run. Gives the parsed result."""
    turn = make_turn(session, "go")

    def call(name: str, /, *, of: Turn | None = None, **arguments: Any) -> Any:
        running = of or turn
        with organisation_scope(running.organisation_id):
            tool = Tool.objects.filter(name=name).first() or _add(running, name)
            (spec,) = current_specs([tool.current_version_id or 0])
            assert execution.refusal_to(running.membership_id, spec) is None
            values = execution.read_arguments(spec, Call("c", name, json.dumps(arguments)), running.organisation_id)
            assert isinstance(values, dict), values
            context = execution.context_for(running, spec, seconds_left=20, idempotency_key=f"{name}:{arguments}")
            try:
                return json.loads(execution.as_text(registry.tools[name].call(context, values)))
            except ToolError as error:
                return {"error": str(error), "status": StepStatus.FAILED}

    return call


def _add(turn: Turn, name: str) -> Tool:
    category = registry.tools[name].category
    return make_tool(turn.membership.organisation, name, category=make_category(turn.membership.organisation, category))
