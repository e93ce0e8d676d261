from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from capabilities.models import Agent, Provider
from sessions.insight.overview.first_steps import first_steps
from sessions.models import TurnStatus
from tests.cast import make_agent, make_member, make_session, make_turn
from toolhub.tenants.models import Invitation, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def ticked(member: Membership) -> list[bool]:
    with organisation_scope(member.organisation):
        return [step.is_done for step in first_steps(member.organisation)]


def test_a_new_organisation_has_everything_before_it(alice: Membership) -> None:
    make_agent(alice.organisation)

    assert ticked(alice) == [False, False, False, False]


def test_each_step_ticks_itself(alice: Membership) -> None:
    agent = make_agent(alice.organisation)
    make_turn(make_session(alice, agent), status=TurnStatus.DONE)
    assert ticked(alice) == [True, False, False, False]

    with organisation_scope(alice.organisation):
        other = Provider.objects.create(
            organisation=alice.organisation, slug="real", name="Real", base_url="https://models.example.com/v1"
        )
        assert ticked(alice) == [True, True, False, False]
        model = other.models.create(organisation=alice.organisation, name="large")
        Agent.objects.update(model=model)
    assert ticked(alice) == [True, True, True, False]

    make_member(alice.organisation, "bob")
    assert ticked(alice) == [True, True, True, True]


def test_an_open_invitation_counts_as_a_member(alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        Invitation.objects.create(
            organisation=alice.organisation,
            email="bob@example.com",
            digest="x",
            created_by=alice,
            expires_at=timezone.now() + timedelta(days=1),
        )

    assert ticked(alice)[3] is True

    with organisation_scope(alice.organisation):
        Invitation.objects.update(revoked_at=timezone.now())
    assert ticked(alice)[3] is False


def test_first_steps_of_another_organisation_tick_nothing_here(alice: Membership, charlie: Membership) -> None:
    make_turn(
        make_session(charlie, make_agent(charlie.organisation, "https://x.example.com/v1")), status=TurnStatus.DONE
    )
    make_member(charlie.organisation, "dora")

    assert ticked(alice) == [False, False, False, False]


def test_it_takes_one_query(alice: Membership, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with organisation_scope(alice.organisation), django_assert_num_queries(1):
        first_steps(alice.organisation)


def test_home_shows_the_steps_to_operators(client: Client, alice: Membership, bob: Membership) -> None:
    client.force_login(bob.user)
    assert "First steps" not in client.get("/o/acme/").content.decode()

    client.force_login(alice.user)
    assert "Send a message to an agent" in client.get("/o/acme/first-steps/").content.decode()
    assert "First steps" in client.get("/o/acme/").content.decode()
