"""Runtime settings as they are written: by whom, what is refused, what is on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from capabilities.agents.runtime_config.writes import (
    ORGANISATION,
    LayerOf,
    clear_runtime_config,
    set_runtime_config,
    set_shared_knobs,
    set_tool_knobs,
    stamp_of,
)
from capabilities.choosing.pipeline.runtime_layers import layers_for
from capabilities.common.refused import ChangedMeanwhile, ChangeRefused
from capabilities.models import Provider, RuntimeConfig
from tests.cast import make_agent
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import ScopeError, organisation_scope

DOCUMENT = {"tools": {"shell": {"timeout_sec": 9}}}


@pytest.fixture
def operator(alice: Membership) -> Membership:
    alice.access = Access.OPERATOR
    alice.save()
    return alice


def actions() -> list[str]:
    return list(AuditEntry.objects.order_by("number").values_list("action", flat=True))


@pytest.mark.usefixtures("in_acme")
def test_whoever_administers_policies_sets_what_the_organisation_says(operator: Membership) -> None:
    row = set_runtime_config(ORGANISATION, DOCUMENT, actor=operator)

    assert row is not None
    assert RuntimeConfig.objects.get().values == DOCUMENT
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after) == (
        "runtime_config.create",
        {},
        {"layer": "organisation", **DOCUMENT},
    )


@pytest.mark.usefixtures("in_acme")
@pytest.mark.parametrize("right", [right for right in Right if right != Right.POLICIES])
def test_any_other_right_is_too_little(bob: Membership, right: Right) -> None:
    bob.admin_rights.create(organisation=bob.organisation, right=right)

    writes: list[Callable[[], Any]] = [
        lambda: set_runtime_config(ORGANISATION, DOCUMENT, actor=bob),
        lambda: set_tool_knobs(ORGANISATION, "shell", {"timeout_sec": 9}, actor=bob),
        lambda: set_shared_knobs(ORGANISATION, "zeus", {}, actor=bob),
        lambda: clear_runtime_config(ORGANISATION, actor=bob),
    ]
    for write in writes:
        with pytest.raises(PermissionDenied):
            write()
    assert actions() == []


@pytest.mark.usefixtures("in_acme")
def test_each_layer_has_its_own_document(acme: Organisation, alice: Membership) -> None:
    agent = make_agent(acme)
    provider = Provider.objects.get()

    for layer in (ORGANISATION, LayerOf(provider=provider), LayerOf(agent=agent)):
        set_runtime_config(layer, DOCUMENT, actor=alice)
        set_runtime_config(layer, {"profile": "zeus"}, actor=alice)

    assert sorted(RuntimeConfig.objects.values_list("layer", flat=True)) == ["agent", "organisation", "provider"]
    assert [each.title for each in layers_for(acme.pk, provider_id=provider.public_id, agent_id=agent.pk)] == [
        "installation",
        "organisation",
        f"provider {provider.name}",
        f"agent {agent.name}",
    ]
    assert [each.title for each in layers_for(acme.pk)] == ["installation", "organisation"]


@pytest.mark.usefixtures("in_acme")
def test_nothing_said_is_no_row_and_the_same_again_is_no_entry(alice: Membership) -> None:
    set_runtime_config(ORGANISATION, {}, actor=alice)
    set_runtime_config(ORGANISATION, DOCUMENT, actor=alice)
    set_runtime_config(ORGANISATION, {"tools": {" SHELL ": {"timeout_sec": 9}, "x": {}}, "profile": ""}, actor=alice)
    clear_runtime_config(ORGANISATION, actor=alice)
    clear_runtime_config(ORGANISATION, actor=alice)

    assert actions() == ["runtime_config.create", "runtime_config.delete"]
    assert not RuntimeConfig.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_zs_22_what_is_out_of_range_is_kept_as_it_was_asked(alice: Membership) -> None:
    set_runtime_config(ORGANISATION, {"tools": {"*": {"timeout_sec": 9_999}}}, actor=alice)

    assert RuntimeConfig.objects.get().values == {"tools": {"*": {"timeout_sec": 9_999}}}


@pytest.mark.usefixtures("in_acme")
@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ([], "values", "The settings are no object."),
        ({"tools": []}, "tools", "It is no object of patterns and knobs."),
        ({"colour": 1}, "colour", "There is no such setting."),
        ({"profile": "zeuss"}, "profile", "There is no profile 'zeuss'; there are: zeus."),
        ({"result_min_chars": "7"}, "result_min_chars", "'7' is not a whole number."),
        ({"tools": {"": {}}}, "tools.", "A pattern has 1 to 100 characters."),
        ({"tools": {"shell": {"colour": 1}}}, "tools.shell.colour", "There is no such knob."),
        ({"tools": {"shell": {"timeout_sec": None}}}, "tools.shell.timeout_sec", "None is not a number."),
        ({"tools": {"shell": {"ask": "yes"}}}, "tools.shell.ask", "'yes' is none of always, first_time, off."),
        (
            {"tools": {"shell": {"safe_bins": ["ls", "/bin/rm"]}}},
            "tools.shell.safe_bins",
            "'/bin/rm' is not the name of a program.",
        ),
        (
            {"tools": {"shell": {"safe_bins": ["env"]}}},
            "tools.shell.safe_bins",
            "env runs other programs, or is a word of the shell.",
        ),
        (
            {"tools": {"web_read": {"security": "full"}}},
            "tools.web_read.security",
            "web_read has no security; it is a knob of shell, shell_exec.",
        ),
        ({"tools": {"a": {"timeout_sec": 1}, "A": {"timeout_sec": 2}}}, "tools.A", "The pattern is there twice"),
    ],
)
def test_malformed_settings_are_refused_with_their_path(
    alice: Membership, values: Any, field: str, message: str
) -> None:
    with pytest.raises(ChangeRefused, match=r".") as refused:
        set_runtime_config(ORGANISATION, values, actor=alice)

    assert refused.value.field == field
    assert str(refused.value).startswith(message)
    assert not RuntimeConfig.objects.exists()


@pytest.mark.usefixtures("in_acme")
def test_one_pattern_and_what_all_tools_share_are_written_by_themselves(alice: Membership) -> None:
    set_tool_knobs(ORGANISATION, "Shell", {"timeout_sec": 9, "safe_bins": ["ls", "ls"]}, actor=alice)
    set_tool_knobs(ORGANISATION, "group:web", {"cache_ttl_sec": 0}, actor=alice)
    set_shared_knobs(ORGANISATION, "zeus", {"result_min_chars": 700, "result_context_share_ratio": None}, actor=alice)
    set_tool_knobs(ORGANISATION, "group:web", {}, actor=alice)

    assert RuntimeConfig.objects.get().values == {
        "profile": "zeus",
        "result_min_chars": 700,
        "tools": {"shell": {"timeout_sec": 9, "safe_bins": ["ls"]}},
    }


@pytest.mark.usefixtures("in_acme")
def test_a_document_that_changed_since_it_was_shown_is_not_written_over(alice: Membership) -> None:
    before = stamp_of(set_runtime_config(ORGANISATION, DOCUMENT, actor=alice))
    set_runtime_config(ORGANISATION, {"profile": "zeus"}, actor=alice)

    with pytest.raises(ChangedMeanwhile):
        set_runtime_config(ORGANISATION, {}, actor=alice, stamp=before)


@pytest.mark.usefixtures("in_acme")
def test_layers_are_read_once_for_each_registry_version_and_a_write_raises_it(alice: Membership) -> None:
    def read() -> list[Any]:
        version = Organisation.objects.values_list("registry_version", flat=True).get(pk=alice.organisation_id)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            layers = layers_for(alice.organisation_id, agent_id=7, at=version)
        return [len(queries), [each.written for each in layers[1:]]]

    assert [read(), read()] == [[1, []], [0, []]]
    set_runtime_config(ORGANISATION, DOCUMENT, actor=alice)
    assert [read(), read()] == [[1, [DOCUMENT]], [0, [DOCUMENT]]]
    clear_runtime_config(ORGANISATION, actor=alice)
    assert read() == [1, []]


def test_charlie_can_neither_read_nor_write_what_acme_says(
    acme: Organisation, alice: Membership, charlie: Membership
) -> None:
    with organisation_scope(acme.pk):
        agent = make_agent(acme)
        set_runtime_config(LayerOf(agent=agent), DOCUMENT, actor=alice)
        set_runtime_config(ORGANISATION, DOCUMENT, actor=alice)

    with organisation_scope(charlie.organisation_id):
        assert len(layers_for(charlie.organisation_id, agent_id=agent.pk)) == 1
        with pytest.raises(ScopeError):
            set_runtime_config(LayerOf(agent=agent), {"profile": "zeus"}, actor=charlie)
        set_runtime_config(ORGANISATION, {"profile": "zeus"}, actor=charlie)

    with organisation_scope(acme.pk):
        assert list(RuntimeConfig.objects.values_list("values", flat=True)) == [DOCUMENT, DOCUMENT]


@pytest.mark.usefixtures("in_acme")
def test_the_database_keeps_one_document_a_layer(acme: Organisation, alice: Membership) -> None:
    agent = make_agent(acme)
    set_runtime_config(ORGANISATION, DOCUMENT, actor=alice)

    for wrong in (
        {"layer": "organisation"},
        {"layer": "organisation", "agent": agent},
        {"layer": "agent"},
        {"layer": "provider", "agent": agent},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            RuntimeConfig.objects.create(organisation=acme, **wrong)
