"""Tokens of definitions by the family of the model that they go to."""

from __future__ import annotations

import pytest

from capabilities.common.tokens import CL100K, O200K, QWEN, count_tokens
from capabilities.models import LanguageModel
from sessions.models import ToolSet
from sessions.selection.queries import selection_preview
from sessions.selection.tool_sets import keep_tool_set
from tests.cast import make_agent, make_role, make_session, make_tool
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "encoding"), [("gpt-6-astra", O200K), ("gpt-4", CL100K), ("qwen3-32b", QWEN)])
def test_a_selection_counts_its_tools_as_its_models_family_does(
    acme: Organisation, bob: Membership, name: str, encoding: str
) -> None:
    make_role(acme, bob)
    make_tool(acme, "greet", description="Grüße jemanden: 你好世界, добрый день.")
    make_tool(acme, "part", description="Verabschiede jemanden.")
    with organisation_scope(acme):
        agent = make_agent(acme)
        LanguageModel.objects.update(name=name)
        agent.model.refresh_from_db()

        found = selection_preview(make_session(bob, agent))

    counted = [count_tokens(tool.wire, encoding) for tool in found.tools]
    assert [tool.tokens for tool in found.tools] == counted
    assert (found.tokens, len(found.tools)) == (sum(counted), 2)


@pytest.mark.django_db
def test_the_same_tools_for_two_families_are_two_stored_sets(acme: Organisation, bob: Membership) -> None:
    make_role(acme, bob)
    make_tool(acme, "greet", description="Grüße jemanden: 你好世界, добрый день.")
    with organisation_scope(acme):
        agent = make_agent(acme)
        session = make_session(bob, agent)
        for name in ("gpt-6-astra", "qwen3-32b", "o3-mini"):
            agent.model.name = name
            selection = selection_preview(session, agent)
            assert keep_tool_set(selection, acme.pk).tokens == selection.tokens

        assert sorted(ToolSet.objects.values_list("tokens", flat=True)) == sorted(
            {count_tokens(selection.tools[0].wire, each) for each in (O200K, QWEN)}
        )
