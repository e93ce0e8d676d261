"""A toolkit of Globex, imported into Acme, approved there, and called in a turn of Acme's."""

from __future__ import annotations

import pytest

from capabilities.agents.sharing.exports import toolkit_file
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.catalogue.versions.writes import decide_version
from capabilities.models import Toolkit, ToolVersion
from sessions.models import ChatSession, StepStatus
from tests.capabilities.agents.sharing.toolkits import (
    add_credential,
    add_server,
    approve_modules,
    make_money,
    read_file,
)
from tests.cast import make_category, make_member
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_tool_of_another_organisation_runs_after_two_people_agreed(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership, globex: Organisation
) -> None:
    acme = session.organisation
    with organisation_scope(globex):
        money = make_money(globex)
        money.toolkit_tools.filter(tool__name__in=["off", "kept", "leaky"]).delete()
        exported = toolkit_file(money, reader=None)
    olga = make_member(acme, "olga", Access.ADMIN)
    credential = add_credential(acme)
    add_server(acme)
    category = make_category(acme, "imported", is_core=True)
    with organisation_scope(acme):
        tool_import = read_file(exported.text, alice)
        accept_imported(import_rows(tool_import), category, actor=alice, credential=credential)

    provider.enqueue(Say("There is no such tool."))
    run(session, "What is the gross price of 21?")
    offered = {each["function"]["name"] for each in provider.requests[-1].get("tools", [])}
    assert "price" not in offered

    with organisation_scope(acme):
        approve_modules(olga)
        decide_version(ToolVersion.objects.get(tool__name="price"), approve=True, actor=olga)
    provider.enqueue(Say(calls=[call("price", {"net": 21}, id="p")]), Say("42."))
    turn = run(session, "And now?")

    (step,) = tool_steps_of(turn)
    assert step.status == StepStatus.DONE
    assert "42" in step.result
    with organisation_scope(acme):
        assert toolkit_file(Toolkit.objects.get(name="money"), reader=None).sha256 == exported.sha256
